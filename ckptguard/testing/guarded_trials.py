"""Damage to a save that has its manifest: every fault of the kit, at any byte of any file that it lists.

Drawn from a seed, made in a copy, judged. With a manifest of the writer nothing that changes a byte may be
called VALID, harmless or not.
"""

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from ckptguard.model.manifest import MANIFEST_NAME
from ckptguard.model.report import Report
from ckptguard.model.verdict import Provenance, Verdict
from ckptguard.testing import edits
from ckptguard.testing.campaign import Judge as _Judge
from ckptguard.testing.case import Damage
from ckptguard.testing.damage import Aim, DamageKind, damage_copy

_METADATA: Final = ".metadata"


class Mixture(StrEnum):
    """Faults that need another save of the same job."""

    STALE_SHARD = "stale_shard"  # one shard is still that of an earlier save of this layout
    TORN_RESAVE = "torn_resave"  # some shards of a later save, the old metadata and manifest
    TORN_RESAVE_OTHER_LAYOUT = "torn_resave_other_layout"  # the same, and the later save has other files
    STALE_METADATA = "stale_metadata"  # only `.metadata` is that of another save


Fault: TypeAlias = DamageKind | Mixture
FAULTS: Final[tuple[Fault, ...]] = (*[DamageKind.BIT_FLIP] * 8, *DamageKind, *Mixture)
"""Drawn from evenly; half of them is a flipped bit at any byte of all files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedSave:
    """A save by the guarded writer, and others to mix it with.

    Args:
        name: Of its layout.
        folder: With manifest; only read.
        other: Another step in the same layout.
        other_layout: Another step in another layout.
    """

    name: str
    folder: Path
    other: Path
    other_layout: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedResult:
    """What became of one fault.

    Args:
        seed: What it was drawn from.
        save: Name of the layout.
        fault: Which.
        damage: What was done.
        is_change: Whether any byte of the save's own files differs; a file that came beside them is none.
        verdict: Of the damaged copy.
    """

    seed: int
    save: str
    fault: Fault
    damage: Damage
    is_change: bool
    verdict: Verdict


def run_guarded_trials(save: GuardedSave, seeds: range, judge: _Judge) -> Iterator[GuardedResult]:
    """Make one fault per seed in a fresh copy, and yield what is said of it.

    Args:
        save: What is damaged.
        seeds: Same seed, same fault.
        judge: Gives the verdict of a folder.
    """
    before = _contents(save.folder)
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="ckptguard-trial-", dir=_memory_folder()) as scratch:
            copy = Path(scratch) / save.folder.name
            fault, damage = _damage(save, copy, seed)
            yield GuardedResult(
                seed=seed,
                save=save.name,
                fault=fault,
                damage=damage,
                is_change=not before.items() <= _contents(copy).items(),
                verdict=judge(copy),
            )


def is_healthy(report: Report) -> bool:
    """Say whether an undamaged guarded save is called what it is."""
    return (report.judgement.verdict, report.provenance) == (Verdict.VALID, Provenance.PROVEN)


def count_by_fault(results: Sequence[GuardedResult]) -> dict[str, Counter[str]]:
    """Return one row of the table for each fault: how many, how many were a change, what was said of them."""
    rows: dict[str, Counter[str]] = {}
    for result in results:
        row = rows.setdefault(result.fault.value, Counter())
        row["trials"] += 1
        if not result.is_change:
            row["no change"] += 1
        else:
            row["missed" if result.verdict is Verdict.VALID else result.verdict.value] += 1
    return dict(sorted(rows.items()))


def _damage(save: GuardedSave, copy: Path, seed: int) -> tuple[Fault, Damage]:
    chance = random.Random(seed)  # noqa: S311 - chosen to be repeatable
    fault = chance.choice(FAULTS)
    files = _listed_files(save.folder)
    if isinstance(fault, DamageKind):
        aim = Aim(file=_drawn_file(save.folder, files, chance)) if _takes_any_file(fault) else Aim()
        return fault, damage_copy(save.folder, copy, kind=fault, seed=seed, aim=aim)
    edits.copy_tree(save.folder, copy)
    return fault, _mix(save, copy, fault, chance)


def _takes_any_file(kind: DamageKind) -> bool:
    return kind not in {DamageKind.METADATA_MISSING, DamageKind.METADATA_HALF, DamageKind.SWAP}


def _drawn_file(folder: Path, files: Sequence[str], chance: random.Random) -> str:
    """Draw a file so that every byte is as likely as any other; one time in eight any file, however small."""
    lengths = {file: (folder / file).stat().st_size for file in files}
    holding = [file for file in files if lengths[file]]
    if chance.random() < 1 / 8:
        return chance.choice(holding)
    return chance.choices(holding, weights=[lengths[file] for file in holding])[0]


def _mix(save: GuardedSave, copy: Path, fault: Mixture, chance: random.Random) -> Damage:
    if fault is Mixture.STALE_METADATA:
        return edits.replace(copy, _METADATA, save.other / _METADATA)
    donor = save.other_layout if fault is Mixture.TORN_RESAVE_OTHER_LAYOUT else save.other
    files = [file for file in _listed_files(donor) if file != _METADATA and (donor / file).stat().st_size]
    count = 1 if fault is Mixture.STALE_SHARD else chance.randint(1, len(files))
    chosen = chance.sample(files, count)
    for file in chosen:
        shutil.copyfile(donor / file, copy / file)
        edits.set_time(copy / file, (donor / file).stat().st_mtime)
    return Damage(kind=fault.value, file=chosen[0], note=f"{count} shards of {donor.name}")


def _listed_files(folder: Path) -> list[str]:
    """Return the shards and `.metadata` of a save, sorted."""
    shards = [path.name for path in folder.iterdir() if path.name.endswith(".distcp")]
    return sorted([*shards, _METADATA])


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MANIFEST_NAME}


def _memory_folder() -> str | None:
    shared = Path("/dev/shm")  # noqa: S108 - a tmpfs on Linux; a private folder is made inside
    return str(shared) if shared.is_dir() else None
