"""The file system that remembers what was written whole."""

import pickle
from pathlib import Path

import pytest
import xxhash
from torch.distributed.checkpoint.filesystem import FileSystem

from ckptguard.integrations.dcp.recording_fs import RecordingFileSystem, WrittenFile
from ckptguard.model.checksum import Algorithm, Checksum

pytestmark = [pytest.mark.torch]


def _entry(path: str, data: bytes) -> WrittenFile:
    checksum = Checksum(algorithm=Algorithm.XXH3_128, hex_digits=xxhash.xxh3_128(data).hexdigest())
    return WrittenFile(path=path, length_bytes=len(data), checksum=checksum)


def _write(fs: RecordingFileSystem, path: Path, data: bytes) -> None:
    with fs.create_stream(path, "wb") as stream:
        stream.write(data)


def test_a_file_is_remembered_under_its_last_name(tmp_path: Path) -> None:
    fs = RecordingFileSystem(FileSystem())
    _write(fs, tmp_path / "a.tmp", b"new")
    _write(fs, tmp_path / "a", b"old")
    fs.rename(tmp_path / "a.tmp", tmp_path / "a")
    assert fs.written(tmp_path) == (_entry("a", b"new"),)


def test_a_file_whose_writing_failed_is_not_remembered(tmp_path: Path) -> None:
    fs = RecordingFileSystem(FileSystem())
    _write(fs, tmp_path / "a", b"first")
    with pytest.raises(TypeError):
        _write(fs, tmp_path / "a", "no bytes")  # type: ignore[arg-type]
    assert fs.written(tmp_path) == ()


def test_a_file_that_is_changed_otherwise_is_forgotten(tmp_path: Path) -> None:
    fs = RecordingFileSystem(FileSystem())
    _write(fs, tmp_path / "a", b"abc")
    _write(fs, tmp_path / "b", b"abc")
    with fs.create_stream(tmp_path / "a", "ab") as stream:
        stream.write(b"d")
    fs.rm_file(tmp_path / "b")
    assert fs.written(tmp_path) == ()


def test_reading_forgets_nothing(tmp_path: Path) -> None:
    fs = RecordingFileSystem(FileSystem())
    _write(fs, tmp_path / "a", b"abc")
    with fs.create_stream(tmp_path / "a", "rb") as stream:
        assert stream.read() == b"abc"
    assert fs.written(tmp_path) == (_entry("a", b"abc"),)


def test_it_travels_to_another_process_without_its_memory(tmp_path: Path) -> None:
    fs = RecordingFileSystem(FileSystem(), {"endpoint": "x"})
    _write(fs, tmp_path / "a", b"abc")
    other = pickle.loads(pickle.dumps(fs))  # noqa: S301, TID251 - our own bytes
    assert other.written(tmp_path) == ()
    assert other._options == {"endpoint": "x"}
