"""What a kill left, held against what was saved.

A folder is VALID only if it is complete and wholly of one save: all its tensors are loaded by stock torch
and compared with those of the step that its manifest names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.model.manifest import MANIFEST_NAME
from ckptguard.model.verdict import Provenance, Verdict
from tests.kills.guarded_blows import Blow, Phase
from tests.kills.guarded_folders import Folders
from tests.kills.guarded_ranks import whole_state

STEPS: Final = (1, 2)
"""What stands in a used folder, and what is saved into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What stands in a folder.

    Args:
        verdict: Of the folder.
        provenance: Of the folder.
        whole: The step whose values all tensors have; None where none can be loaded, or they are mixed.
        named: The step that the manifest names; None without one.
    """

    verdict: Verdict
    provenance: Provenance
    whole: int | None = None
    named: int | None = None

    @property
    def problem(self) -> str:
        """Say what must not be; "" where nothing is wrong."""
        if self.verdict is not Verdict.VALID:
            return ""
        if self.whole is None:
            return f"VALID {self.provenance}, and its values are of no one step"
        if self.named is None:
            return "proven without a manifest" if self.provenance is Provenance.PROVEN else ""
        if self.named != self.whole:
            return f"its manifest names step {self.named}, and its values are of step {self.whole}"
        return "" if self.provenance is Provenance.PROVEN else f"VALID with a manifest, and {self.provenance}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A blow and what came of it.

    Args:
        blow: Which.
        phase: Of the coordinator, when the first was killed.
        left: In the folder.
        wrong: What must never be; "" where it is not.
    """

    blow: Blow
    phase: Phase
    left: Left
    wrong: str


def what_is_left(folders: Folders, name: str, *, rows: int) -> Left:
    """Ask for the verdict of a folder, and look at the values in it."""
    report = folders.report(name)
    if report is None:
        return Left(verdict=Verdict.INVALID, provenance=Provenance.UNPROVEN)
    verdict = report.judgement.verdict
    with folders.files(name) as folder:
        manifest = folder / MANIFEST_NAME
        return Left(
            verdict=verdict,
            provenance=report.provenance,
            whole=whole_step(folder, rows=rows) if verdict is Verdict.VALID else None,
            named=parse_manifest(manifest.read_bytes()).step if manifest.exists() else None,
        )


def whole_step(folder: Path, *, rows: int) -> int | None:
    """Return the step whose values a folder has, every tensor; None where there is no one such step."""
    found = whole_save(folder, [(step, 0) for step in STEPS], rows=rows)
    return None if found is None else found[0]


def whole_save(folder: Path, saves: Sequence[tuple[int, int]], *, rows: int) -> tuple[int, int] | None:
    """Return the first of some saves (step, variant) that a folder is wholly of, as stock torch loads it."""
    state = {name: torch.full_like(tensor, -1.0) for name, tensor in _expected(*saves[0], rows).items()}
    load(state, storage_reader=FileSystemReader(folder), no_dist=True)
    return next((save for save in saves if _is_equal(state, _expected(*save, rows))), None)


def _is_equal(state: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, expected[name]) for name, tensor in state.items())


@cache
def _expected(step: int, variant: int, rows: int) -> dict[str, torch.Tensor]:
    return whole_state(step, variant, rows)
