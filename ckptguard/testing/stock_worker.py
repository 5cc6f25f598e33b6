"""The process that asks stock torch what it makes of each change.

Run as `python -m ckptguard.testing.stock_worker FORMAT FOLDER TRIALS.json`; prints one
outcome per line. A flipped bit can make stock code crash or ask for terabytes, so
each stretch of trials runs in a fork with limits, and a dead fork is an outcome.
Only ever for checkpoints that this kit has written: stock readers run pickles.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ckptguard.testing.trial import Trial, TrialKind, applied

if TYPE_CHECKING:
    import torch

_STRETCH: Final = 500
_ADDRESS_SPACE_BYTES: Final = 16 << 30
_TRIAL_TIMEOUT_S: Final = 30


class StockOutcome(StrEnum):
    """What a stock load did with a changed file."""

    RAISES = "raises"
    CRASHES = "crashes"
    WRONG = "wrong"  # no error, and other values than were saved
    RIGHT = "right"  # no error, and the values that were saved


Values = Mapping[str, Any]
Load = Callable[[Path], Values]


def load_dcp(folder: Path) -> Values:
    """Load every tensor and object of a DCP checkpoint with stock torch."""
    import torch  # noqa: PLC0415 - torch late
    from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415 - torch late
    from torch.distributed.checkpoint.state_dict_loader import load  # noqa: PLC0415 - torch late

    state: dict[str, Any] = {
        fqn: torch.zeros(shape, dtype=dtype) if shape is not None else ""
        for fqn, shape, dtype in _template(folder)
    }
    load(state, storage_reader=FileSystemReader(folder), no_dist=True)
    return state


_templates: dict[Path, list[tuple[str, Any, Any]]] = {}


def _template(folder: Path) -> list[tuple[str, Any, Any]]:
    """Return what the undamaged checkpoint holds, as a trainer that resumes knows it."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415 - torch late
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata  # noqa: PLC0415 - torch late

    if folder not in _templates:
        entries = FileSystemReader(folder).read_metadata().state_dict_metadata
        _templates[folder] = [
            (fqn, tuple(entry.size), entry.properties.dtype)
            if isinstance(entry, TensorStorageMetadata)
            else (fqn, None, None)
            for fqn, entry in entries.items()
        ]
    return _templates[folder]


def load_torch_save(folder: Path) -> Values:
    """Load the one `torch.save` file in a folder with stock torch."""
    import torch  # noqa: PLC0415 - torch late

    (file,) = folder.glob("*.pt")
    loaded: Values = torch.load(file, weights_only=True)  # noqa: TID251 - the stock reader, asked on purpose
    return loaded


LOADS: Final[Mapping[str, Load]] = {"dcp": load_dcp, "torch_save": load_torch_save}


def is_equal(one: object, other: object) -> bool:
    """Compare values bit by bit: NaN equals itself, 0.0 does not equal -0.0."""
    import torch  # noqa: PLC0415 - torch late

    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same_kind = (one.dtype, one.shape) == (other.dtype, other.shape)
        return same_kind and torch.equal(_bytes_of(one), _bytes_of(other))
    return type(one) is type(other) and repr(one) == repr(other)


def _bytes_of(tensor: "torch.Tensor") -> "torch.Tensor":
    import torch  # noqa: PLC0415 - torch late

    return tensor.detach().reshape(-1).contiguous().view(torch.uint8)


def _try(load: Load, folder: Path, clean: Values) -> StockOutcome:
    try:
        values = load(folder)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever stock raises is the answer; CheckpointException is one
        return StockOutcome.RAISES
    if set(values) != set(clean):
        return StockOutcome.WRONG
    is_right = all(is_equal(values[name], clean[name]) for name in clean)
    return StockOutcome.RIGHT if is_right else StockOutcome.WRONG


def _run_stretch(
    load: Load, folder: Path, clean: Values, trials: Sequence[Trial], report: Callable[[StockOutcome], None]
) -> None:
    originals = {file: (folder / file).read_bytes() for file in {trial.file for trial in trials}}
    for trial in trials:
        signal.alarm(_TRIAL_TIMEOUT_S)
        with applied(trial, folder, originals[trial.file]):
            outcome = _try(load, folder, clean)
        report(outcome)


def _fork_stretch(load: Load, folder: Path, clean: Values, trials: Sequence[Trial]) -> list[StockOutcome]:
    """Run trials in a fork; the answer is shorter than asked if the fork died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # stock warns of every failed load
            resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, _ADDRESS_SPACE_BYTES))
            _run_stretch(load, folder, clean, trials, lambda outcome: _send(writing, outcome))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        outcomes = [StockOutcome(line.strip()) for line in stream]
    os.waitpid(child, 0)
    return outcomes


def _send(descriptor: int, outcome: StockOutcome) -> None:
    os.write(descriptor, f"{outcome}\n".encode())


def run_trials(load: Load, folder: Path, trials: Sequence[Trial]) -> list[StockOutcome]:
    """Return one outcome per trial.

    Args:
        load: Stock loader of this format.
        folder: A private copy; afterwards as before.
        trials: Changes, each made alone.
    """
    clean = load(folder)
    originals = {file: (folder / file).read_bytes() for file in {trial.file for trial in trials}}
    outcomes: list[StockOutcome] = []
    while len(outcomes) < len(trials):
        stretch = trials[len(outcomes) : len(outcomes) + _STRETCH]
        answered = _fork_stretch(load, folder, clean, stretch)
        outcomes += answered
        if len(answered) < len(stretch):
            outcomes.append(StockOutcome.CRASHES)
            for file, data in originals.items():
                (folder / file).write_bytes(data)
    return outcomes


def main() -> int:
    """Read trials, print outcomes."""
    import torch  # noqa: PLC0415 - torch late, and before the forks

    torch.set_num_threads(1)
    format_name, folder, trials_file = sys.argv[1:]
    trials = [
        Trial(**{**fields, "kind": TrialKind(fields["kind"])})
        for fields in json.loads(Path(trials_file).read_text())
    ]
    for outcome in run_trials(LOADS[format_name], Path(folder), trials):
        sys.stdout.write(f"{outcome}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
