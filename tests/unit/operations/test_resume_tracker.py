"""Trackers: only of what was just seen whole, whole or not at all."""

from pathlib import Path

import pytest

from ckptguard.errors import ConfigError, StoreError, UnsupportedFormatError
from ckptguard.formats.pointers import parse_pointer
from ckptguard.model.resume import Ending
from ckptguard.operations.resume import Found
from ckptguard.operations.resume_tracker import Tracker, TrackerFile, tracker_of, write_tracker


def found(path: str | None, step: int | None = 1200, ending: Ending = Ending.PROVEN) -> Found:
    return Found(ending=ending, path=path, step=step)


def test_each_trainer_gets_the_file_that_it_reads() -> None:
    megatron = tracker_of(Tracker.MEGATRON, found("/c/run/iter_0001200"))
    assert megatron == TrackerFile(path=Path("/c/run/latest_checkpointed_iteration.txt"), text="1200")
    deepspeed = tracker_of(Tracker.DEEPSPEED, found("/c/run/global_step1200"))
    assert deepspeed == TrackerFile(path=Path("/c/run/latest"), text="global_step1200")


@pytest.mark.parametrize("ending", sorted(set(Ending) - {Ending.PROVEN, Ending.BELOW}))
def test_what_was_not_just_seen_whole_gets_no_tracker(ending: Ending) -> None:
    assert tracker_of(Tracker.DEEPSPEED, found("/c/run/global_step1200", ending=ending)) is None


def test_without_a_path_there_is_no_tracker() -> None:
    assert tracker_of(Tracker.MEGATRON, found(None, None, Ending.FRESH)) is None


@pytest.mark.parametrize("name", ["step-1200", "iter_1200", "iter_0001201", "release"])
def test_a_folder_that_megatron_would_not_open_gets_no_tracker(name: str) -> None:
    with pytest.raises(UnsupportedFormatError, match="iter_0001200"):
        tracker_of(Tracker.MEGATRON, found(f"/c/run/{name}"))


def test_an_object_store_has_no_tracker() -> None:
    with pytest.raises(ConfigError, match="no folder of this machine"):
        tracker_of(Tracker.DEEPSPEED, found("s3://c/run/global_step1200"))


def test_a_tracker_replaces_the_one_before_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "latest"
    for text in ("global_step1300", "global_step1200"):
        write_tracker(TrackerFile(path=path, text=text))
        assert parse_pointer(path.read_bytes()) == text
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_reader_never_sees_half_a_tracker(tmp_path: Path) -> None:
    """The file is replaced, never written into: who has it open reads the old one."""
    path = tmp_path / "latest"
    path.write_text("global_step1300", encoding="utf-8")
    with path.open(encoding="utf-8") as reader:
        write_tracker(TrackerFile(path=path, text="global_step1200"))
        assert reader.read() == "global_step1300"


def test_a_tracker_that_cannot_be_written_is_an_error_and_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "latest"
    (path / "in-the-way").mkdir(parents=True)
    with pytest.raises(StoreError):
        write_tracker(TrackerFile(path=path, text="x"))
    assert list(tmp_path.iterdir()) == [path]
