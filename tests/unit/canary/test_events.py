"""What a canary child says is believed only as far as it has the form of an event."""

import json
import tracemalloc
from collections import deque
from itertools import chain

import pytest

from ckptguard.canary.events import EventLines, parse_event
from ckptguard.errors import CanaryError
from ckptguard.scan.result import FileScan, scan_to_json


def line(**event: object) -> bytes:
    return json.dumps(event).encode()


def test_a_file_event_comes_back_as_the_scan_that_it_was() -> None:
    scan = FileScan(path="a", length_bytes=3, version=None)
    assert parse_event(line(event="file", scan=scan_to_json(scan)))["scan"] == scan


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"Segmentation fault",
        b"[" * 100_000,
        b"1",
        b"null",
        b"\xff",
        line(event="other"),
        line(event=["file"]),
        line(event="done"),
        line(event="failed", message=1, is_about_bytes=False),
        line(event="file", scan={"path": "a"}),
        line(event="file", scan=scan_to_json(FileScan(path="a", length_bytes=1)) | {"items": "9"}),
        line(event="file", scan=scan_to_json(FileScan(path="a", length_bytes=1)) | {"items": True}),
        line(event="file", scan=scan_to_json(FileScan(path="a", length_bytes=1)) | {"path": None}),
        line(event="file", scan=scan_to_json(FileScan(path="a", length_bytes=1)) | {"findings": [{}]}),
    ],
)
def test_anything_else_is_a_fault_of_the_canary(said: bytes) -> None:
    with pytest.raises(CanaryError):
        parse_event(said)


def test_lines_are_cut_wherever_the_chunks_end() -> None:
    said = b"one\ntwo\n\nthree\nrest"
    for size in range(1, len(said)):
        lines = EventLines()
        chunks = [said[at : at + size] for at in range(0, len(said), size)]
        assert [text for chunk in chunks for text in lines.feed(chunk)] == [b"one", b"two", b"", b"three"]


def test_a_line_without_end_is_cut_off() -> None:
    lines = EventLines(max_bytes=1 << 20)
    tracemalloc.start()
    with pytest.raises(CanaryError):
        deque(chain.from_iterable(lines.feed(bytes(1 << 16)) for _ in range(1000)), maxlen=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 << 20
