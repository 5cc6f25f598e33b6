"""Checkpoints in a memory store, and a service that remembers what it was told."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from ckptguard.client.answers import Registered
from ckptguard.client.call import Call
from ckptguard.errors import CkptGuardError
from ckptguard.operations.adopt.adoption import Adoption, Wish
from ckptguard.operations.adopt.folder_layout import parse_layout
from ckptguard.operations.adopt.news import News, NewsKind
from ckptguard.operations.adopt.sweep import Naming
from ckptguard.storage.forwarding import ForwardingStore
from ckptguard.storage.memory import MemoryStore
from ckptguard.storage.protocol import ObjectStat, RangeReader, Store
from ckptguard.testing.fakes import FakeClock

T = TypeVar("T")
CORPUS = Path(__file__).resolve().parents[3] / "data" / "corpus"
SAVE = "dcp_torch2_14_1_fsdp2_ws2"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)


class CountingStore(ForwardingStore):
    """Counts the objects that are opened, the listings, and the questions about one object."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.opened: list[str] = []
        self.walks = 0
        self.link_walks = 0
        self.stats = 0

    def walk(self, prefix: str = "") -> Iterator[ObjectStat]:
        """Count one listing."""
        self.walks += 1
        return super().walk(prefix)

    def escapes(self, prefix: str = "") -> Iterator[str]:
        """Count one listing more, for links that lead out."""
        self.link_walks += 1
        return super().escapes(prefix)

    def stat(self, path: str) -> ObjectStat:
        """Count one question."""
        self.stats += 1
        return super().stat(path)

    def open(self, path: str) -> RangeReader:
        """Keep the path."""
        self.opened.append(path)
        return super().open(path)


@dataclass
class RememberingService:
    """Answers registrations by natural key, as the service does; `errors` are raised one by one first."""

    told: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    errors: list[CkptGuardError | None] = field(default_factory=list)
    _ids: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def send(self, call: Call[T]) -> T:
        """Make a call."""
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        if call.path.endswith("/deleted"):
            self.deleted.append(call.path.split("/")[-2])
            return call.read(_checkpoint(int(call.path.split("/")[-2]), "r", 0))
        run, body = call.path.split("/")[3], dict(call.body or {})
        key = (run, body["step"], body.get("save_id") or body["created_at"])
        is_new = key not in self._ids
        number = self._ids.setdefault(key, len(self._ids) + 1)
        self.told.append({"run": run, **body})
        answer = call.read({"checkpoint": _checkpoint(number, run, body["step"]), "is_new": is_new})
        assert isinstance(answer, Registered)
        return answer

    def steps(self, *, validated: bool | None = None) -> list[int]:
        """Return the steps in the order in which they were told."""
        return [told["step"] for told in self.told if validated in {None, told["validate"]}]


def _checkpoint(number: int, run: str, step: int) -> dict[str, Any]:
    return {"id": number, "run": run, "step": step, "save_id": "s", "lifecycle": "registered"}


def put_save(
    store: MemoryStore, folder: str, *, at: datetime = LONG_AGO, save: str = SAVE, without: str = ""
) -> None:
    """Put a real checkpoint of the corpus below a folder, metadata last and one second later."""
    source = CORPUS / save
    files = [path for path in sorted(source.rglob("*")) if path.is_file() and path.name != without]
    for path in sorted(files, key=lambda path: path.name == ".metadata"):
        late = timedelta(seconds=path.name == ".metadata")
        store.put(f"{folder}/{path.relative_to(source).as_posix()}", path.read_bytes(), modified_at=at + late)


@dataclass(kw_only=True)
class Stage:
    """One adoption with everything that it touches."""

    store: MemoryStore = field(default_factory=MemoryStore)
    service: RememberingService = field(default_factory=RememberingService)
    clock: FakeClock = field(default_factory=FakeClock)
    news: list[News] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counting = CountingStore(self.store)

    def adoption(
        self,
        *,
        folder: str = "ckpts",
        layout: str | None = None,
        is_dry: bool = False,
        **wish: Any,  # noqa: ANN401 - of Wish
    ) -> Adoption:
        """Return an adoption of a folder for run `r`, or by a layout."""
        naming = Naming(run="r") if layout is None else Naming(layout=parse_layout(layout))
        return Adoption(
            Wish(target="memory", naming=naming, **wish),
            None if is_dry else self.service,
            clock=self.clock,
            tell=self.news.append,
            opened=(self.counting, folder),
        )

    def kinds(self) -> list[NewsKind]:
        """Return what was told, in order."""
        return [news.kind for news in self.news]

    def of(self, kind: NewsKind) -> list[News]:
        """Return what was told of one kind."""
        return [news for news in self.news if news.kind is kind]
