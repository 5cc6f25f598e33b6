"""`damage` works on a new copy only, says what it did, and does the same for the same seed."""

import re
from pathlib import Path

import pytest

from ckptguard.errors import ConfigError
from ckptguard.testing.damage import Aim, DamageKind, damage_copy
from ckptguard.testing.own_metadata import find_item
from ckptguard.testing.saves import BASE, HF_SHARDED, TORCH_SAVE

pytestmark = pytest.mark.torch


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("base", [BASE, HF_SHARDED, TORCH_SAVE])
@pytest.mark.parametrize("kind", DamageKind)
def test_every_kind_changes_the_copy_and_nothing_else(
    kind: DamageKind, base: str, saves_dir: Path, tmp_path: Path
) -> None:
    before = _bytes(saves_dir / base)
    try:
        damage_copy(saves_dir / base, tmp_path / "copy", kind=kind, seed=3)
    except ConfigError:
        assert base == TORCH_SAVE, "one file, no metadata: nothing to swap with or to remove"
        assert kind in {DamageKind.SWAP, DamageKind.METADATA_HALF, DamageKind.METADATA_MISSING}
        assert not (tmp_path / "copy").exists()
    else:
        assert _bytes(tmp_path / "copy") != before
    assert _bytes(saves_dir / base) == before


def test_the_same_seed_gives_the_same_fault(saves_dir: Path, tmp_path: Path) -> None:
    done = [
        damage_copy(saves_dir / BASE, tmp_path / name, kind=DamageKind.BIT_FLIP, seed=11) for name in "ab"
    ]
    assert done[0] == done[1]
    assert _bytes(tmp_path / "a") == _bytes(tmp_path / "b")


def test_a_flip_aimed_at_a_tensor_hits_its_payload(saves_dir: Path, tmp_path: Path) -> None:
    damage = damage_copy(
        saves_dir / BASE, tmp_path / "copy", kind=DamageKind.BIT_FLIP, aim=Aim(fqn="model.bias")
    )
    item = find_item(saves_dir / BASE, "model.bias")
    assert (damage.file, damage.fqn) == (item.file, "model.bias")
    assert damage.offset is not None
    assert item.offset < damage.offset < item.offset + item.length_bytes


def test_a_flip_goes_exactly_where_it_is_told(saves_dir: Path, tmp_path: Path) -> None:
    damage = damage_copy(
        saves_dir / BASE,
        tmp_path / "copy",
        kind=DamageKind.BIT_FLIP,
        aim=Aim(file="__2_0.distcp", offset=1000, bit=6),
    )
    assert (damage.file, damage.offset, damage.bit) == ("__2_0.distcp", 1000, 6)


def test_an_existing_destination_is_refused(saves_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists"):
        damage_copy(saves_dir / BASE, tmp_path, kind=DamageKind.MISSING)


def test_a_destination_inside_the_source_is_refused(saves_dir: Path) -> None:
    inside = saves_dir / BASE / "copy"
    with pytest.raises(ConfigError, match="inside"):
        damage_copy(saves_dir / BASE, inside, kind=DamageKind.MISSING)
    assert not inside.exists()


@pytest.mark.parametrize(
    ("aim", "words"),
    [
        (Aim(fqn="no.such"), "no.such"),
        (Aim(file="nothing.distcp"), "nothing.distcp"),
        (Aim(file="../base_step0/.metadata"), "no file"),
        (Aim(file="__0_0.distcp", offset=10**9), "not inside"),
        (Aim(file="__0_0.distcp", bit=9), "bit 9"),
    ],
)
def test_an_aim_that_hits_nothing_is_refused(aim: Aim, words: str, saves_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        damage_copy(saves_dir / BASE, tmp_path / "copy", kind=DamageKind.BIT_FLIP, aim=aim)
    assert not (tmp_path / "copy").exists()
