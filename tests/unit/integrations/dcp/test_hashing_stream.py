"""The stream that hashes what passes: its checksum is right, or there is none."""

import io
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash

from ckptguard.integrations.dcp.hashing_stream import BUFFER_BYTES, THREAD_BYTES, HashingStream

pytestmark = [pytest.mark.torch]


def _checksum_of(data: bytes) -> str:
    return f"xxh3-128:{xxhash.xxh3_128(data).hexdigest()}"


class _Miserly(io.BytesIO):
    """Takes at most 1,000 bytes at a time, as a raw file may."""

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        return super().write(memoryview(data)[:1000])


class _Unfeeling(io.BytesIO):
    """Loses the last byte of every write, and does not say so."""

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        view = memoryview(data)
        super().write(view[:-1])
        return view.nbytes


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_writes_gives_the_checksum_of_what_was_stored(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - chance, no secret
    sizes = (0, 1, 100, BUFFER_BYTES - 1, BUFFER_BYTES, 100_000, THREAD_BYTES, THREAD_BYTES + 1)
    inner = io.BytesIO()
    stream = HashingStream(inner)
    expected = b""
    for _ in range(12):
        data = chance.randbytes(chance.choice(sizes))
        kind = chance.choice([bytes, bytearray, memoryview])
        assert stream.write(kind(data)) == len(data)
        expected += data
        assert stream.tell() == len(expected), f"seed {seed}"
        if chance.random() < 0.3:
            stream.flush()
    stream.finish()
    assert inner.getvalue() == expected, f"seed {seed}"
    assert str(stream.checksum) == _checksum_of(expected), f"seed {seed}"
    assert stream.length_bytes == len(expected)


def test_memory_may_change_as_soon_as_write_returns() -> None:
    stream = HashingStream(io.BytesIO())
    for length in (BUFFER_BYTES - 1, 2 * THREAD_BYTES):
        lent = bytearray(b"a" * length)
        stream.write(memoryview(lent))
        lent[:] = b"b" * length
    stream.finish()
    assert str(stream.checksum) == _checksum_of(b"a" * (BUFFER_BYTES - 1 + 2 * THREAD_BYTES))


def test_a_file_that_takes_less_than_it_is_given_gets_everything() -> None:
    inner = _Miserly()
    stream = HashingStream(inner)
    data = bytes(range(250)) * 200
    stream.write(data)
    stream.finish()
    assert inner.getvalue() == data
    assert str(stream.checksum) == _checksum_of(data)


def test_a_file_that_lost_bytes_gets_no_checksum() -> None:
    stream = HashingStream(_Unfeeling())
    stream.write(b"a" * 10_000)
    stream.finish()
    assert stream.checksum is None


def test_a_seek_takes_the_checksum_away() -> None:
    inner = io.BytesIO()
    stream = HashingStream(inner)
    stream.write(b"abc")
    stream.seek(0)
    stream.write(b"x")
    assert stream.tell() == 1
    stream.finish()
    assert inner.getvalue() == b"xbc"
    assert stream.checksum is None


def test_a_truncation_takes_the_checksum_away() -> None:
    stream = HashingStream(io.BytesIO())
    stream.write(b"abc")
    stream.truncate(1)
    stream.finish()
    assert stream.checksum is None


def test_a_file_that_is_not_empty_gets_no_checksum() -> None:
    inner = io.BytesIO(b"abc")
    inner.seek(0, io.SEEK_END)
    stream = HashingStream(inner)
    stream.write(b"def")
    stream.finish()
    assert stream.checksum is None


def test_a_flush_after_each_small_item_costs_no_write(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb", buffering=0) as inner:
        stream = HashingStream(inner)
        for _ in range(100):
            stream.write(b"abc")
            stream.flush()
        assert (tmp_path / "file").stat().st_size == 0
        stream.finish()
    assert (tmp_path / "file").read_bytes() == b"abc" * 100
    assert str(stream.checksum) == _checksum_of(b"abc" * 100)


def test_whoever_asks_for_the_descriptor_finds_the_file_complete(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as inner:
        stream = HashingStream(inner)
        stream.write(b"abc")
        stream.fileno()
        assert (tmp_path / "file").read_bytes() == b"abc"


def test_a_stream_without_a_descriptor_says_so_as_torch_expects() -> None:
    with pytest.raises(io.UnsupportedOperation):
        HashingStream(io.BytesIO()).fileno()


def test_torch_writes_a_file_that_it_reads_again() -> None:
    inner = io.BytesIO()
    stream = HashingStream(inner)
    tensor = torch.arange(300_000, dtype=torch.float32)
    torch.save(tensor, stream)
    stream.finish()
    assert str(stream.checksum) == _checksum_of(inner.getvalue())
    inner.seek(0)
    assert torch.equal(torch.load(inner, weights_only=True), tensor)  # noqa: TID251 - our own bytes
