"""kill -9 of API, worker, its children and the database at random points, and what is left afterwards.

    python benchmarks/kills.py --kills 200
    python benchmarks/kills.py --kills 20 --seed 7 --databases postgresql

Each database gets half of the kills. It ends with an error where a registration that was acknowledged is
missing, a verdict is doubled or wrong, or attempts at one validation overlap.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ckptguard.testing.edits import copy_checkpoint, flip_bit
from tests.kills.campaign import Campaign, Outcome, Plan

PROJECT = Path(__file__).resolve().parent.parent
CHECKPOINT = PROJECT / "tests" / "data" / "corpus" / "dcp_torch2_14_1_fsdp2_ws2"
SHARD = "__0_0.distcp"
ROUND = 25
"""Kills of one service before a new one is started: its end is held against the database each time."""


def main() -> None:
    """Kill, hold, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="of all databases together")
    parser.add_argument("--seed", type=int, default=1, help="of victims and moments")
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgresql"])
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    print(f"{'database':<11}{'kills':>6}{'registered':>11}{'validations':>12}{'attempts':>9}{'gave up':>8}")
    for kind in arguments.databases:
        left, seed = arguments.kills // len(arguments.databases), arguments.seed
        while left > 0:
            _show(kind, _campaign(kind, kills=min(left, ROUND), seed=seed))
            left, seed = left - ROUND, seed + 1


def _campaign(kind: str, *, kills: int, seed: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="ckg-kills-") as name:
        folder = Path(name)
        good = copy_checkpoint(CHECKPOINT, folder / "good")
        damaged = copy_checkpoint(CHECKPOINT, folder / "damaged")
        flip_bit(damaged, SHARD, offset=(damaged / SHARD).stat().st_size // 2, bit=3)
        plan = Plan(kind=kind, kills=kills, seed=seed, good=good, damaged=damaged, folder=folder / "service")
        return Campaign(plan).run()


def _show(kind: str, outcome: Outcome) -> None:
    victims = ", ".join(f"{target.value} {count}" for target, count in sorted(outcome.kills.items()))
    print(
        f"{kind:<11}{outcome.kills.total():>6}{len(outcome.acknowledged):>11}{outcome.validations:>12}"
        f"{outcome.attempts:>9}{outcome.gave_up:>8}  {victims}",
        flush=True,
    )


if __name__ == "__main__":
    main()
