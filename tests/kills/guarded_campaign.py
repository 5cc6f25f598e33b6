"""Kill the processes of guarded saves at chosen steps and at random moments, and judge what is left.

Beside every verdict on a folder that was struck, what stands in another folder must stay proven.
"""

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ckptguard.model.verdict import Provenance, Verdict
from tests.kills.guarded_blows import (
    Blow,
    Phase,
    Place,
    Stop,
    phase_of,
    random_blows,
    stepped_blows,
    stops_of,
)
from tests.kills.guarded_folders import Folders
from tests.kills.guarded_ranks import WORLD, Job, Mode
from tests.kills.guarded_saves import Ranks, Server
from tests.kills.guarded_verdicts import STEPS, Left, Struck, what_is_left
from tests.kills.victims import wait_until

_OTHER = "other/step-7"
_PROVEN = (Verdict.VALID, Provenance.PROVEN)


class Campaign:
    """Blows against saves below one folder.

    Args:
        server: Forks the ranks.
        folders: Where they save.
        scratch: For what the ranks tell; empty.
        seed: Of steps, victims and moments.
        rows: How large a save is (`Job`).
    """

    def __init__(
        self, server: Server, folders: Folders, scratch: Path, *, seed: int, rows: int = 2048
    ) -> None:
        self._server = server
        self._folders = folders
        self._scratch = scratch
        self._random = random.Random(seed)  # noqa: S311 - not a secret
        self._rows = rows
        self._count = 0
        for is_split in (False, True):
            server.save(self._job(_used(is_split=is_split), step=STEPS[0], is_split=is_split))
        server.save(self._job(_OTHER, step=7))

    def stepped_blows(self, mode: Mode, *, each: int) -> Iterator[Blow]:
        """Yield as many kills for each phase, each at a step of the save.

        A save that nobody disturbs tells the steps.
        """
        stops = {place: list(self._stops(mode, place)) for place in Place}
        yield from stepped_blows(mode, stops, each=each, chance=self._random)

    def random_blows(self, mode: Mode, *, count: int) -> Iterator[Blow]:
        """Yield kills at random moments."""
        seconds = {place: self._seconds(mode, place) for place in Place} if count else {}
        yield from random_blows(mode, seconds, count=count, chance=self._random)

    def strike(self, blow: Blow) -> Struck:
        """Save, kill, judge."""
        name = self._new_folder(blow.place, is_split=blow.is_split)
        stops_before = {} if blow.stop is None else {str(blow.stop.rank): blow.stop.step}
        job = self._job(
            name, step=STEPS[1], mode=blow.mode, stops_before=stops_before, is_split=blow.is_split
        )
        ranks = self._server.start(job)
        phase = _kill(ranks, blow)
        ranks.wait()
        left = what_is_left(self._folders, name, rows=self._rows)
        wrong = left.problem or self._other_problem() or _unfinished_problem(left, ranks)
        self._folders.remove(name)
        return Struck(blow=blow, phase=phase, left=left, wrong=wrong)

    def _stops(self, mode: Mode, place: Place) -> Iterator[Stop]:
        ranks, _ = self._undisturbed(mode, place, is_split=True)
        return stops_of({rank: ranks.trace(rank) for rank in range(WORLD)})

    def _seconds(self, mode: Mode, place: Place) -> float:
        times = [self._undisturbed(mode, place, is_split=False)[1] for _ in range(3)]
        return sorted(times)[1]

    def _undisturbed(self, mode: Mode, place: Place, *, is_split: bool) -> tuple[Ranks, float]:
        """Save, and return what it told and how long it took."""
        name = self._new_folder(place, is_split=is_split)
        ranks = self._server.start(self._job(name, step=STEPS[1], mode=mode, is_split=is_split))
        began_s = ranks.wait_until_ready()
        wait_until(lambda: ranks.has_returned, what=f"an undisturbed save ({ranks.job.scratch})")
        seconds = time.monotonic() - began_s
        ranks.wait()
        healthy = what_is_left(self._folders, name, rows=self._rows)
        assert _is_complete(healthy), f"an undisturbed save is {healthy}"
        self._folders.remove(name)
        return ranks, seconds

    def _new_folder(self, place: Place, *, is_split: bool) -> str:
        self._count += 1
        name = f"target-{self._count}/latest"
        if place is Place.USED:
            self._folders.copy(_used(is_split=is_split), name)
        return name

    def _job(
        self,
        name: str,
        *,
        step: int,
        mode: Mode = Mode.SYNC,
        stops_before: Mapping[str, str] | None = None,
        is_split: bool = False,
    ) -> Job:
        self._count += 1
        return Job(
            folder=self._folders.target(name),
            step=step,
            scratch=str(self._scratch / f"job-{self._count}"),
            mode=mode,
            rows=self._rows,
            stops_before=dict(stops_before or {}),
            options={**self._folders.options, **({"single_file_per_rank": False} if is_split else {})},
        )

    def _other_problem(self) -> str:
        report = self._folders.report(_OTHER)
        found = None if report is None else (report.judgement.verdict, report.provenance)
        return "" if found == _PROVEN else f"the other folder is {found}"


def _used(*, is_split: bool) -> str:
    return "split/step-1" if is_split else "used/step-1"


def _kill(ranks: Ranks, blow: Blow) -> Phase:
    """Kill as a blow says, and return where the coordinator was."""
    began_s = ranks.wait_until_ready()
    stopped = None
    if blow.stop is None:
        time.sleep(max(0.0, began_s + blow.after_s - time.monotonic()))
    else:
        expected = blow.stop.phase
        stopped = ranks.wait_until_stopped(blow.stop.rank)
        wait_until(lambda: phase_of(ranks.trace()) is expected, what=f"a coordinator {expected}: {blow}")
    phase = phase_of(ranks.trace())
    (first, who), *others = blow.victims
    ranks.kill(first, who)
    if others and blow.apart_s:
        ranks.go_on(stopped)
        time.sleep(blow.apart_s)
    for rank, also in others:
        ranks.kill(rank, also)
    ranks.go_on(stopped)
    return phase


def _is_complete(left: Left) -> bool:
    return (left.verdict, left.provenance) == _PROVEN and left.whole == left.named == STEPS[1]


def _unfinished_problem(left: Left, ranks: Ranks) -> str:
    """Say where a save that returned on every rank is not there."""
    is_missing = ranks.has_returned and not _is_complete(left)
    return "the save has returned on every rank, and is not proven" if is_missing else ""
