"""kill -9 of the processes of a guarded save, in every phase of it, and what is left in the folder.

    python benchmarks/guarded_kills.py --kills 200
    python benchmarks/guarded_kills.py --kills 20 --s3-kills 0 --seed 7

One kill in ten falls at a random moment, from 0 to 120 % of the time that one save takes. The others are
shared out over the phases of a save: a process stops itself before one of its steps (an operation on a file,
a call to S3), chosen by chance among those of the phase, and is killed there, or another of the job, or
several within 0.3 s; what is left goes on. Where a process saves for the rank, it is that one, its trainer,
or both. It ends with an error where a folder is VALID that is not wholly of one save, a manifest blesses a
mixture, a checkpoint in another folder is no longer proven, or a phase was hit less often than planned.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ckptguard.model.verdict import Verdict
from tests.integration.s3_server import running_server as running_s3
from tests.kills.guarded_blows import Phase
from tests.kills.guarded_buckets import BucketFolders
from tests.kills.guarded_campaign import Campaign
from tests.kills.guarded_folders import LocalFolders
from tests.kills.guarded_ranks import Mode
from tests.kills.guarded_saves import running_server
from tests.kills.guarded_verdicts import Struck

RANDOM_SHARE: Final = 0.1
"""Of the kills on this machine: at random moments."""
WEIGHTS: Final = {Mode.SYNC: 2, Mode.THREAD: 2, Mode.PROCESS: 1}
"""A process that saves is started by each job, which takes seconds."""
S3_MODES: Final = (Mode.SYNC, Mode.THREAD)
COLUMNS: Final = (
    "kills",
    "not VALID",
    "step 1, proven",
    "step 1, no manifest",
    "step 2, no manifest",
    "step 2, proven",
    "wrong",
)
"""Step 1 stood in the used folder, step 2 was saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Kills of one kind of save.

    Args:
        name: Of the kind.
        each: Planned for each phase.
        struck: What came of them.
    """

    name: str
    each: int
    struck: Sequence[Struck]

    def of(self, phase: Phase) -> list[Struck]:
        """Return those of one phase."""
        return [each for each in self.struck if each.phase is phase]


def main() -> int:
    """Kill, hold, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="of saves to this machine")
    parser.add_argument("--s3-kills", type=int, default=70, help="of saves to a real S3 server")
    parser.add_argument("--seed", type=int, default=1, help="of steps, victims and moments")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"seed {arguments.seed}")
    started_s = time.perf_counter()
    rows = list(strike_all(arguments.kills, arguments.s3_kills, seed=arguments.seed))
    struck = [each for row in rows for each in row.struck]
    show(rows)
    print(f"\n{len(struck)} kills in {time.perf_counter() - started_s:.0f} s")
    complaints = [f"WRONG: {each}" for each in struck if each.wrong]
    complaints += [
        f"MISSED: {row.name}, {phase}: {len(row.of(phase))} of {row.each}"
        for row in rows
        for phase in Phase
        if len(row.of(phase)) < row.each
    ]
    print(*complaints, sep="\n")
    return 1 if complaints else 0


def strike_all(kills: int, s3_kills: int, *, seed: int) -> Iterator[Row]:
    """Yield all kinds of saves, struck."""
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="ckg-guarded-kills-")))
        server = ends.enter_context(running_server("s3fs"))
        local = Campaign(server, LocalFolders(folder / "saved"), folder / "jobs", seed=seed)
        by_chance = round(kills * RANDOM_SHARE)
        unit = (kills - by_chance) / len(Phase) / sum(WEIGHTS.values())
        for mode, weight in WEIGHTS.items():
            each = max(1, round(unit * weight))
            yield _row(local, mode, each=each, by_chance=round(by_chance * weight / sum(WEIGHTS.values())))
        if s3_kills:
            s3 = ends.enter_context(running_s3(_made(folder / "s3")))
            remote = Campaign(server, BucketFolders(s3, "kills"), folder / "s3-jobs", seed=seed, rows=512)
            each = max(1, round(s3_kills / len(Phase) / len(S3_MODES)))
            for mode in S3_MODES:
                yield _row(remote, mode, each=each, name=f"{mode}, S3")


def _row(campaign: Campaign, mode: Mode, *, each: int, by_chance: int = 0, name: str = "") -> Row:
    blows = [*campaign.stepped_blows(mode, each=each), *campaign.random_blows(mode, count=by_chance)]
    return Row(name=name or mode, each=each, struck=[campaign.strike(blow) for blow in blows])


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def show(rows: Sequence[Row]) -> None:
    """Print what was hit, and what was left by it."""
    print(f"\n| the coordinator was | {' | '.join(row.name for row in rows)} |")
    print(f"| --- |{' ---: |' * len(rows)}")
    for phase in Phase:
        print(f"| {phase} | {' | '.join(str(len(row.of(phase))) for row in rows)} |")
    print(f"\n| what was left | {' | '.join(COLUMNS)} |")
    print(f"| --- |{' ---: |' * len(COLUMNS)}")
    for row in rows:
        for phase in Phase:
            counts = count_of(row.of(phase))
            print(f"| {row.name}: {phase} | {' | '.join(str(counts[name]) for name in COLUMNS)} |")


def count_of(struck: Sequence[Struck]) -> Counter[str]:
    """Count what was left."""
    counts: Counter[str] = Counter()
    for each in struck:
        left = each.left
        counts["kills"] += 1
        counts["wrong"] += bool(each.wrong)
        if left.verdict is not Verdict.VALID:
            counts["not VALID"] += 1
        else:
            counts[f"step {left.whole}, {left.provenance if left.named else 'no manifest'}"] += 1
    return counts


if __name__ == "__main__":
    sys.exit(main())
