"""What the routes of one process share."""

from dataclasses import dataclass, field

from ckptguard_api.database import Database
from ckptguard_api.domain.kept_maps import KeptMaps
from ckptguard_api.domain.project_ids import ProjectIds
from ckptguard_api.domain.stopping import Stopping
from ckptguard_api.domain.token_cache import TokenCache
from ckptguard_api.leasing.work_bell import WorkBell
from ckptguard_api.live.hub import EventHub
from ckptguard_api.revisions.reader import RevisionReader
from ckptguard_api.settings import Settings
from ckptguard_api.tracing import Tracing, tracing_of_environment


@dataclass(kw_only=True)
class Services:
    """Made once, when the app starts.

    Args:
        database: Where everything durable is.
        settings: What the operator set.
        revisions: `(await revisions.read()).named.get("tokens", 0)` is exact, and shared by requests.
        token_cache: Holders of tokens seen lately.
        project_ids: Ids of projects by name.
        file_maps: Of verdicts looked at lately.
        stopping: Long polls and streams end when it is set.
        events: New events, for streams.
        work: Rings when there may be work for a worker that waits.
        tracing: OpenTelemetry, where OTEL_* variables ask for it.
        own_folders: `Settings.own_folders`, asked of the disk once.
    """

    database: Database
    settings: Settings
    revisions: RevisionReader = field(init=False)
    token_cache: TokenCache = field(default_factory=TokenCache)
    project_ids: ProjectIds = field(default_factory=ProjectIds)
    file_maps: KeptMaps = field(default_factory=KeptMaps)
    stopping: Stopping = field(default_factory=Stopping)
    events: EventHub = field(init=False)
    work: WorkBell = field(init=False)
    tracing: Tracing | None = field(default_factory=tracing_of_environment)
    own_folders: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Make what stands on the database."""
        self.own_folders = self.settings.own_folders
        self.revisions = RevisionReader(self.database)
        self.events = EventHub(self.database, self.stopping)
        self.work = WorkBell(self.database)
