"""What an event is about."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Ids of the rows concerned; None where the event is not about one."""

    project_id: int | None = None
    run_id: int | None = None
    checkpoint_id: int | None = None
    validation_id: int | None = None
