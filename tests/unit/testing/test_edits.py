"""Edits leave no trace but the bytes; copies never touch the original."""

from pathlib import Path

import pytest

from ckptguard.testing import edits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "checkpoint"
    inside.mkdir()
    (inside / "__0_0.distcp").write_bytes(bytes(range(200)))
    (inside / "__1_0.distcp").write_bytes(b"other")
    (inside / ".metadata").write_bytes(b"metadata")
    edits.set_times(inside)
    return inside


def test_a_copy_has_the_times_of_a_clean_save(folder: Path, tmp_path: Path) -> None:
    copy = edits.copy_checkpoint(folder, tmp_path / "copy")
    assert (copy / "__0_0.distcp").stat().st_mtime < (copy / ".metadata").stat().st_mtime


def test_a_copy_refuses_a_place_that_is_taken(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with pytest.raises(FileExistsError):
        edits.copy_checkpoint(folder, tmp_path / "copy")


def test_a_flip_is_its_own_inverse(folder: Path) -> None:
    before = (folder / "__0_0.distcp").read_bytes()
    damage = edits.flip_bit(folder, "__0_0.distcp", offset=7, bit=4)
    assert (damage.before, damage.after) == ("07", "17")
    edits.flip_bit(folder, "__0_0.distcp", offset=7, bit=4)
    assert (folder / "__0_0.distcp").read_bytes() == before


def test_edits_keep_times(folder: Path) -> None:
    path = folder / "__0_0.distcp"
    before = path.stat().st_mtime_ns
    edits.zero_range(folder, path.name, offset=3, length_bytes=5)
    edits.truncate_by(folder, path.name, removed_bytes=10)
    edits.append(folder, path.name, data=b"x")
    edits.make_sparse(folder, path.name)
    edits.replace(folder, path.name, folder / "__1_0.distcp")
    assert path.stat().st_mtime_ns == before
    assert path.read_bytes() == b"other"


def test_zeroing_past_the_end_never_lengthens(folder: Path) -> None:
    damage = edits.zero_range(folder, "__0_0.distcp", offset=190, length_bytes=50)
    assert damage.length_bytes == 10
    assert (folder / "__0_0.distcp").stat().st_size == 200


def test_a_sparse_hole_keeps_the_length(folder: Path) -> None:
    edits.make_sparse(folder, "__0_0.distcp")
    assert (folder / "__0_0.distcp").read_bytes() == bytes(200)


def test_swapped_files_hold_each_others_bytes(folder: Path) -> None:
    edits.swap(folder, "__0_0.distcp", "__1_0.distcp")
    assert (folder / "__0_0.distcp").read_bytes() == b"other"
    assert sorted(path.name for path in folder.iterdir()) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
