"""Runs in every state that a page must show: each of twenty stories is told by fifty runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ckptguard.model.finding import Basis, FindingCode
from ckptguard.model.service import EventKind, Hold, Lifecycle, RestartOutcome, SupersededBy, ValidationState
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.tables import branches, restarts, runs
from tests.pages.hostile_names import TEXT
from tests.pages.seeded_checkpoint import Left, Place, Saved, add_checkpoint
from tests.pages.seeded_rows import Past

HOUR_S: Final = 3600.0
STEPS_APART: Final = 500
_SAVES: Final = 9
_GOOD: Final = Saved(step=0, age_s=0)
_DAMAGED: Final = replace(_GOOD, verdict=Verdict.INVALID)
_IN_DOUBT: Final = replace(_GOOD, verdict=Verdict.UNKNOWN, code=FindingCode.STORE_UNAVAILABLE)
_UNJUDGED: Final = replace(_GOOD, verdict=None)


@dataclass(kw_only=True)
class TellingRun:
    """A run while its story is told.

    Args:
        past: Where.
        place: Of its checkpoints.
        number: Chooses its interval and its sizes, so that no two look the same.
        columns: Of its row; a story may change them.
        left: Its checkpoints, oldest first.
    """

    past: Past
    place: Place
    number: int
    columns: dict[str, Any]
    left: list[Left] = field(default_factory=list)

    @property
    def interval_s(self) -> float:
        """Between two saves: 10 minutes to an hour."""
        return 600.0 + 300.0 * (self.number % 11)

    def save(
        self, like: Saved = _GOOD, *, first: int = 1, count: int = _SAVES, newest_age_s: float = 900.0
    ) -> None:
        """Add saves that follow each other, oldest first.

        Args:
            like: What all of them are, but for step and times.
            first: Number of the first of them; its step follows from it.
            count: How many.
            newest_age_s: Of the last of them.
        """
        for number in range(count):
            age_s = newest_age_s + self.interval_s * (count - 1 - number)
            lag_s = min(60.0 + 37.0 * ((self.number + number) % 13), age_s / 2)
            saved = replace(like, step=STEPS_APART * (first + number), age_s=age_s, lag_s=lag_s)
            self.left.append(add_checkpoint(self.past, self.place, saved))

    def restart(
        self,
        outcome: RestartOutcome,
        checkpoint: Left,
        *,
        age_s: float,
        attempt: str,
        **columns: Any,  # noqa: ANN401 - columns
    ) -> None:
        """Add what a launcher reported of a start."""
        values = {
            "nodes": [f"node-{self.number % 40}", f"node-{self.number % 40 + 1}"],
            "steps_done": None,
            "detail": None,
            "branch": self.columns["branch"],
            "is_branch_opened": False,
            "is_settled": True,
        }
        keys = {"run_id": self.place.run_id, "checkpoint_id": checkpoint.id, "attempt_key": attempt}
        at = self.past.at(age_s)
        self.past.add(restarts, **(values | columns), **keys, outcome=outcome.value, reported_at=at)
        told = {"attempt": attempt, "outcome": outcome.value, "detail": columns.get("detail")}
        self.tell(EventKind.RUN_RESTARTED, told, age_s=age_s, about=checkpoint)

    def open_branch(self, number: int, origin: Left, *, age_s: float) -> None:
        """Add a branch that was opened by a resume."""
        self.columns["branch"] = number
        self.past.add(
            branches,
            run_id=self.place.run_id,
            number=number,
            from_checkpoint_id=origin.id,
            from_step=origin.row["step"],
            opened_at=self.past.at(age_s),
            opened_by="launcher",
        )
        came = {"from_branch": origin.row["branch"], "from_step": origin.row["step"]}
        data = {"branch": number, "rolled_back": 3, "restored": 0} | came
        self.tell(EventKind.RUN_BRANCHED, data, age_s=age_s, about=origin)

    def tell(self, kind: EventKind, data: dict[str, Any], *, age_s: float, about: Left | None = None) -> None:
        """Add what the audit is told of the run."""
        checkpoint_id = None if about is None else about.id
        self.past.event(kind, age_s, data=data, run_id=self.place.run_id, checkpoint_id=checkpoint_id)


Story = Callable[[TellingRun], None]


def healthy(run: TellingRun) -> None:
    """Saves are found VALID, one after the other."""
    run.save()


def newest_damaged(run: TellingRun) -> None:
    """The newest two are damaged."""
    run.save(count=7, newest_age_s=900 + 2 * run.interval_s)
    run.save(_DAMAGED, first=8, count=2)


def newest_in_doubt(run: TellingRun) -> None:
    """The store was away; the service asks again."""
    run.save(count=8, newest_age_s=900 + run.interval_s)
    run.save(replace(_IN_DOUBT, retry_in_s=12 * HOUR_S), first=9, count=1)


def being_validated(run: TellingRun) -> None:
    """The newest is running, the one before is queued."""
    run.save(count=7, newest_age_s=900 + 2 * run.interval_s)
    queued = replace(_UNJUDGED, state=ValidationState.QUEUED)
    run.save(queued, first=8, count=1, newest_age_s=900 + run.interval_s)
    run.save(replace(_UNJUDGED, state=ValidationState.RUNNING), first=9, count=1)


def being_saved(run: TellingRun) -> None:
    """A save was announced and goes on."""
    run.save(newest_age_s=900 + run.interval_s)
    announced = replace(_UNJUDGED, lifecycle=Lifecycle.ANNOUNCED)
    run.save(announced, first=10, count=1, newest_age_s=120)


def never_came(run: TellingRun) -> None:
    """Two saves were announced and never came."""
    run.save(count=7, newest_age_s=900 + 2 * run.interval_s)
    run.save(replace(_UNJUDGED, lifecycle=Lifecycle.INCOMPLETE), first=8, count=2)


def held(run: TellingRun) -> None:
    """An operator forbade the newest and keeps an old one."""
    pinned, forbidden = (replace(_GOOD, holds=frozenset({hold})) for hold in (Hold.PINNED, Hold.QUARANTINED))
    run.save(pinned, count=1, newest_age_s=900 + 8 * run.interval_s)
    run.save(first=2, count=7, newest_age_s=900 + run.interval_s)
    run.save(forbidden, first=9, count=1)


def rolled_back(run: TellingRun) -> None:
    """The run failed, was resumed from an earlier step, and goes on."""
    failed_s = 900 + 4 * run.interval_s
    run.save(count=4, newest_age_s=failed_s + 3 * run.interval_s)
    left_behind = replace(_GOOD, lifecycle=Lifecycle.SUPERSEDED, superseded_by=SupersededBy.ROLLED_BACK)
    run.save(left_behind, first=5, count=3, newest_age_s=failed_s)
    origin, attempt = run.left[3], f"start-{run.number}"
    run.open_branch(1, origin, age_s=failed_s - 60)
    run.restart(RestartOutcome.RESUMED, origin, age_s=failed_s - 60, attempt=attempt, is_branch_opened=True)
    run.restart(RestartOutcome.PROGRESSED, origin, age_s=failed_s - 900, attempt=attempt, steps_done=40)
    run.save(replace(_GOOD, branch=1), first=5, count=4)


def failing_restarts(run: TellingRun) -> None:
    """Starts from the newest keep failing: it is suspect, and an older one fails as well."""
    run.save(count=8, newest_age_s=9 * HOUR_S)
    run.save(replace(_GOOD, holds=frozenset({Hold.SUSPECT})), first=9, count=1, newest_age_s=8 * HOUR_S)
    newest = run.left[-1]
    for number, outcome in enumerate((RestartOutcome.FAILED_LOADING, RestartOutcome.FAILED_EARLY) * 2):
        age_s = (4 - number) * HOUR_S
        name = f"start-{run.number}-{number}"
        detail = TEXT if number == 0 else "CUDA error: an illegal memory access was encountered"
        failed = {"detail": detail, "steps_done": 3, "is_settled": False}
        run.restart(RestartOutcome.RESUMED, newest, age_s=age_s, attempt=name)
        run.restart(outcome, newest, age_s=age_s - 600, attempt=name, **failed)
    run.columns["restarts_failing_at"] = run.past.at(0.5 * HOUR_S)
    run.tell(EventKind.RUN_RESTARTS_FAILING, {"cleared": []}, age_s=0.5 * HOUR_S)


def only_content(run: TellingRun) -> None:
    """Nothing reaches what the run asks for."""
    run.save(replace(_GOOD, assurance=Assurance.CONTENT))


def unprotected(run: TellingRun) -> None:
    """The last good one is days old, and nothing came since."""
    newest_s, told_s, allowed_s = 144 * HOUR_S, 138 * HOUR_S, 6 * HOUR_S
    run.save(newest_age_s=newest_s)
    run.columns |= {"unprotected_after_s": allowed_s, "unprotected_told_at": run.past.at(told_s)}
    told = {"unprotected_s": allowed_s, "unprotected_after_s": allowed_s, "has_valid": True}
    since = {"unprotected_since": run.past.at(newest_s).isoformat()}
    run.tell(EventKind.RUN_UNPROTECTED, since | told, age_s=told_s)


def nothing_saved(run: TellingRun) -> None:
    """The run is known and empty."""
    run.columns |= {"gpus": None, "usd_per_gpu_hour": None}


def nothing_usable(run: TellingRun) -> None:
    """All are refused: code in them, or rules of the user."""
    unsafe = replace(_DAMAGED, basis=Basis.UNSAFE, code=FindingCode.UNSAFE_PICKLE)
    run.save(unsafe, count=4, newest_age_s=900 + 4 * run.interval_s)
    run.save(replace(_DAMAGED, basis=Basis.POLICY, code=FindingCode.MISSING_SHARD), first=5, count=4)


def one_place(run: TellingRun) -> None:
    """Each save rewrites the one before; old ones were deleted."""
    deleted = replace(_GOOD, lifecycle=Lifecycle.DELETED)
    run.save(deleted, count=3, newest_age_s=900 + 6 * run.interval_s)
    rewritten = replace(_GOOD, lifecycle=Lifecycle.SUPERSEDED, superseded_by=SupersededBy.REWRITTEN)
    run.save(rewritten, first=4, count=5, newest_age_s=900 + run.interval_s)
    run.save(first=9, count=1)


def never_validated(run: TellingRun) -> None:
    """Nobody asked for a verdict; the step went back without a word."""
    run.save(_UNJUDGED)
    run.columns |= {"step_went_back_at": run.past.at(2 * HOUR_S), "gpus": None}
    data = {"step": 500, "highest_step": 4500, "highest_checkpoint": run.left[-1].id}
    run.tell(EventKind.RUN_STEP_WENT_BACK, data, age_s=2 * HOUR_S)


STORIES: Final[Sequence[Story]] = (
    newest_damaged,
    newest_in_doubt,
    being_validated,
    being_saved,
    never_came,
    held,
    rolled_back,
    failing_restarts,
    only_content,
    unprotected,
    nothing_saved,
    nothing_usable,
    one_place,
    never_validated,
    *(healthy,) * 6,
)


def tell_run(past: Past, place: Place, *, name: str, number: int, story: Story) -> TellingRun:
    """Add a run and all that its story says."""
    columns: dict[str, Any] = {
        "id": place.run_id,
        "project_id": place.project_id,
        "name": name,
        "revision": 1,
        "min_assurance": "loaded",
        "min_provenance": None,
        "numerics": "report",
        "required_fqns": [],
        "gpus": 8 << (number % 11),
        "usd_per_gpu_hour": 2.5,
        "unprotected_after_s": None,
        "unprotected_told_at": None,
        "min_steps": 20,
        "branch": 0,
        "step_went_back_at": None,
        "restarts_failing_at": None,
        "created_at": past.at(720 * HOUR_S),
        "claimed_at": None,
    }
    past.add(
        branches,
        run_id=place.run_id,
        number=0,
        from_checkpoint_id=None,
        from_step=None,
        opened_at=columns["created_at"],
        opened_by="trainer",
    )
    created = {"run_id": place.run_id, "data": {"name": name}}
    past.event(EventKind.RUN_CREATED, 720 * HOUR_S, actor="trainer", **created)
    run = TellingRun(past=past, place=place, number=number, columns=columns)
    story(run)
    past.add_plain(runs, **columns)
    return run
