"""A load by all ranks of a worker: rank 0 leads, the others follow (design §8).

Every rank is a supervisor that touches no checkpoint byte. The canary children of one load form a
fresh process group of their own, at a port that rank 0 hands round. A dead child ends the other
children of its load, never a supervisor.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ckptguard.canary.job import CanaryJob, Group, job_bytes
from ckptguard.canary.outcome import (
    CanaryOutcome,
    Ending,
    merge_outcomes,
    outcome_from_json,
    outcome_to_json,
)
from ckptguard.canary.spawn import CanaryWatch
from ckptguard.clock import Clock
from ckptguard.errors import CkptGuardError
from ckptguard.operations.location import place_in_store
from ckptguard.scan.progress import Progress
from ckptguard.scan.result import FileResult
from ckptguard.storage.listing import Listing
from ckptguard_workers.drain import Drain
from ckptguard_workers.lease import Lease
from ckptguard_workers.ranks import RankTalk, free_port
from ckptguard_workers.validation import Machine
from ckptguard_workers.warm_canary import VERIFY, WarmCanary

LOOK_EVERY_S: Final = 0.5
"""How often a supervisor looks whether another child of the load has ended."""
GRACE_S: Final = 30.0
"""Seconds for the other supervisors to tell how their children ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Where the messages of one load stand."""

    load: int

    @property
    def call(self) -> str:
        """What is to be loaded; or that nothing will be any more."""
        return f"{self.load}/call"

    @property
    def stop(self) -> str:
        """Why the children of this load are to end."""
        return f"{self.load}/stop"

    def outcome(self, rank: int) -> str:
        """How the child of a rank ended."""
        return f"{self.load}/outcome/{rank}"

    def progress(self, rank: int) -> str:
        """How far the child of a rank is: bytes and files."""
        return f"{self.load}/progress/{rank}"


class GroupCanary:
    """Rank 0's side: runs each load in a child of every rank (a `CanaryServer`, for one lease).

    Args:
        talk: With the other ranks.
        own: Runs this rank's child.
        device: Its device.
    """

    def __init__(self, talk: RankTalk, own: WarmCanary, *, device: str) -> None:
        self._talk = talk
        self._own = own
        self._backend = "nccl" if device.startswith("cuda") else "gloo"
        self._load = 0
        self._lease: Lease | None = None

    def of(self, lease: Lease) -> "GroupCanary":
        """Return the canary for one lease: this one, told where the checkpoint is."""
        self._lease = lease
        return self

    def dismiss(self) -> None:
        """Tell the other ranks that nothing more will come; idempotent in effect."""
        self._talk.tell(Keys(load=self._load + 1).call, {"is_end": True})

    def __call__(self, job: bytes, *, mode: str, watch: CanaryWatch) -> CanaryOutcome:
        """Run one load; see `CanaryServer`. Another mode than `verify` runs on this rank alone."""
        if mode != VERIFY:
            return self._own(job, mode=mode, watch=watch)
        assert self._lease is not None  # noqa: S101 - `of` comes first
        self._load += 1
        keys, group = Keys(load=self._load), self._group()
        self._talk.tell(keys.call, _call(self._lease, group, watch))
        crowd = Crowd(self._talk, keys, watch)
        outcome = self._own.run(job, group=group, watch=crowd.watch())
        crowd.told(outcome)
        others = crowd.gather()
        if watch.on_file is not None:
            for other in others:
                _tell_files(other, watch)
        return merge_outcomes([outcome, *others])

    def _group(self) -> Group:
        rank = self._talk.rank
        return Group(
            rank=0,
            world_size=rank.world_size,
            init_method=f"tcp://{_bracketed(rank.address)}:{free_port(rank.address)}",
            backend=self._backend,
        )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _call(lease: Lease, group: Group, watch: CanaryWatch) -> dict[str, Any]:
    return {
        "group": asdict(group),
        "store": lease.store,
        "store_url": lease.store_url,
        "path": lease.path,
        "deadline_s": watch.deadline_s,
        "versions": dict(watch.versions),
    }


def _tell_files(outcome: CanaryOutcome, watch: CanaryWatch) -> None:
    versions = {**watch.versions, **outcome.versions}
    for scan in outcome.scans.values():
        if watch.on_file is not None:
            watch.on_file(FileResult(scan=scan, device=outcome.device, versions=versions))


class Crowd:
    """One load, as one rank sees the others.

    Args:
        talk: With them.
        keys: Of this load.
        watch: Of the whole load; on the other ranks than 0, of their own child.
    """

    def __init__(self, talk: RankTalk, keys: Keys, watch: CanaryWatch) -> None:
        self._talk = talk
        self._keys = keys
        self._watch = watch
        self._looked_at_s = -LOOK_EVERY_S
        self._is_stopped = False
        self._own = watch.total
        self._deadline_s = watch.clock.monotonic_s() + watch.deadline_s

    def watch(self) -> CanaryWatch:
        """Return how this rank's child is watched: it ends when that of another rank does."""
        return replace(self._watch, progress=self._take_progress, is_wanted=self._is_wanted)

    def told(self, outcome: CanaryOutcome) -> None:
        """End the other children, if this rank's ended too soon; theirs would wait for it."""
        if outcome.ending is not Ending.DONE:
            self._talk.note(self._keys.stop, f"rank {self._talk.rank.number}: {outcome.reason}")

    def gather(self) -> list[CanaryOutcome]:
        """Return how the children of the other ranks ended, by rank; of rank 0.

        A supervisor that does not say so in time has lost its child, as far as anybody knows.
        """
        clock = self._watch.clock
        until_s = self._deadline_s + GRACE_S
        found: dict[int, CanaryOutcome] = {}
        others = range(1, self._talk.rank.world_size)
        while len(found) < len(others) and clock.monotonic_s() < until_s:
            if not self._is_wanted():
                until_s = min(until_s, clock.monotonic_s() + GRACE_S)
            for rank in others:
                value = self._talk.take(self._keys.outcome(rank)) if rank not in found else None
                if value is not None:
                    found[rank] = outcome_from_json(value)
            if len(found) < len(others):
                clock.sleep(LOOK_EVERY_S / 5)
        lost = CanaryOutcome(ending=Ending.CRASHED, reason="its supervisor did not say how it ended")
        return [found.get(rank, lost) for rank in others]

    def _is_wanted(self) -> bool:
        """Look every now and then; tell the others if nobody waits for the load any more."""
        now_s = self._watch.clock.monotonic_s()
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            self._looked_at_s = now_s
            self._is_stopped |= self._talk.has(self._keys.stop)
            self._report()
        if not self._is_stopped and not self._watch.is_wanted():
            self._is_stopped = True
            self._talk.note(self._keys.stop, "nobody waits for it any more")
        return not self._is_stopped

    def _take_progress(self, progress: Progress) -> None:
        self._own = progress

    def _report(self) -> None:
        rank, own = self._talk.rank, self._own
        if rank.number != 0:
            self._talk.note(self._keys.progress(rank.number), f"{own.bytes_done} {own.files_done}")
        elif self._watch.progress is not None:
            told = [self._talk.noted(self._keys.progress(other)) for other in range(1, rank.world_size)]
            others = [tuple(map(int, text.split())) for text in told if text is not None]
            self._watch.progress(
                replace(
                    own,
                    bytes_done=own.bytes_done + sum(done for done, _ in others),
                    files_done=own.files_done + sum(files for _, files in others),
                )
            )


def follow(talk: RankTalk, machine: Machine, *, drain: Drain, clock: Clock) -> None:
    """Be one of the other ranks: run a child for each load that rank 0 calls, until it is the last.

    A first request to stop is rank 0's to answer; a second ends this rank at once.

    Raises:
        CanaryError: torchrun's store is gone, and so are the other ranks.
    """
    own = WarmCanary()
    load = 1
    try:
        own.warm()
        while not (drain.is_asked and drain.is_over):
            keys = Keys(load=load)
            call = talk.take(keys.call)
            if call is None:
                drain.wait(LOOK_EVERY_S / 5)
                continue
            if call.get("is_end"):
                return
            _join_load(talk, keys, call, machine=machine, own=own, clock=clock)
            load += 1
    finally:
        own.close()


def _join_load(
    talk: RankTalk, keys: Keys, call: Mapping[str, Any], *, machine: Machine, own: WarmCanary, clock: Clock
) -> None:
    watch = CanaryWatch(deadline_s=float(call["deadline_s"]), clock=clock, versions=call["versions"])
    crowd = Crowd(talk, keys, watch)
    group = replace(Group(**call["group"]), rank=talk.rank.number)
    try:
        job = job_bytes(_own_job(call, machine))
        outcome = own.run(job, group=group, watch=crowd.watch())
    except CkptGuardError as error:
        outcome = CanaryOutcome(ending=Ending.CRASHED, reason=str(error))
    crowd.told(outcome)
    talk.tell(keys.outcome(talk.rank.number), outcome_to_json(outcome))


def _own_job(call: Mapping[str, Any], machine: Machine) -> CanaryJob:
    """Return this rank's job: where the store is here, and onto what; the rest comes from rank 0's child."""
    url, options = machine.store_of(call["store"], call["store_url"])
    place = place_in_store(url, call["path"], dict(options))
    return CanaryJob(
        target=place.target,
        store_root=str(place.root) if place.root is not None else None,
        options=place.options,
        device=machine.device,
        listing=Listing(root=place.prefix, files={}),
    )
