"""The filters of a run's checkpoints, as they stand in an address, and as a form shows them."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import Query

from ckptguard.model.finding import FindingCode
from ckptguard.model.manifest_laws import MAX_INTEGER
from ckptguard.model.service import Hold, Lifecycle, ValidationState
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.domain.checkpoint_filter import NO_VERDICT, CheckpointFilter, OpenState
from ckptguard_api.pages.asked import choice, refusal, whole_number

_MAX_CHARS: Final = 64
_FIRST_YEAR: Final = 2000
_LAST_YEAR: Final = 9000
_HOUR: Final = timedelta(hours=1)

AGES: Final = {
    "within-1h": ("saved within the last hour", _HOUR),
    "within-6h": ("within 6 hours", 6 * _HOUR),
    "within-24h": ("within 24 hours", 24 * _HOUR),
    "within-7d": ("within 7 days", 7 * 24 * _HOUR),
    "before-24h": ("more than 24 hours ago", 24 * _HOUR),
    "before-7d": ("more than 7 days ago", 7 * 24 * _HOUR),
}
"""What may be chosen: how it is said, and the age; `within` is younger, `before` older."""
VERDICTS: Final = (*(verdict.value for verdict in Verdict), NO_VERDICT)
OPEN_STATES: Final[tuple[OpenState, ...]] = (ValidationState.QUEUED, ValidationState.RUNNING)
STATES: Final = (*(lifecycle.value for lifecycle in Lifecycle), *(state.value for state in OPEN_STATES))

Said = Annotated[str, Query(max_length=_MAX_CHARS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCheckpoints:
    """Texts of an address; an empty one is no filter.

    Args:
        as_of: Moment to which ages count; it goes along to the next page, so that this is of the same list.
    """

    verdict: str = ""
    code: str = ""
    assurance: str = ""
    min_step: str = ""
    max_step: str = ""
    age: str = ""
    state: str = ""
    hold: str = ""
    as_of: str = ""

    @property
    def is_any(self) -> bool:
        """Whether everything passes."""
        return not any(value for name, value in self.to_fields().items() if name != "as_of")

    def to_fields(self) -> dict[str, str]:
        """Return what stands in the address."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to_filter(self, run: str, *, now: datetime) -> CheckpointFilter:
        """Return the filter.

        Args:
            run: Name of the run.
            now: Time to which ages count where `as_of` does not say it.

        Raises:
            InvalidRequestError: A text means nothing.
        """
        is_open = self.state in OPEN_STATES
        return CheckpointFilter(
            run=run,
            verdict=NO_VERDICT
            if self.verdict == NO_VERDICT
            else choice(Verdict, self.verdict, field="verdict"),
            code=choice(FindingCode, self.code, field="code"),
            assurance=choice(Assurance, self.assurance, field="assurance"),
            lifecycle=None if is_open else choice(Lifecycle, self.state, field="state"),
            hold=choice(Hold, self.hold, field="hold"),
            state=next((state for state in OPEN_STATES if state == self.state), None),
            min_step=_step(self.min_step, field="min_step"),
            max_step=_step(self.max_step, field="max_step"),
            **self._ages(now),
        )

    def _ages(self, now: datetime) -> dict[str, Any]:
        if not self.age:
            return {}
        if self.age not in AGES:
            raise refusal(field="age", problem=f"{self.age!r} is none of {', '.join(AGES)}")
        bound = (_moment(self.as_of) if self.as_of else now) - AGES[self.age][1]
        return {"newer_than" if self.age.startswith("within") else "older_than": bound}


async def asked_checkpoints(  # noqa: PLR0913 - one parameter for each filter
    *,
    verdict: Said = "",
    code: Said = "",
    assurance: Said = "",
    min_step: Said = "",
    max_step: Said = "",
    age: Said = "",
    state: Said = "",
    hold: Said = "",
    as_of: Said = "",
) -> AskedCheckpoints:
    """Read the filters of a request."""
    return AskedCheckpoints(
        verdict=verdict,
        code=code,
        assurance=assurance,
        min_step=min_step,
        max_step=max_step,
        age=age,
        state=state,
        hold=hold,
        as_of=as_of,
    )


def _step(value: str, *, field: str) -> int | None:
    return whole_number(value, field=field, low=0, high=MAX_INTEGER)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise refusal(field="as_of", problem=f"{text!r} is not a time") from error
    if moment.tzinfo is None or not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise refusal(field="as_of", problem=f"{text!r} has no zone, or is not of this time")
    return moment.astimezone(UTC)
