"""Items beyond 4 GiB, rendered as a sparse stream: never whole in memory."""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from zlib_ng.zlib_ng import crc32

from ckptguard.formats.torch_zip import ZipVerifier
from ckptguard.formats.torch_zip_render import (
    Record,
    align_payload,
    fingerprint,
    render_descriptor,
    render_directory,
    render_local_header,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

LENGTH = (4 << 30) + 4096
BLOCK = bytes(8 << 20)


def pickle_of(num_bytes: int) -> bytes:
    count = b"\x8a\x05" + num_bytes.to_bytes(5, "little")
    storage = (
        b"(X\x07\x00\x00\x00storagectorch\nByteStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
        + count
        + b"tQ"
    )
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + count + b"\x85K\x01\x85\x89"
        b"ccollections\nOrderedDict\n)RtR."
    )


def zeros_crc(length_bytes: int) -> int:
    crc = 0
    while length_bytes:
        step = min(length_bytes, len(BLOCK))
        crc = crc32(memoryview(BLOCK)[:step], crc)
        length_bytes -= step
    return crc


def stream(pickle: bytes) -> tuple[int, Iterator[bytes]]:
    """Return the length of a torch.save zip of LENGTH zero bytes, and its pieces."""
    contents: list[tuple[bytes, bytes | None]] = [
        (b"data.pkl", pickle),
        (b".format_version", b"1"),
        (b".storage_alignment", b"64"),
        (b"byteorder", b"little"),
        (b"data/0", None),
        (b"version", b"3\n"),
    ]
    pieces: list[bytes | None] = []
    records: list[Record] = []
    at = 0
    for name, content in [*contents, (b".data/serialization_id", b"")]:
        if name == b".data/serialization_id":
            content = b"0" * 20 + b"%020d" % fingerprint(records)  # noqa: PLW2901 - follows from the others
        length = LENGTH if content is None else len(content)
        full_name = b"archive/" + name
        payload_offset = align_payload(full_name, offset=at, length_bytes=length, alignment=64)
        header = render_local_header(full_name, offset=at, length_bytes=length, payload_offset=payload_offset)
        assert header is not None
        crc = zeros_crc(LENGTH) if content is None else crc32(content)
        descriptor = render_descriptor(offset=at, length_bytes=length, crc=crc)
        pieces += [header, content, descriptor]
        records.append(Record(name, at, length, crc))
        at = payload_offset + length + len(descriptor)
    directory = b"".join(segment.rendered for segment in render_directory(b"archive/", records, offset=at))
    return at + len(directory), _expand([*pieces, directory])


def _expand(pieces: list[bytes | None]) -> Iterator[bytes]:
    for piece in pieces:
        if piece is not None:
            yield piece
            continue
        for start in range(0, LENGTH, len(BLOCK)):
            yield BLOCK[: min(len(BLOCK), LENGTH - start)]


class _VerifyingFile(io.RawIOBase):
    """A file to write to, that verifies what it is given and keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.verifier = ZipVerifier(None)

    def writable(self) -> bool:
        return True

    def write(self, content: "Buffer") -> int:
        view = memoryview(content).cast("B")
        for _ in self.verifier.feed(view):
            pass
        return len(view)


@pytest.mark.slow
@pytest.mark.torch
def test_an_item_beyond_4_gib_is_proven_while_torch_writes_it() -> None:
    target = _VerifyingFile()
    value = {"w": torch.zeros(LENGTH, dtype=torch.uint8), "b": torch.ones(2)}
    torch.save(value, target)  # type: ignore[arg-type]  # a raw file is enough
    report = target.verifier.finish()
    assert report.problems == ()
    assert report.extents[-1].offset > LENGTH


@pytest.mark.parametrize("is_altered", [False, True])
def test_an_item_beyond_4_gib_is_proven_as_it_streams(*, is_altered: bool) -> None:
    length, pieces = stream(pickle_of(LENGTH))
    verifier = ZipVerifier(length)
    passed = 0
    for number, piece in enumerate(pieces):
        view = memoryview(b"\x01" + piece[1:]) if is_altered and number == 100 else memoryview(piece)
        passed += sum(len(payload.view) for payload in verifier.feed(view))
    report = verifier.finish()
    assert passed == LENGTH
    assert [problem.record for problem in report.problems] == (["data/0"] if is_altered else [])
