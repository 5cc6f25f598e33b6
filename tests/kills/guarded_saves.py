"""Kill the ranks of guarded saves at random points, and hold what is left against what was saved.

A folder is VALID only if it is complete and wholly of one save: all its tensors are loaded by stock torch
and compared with those of the step that its manifest names. What stands in another folder stays proven.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.model.manifest import MANIFEST_NAME
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.verdict import Provenance, Verdict
from ckptguard.operations.validate import validate
from tests.kills.guarded_ranks import WORLD, Job, Mode, to_json, whole_state
from tests.kills.victims import descendants, is_dead, wait_until

STEPS: Final = (1, 2)
"""What stands in a used folder, and what is saved into it."""
APART_S: Final = 0.3
"""When all ranks are killed, the others follow the first within this."""
_ENDS_S: Final = 20.0
_POLICY: Final = Policy(depth=Depth.CONTENT, settle_s=0.0)
_PROJECT: Final = Path(__file__).resolve().parents[2]


class Place(StrEnum):
    """Where it is saved to."""

    USED = "used folder"
    NEW = "new folder"


class Phase(StrEnum):
    """How far the coordinator had come when the first rank was killed."""

    BEFORE = "before anything is removed"
    REMOVAL = "removal of manifest and .metadata"
    SHARDS = "shards"
    METADATA = ".metadata.tmp written, not renamed"
    BETWEEN = "between .metadata and manifest"
    MANIFEST = "the manifest is there"
    AFTER = "the save has returned"


_PHASE_OF: Final[Sequence[tuple[str, Phase]]] = (
    ("returned", Phase.AFTER),
    ("rename to ckptguard.manifest.json", Phase.MANIFEST),
    ("rename to .metadata", Phase.BETWEEN),
    ("create .metadata.tmp", Phase.METADATA),
    ("create __0_0.distcp", Phase.SHARDS),
    ("remove ckptguard.manifest.json", Phase.REMOVAL),
    ("ready", Phase.BEFORE),
)
"""The first of these lines that stands in the coordinator's trace tells the phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """One kill.

    Args:
        mode: How the job saves.
        place: Where to.
        ranks: Who is killed, the first one first.
        apart_s: Between the first and the others.
        after_s: Since the save began; None: the first one dies at `before`.
        before: Event of the first one, where `after_s` is None.
        is_orphaning: Of an asynchronous save by processes kill the trainers, and not what saves for them.
    """

    mode: Mode
    place: Place
    ranks: tuple[int, ...]
    apart_s: float = 0.0
    after_s: float | None = None
    before: str = ""
    is_orphaning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a blow left.

    Args:
        blow: Which.
        phase: At the kill.
        verdict: Of the folder.
        provenance: Of the folder.
        whole: The step whose values all tensors have; None where none can be loaded, or they are mixed.
        named: The step that the manifest names; None without one.
        wrong: What must never be; "" where it is not.
    """

    blow: Blow
    phase: Phase
    verdict: Verdict
    provenance: Provenance
    whole: int | None
    named: int | None
    wrong: str = ""


@dataclass(kw_only=True)
class Ranks:
    """One job that was started."""

    job: Job
    pids: list[int]
    processes: list[list[int]] = field(default_factory=list)

    def trace(self, rank: int = 0) -> list[str]:
        """Return what a rank told so far."""
        path = Path(self.job.trace(rank))
        return path.read_text().splitlines() if path.exists() else []

    def wait_until_ready(self) -> float:
        """Return the moment at which all ranks began to save, and learn their processes."""
        wait_until(self._is_ready, what=f"ranks that save ({self.job.scratch})")
        began_s = time.monotonic()
        self.processes = [[child for child, _ in descendants(pid)] for pid in self.pids]
        return began_s

    def _is_ready(self) -> bool:
        return all("ready" in self.trace(rank) for rank in range(WORLD))

    def kill(self, rank: int, *, with_processes: bool = True) -> None:
        """SIGKILL."""
        targets = [self.pids[rank], *(self.processes[rank] if with_processes and self.processes else [])]
        for pid in targets:
            if not is_dead(pid):
                os.kill(pid, signal.SIGKILL)

    def wait(self) -> None:
        """Wait for the end of all, and of what saves for them; what hangs without its peers is killed."""
        everyone = [*self.pids, *(pid for rank in self.processes for pid in rank)]
        deadline = time.monotonic() + _ENDS_S
        while not all(map(is_dead, everyone)):
            if time.monotonic() > deadline:
                for rank in range(WORLD):
                    self.kill(rank)
            time.sleep(0.005)


class Server:
    """The process that forks ranks."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def start(self, job: Job) -> Ranks:
        """Fork the ranks of a job."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{to_json(job)}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the server has died"
        return Ranks(job=job, pids=json.loads(line))

    def save(self, job: Job) -> Ranks:
        """Save undisturbed."""
        ranks = self.start(job)
        ranks.wait()
        told = [ranks.trace(rank)[-1:] for rank in range(WORLD)]
        logs = [Path(job.scratch, f"log.{rank}").read_text()[-2000:] for rank in range(WORLD)]
        assert told == [["returned"]] * WORLD, f"an undisturbed save failed: {logs}"
        return ranks


@contextmanager
def running_server(*modules: str) -> Iterator[Server]:
    """Run the server until the context ends; it imports these modules before it forks."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kills.guarded_ranks", *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_PROJECT,
        env=kept | {"OMP_NUM_THREADS": "1"},
    )
    try:
        yield Server(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


class Campaign:
    """Blows against saves below one folder.

    Args:
        server: Forks the ranks.
        folder: For everything; empty.
        seed: Of victims and moments.
        rows: How large a save is (`Job`).
    """

    def __init__(self, server: Server, folder: Path, *, seed: int, rows: int = 2048) -> None:
        self._server = server
        self._folder = folder
        self._random = random.Random(seed)  # noqa: S311 - not a secret
        self._rows = rows
        self._count = 0
        self._used = self._saved("used/step-1", step=1)
        self._other = self._saved("other/step-7", step=7)
        self._seconds: dict[tuple[Mode, Place], float] = {}
        self.events: dict[int, list[str]] = {}

    def random_blows(self, mode: Mode, count: int) -> Iterator[Blow]:
        """Yield kills over 0 to 120 % of the time that one save takes, in both places in turn."""
        for number in range(count):
            place = list(Place)[number % 2]
            seconds = self._seconds_of(mode, place)
            ranks = self._random.choice([(0,), (1,), (0, 1), (1, 0)])
            yield Blow(
                mode=mode,
                place=place,
                ranks=ranks,
                apart_s=self._random.uniform(0, APART_S),
                after_s=self._random.uniform(0, 1.2) * seconds,
                is_orphaning=mode is Mode.PROCESS and self._random.random() < 0.5,
            )

    def aimed_blows(self, mode: Mode) -> list[Blow]:
        """Return a kill before each operation on a file that a save makes, for each rank; shuffled."""
        self._seconds_of(mode, Place.USED)
        blows = [
            Blow(mode=mode, place=place, ranks=ranks, before=event, apart_s=self._random.uniform(0, APART_S))
            for rank, events in self.events.items()
            for event in events
            for place in Place
            for ranks in ((rank,), (rank, 1 - rank))
        ]
        self._random.shuffle(blows)
        return blows

    def strike(self, blow: Blow) -> Left:
        """Save, kill, judge."""
        target = self._target(blow.place)
        ranks = self._server.start(self._job(blow, target))
        began_s = ranks.wait_until_ready()
        first, *others = blow.ranks
        if blow.after_s is not None:
            time.sleep(max(0.0, began_s + blow.after_s - time.monotonic()))
            phase = _phase_of(ranks.trace())
            ranks.kill(first, with_processes=not blow.is_orphaning)
        else:
            wait_until(lambda: self._is_struck(ranks, first), what=f"the blow {blow}")
            phase = _phase_of(ranks.trace())
        if others:
            time.sleep(blow.apart_s)
            for rank in others:
                ranks.kill(rank, with_processes=not blow.is_orphaning)
        ranks.wait()
        left = judge(blow, phase, target, rows=self._rows)
        left = replace(left, wrong=left.wrong or self._other_problem() or _unfinished_problem(left, ranks))
        shutil.rmtree(target.parent)
        return left

    def _is_struck(self, ranks: Ranks, rank: int) -> bool:
        return "dead" in ranks.trace(rank) or is_dead(ranks.pids[rank])

    def _job(self, blow: Blow, target: Path) -> Job:
        dies_before = {} if blow.after_s is not None else {str(blow.ranks[0]): blow.before}
        return self._plain_job(target, step=STEPS[1], mode=blow.mode, dies_before=dies_before)

    def _plain_job(
        self, target: Path, *, step: int, mode: Mode = Mode.SYNC, dies_before: Mapping[str, str] | None = None
    ) -> Job:
        self._count += 1
        return Job(
            folder=str(target),
            step=step,
            scratch=str(self._folder / f"job-{self._count}"),
            mode=mode,
            rows=self._rows,
            dies_before=dict(dies_before or {}),
        )

    def _saved(self, name: str, *, step: int) -> Path:
        target = self._folder / name
        self._server.save(self._plain_job(target, step=step))
        return target

    def _target(self, place: Place) -> Path:
        self._count += 1
        target = self._folder / f"target-{self._count}" / "latest"
        target.parent.mkdir()
        if place is Place.USED:
            shutil.copytree(self._used, target)
        return target

    def _seconds_of(self, mode: Mode, place: Place) -> float:
        """Return how long a save takes, and learn what it does to files."""
        if (mode, place) not in self._seconds:
            times = []
            for _ in range(1 if mode is Mode.PROCESS else 3):
                target = self._target(place)
                ranks = self._server.start(self._plain_job(target, step=STEPS[1], mode=mode))
                began_s = ranks.wait_until_ready()
                wait_until(lambda ranks=ranks: "returned" in ranks.trace(), what="an undisturbed save")  # type: ignore[misc]
                times.append(time.monotonic() - began_s)
                ranks.wait()
                for rank in range(WORLD):
                    self.events[rank] = [line for line in ranks.trace(rank) if " " in line]
                healthy = judge(Blow(mode=mode, place=place, ranks=()), Phase.AFTER, target, rows=self._rows)
                assert (healthy.provenance, healthy.whole, healthy.wrong) == (Provenance.PROVEN, 2, "")
                shutil.rmtree(target.parent)
            self._seconds[mode, place] = sorted(times)[len(times) // 2]
        return self._seconds[mode, place]

    def _other_problem(self) -> str:
        report = validate(str(self._other), policy=_POLICY)
        is_proven = (report.judgement.verdict, report.provenance) == (Verdict.VALID, Provenance.PROVEN)
        return "" if is_proven else f"the other folder is {report.judgement.verdict} {report.provenance}"


def judge(blow: Blow, phase: Phase, target: Path, *, rows: int) -> Left:
    """Ask for the verdict of a folder, and hold it against the values in it."""
    named = None
    if (target / MANIFEST_NAME).exists():
        named = parse_manifest((target / MANIFEST_NAME).read_bytes()).step
    if not target.exists() or not any(target.iterdir()):
        return _left(blow, phase, Verdict.INVALID, Provenance.UNPROVEN)
    report = validate(str(target), policy=_POLICY)
    verdict, provenance = report.judgement.verdict, report.provenance
    whole = whole_step(target, rows=rows) if verdict is Verdict.VALID else None
    left = _left(blow, phase, verdict, provenance, whole=whole, named=named)
    return replace(left, wrong=problem_of(left))


def _left(
    blow: Blow,
    phase: Phase,
    verdict: Verdict,
    provenance: Provenance,
    *,
    whole: int | None = None,
    named: int | None = None,
) -> Left:
    return Left(blow=blow, phase=phase, verdict=verdict, provenance=provenance, whole=whole, named=named)


def problem_of(left: Left) -> str:
    """Say what must not be about one folder; "" where nothing is wrong."""
    if left.verdict is not Verdict.VALID:
        return ""
    if left.whole is None:
        return f"VALID {left.provenance}, and its values are of no one step"
    if left.named is None:
        return "proven without a manifest" if left.provenance is Provenance.PROVEN else ""
    if left.named != left.whole:
        return f"its manifest names step {left.named}, and its values are of step {left.whole}"
    return "" if left.provenance is Provenance.PROVEN else f"VALID with a manifest, and {left.provenance}"


def _unfinished_problem(left: Left, ranks: Ranks) -> str:
    """Say where a save that returned on every rank is not there."""
    has_returned = all("returned" in ranks.trace(rank) for rank in range(WORLD))
    is_there = (left.provenance, left.whole) == (Provenance.PROVEN, STEPS[1])
    return "the save has returned on every rank, and is not proven" if has_returned and not is_there else ""


def whole_step(target: Path, *, rows: int) -> int | None:
    """Return the step whose values a folder has, every tensor; None where there is no one such step."""
    found = whole_save(target, [(step, 0) for step in STEPS], rows=rows)
    return None if found is None else found[0]


def whole_save(target: Path, saves: Sequence[tuple[int, int]], *, rows: int) -> tuple[int, int] | None:
    """Return the first of some saves (step, variant) that a folder is wholly of, as stock torch loads it."""
    state = {name: torch.full_like(tensor, -1.0) for name, tensor in _expected(*saves[0], rows).items()}
    load(state, storage_reader=FileSystemReader(target), no_dist=True)
    return next((save for save in saves if _is_equal(state, _expected(*save, rows))), None)


def _is_equal(state: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, expected[name]) for name, tensor in state.items())


@cache
def _expected(step: int, variant: int, rows: int) -> dict[str, torch.Tensor]:
    return whole_state(step, variant, rows)


def _phase_of(trace: Sequence[str]) -> Phase:
    return next((phase for line, phase in _PHASE_OF if line in trace), Phase.BEFORE)
