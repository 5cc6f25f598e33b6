"""Which checkpoints a list shows."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Literal

from ckptguard.model.finding import FindingCode
from ckptguard.model.service import Hold, Lifecycle, ValidationState
from ckptguard.model.verdict import Assurance, Verdict

NO_VERDICT: Final = "none"

OpenState = Literal[ValidationState.QUEUED, ValidationState.RUNNING]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFilter:
    """All conditions together; None: any.

    Args:
        run: Name; the list is then in the order of the run, else by `created_at`.
        verdict: In force; `none`: not judged yet.
        assurance: Of the verdict in force, exactly.
        code: Of a finding about it, of the validation whose verdict is in force.
        lifecycle: Where it stands.
        hold: That it has.
        state: Of its open validation.
        step: Exactly.
        min_step: At least.
        max_step: At most.
        newer_than: Saved after.
        older_than: Saved before.
    """

    run: str | None = None
    verdict: Verdict | Literal["none"] | None = None
    assurance: Assurance | None = None
    code: FindingCode | None = None
    lifecycle: Lifecycle | None = None
    hold: Hold | None = None
    state: OpenState | None = None
    step: int | None = None
    min_step: int | None = None
    max_step: int | None = None
    newer_than: datetime | None = None
    older_than: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what is set; tells one list from another."""
        return {name: str(value) for name, value in asdict(self).items() if value is not None}
