"""Two jobs that save the same step into one folder: a restarted one, and what is left of a killed one.

The trainer of an asynchronous save by processes is killed, and the process that saves for it goes on. Most
races here are of two ordinary jobs instead, which start at once and dawdle: the files cannot tell.
"""

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.model.manifest import MANIFEST_NAME
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.verdict import Provenance, Verdict
from ckptguard.operations.validate import validate
from tests.kills.guarded_ranks import WORLD, Job, Mode
from tests.kills.guarded_saves import Ranks, Server, Who
from tests.kills.guarded_verdicts import whole_save

STEP: Final = 2
_OLD, _RESTARTED, _ORPHAN = (1, 0), (STEP, 1), (STEP, 2)
_NAMES: Final = {
    _OLD: "the old save",
    _RESTARTED: "the restarted job",
    _ORPHAN: "the orphan",
    None: "a mixture",
}
_DAWDLES_S: Final = 0.03
_POLICY: Final = Policy(depth=Depth.CONTENT, settle_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """What a race left.

    Args:
        number: Of the race.
        killed: Jobs that were killed on the way.
        verdict: Of the folder.
        provenance: Of the folder.
        has_manifest: One is there.
        content: Whose values all tensors have; only of a VALID one.
    """

    number: int
    killed: tuple[str, ...]
    verdict: Verdict
    provenance: Provenance
    has_manifest: bool
    content: str

    @property
    def is_wrong(self) -> bool:
        """Say whether it is called good, and is of two saves."""
        return self.verdict is Verdict.VALID and self.content == _NAMES[None]


class Races:
    """Races below one folder.

    Args:
        server: Forks the ranks.
        folder: For everything; empty.
        seed: Of delays and kills.
        rows: How large a save is (`Job`).
    """

    def __init__(self, server: Server, folder: Path, *, seed: int, rows: int = 512) -> None:
        self._server = server
        self._folder = folder
        self._random = random.Random(seed)  # noqa: S311 - not a secret
        self._rows = rows
        self._count = 0

    def race(self, mode: Mode = Mode.SYNC) -> Raced:
        """Let both save; each may be killed on the way, the orphan's trainer always is."""
        self._count += 1
        target = self._folder / f"race-{self._count}" / "step-2"
        if self._random.random() < 0.5:
            self._server.save(self._job(target, _OLD, name="old", gate=False))
        orphan = self._server.start(self._job(target, _ORPHAN, name="orphan", mode=mode))
        restarted = self._server.start(self._job(target, _RESTARTED, name="restarted"))
        jobs = {"restarted": restarted, "orphan": orphan}
        for ranks in jobs.values():
            ranks.wait_until_ready()
        killed = self._run(target.parent, jobs, mode)
        for ranks in jobs.values():
            ranks.wait()
        return self._raced(target, killed)

    def _run(self, folder: Path, jobs: dict[str, Ranks], mode: Mode) -> tuple[str, ...]:
        (folder / "orphan.go").touch()
        time.sleep(self._random.uniform(0, 0.25))
        if mode is Mode.PROCESS:
            for rank in range(WORLD):
                jobs["orphan"].kill(rank, Who.TRAINER)
        (folder / "restarted.go").touch()
        killed = tuple(name for name in jobs if self._random.random() < 0.25)
        for name in killed:
            time.sleep(self._random.uniform(0, 0.15))
            for rank in range(WORLD):
                jobs[name].kill(rank)
        return killed

    def _job(
        self, target: Path, save: tuple[int, int], *, name: str, mode: Mode = Mode.SYNC, gate: bool = True
    ) -> Job:
        return Job(
            folder=str(target),
            step=save[0],
            variant=save[1],
            scratch=str(target.parent / f"job-{name}"),
            mode=mode,
            rows=self._rows,
            dawdles_s=_DAWDLES_S if gate else 0.0,
            gate=str(target.parent / f"{name}.go") if gate else "",
        )

    def _raced(self, target: Path, killed: tuple[str, ...]) -> Raced:
        report = validate(str(target), policy=_POLICY)
        verdict, provenance = report.judgement.verdict, report.provenance
        content = "not asked"
        if verdict is Verdict.VALID:
            content = _NAMES[whole_save(target, [_OLD, _RESTARTED, _ORPHAN], rows=self._rows)]
        has_manifest = (target / MANIFEST_NAME).exists()
        if has_manifest:
            parse_manifest((target / MANIFEST_NAME).read_bytes())  # there is never half of one
        return Raced(
            number=self._count,
            killed=killed,
            verdict=verdict,
            provenance=provenance,
            has_manifest=has_manifest,
            content=content,
        )
