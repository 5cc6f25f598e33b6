"""Two jobs that save one step into one folder: a restarted one beside the orphan of a killed one.

    python benchmarks/guarded_races.py --races 60 --orphans 4

Each race lets both save at random offsets, each dawdling before every operation on a file; each is killed
one time in four. In `--orphans` races the first job's trainers are killed, and its processes go on saving.
It ends with an error where a folder is VALID and of two saves.
"""

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ckptguard.model.verdict import Verdict
from tests.kills.guarded_races import Raced, Races
from tests.kills.guarded_ranks import Mode
from tests.kills.guarded_saves import running_server


def main() -> int:
    """Race, hold, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--races", type=int, default=60)
    parser.add_argument("--orphans", type=int, default=4, help="of them by real orphans")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="ckg-guarded-races-") as name, running_server() as server:
        races = Races(server, Path(name), seed=arguments.seed)
        modes = [Mode.PROCESS] * arguments.orphans + [Mode.SYNC] * (arguments.races - arguments.orphans)
        raced = [races.race(mode) for mode in modes]
    counts = Counter(
        (_what_was_left(each), mode is Mode.PROCESS) for each, mode in zip(raced, modes, strict=True)
    )
    print("\n| left in the folder | races of two jobs | of a job and an orphan |\n| --- | ---: | ---: |")
    for what in sorted({what for what, _ in counts}):
        print(f"| {what} | {counts[what, False]} | {counts[what, True]} |")
    wrong = [each for each in raced if each.is_wrong]
    for each in wrong:
        print(f"WRONG: {each}")
    return 1 if wrong else 0


def _what_was_left(raced: Raced) -> str:
    manifest = "manifest" if raced.has_manifest else "no manifest"
    if raced.verdict is not Verdict.VALID:
        return f"{raced.verdict}, {manifest}"
    return f"{raced.verdict} {raced.provenance}, {manifest}: all of it {raced.content}"


if __name__ == "__main__":
    sys.exit(main())
