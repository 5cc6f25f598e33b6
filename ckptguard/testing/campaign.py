"""Mass detection: thousands of random changes, our verdict beside what a stock load does.

A change is harmful if a stock load of the changed file raises, crashes, or gives
other values than were saved; every harmful change must be found.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ckptguard.model.verdict import Verdict
from ckptguard.testing.edits import copy_checkpoint
from ckptguard.testing.save_manifest import leave_manifest
from ckptguard.testing.stock_worker import StockOutcome
from ckptguard.testing.trial import Trial, TrialKind, applied, draw_trial
from ckptguard.testing.zip_map import Area, map_zip

Judge = Callable[[Path], Verdict]
"""Gives a verdict about the checkpoint in a folder."""

DEFAULT_KINDS: Final = (*[TrialKind.BIT_FLIP] * 8, TrialKind.ZERO_RANGE, TrialKind.TRUNCATE)
"""Eight flips to one zeroed range and one truncation."""
_SHARD_SUFFIXES: Final = (".distcp", ".pt")


class CampaignError(RuntimeError):
    """The stock side gave no answer; the message holds the end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one trial.

    Args:
        trial: The change.
        area: Where it hit, `payload`, `central_directory`, ... or `object`, `metadata`.
        is_change: Whether any byte differs: zeros over zeros change nothing.
        verdict: Ours.
        stock: What a stock load did.
    """

    trial: Trial
    area: str
    is_change: bool
    verdict: Verdict
    stock: StockOutcome

    @property
    def is_harmful(self) -> bool:
        """Whether a stock load fails or gives wrong values."""
        return self.stock is not StockOutcome.RIGHT

    @property
    def is_found(self) -> bool:
        """Whether our verdict keeps a launcher from resuming."""
        return self.verdict is not Verdict.VALID


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """All results of a campaign.

    Args:
        results: One per seed.
        false_alarms: Verdicts other than VALID about the untouched checkpoint, asked
            before the first and after the last trial.
    """

    results: tuple[Result, ...]
    false_alarms: int

    @property
    def missed(self) -> tuple[Result, ...]:
        """Harmful changes that we called VALID."""
        return tuple(result for result in self.results if result.is_harmful and not result.is_found)

    @property
    def unseen(self) -> tuple[Result, ...]:
        """Changes of any kind that we called VALID; none may be left where a manifest stands."""
        return tuple(result for result in self.results if result.is_change and not result.is_found)

    def areas(self) -> tuple[str, ...]:
        """Return the areas that were hit, sorted."""
        return tuple(sorted({result.area for result in self.results}))

    def count(self, area: str | None = None) -> Counter[str]:
        """Count results under the words of the table; all areas together without one."""
        counts: Counter[str] = Counter()
        for result in self.results:
            if area in {None, result.area}:
                counts["all"] += 1
                counts[_our_word(result)] += 1
                counts[f"stock_{result.stock}"] += 1
                counts["in_doubt"] += result.verdict is Verdict.UNKNOWN
        return counts


def _our_word(result: Result) -> str:
    if not result.is_change:
        return "no_change"
    if result.is_harmful:
        return "found" if result.is_found else "missed"
    return "harmless_reported" if result.is_found else "harmless"


def run_campaign(
    checkpoint: Path,
    *,
    format_name: str,
    seeds: range,
    judge: Judge,
    kinds: Sequence[TrialKind] = DEFAULT_KINDS,
    suffixes: tuple[str, ...] = _SHARD_SUFFIXES,
    has_manifest: bool = False,
) -> Tally:
    """Make one random change per seed, and ask both sides about each.

    Args:
        checkpoint: A save of this kit; only read.
        format_name: `dcp` or `torch_save`: how stock loads it.
        seeds: One trial each.
        judge: Our side.
        kinds: Drawn from evenly.
        suffixes: Which files may be hit.
        has_manifest: Leave a save-time manifest first.

    Raises:
        CampaignError: The stock side failed as a whole.

    Cost: about 5 ms per trial on the stock side, and one verdict.
    """
    with tempfile.TemporaryDirectory(prefix="ckptguard-campaign-", dir=_memory_folder()) as scratch:
        folder = copy_checkpoint(checkpoint, Path(scratch) / "ours")
        files = sorted(path for path in folder.iterdir() if path.name.endswith(suffixes))
        originals = {path.name: path.read_bytes() for path in files}
        lengths = {name: len(data) for name, data in originals.items()}
        trials = [draw_trial(seed, lengths, kinds) for seed in seeds]
        stock = _ask_stock(checkpoint, format_name, trials, Path(scratch))
        if has_manifest:
            leave_manifest(folder, format_name=format_name)
        before = judge(folder)
        verdicts = list(_judge_each(folder, trials, originals, judge))
        after = judge(folder)
    locate = _Locator(originals)
    return Tally(
        results=tuple(
            Result(
                trial=trial,
                area=locate.area(trial),
                is_change=trial.change(originals[trial.file]) != originals[trial.file],
                verdict=verdict,
                stock=outcome,
            )
            for trial, verdict, outcome in zip(trials, verdicts, stock, strict=True)
        ),
        false_alarms=sum(verdict is not Verdict.VALID for verdict in (before, after)),
    )


def _memory_folder() -> str | None:
    shared = Path("/dev/shm")  # noqa: S108 - a tmpfs on Linux; a private folder is made inside
    return str(shared) if shared.is_dir() else None


def _judge_each(
    folder: Path, trials: Sequence[Trial], originals: dict[str, bytes], judge: Judge
) -> Iterator[Verdict]:
    for trial in trials:
        with applied(trial, folder, originals[trial.file]):
            yield judge(folder)


def _ask_stock(
    checkpoint: Path, format_name: str, trials: Sequence[Trial], scratch: Path
) -> list[StockOutcome]:
    folder = copy_checkpoint(checkpoint, scratch / "stock")
    request = scratch / "trials.json"
    request.write_text(json.dumps([asdict(trial) for trial in trials]))
    done = subprocess.run(  # noqa: S603 - our own module, no shell
        [sys.executable, "-m", "ckptguard.testing.stock_worker", format_name, str(folder), str(request)],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise CampaignError(done.stderr[-4000:])
    return [StockOutcome(line) for line in done.stdout.split()]


class _Locator:
    """Names the area that a change hits.

    Args:
        originals: Undamaged bytes of each file; concatenated zips.
    """

    def __init__(self, originals: dict[str, bytes]) -> None:
        self._areas = {name: _areas_of(data) for name, data in originals.items()}

    def area(self, trial: Trial) -> str:
        """Return the kind of change, for a flip the area of its byte."""
        if trial.kind is not TrialKind.BIT_FLIP:
            return trial.kind
        for start, end, area in self._areas[trial.file]:
            if start <= trial.offset < end:
                return area
        return "metadata"


def _areas_of(data: bytes) -> list[tuple[int, int, str]]:
    """Return `(start, end, area)` of every region of every zip in a file of zips."""
    areas: list[tuple[int, int, str]] = []
    start = 0
    while data.startswith(b"PK\x03\x04", start):
        end = _zip_end(data, start)
        regions = map_zip(data[start:end])
        is_object = not any(region.area is Area.PAYLOAD for region in regions)
        areas += [
            (start + region.start, start + region.end, "object" if is_object else region.area)
            for region in regions
        ]
        start = end
    return areas


def _zip_end(data: bytes, start: int) -> int:
    """Return where the zip at `start` ends: behind its end record, before the next zip or the file's end."""
    position = start
    while True:
        position = data.index(b"PK\x05\x06", position) + 22
        if position == len(data) or data.startswith(b"PK\x03\x04", position):
            return position
