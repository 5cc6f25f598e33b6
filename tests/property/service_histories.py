"""Random histories of a whole service, in memory, over the real use cases and a plain model.

Replay one: `python -m tests.property.service_histories SEED`; it prints what happened.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from ckptguard.errors import CkptGuardError
from ckptguard.model.verdict import Assurance, Provenance
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.answers.encoding import to_bytes
from ckptguard_api.answers.targets import ResumeTargets, TargetKey
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.resume import Question
from ckptguard_api.domain.store_rules import StoreSettings
from ckptguard_api.repositories.projects import add_project
from ckptguard_api.repositories.runs import find_run
from ckptguard_api.revisions.values import RunRevision
from ckptguard_api.services import Services
from ckptguard_api.tables import METADATA
from ckptguard_api.use_cases.resume_target import ResumeAnswer, answer_resume_target
from ckptguard_api.use_cases.runs import show_run
from ckptguard_api.use_cases.stores import create_store
from tests.property.leasing_laws import FORBIDDEN
from tests.property.service_model import (
    ExpectedAnswer,
)
from tests.property.service_operators import Operators
from tests.property.service_stage import (
    RUNS,
    SETTINGS,
    START,
    STEPS,
    T,
)
from tests.property.service_training_jobs import TrainingJobs
from tests.property.service_workers import Workers


class History(TrainingJobs, Workers, Operators):
    """One seed: things happen, and after each every answer is held against the model."""

    def __init__(self, database: Database, clock: FakeClock, seed: int, *, is_told: bool = False) -> None:
        super().__init__(database, clock, seed, is_told=is_told)
        self.seen: set[str] = set()
        self.questions = [(run, Question()) for run in RUNS] + [self._question() for _ in range(2)]
        self.questions.append((RUNS[0], Question(min_provenance=Provenance.PROVEN)))

    def run(self, steps: int) -> None:
        """Let things happen, and after each hold every answer against the model."""
        actions = self._actions()
        names, weights = zip(*actions, strict=True)
        # Each seed leaves out some things and exaggerates others: together they would hide each other.
        weights = tuple(weight * self.chance.choice((0, 1, 1, 1, 4)) for weight in weights)
        with asyncio.Runner() as runner:
            targets = InlineTargets(self.database, Revisions(self.database), clock=self.clock)  # type: ignore[arg-type]
            alike = (self.save_alike, self.save, *(self.lose_alike, self.save_alike) * 2)
            first = self.chance.choice(((self.save, self.save), alike, (self.save_apart, self.work) * 3))
            for number in range(steps):
                action = first[number] if number < len(first) else self.chance.choices(names, weights)[0]
                before = self._revisions()
                shown = self._shown()
                action()
                self._require_revised(before, shown)
                runner.run(self._require_answers(targets))
        self._require_laws()

    def _actions(self) -> list[tuple[Callable[[], None], int]]:
        return [
            (self.save, 8),
            (self.save_alike, 6),
            (self.lose_alike, 3),
            (self.announce, 4),
            (self.sign_of_life, 2),
            (self.next_part, 4),
            (self.repeat, 2),
            (self.tell_more, 2),
            (self.work, 22),
            (self.take, 6),
            (self.judge, 6),
            (self.give_back, 2),
            (self.forget, 2),
            (self.ask_again, 6),
            (self.change_bytes, 2),
            (self.hold, 4),
            (self.let_go, 3),
            (self.lift, 3),
            (self.delete, 2),
            (self.resume, 5),
            (self.fail_start, 9),
            (self.start_fresh, 1),
            (self.pass_time, 5),
            (self.expire, 3),
            (self.wait_for_retry, 3),
            (self.change_policy, 1),
        ]

    def lose_alike(self) -> None:
        """Take away what was saved last under a save id made from its bytes, in one of the ways there are."""
        saves = [alike[-1] for alike in self.model.alike.values() if alike[-1]["gone"] is None]
        if not saves:
            return
        save = self.chance.choice(saves)
        mine = [one for one in self._saves() if one["run"] == save["run"] and one is not save]
        before = [one for one in mine if one["is_complete"] and one["gone"] is None]
        way = self.chance.choice(("delete", "overwrite", "go back", "go back"))
        if way == "go back" and before:
            self._resumed(self.chance.choice(before), f"start-{self.num_starts}")
        elif way == "delete":
            self._delete(save)
        else:
            number = len(self.requests)
            self._register(save["run"], 100 + number, save["place"], save_id=f"save-{number}", parts=())

    async def _require_answers(self, targets: "InlineTargets") -> None:
        run, question = self.chance.choice(self.questions)
        fresh = answer_resume_target(self.database, project_id=1, run=run, question=question)
        self._require_answer(run, question, fresh)
        kept = await targets.answer(TargetKey(run=(1, run), question=question))
        now = to_bytes(fresh)
        assert kept.body == now, f"a kept answer is not the one of now: {question}\n{kept.body!r}\n{now!r}"
        if self.chance.random() < 0.2:  # costs as much as all else here
            self._require_exposure(run)

    def _require_answer(self, run: str, question: Question, told: ResumeAnswer) -> None:
        asked = {name: getattr(value, "value", value) for name, value in asdict(question).items()}
        policy = self.model.runs[run]["min_level"] if run in self.model.runs else "loaded"
        asked["min_assurance"] = asked["min_assurance"] or policy
        expected = ExpectedAnswer(self.model, run, asked, self.clock.now())
        choice = told.choice
        target, below = (None if one is None else one.id for one in (choice.target, choice.below))
        what = f"{run} {asked}: {choice.state}, {target}; not {expected.state}, {expected.target}"
        assert target is None or expected.is_good(self.model.saves[target]), f"a bad target {target}: {what}"
        assert (choice.state.value, target) == (expected.state, expected.target), what
        assert below == expected.below, what
        passed = [(one.candidate.id, one.reason.value) for one in choice.passed_over]
        assert passed == expected.passed_over, f"{what}: {passed}, not {expected.passed_over}"
        assert (told.newer_total, told.left_total) == (len(passed), expected.num_superseded), what
        self.seen.add(expected.state)
        self.seen.update(reason for _, reason in passed)

    def _require_exposure(self, run: str) -> None:
        if run not in self.model.runs:
            return
        policy = self.model.runs[run]["min_level"]
        asked = asdict(Question()) | {"min_assurance": policy}
        target = ExpectedAnswer(self.model, run, asked, self.clock.now()).target
        shown = show_run(self.services, project_id=1, name=run)
        told = None if shown.newest_valid is None else shown.newest_valid.id
        assert told == target, "the newest VALID of a run is its resume target"
        if target is None:
            assert shown.exposure.seconds is None
            return
        age = self.clock.now() - self.model.saves[target]["created_at"]
        assert shown.exposure.seconds == age.total_seconds()
        if shown.row.gpus is not None:
            assert shown.exposure.usd == round(age.total_seconds() / 3600 * 8 * 3.0, 2)

    def _require_revised(self, before: dict[str, int], shown: dict[str, Any]) -> None:
        after = self._revisions()
        for run, state in self._shown().items():
            if state != shown.get(run):
                assert after[run] > before.get(run, 0), f"a change of {run} raised no revision"

    def _require_laws(self) -> None:
        for law, query in FORBIDDEN.items():
            broken = self.raw.execute(query).fetchall()
            assert not broken, f"broken: {law}: {broken}"

    def _question(self) -> tuple[str, Question]:
        chance = self.chance
        question = Question(
            min_assurance=chance.choice((None, None, *Assurance)),
            min_provenance=chance.choice((None, None, *Provenance)),
            device=chance.choice((None, None, None, "cpu", "cuda", "cuda:0")),
            step=chance.choice((None, None, 0, 1, 2, 3)),
            before_step=chance.choice((None, None, None, 2, 4)),
            max_age_s=chance.choice((None, None, None, 60.0, 3000.0)),
            require_newest=chance.random() < 0.2,
            exclude=chance.choice(((), (), (), (1, 2), (3,), (2, 5, 6))),
        )
        return chance.choice(RUNS[:1] * 3 + RUNS[1:]), question


class InlineTargets(ResumeTargets):
    """Kept answers without threads: a history has one client."""

    async def call(self, function: Callable[[], T]) -> T:
        """Call it at once."""
        return function()


class Revisions:
    """Reads revisions without a connection of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, keys: Any) -> Any:  # noqa: ANN401 - as RevisionReader
        """Return the revisions of some runs."""
        found = {}
        with self._database.read() as tx:
            for project_id, name in keys:
                row = find_run(tx, project_id, name)
                if row is not None:
                    found[project_id, name] = RunRevision(run_id=row.id, revision=row.revision)
        return SimpleNamespace(asked=frozenset(keys), runs=found, named={})


def run_seed(seed: int, *, steps: int = STEPS, is_told: bool = False) -> set[str]:
    """Run one seed on an empty service, and return the states and reasons that occurred.

    Raises:
        AssertionError: A law is broken; the message begins with the command that shows it again.
    """
    with emptied_service() as (database, clock):
        history = History(database, clock, seed, is_told=is_told)
        try:
            history.run(steps)
        except (AssertionError, CkptGuardError, KeyError) as error:
            command = f"python -m tests.property.service_histories {seed} {steps}"
            msg = f"replay: {command}\n{type(error).__name__}: {error}"
            raise AssertionError(msg) from error
        return history.seen


_KEPT: list[tuple[Database, bytes]] = []


@contextmanager
def emptied_service() -> Iterator[tuple[Database, FakeClock]]:
    """Yield the one service of this process in memory, empty again: its statements stay compiled."""
    if not _KEPT:
        database = Database("sqlite://", clock=FakeClock(START))
        METADATA.create_all(database.engine)
        _fill(database)
        _KEPT.append((database, database.engine.raw_connection().driver_connection.serialize()))  # type: ignore[union-attr]
    database, empty = _KEPT[0]
    database.engine.raw_connection().driver_connection.deserialize(empty)  # type: ignore[union-attr]
    database.commit_listeners.clear()
    clock = FakeClock(START)
    database.clock = clock
    yield database, clock


def _fill(database: Database) -> None:
    with database.write() as tx:
        add_project(tx, name="p", allowed_globals=())
    services = Services(database=database, settings=SETTINGS, tracing=None)
    for name in ("demo", "cold"):
        create_store(services, name, f"file:///data/{name}", StoreSettings(), project_id=1, actor=SERVICE)


if __name__ == "__main__":
    run_seed(int(sys.argv[1]), steps=int(sys.argv[2]) if sys.argv[2:] else STEPS, is_told=True)
