"""Random interleavings of everything that happens to leases, over the real code and a plain model.

Replay one: `python -m tests.property.leasing_simulation SEED`; it prints what happened.
"""

import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import Engine, event, text
from sqlalchemy.exc import OperationalError

from ckptguard.errors import CkptGuardError, ConflictError, LeaseLostError, ServiceUnavailableError
from ckptguard.model.finding import Basis, FindingCode
from ckptguard.model.policy import Depth
from ckptguard.model.report import Report, report_to_json
from ckptguard.model.service import AttemptEnding, Lifecycle, SupersededBy, ValidationReason
from ckptguard.scan.result import FileScan, scan_to_json
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.claim import claim
from ckptguard_api.leasing.expiry import end_expired
from ckptguard_api.leasing.heartbeat import Progress, hear
from ckptguard_api.leasing.lease import LeaseKey
from ckptguard_api.leasing.lift import lift_damage
from ckptguard_api.leasing.queue import cancel_open
from ckptguard_api.leasing.release import release
from ckptguard_api.leasing.results import store_files
from ckptguard_api.leasing.verdict import give_verdict
from ckptguard_api.repositories.runs import lock_run
from ckptguard_api.settings import Settings
from ckptguard_api.tables import METADATA
from tests.leased_service import LeasedService, checkpoint_of, files_of, invalid, unknown, valid
from tests.property.leasing_laws import require_laws
from tests.property.leasing_model import (
    DEADLINE_S,
    LEASE_S,
    MAX_COUNTED,
    STALL_AFTER_S,
    ModelCheckpoint,
    ModelLease,
    ModelLift,
    ModelValidation,
    ModelVerdict,
    in_force,
)

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
STEPS: Final = 36
_MAX_DRAIN_ROUNDS: Final = 400
_SETTINGS: Final = Settings(lease_s=LEASE_S, stall_after_s=STALL_AFTER_S, max_counted_attempts=MAX_COUNTED)
_WORKERS: Final = {"w1": ("a", "b"), "w2": ("a",), "w3": ("b",)}
_CONTENTS: Final = ("sound", "bent")


class JumpingClock:
    """Wall-clock time that goes forward and back, as clocks of several API machines do."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        """Return the time."""
        return self.time

    def monotonic_s(self) -> float:
        """Return seconds since the start."""
        return (self.time - START).total_seconds()

    def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self.jump(seconds)

    def jump(self, seconds: float) -> None:
        """Move the time."""
        self.time += timedelta(seconds=seconds)


class Simulation:
    """One seed.

    Args:
        database: In memory, empty, at head, with a `JumpingClock`.
        clock: The database's.
        seed: Decides everything.
        is_told: Print what happens.
    """

    def __init__(self, database: Database, clock: JumpingClock, seed: int, *, is_told: bool = False) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - to be replayed
        self.clock = clock
        self.service = LeasedService(database=database, settings=_SETTINGS)
        self.services = self.service.services
        self.raw: Any = database.engine.raw_connection().driver_connection
        self.checkpoints: dict[int, ModelCheckpoint] = {}
        self.validations: dict[int, ModelValidation] = {}
        self.leases: dict[int, ModelLease] = {}
        self.keys: dict[int, LeaseKey] = {}
        self.working: dict[str, int] = {}
        self.seen_verdicts: dict[int, tuple[Any, ...]] = {}
        self.steps_of_runs: dict[int, int] = {}
        self._is_told = is_told
        self._fill()

    def run(self, steps: int = STEPS) -> None:
        """Let things happen, hold the laws after each, and let healthy workers empty the queue at the end."""
        actions = (
            (self.register, 6),
            (self.ask_again, 14),
            (self.take, 18),
            (self.beat, 10),
            (self.keep_files, 7),
            (self.linger, 2),
            (self.judge, 22),
            (self.crash, 4),
            (self.haunt, 10),
            (self.give_back, 4),
            (self.supersede, 2),
            (self.change_bytes, 3),
            (self.pass_time, 9),
            (self.expire, 4),
            (self.lift, 4),
        )
        names = [action for action, _ in actions]
        # Each seed leaves out some things and exaggerates others: together they would hide each other.
        weights = [weight * self.chance.choice((0, 1, 1, 1, 5)) for _, weight in actions]
        weights[0] += 1
        for _ in range(steps):
            self.chance.choices(names, weights)[0]()
            require_laws(self)
        self.drain()

    def drain(self) -> None:
        """Every validation gets its verdict when workers are there: none starves."""
        self.working.clear()
        for _ in range(_MAX_DRAIN_ROUNDS):
            if all(one.state in {"finished", "cancelled"} for one in self.validations.values()):
                return
            self._take("w1")
            if "w1" in self.working:
                self._judge(self.working["w1"])
            else:
                self.clock.jump(LEASE_S)
            require_laws(self)
        left = [one for one in self.validations.values() if one.state not in {"finished", "cancelled"}]
        msg = f"never claimed: {left}"
        raise AssertionError(msg)

    # What happens.

    def register(self) -> None:
        """A new checkpoint of a run, not always with a later step; few, so that each sees much."""
        if len(self.checkpoints) >= self.chance.choice((2, 4, 8)):
            return
        run_id = self.chance.choice(self.run_ids)
        step = max(0, self.steps_of_runs[run_id] + self.chance.choice((1, 1, 1, -1)))
        self.steps_of_runs[run_id] = step
        store = self.chance.choice(("a", "b"))
        checkpoint_id = self.service.add_checkpoint(run_id, self.stores[store], step=step)
        self.checkpoints[checkpoint_id] = ModelCheckpoint(
            id=checkpoint_id, run_id=run_id, store=store, content=self.chance.choice(_CONTENTS)
        )
        self._queue(checkpoint_id, ValidationReason.REGISTERED, Depth.LOAD)

    def ask_again(self) -> None:
        """Somebody asks for a verdict on a checkpoint that is there."""
        checkpoint_id = self._any_checkpoint()
        if checkpoint_id is not None:
            reason = self.chance.choice((ValidationReason.REQUESTED, ValidationReason.SCRUB))
            self._queue(checkpoint_id, reason, self.chance.choice(list(Depth)))

    def take(self) -> None:
        """A worker asks for work, perhaps while it holds a lease, as one does that started anew."""
        self._take(self.chance.choice(list(_WORKERS)))

    def beat(self) -> None:
        """A worker says how far it is."""
        for lease_id in self._any_working():
            self._write(lease_id, self._beat)

    def keep_files(self) -> None:
        """A worker stores results."""
        for lease_id in self._any_working():
            self._write(lease_id, self._keep_files)

    def judge(self) -> None:
        """A worker is done."""
        for lease_id in self._any_working():
            self._judge(lease_id)

    def linger(self) -> None:
        """A worker goes on and on: without progress until it stalls, or with it until its deadline."""
        for lease_id in self._any_working():
            gain = self.chance.choice((0, 1))
            for _ in range(2 + round((STALL_AFTER_S if gain == 0 else DEADLINE_S) / 50)):
                self.clock.jump(50)
                done = self.leases[lease_id].done + gain
                self._write(lease_id, partial(self._beat, done=done))
                if not self._is_live(lease_id):
                    return

    def crash(self) -> None:
        """A worker forgets everything; its lease stays until it expires."""
        if self.working:
            worker = self.chance.choice(sorted(self.working))
            self._tell(f"{worker} crashes")
            del self.working[worker]

    def haunt(self) -> None:
        """Somebody writes to a lease of the past, with a key of the past or with another's."""
        if not self.keys:
            return
        lease_id = self.chance.choice(sorted(self.keys))
        act = self.chance.choice((self._beat, self._keep_files, self._verdict, self._give_back))
        if self.chance.random() < 0.3:
            other = self.keys[self.chance.choice(sorted(self.keys))]
            stolen = LeaseKey(id=lease_id, token=other.token if other.id != lease_id else "ckl_guess")
            self._tell(f"theft of {lease_id}: {act.__name__}")
            self._refused(lambda: act(lease_id, stolen))
        else:
            self._write(lease_id, act)

    def give_back(self) -> None:
        """A worker drains, or fails."""
        for lease_id in self._any_working():
            self._write(lease_id, self._give_back)

    def supersede(self) -> None:
        """A checkpoint is overwritten, deleted, or rolled back; the last keeps its bytes."""
        checkpoint_id = self._any_checkpoint()
        if checkpoint_id is None:
            return
        is_rollback = self.chance.random() < 0.3
        why = SupersededBy.ROLLED_BACK if is_rollback else SupersededBy.REWRITTEN
        self._tell(f"checkpoint {checkpoint_id} is superseded: {why}")
        with self.service.database.write() as tx:
            lock_run(tx, self.checkpoints[checkpoint_id].run_id)
            tx.execute(
                text("UPDATE checkpoints SET lifecycle = :lifecycle, superseded_by = :why WHERE id = :id"),
                {"lifecycle": Lifecycle.SUPERSEDED.value, "why": why.value, "id": checkpoint_id},
            )
            if not is_rollback:
                cancel_open(tx, checkpoint_id, why="rewritten", actor=SERVICE)
        if not is_rollback:
            self._cancel(checkpoint_id)

    def change_bytes(self) -> None:
        """The bytes of a checkpoint become others, and may become the old ones again."""
        checkpoint_id = self._any_checkpoint()
        if checkpoint_id is not None:
            self.checkpoints[checkpoint_id].content = self.chance.choice((*_CONTENTS, "other"))

    def pass_time(self) -> None:
        """Time passes, mostly forward."""
        seconds = self.chance.choice((1, 5, 20, 20, 61, 100, 301, 1000, -5, -40))
        self._tell(f"time: {seconds:+} s")
        self.clock.jump(seconds)

    def expire(self) -> None:
        """The schedule ends leases that are over."""
        self._tell("expiry")
        with self._faults(), suppress(ServiceUnavailableError), self.service.database.write() as tx:
            end_expired(tx, _SETTINGS, limit=3)
        self._notice_ended()

    def lift(self) -> None:
        """An operator lifts damage, where a second worker found the same bytes sound."""
        damaged = [one.id for one in self.checkpoints.values() if one.is_wanted and _is_damaged(one)]
        checkpoint_id = self.chance.choice(damaged) if damaged else self._any_checkpoint()
        if checkpoint_id is None:
            return
        second = self._second_opinion(self.checkpoints[checkpoint_id])
        self._tell(f"lift {checkpoint_id}: {second is not None}")
        try:
            with self.service.database.write() as tx:
                lock_run(tx, self.checkpoints[checkpoint_id].run_id)
                lift_damage(tx, checkpoint_of(tx, checkpoint_id), actor=SERVICE, reason="looked at it")
        except ConflictError:
            assert second is None, "a lift was refused for which there is a second opinion"
        else:
            assert second is not None, "damage was lifted without a second opinion"
            self.checkpoints[checkpoint_id].history.append(ModelLift(valid=second))

    # How it happens.

    def _take(self, worker: str) -> None:
        had = {one.id for one in self.validations.values() if self._is_claimable(one, worker)}
        try:
            with self._faults():
                capabilities = Capabilities(stores=_WORKERS[worker])
                lease = claim(self.services, worker=worker, capabilities=capabilities, actor=SERVICE)
        except ServiceUnavailableError:
            self._notice_ended()
            return
        self._notice_ended()
        claimable = {one.id for one in self.validations.values() if self._is_claimable(one, worker)}
        if lease is None:
            self._tell(f"{worker} gets nothing")
            assert not claimable, f"{worker} got nothing, though there is {claimable}"
            return
        self._tell(f"{worker} gets lease {lease.id} of validation {lease.validation.id}")
        validation = self.validations[lease.validation.id]
        assert validation.id in had | claimable, "not for this worker, or not yet"
        assert all(one.id < lease.id for one in self.leases.values()), "fences grow"
        assert lease.known_files == len(validation.files)
        validation.state = "running"
        validation.attempts += 1
        assert lease.validation.attempt == validation.attempts
        now = self.clock.now()
        deadline = now + timedelta(seconds=DEADLINE_S)
        self.leases[lease.id] = ModelLease(
            id=lease.id,
            validation_id=validation.id,
            worker=worker,
            heard_at=now,
            progress_at=now,
            stalled_from=now,
            deadline_at=deadline,
        )
        self.keys[lease.id] = LeaseKey(id=lease.id, token=lease.token)
        if self.chance.random() < 0.9:  # else the answer is lost, and nobody knows of the lease
            self.working[worker] = lease.id

    def _write(self, lease_id: int, act: Callable[[int, LeaseKey], None]) -> None:
        """Deliver a request once or twice, perhaps into a failing database."""
        for _ in range(self.chance.choice((1, 1, 1, 2))):
            before = self._digest()
            is_live = self._is_live(lease_id)
            try:
                with self._faults():
                    act(lease_id, self.keys[lease_id])
            except ServiceUnavailableError:
                assert self._digest() == before, "half of a failed transaction was written"
            except LeaseLostError:
                assert not is_live, "a live lease was refused"
                assert not self._is_told_again(lease_id, act), "what was done before is answered, not refused"
                assert self._digest() == before, "a lost lease wrote"

    def _is_told_again(self, lease_id: int, act: Callable[[int, LeaseKey], None]) -> bool:
        ending = self.leases[lease_id].ending
        return (act == self._verdict and ending == "finished") or (
            act == self._beat and ending == "cancelled"
        )

    def _refused(self, act: Callable[[], None]) -> None:
        before = self._digest()
        try:
            act()
        except LeaseLostError:
            assert self._digest() == before, "a stolen lease wrote"
            return
        msg = "a stolen lease was accepted"
        raise AssertionError(msg)

    def _beat(self, lease_id: int, key: LeaseKey, done: int | None = None) -> None:
        lease = self.leases[lease_id]
        if done is None:
            done = lease.done + self.chance.choice((0, 0, 10))
        is_draining = self.chance.random() < 0.1
        heard = hear(
            self.services,
            key,
            progress=Progress(phase="reading", bytes_done=done),
            is_draining=is_draining,
            actor=SERVICE,
        )
        if lease.ending == "cancelled":
            assert not heard.is_wanted
            return
        self._require_live(lease_id)
        lease.hear(self.clock.now(), done)
        assert heard.expires_at == lease.expires_at
        assert heard.is_wanted
        self._tell(f"heartbeat of {lease_id}")

    def _keep_files(self, lease_id: int, key: LeaseKey) -> None:
        paths = {f"f{self.chance.randrange(6)}" for _ in range(2)}
        length = self.chance.choice((1, 2))
        files = [
            {"scan": scan_to_json(FileScan(path=path, length_bytes=length)), "device": None, "versions": {}}
            for path in sorted(paths)
        ]
        stored = store_files(self.services, key, files=files, actor=SERVICE)
        self._require_live(lease_id)
        lease = self.leases[lease_id]
        validation = self.validations[lease.validation_id]
        new = paths - validation.files
        assert (stored.stored, stored.new) == (len(paths), len(new))
        validation.files |= paths
        lease.new_files += len(new)
        if new:
            lease.progress_at = self.clock.now()
        self._tell(f"{len(new)} new files of {lease_id}")

    def _judge(self, lease_id: int) -> None:
        self._write(lease_id, self._verdict)

    def _verdict(self, lease_id: int, key: LeaseKey) -> None:
        lease = self.leases[lease_id]
        validation = self.validations[lease.validation_id]
        checkpoint = self.checkpoints[validation.checkpoint_id]
        report, checks = self._report(checkpoint.content, Depth(validation.depth))
        given = give_verdict(self.services, key, report=report_to_json(report), actor=SERVICE)
        if lease.ending == "finished":
            told = next(one for one in checkpoint.history if _is_of(one, validation.id))
            assert isinstance(told, ModelVerdict)
            assert given.verdict == told.verdict, "the same lease was told another verdict"
            return
        self._require_live(lease_id)
        lease.ending = "finished"
        validation.state = "finished"
        validation.files.clear()
        checkpoint.history.append(
            _model_verdict(report, validation, checkpoint.content, checks=checks, worker=lease.worker)
        )
        current = in_force(checkpoint.history)
        assert given.is_in_force == (current is not None and current.validation_id == validation.id)
        self.working = {worker: held for worker, held in self.working.items() if held != lease_id}
        self._tell(f"verdict of {lease_id}: {given}")

    def _give_back(self, lease_id: int, key: LeaseKey) -> None:
        ending = self.chance.choice((AttemptEnding.DRAINED, AttemptEnding.FAILED))
        lease = self.leases[lease_id]
        had_ended = lease.ending
        release(self.services, key, ending=ending, reason="so it is", actor=SERVICE)
        if had_ended is not None:
            assert had_ended in {ending.value, "cancelled"}
            return
        self._require_live(lease_id)
        self._tell(f"release of {lease_id}: {ending}")
        self._end(lease, ending.value)
        self.working = {worker: held for worker, held in self.working.items() if held != lease_id}

    def _report(self, content: str, depth: Depth) -> tuple[Report, int]:
        """Return what an honest worker would find, or an unlucky one; bent bytes are found by most."""
        checks = self.chance.choice((1, 1, 1, 2))
        changes: dict[str, Any] = {
            "files": files_of(content, version=content, has_checksums=depth is not Depth.STRUCTURE),
            "versions": {"checks": str(checks)},
        }
        luck = self.chance.random()
        if luck < 0.15:
            return unknown(**changes | {"files": ()}), checks
        if luck < 0.25:
            return unknown(FindingCode.UNSTABLE_READ, **changes), checks
        if luck < 0.32:
            return invalid(Basis.POLICY, **changes), checks
        if content == "bent" and luck < 0.75:
            return invalid(**changes), checks
        return valid(depth, **changes), checks

    def _queue(self, checkpoint_id: int, reason: ValidationReason, depth: Depth) -> None:
        open_one = self._open(checkpoint_id)
        try:
            with self._faults():
                row, is_new = self.service.queue(checkpoint_id, reason=reason, depth=depth)
        except ServiceUnavailableError:
            return
        assert is_new == (open_one is None), "asking again gives the open one"
        self._tell(f"validation {row.id} of checkpoint {checkpoint_id} ({reason}, {depth})")
        if open_one is None:
            self.validations[row.id] = ModelValidation(
                id=row.id, checkpoint_id=checkpoint_id, depth=depth.value
            )
        elif open_one.state == "queued":
            deeper = max(Depth(open_one.depth), depth, key=list(Depth).index)
            open_one.depth = deeper.value

    def _cancel(self, checkpoint_id: int) -> None:
        self.checkpoints[checkpoint_id].is_wanted = False
        one = self._open(checkpoint_id)
        if one is not None:
            one.state = "cancelled"
            one.files.clear()
            for lease in self.leases.values():
                if lease.validation_id == one.id and lease.ending is None:
                    lease.ending = "cancelled"

    def _notice_ended(self) -> None:
        """Take over which leases the service ended: any that are over may be, none that lives."""
        rows = self.raw.execute("SELECT id, ending FROM attempts WHERE ending IN ('expired', 'stalled')")
        for lease_id, ending in rows.fetchall():
            lease = self.leases.get(lease_id)
            if lease is not None and lease.ending is None:
                assert not lease.is_live(self.clock.now()), f"lease {lease_id} was ended while it lived"
                self._tell(f"lease {lease_id}: {ending}")
                self._end(lease, ending)

    def _end(self, lease: ModelLease, ending: str) -> None:
        lease.ending = ending
        validation = self.validations[lease.validation_id]
        if ending != "drained" and lease.new_files == 0:
            validation.counted += 1
        validation.state = "queued"
        if validation.counted < MAX_COUNTED:
            return
        validation.state = "finished"
        validation.files.clear()
        checkpoint = self.checkpoints[validation.checkpoint_id]
        checkpoint.history.append(
            ModelVerdict(
                validation_id=validation.id,
                verdict="UNKNOWN",
                basis=None,
                assurance=None,
                depth=validation.depth,
                content="",
                checks=0,
                worker=None,
            )
        )

    # What is known.

    def _is_live(self, lease_id: int) -> bool:
        return self.leases[lease_id].is_live(self.clock.now())

    def _require_live(self, lease_id: int) -> None:
        assert self._is_live(lease_id), f"lease {lease_id} is over, and wrote"

    def _open(self, checkpoint_id: int) -> ModelValidation | None:
        mine = (one for one in self.validations.values() if one.checkpoint_id == checkpoint_id)
        return next((one for one in mine if one.state in {"queued", "running"}), None)

    def _is_claimable(self, one: ModelValidation, worker: str) -> bool:
        if one.state != "queued" or self.checkpoints[one.checkpoint_id].store not in _WORKERS[worker]:
            return False
        row = self.raw.execute("SELECT not_before FROM validations WHERE id = ?", (one.id,)).fetchone()
        return row[0] is None or datetime.fromisoformat(row[0]).replace(tzinfo=UTC) <= self.clock.now()

    def _second_opinion(self, checkpoint: ModelCheckpoint) -> ModelVerdict | None:
        current = in_force(checkpoint.history)
        if current is None or current.basis != "damage":
            return None
        verdicts = [one for one in checkpoint.history if isinstance(one, ModelVerdict)]
        since = max((i for i, one in enumerate(checkpoint.history) if isinstance(one, ModelLift)), default=-1)
        damage = [
            one
            for one in checkpoint.history[since + 1 :]
            if isinstance(one, ModelVerdict) and one.basis == "damage" and one.content == current.content
        ] or [current]
        accusers = {one.worker for one in damage}
        newest = max(one.validation_id for one in damage)
        for one in reversed(verdicts):
            is_same = one.verdict == "VALID" and one.content == current.content
            if is_same and one.worker not in accusers and one.validation_id > newest:
                return one
        return None

    def _any_checkpoint(self) -> int | None:
        there = sorted(one.id for one in self.checkpoints.values() if one.is_wanted)
        return self.chance.choice(there) if there else None

    def _any_working(self) -> Iterator[int]:
        if self.working:
            yield self.working[self.chance.choice(sorted(self.working))]

    def _digest(self) -> bytes:
        return hashlib.blake2b(self.raw.serialize()).digest()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Now and then let a statement of what happens inside fail, and everything with it."""
        if self.chance.random() >= 0.15:
            yield
            return
        fault = Fault(self.service.database.engine, after=self.chance.randrange(25))
        try:
            yield
        finally:
            fault.remove()

    def _tell(self, what: str) -> None:
        if self._is_told:
            sys.stdout.write(f"{self.clock.now():%H:%M:%S} {what}\n")

    def _fill(self) -> None:
        project_id = self.service.add_project()
        self.stores = {name: self.service.add_store(project_id, name) for name in ("a", "b")}
        self.run_ids = [self.service.add_run(project_id) for _ in range(2)]
        self.steps_of_runs = dict.fromkeys(self.run_ids, 0)


class Fault:
    """Lets the statement after so many others fail, as a database does that goes away."""

    def __init__(self, engine: Engine, *, after: int) -> None:
        self._engine = engine
        self._left = after
        event.listen(engine, "before_cursor_execute", self._count)

    def remove(self) -> None:
        """Let nothing fail any more."""
        event.remove(self._engine, "before_cursor_execute", self._count)

    def _count(self, *_: object) -> None:
        self._left -= 1
        if self._left < 0:
            msg = "the database went away"
            raise OperationalError(msg, None, Exception(msg))


def _is_damaged(checkpoint: ModelCheckpoint) -> bool:
    current = in_force(checkpoint.history)
    return current is not None and current.basis == "damage"


def _is_of(one: ModelVerdict | ModelLift, validation_id: int) -> bool:
    return isinstance(one, ModelVerdict) and one.validation_id == validation_id


def _model_verdict(
    report: Report, validation: ModelValidation, content: str, *, checks: int, worker: str
) -> ModelVerdict:
    judgement = report.judgement
    return ModelVerdict(
        validation_id=validation.id,
        verdict=judgement.verdict.value,
        basis=judgement.basis.value if judgement.basis else None,
        assurance=judgement.assurance.value if judgement.assurance else None,
        depth=validation.depth,
        content=content,
        checks=checks,
        worker=worker,
        is_about_bytes=any(finding.code is FindingCode.UNSTABLE_READ for finding in report.findings),
    )


def run_seed(seed: int, *, is_told: bool = False) -> None:
    """Run one seed on an empty database.

    Raises:
        AssertionError: A law is broken; the message begins with the command that shows it again.
    """
    with emptied_database() as (database, clock):
        try:
            Simulation(database, clock, seed, is_told=is_told).run()
        except (AssertionError, CkptGuardError, KeyError) as error:
            msg = (
                f"replay: python -m tests.property.leasing_simulation {seed}\n{type(error).__name__}: {error}"
            )
            raise AssertionError(msg) from error


_CLOCK: Final = JumpingClock()
_KEPT: list[tuple[Database, bytes]] = []


@contextmanager
def emptied_database() -> Iterator[tuple[Database, JumpingClock]]:
    """Yield the one database of this process in memory, empty again: its statements stay compiled."""
    if not _KEPT:
        database = Database("sqlite://", clock=_CLOCK)
        METADATA.create_all(database.engine)
        _KEPT.append((database, database.engine.raw_connection().driver_connection.serialize()))  # type: ignore[union-attr]
    database, empty = _KEPT[0]
    database.engine.raw_connection().driver_connection.deserialize(empty)  # type: ignore[union-attr]
    _CLOCK.time = START
    yield database, _CLOCK


if __name__ == "__main__":
    run_seed(int(sys.argv[1]), is_told=True)
