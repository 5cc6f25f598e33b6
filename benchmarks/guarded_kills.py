"""kill -9 of any rank at random points of a guarded save, and what is left in the folder.

    python benchmarks/guarded_kills.py --kills 200
    python benchmarks/guarded_kills.py --kills 20 --seed 7

Half of the kills fall at random times, from 0 to 120 % of the time that one save takes; the others before
each of the operations on files that a save makes, the rename of `.metadata` among them. One rank is killed,
or both within 0.3 s. It ends with an error where a folder is VALID that is not wholly of one save, a
manifest blesses a mixture, or a checkpoint in another folder is no longer proven.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ckptguard.model.verdict import Verdict
from tests.kills.guarded_ranks import Mode
from tests.kills.guarded_saves import Blow, Campaign, Left, Phase, running_server

PROCESS_SHARE: Final = 0.1
"""Of all kills: a process that saves is started by each job, which takes seconds."""
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


def main() -> int:
    """Kill, hold, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of victims and moments")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"seed {arguments.seed}")
    started_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ckg-guarded-kills-") as name, running_server() as server:
        campaign = Campaign(server, Path(name), seed=arguments.seed)
        left = [campaign.strike(blow) for blow in blows(campaign, arguments.kills)]
    show(left)
    print(f"\n{len(left)} kills in {time.perf_counter() - started_s:.0f} s")
    wrong = [each for each in left if each.wrong]
    for each in wrong:
        print(f"WRONG: {each}")
    return 1 if wrong else 0


def blows(campaign: Campaign, count: int) -> Iterator[Blow]:
    """Yield the kills of all modes."""
    of_process = max(1, round(count * PROCESS_SHARE))
    for mode, share in (
        (Mode.SYNC, count - of_process - (count - of_process) // 2),
        (Mode.THREAD, (count - of_process) // 2),
        (Mode.PROCESS, of_process),
    ):
        yield from islice(campaign.aimed_blows(mode), share // 2)
        yield from campaign.random_blows(mode, share - share // 2)


def show(left: Sequence[Left]) -> None:
    """Print one row for each mode and phase."""
    print(f"\n| how | where the coordinator was | {' | '.join(COLUMNS)} |")
    print(f"| --- | --- |{' ---: |' * len(COLUMNS)}")
    for mode in Mode:
        for phase in Phase:
            counts = count_of([each for each in left if (each.blow.mode, each.phase) == (mode, phase)])
            if counts["kills"]:
                print(f"| {mode} | {phase} | {' | '.join(str(counts[name]) for name in COLUMNS)} |")
    counts = count_of(left)
    print(f"| **all** | | {' | '.join(str(counts[name]) for name in COLUMNS)} |")


def count_of(left: Sequence[Left]) -> Counter[str]:
    """Count what was left."""
    counts: Counter[str] = Counter()
    for each in left:
        counts["kills"] += 1
        counts["wrong"] += bool(each.wrong)
        if each.verdict is not Verdict.VALID:
            counts["not VALID"] += 1
        else:
            counts[f"step {each.whole}, {each.provenance if each.named else 'no manifest'}"] += 1
    return counts


if __name__ == "__main__":
    sys.exit(main())
