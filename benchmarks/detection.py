"""Detection, side by side: random damage, our verdict, and what stock torch does with it.

    python benchmarks/detection.py --count 5000
    python benchmarks/detection.py --count 5000 --guarded

Makes COUNT seeded changes (bit flips, zeroed ranges, truncations) over DCP shards and
torch.save files, asks `validate` and a stock load about each, and prints one table per
campaign. Exit code 1 if anything harmful was missed, or anything healthy condemned.

With --guarded it damages saves that the guarded writer made, two ranks in several layouts: every fault of
the test kit at any byte of any shard or of `.metadata`, stale and swapped shards, and both torn re-saves.
With the manifest every change must be found, harmful or not.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ckptguard.model.policy import Depth, Policy
from ckptguard.model.verdict import Verdict
from ckptguard.operations.validate import validate
from ckptguard.testing import saves
from ckptguard.testing.campaign import Tally, run_campaign
from ckptguard.testing.guarded_trials import (
    GuardedResult,
    GuardedSave,
    count_by_fault,
    is_healthy,
    run_guarded_trials,
)

_POLICY: Final = Policy(depth=Depth.CONTENT, settle_s=0, jobs=1)
_COLUMNS: Final = (
    ("trials", "all"),
    ("found", "found"),
    ("missed", "missed"),
    ("harmless, told", "harmless_reported"),
    ("harmless, unseen", "harmless"),
    ("zeros over zeros", "no_change"),
    ("UNKNOWN", "in_doubt"),
    ("raises", "stock_raises"),
    ("crashes", "stock_crashes"),
    ("silently wrong", "stock_wrong"),
    ("silently right", "stock_right"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """One table.

    Args:
        title: Its heading.
        save: Which save is damaged.
        format_name: How stock loads it.
        share: Part of all changes.
        has_manifest: With a save-time manifest: then nothing at all may be unseen.
    """

    title: str
    save: str
    format_name: str
    share: float
    has_manifest: bool = False


CAMPAIGNS: Final = (
    Campaign(title="DCP, 4 ranks, tensors and objects", save=saves.BASE, format_name="dcp", share=0.5),
    Campaign(title="DCP, a file per item", save="file_per_item", format_name="dcp", share=0.1),
    Campaign(title="DCP, many dtypes", save="dtypes", format_name="dcp", share=0.1),
    Campaign(title="torch.save", save=saves.TORCH_SAVE, format_name="torch_save", share=0.2),
    Campaign(
        title="DCP with a save-time manifest",
        save=saves.BASE,
        format_name="dcp",
        share=0.1,
        has_manifest=True,
    ),
)


def judge(folder: Path) -> Verdict:
    """Ask ckptguard."""
    return validate(str(folder), policy=_POLICY).judgement.verdict


def run(campaign: Campaign, root: Path, *, count: int, first_seed: int) -> Tally:
    """Run one campaign and print its table."""
    seeds = range(first_seed, first_seed + max(1, round(count * campaign.share)))
    started = time.perf_counter()
    tally = run_campaign(
        root / campaign.save,
        format_name=campaign.format_name,
        seeds=seeds,
        judge=judge,
        has_manifest=campaign.has_manifest,
    )
    seconds = time.perf_counter() - started
    print(f"\n### {campaign.title} (seeds {seeds.start} to {seeds.stop - 1}, {seconds:.0f} s)\n")
    print("| where | " + " | ".join(f"{name}" for name, _ in _COLUMNS) + " |")
    print("| --- |" + " ---: |" * len(_COLUMNS))
    for area in (*tally.areas(), None):
        counts = tally.count(area)
        print(f"| {area or '**all**'} | " + " | ".join(str(counts[key]) for _, key in _COLUMNS) + " |")
    for result in tally.missed:
        print(f"\nMISSED: {result}")
    return tally


_GUARDED_COLUMNS: Final = ("trials", "INVALID", "UNKNOWN", "missed", "no change")


def run_guarded(*, count: int, first_seed: int) -> int:
    """Damage guarded saves and print the tables; return how many changes were missed or false alarms made."""
    from tests.kills.guarded_layouts import LAYOUTS, write_guarded_saves  # noqa: PLC0415 - imports torch
    from tests.kills.guarded_saves import running_server  # noqa: PLC0415 - imports torch

    share = -(-count // len(LAYOUTS))
    results: list[GuardedResult] = []
    alarms = 0
    with tempfile.TemporaryDirectory(prefix="ckptguard-detection-") as scratch:
        with running_server() as server:
            saves_made = list(write_guarded_saves(server, Path(scratch)))
        print("\n| guarded save | healthy | trials | INVALID | UNKNOWN | missed | no change | s |")
        print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for number, save in enumerate(saves_made):
            first = first_seed + number * share
            is_called_proven = is_healthy(validate(str(save.folder), policy=_POLICY))
            alarms += not is_called_proven
            results += _show_guarded(save, range(first, first + share), is_called_proven=is_called_proven)
    print(f"\n| fault (seeds from {first_seed} on) | {' | '.join(_GUARDED_COLUMNS)} |")
    print(f"| --- |{' ---: |' * len(_GUARDED_COLUMNS)}")
    for fault, row in count_by_fault(results).items():
        print(f"| {fault} | {' | '.join(str(row[name]) for name in _GUARDED_COLUMNS)} |")
    missed = [each for each in results if each.is_change and each.verdict is Verdict.VALID]
    for each in missed:
        print(f"\nMISSED: {each}")
    return len(missed) + alarms


def _show_guarded(save: GuardedSave, seeds: range, *, is_called_proven: bool) -> list[GuardedResult]:
    started = time.perf_counter()
    results = list(run_guarded_trials(save, seeds, judge))
    row = sum(count_by_fault(results).values(), Counter())
    cells = (str(row[name]) for name in _GUARDED_COLUMNS)
    healthy = "VALID proven" if is_called_proven else "NOT PROVEN"
    seconds = time.perf_counter() - started
    print(f"| {save.name} | {healthy} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)
    return results


def main() -> int:
    """Run every campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=5000, help="changes in all campaigns together")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--guarded", action="store_true", help="damage saves of the guarded writer")
    arguments = parser.parse_args()
    if arguments.guarded:
        warnings.simplefilter("ignore")
        failures = run_guarded(count=arguments.count, first_seed=arguments.first_seed)
        print(f"\n{failures} missed or falsely condemned")
        return 1 if failures else 0
    failures = 0
    with tempfile.TemporaryDirectory(prefix="ckptguard-detection-") as scratch:
        root = saves.write_saves(Path(scratch) / "saves")
        for campaign in CAMPAIGNS:
            tally = run(campaign, root, count=arguments.count, first_seed=arguments.first_seed)
            unseen = tally.unseen if campaign.has_manifest else tally.missed
            failures += len(unseen) + tally.false_alarms
    print(f"\n{failures} missed or falsely condemned")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
