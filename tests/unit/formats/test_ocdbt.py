"""OCDBT: envelopes that are checked, trees that are walked, and hostile ones that end."""

import pytest

from ckptguard.errors import FormatError, LimitExceededError, UnsupportedFormatError
from ckptguard.formats.crc32c import crc32c
from ckptguard.formats.ocdbt import MANIFEST, Database, FaultKind, Value, read_database
from ckptguard.formats.ocdbt_codec import NODE_MAGIC, Columns, open_block, read_file_table
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import list_folder
from ckptguard.storage.memory import MemoryStore
from tests.ocdbt_blocks import MISSING, block, interior, leaf, manifest, table, varint


def walked(files: dict[str, bytes], limits: Limits | None = None) -> Database:
    store = MemoryStore(files)
    return read_database(store, list_folder(store, "", max_files=100), limits or Limits())


def test_crc_is_that_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720 appendix B.4
    assert crc32c(bytes(32)) == 0x8A9136AA


@pytest.mark.parametrize("compression", [0, 1])
def test_a_sound_block_gives_its_body(compression: int) -> None:
    assert open_block(block(NODE_MAGIC, b"body", compression=compression), magic=NODE_MAGIC).data == b"body"


def test_every_flipped_bit_of_a_block_is_found() -> None:
    sound = block(NODE_MAGIC, b"some body of a node", compression=1)
    for bit in range(8 * len(sound)):
        altered = bytearray(sound)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises((FormatError, UnsupportedFormatError)):
            open_block(bytes(altered), magic=NODE_MAGIC)


@pytest.mark.parametrize("change", [{"version": 1}, {"compression": 2}])
def test_what_is_newer_is_not_damage(change: dict[str, int]) -> None:
    with pytest.raises(UnsupportedFormatError):
        open_block(block(NODE_MAGIC, b"", **change), magic=NODE_MAGIC)


def test_a_body_of_a_bomb_is_refused() -> None:
    with pytest.raises(LimitExceededError):
        open_block(block(NODE_MAGIC, bytes(65 << 20), compression=1), magic=NODE_MAGIC)


def test_files_share_beginnings_and_bases() -> None:
    body = varint(2, 6, 6, 1, 2, 2) + b"p/d/ab" + b"c"
    first, second = read_file_table(Columns(body), base="x/")
    assert (first.base, first.path) == ("x/p/", "x/p/d/ab")
    assert (second.base, second.path) == ("x/p/", "x/p/d/abc")


def test_a_tree_of_two_levels_is_walked_with_its_prefixes_and_bases() -> None:
    left = leaf(table(("", "v")), {b".zarray": b"{}", b"0.0": (0, 3, 5)})
    right = leaf(table(), {b"y": b"1"})
    nodes = table(("p/", "d/n"))  # from here on all paths count from "p/"
    root = interior(
        table(("", "d/n")), [(b"a/.z", 2, 0, 0, len(left)), (b"b/y", 2, 0, len(left), len(right))]
    )
    files = {
        MANIFEST: manifest(nodes, offset=len(left + right), length=len(root), height=1),
        "p/d/n": left + right + root,
    }
    database = walked(files)
    assert database.faults == []
    assert database.values == {
        "a/.zarray": Value("", 0, 2, b"{}"),
        "a/0.0": Value("p/v", 3, 5),
        "b/y": Value("", 0, 1, b"1"),
    }


def test_an_empty_tree_has_no_keys() -> None:
    files = {MANIFEST: manifest(table(("", "d/n")), offset=MISSING, length=MISSING)}
    assert walked(files) == Database(manifest=walked(files).manifest)


def test_versions_in_files_of_their_own_are_not_read() -> None:
    files = {MANIFEST: manifest(table(), offset=MISSING, length=MISSING, kind=1)}
    (fault,) = walked(files).faults
    assert fault.kind is FaultKind.UNREAD


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (leaf(table(), {b"b": b"1", b"a": b"2"}), "keys out of order"),
        (leaf(table(), {b"a": (3, 0, 1)}), "file 3 of a table of 0"),
        (interior(table(), [(b"a", 1, 0, 0, 1)]), "height 1 where one of 0"),
        (b"nothing", "does not begin with"),
        (leaf(table(), {b"a": b"1"})[:-1], "states a length"),
        (block(NODE_MAGIC, b"\0" + varint(1 << 30)), "table of"),
        (block(NODE_MAGIC, b"\0" + varint(0) + varint(1 << 19)), "a column of"),
        (block(NODE_MAGIC, b"\0" + b"\xff" * 11), "no number"),
    ],
)
def test_a_node_that_cannot_be_is_a_fault_with_its_place(node: bytes, reason: str) -> None:
    nodes = table(("", "d/n"))
    database = walked({MANIFEST: manifest(nodes, offset=0, length=len(node)), "d/n": node})
    (fault,) = database.faults
    assert (fault.path, fault.offset, fault.kind) == ("d/n", 0, FaultKind.MALFORMED)
    assert reason in fault.reason


@pytest.mark.parametrize("path", ["../d/n", "/d/n", "d/gone"])
def test_nothing_outside_is_opened(path: str) -> None:
    database = walked({MANIFEST: manifest(table(("", path)), offset=0, length=40), "d/n": bytes(40)})
    assert [fault.reason for fault in database.faults] == ["is not there"]


def test_a_tree_that_leads_to_itself_ends() -> None:
    """Each level names the next one many times: more paths than anything could read."""
    nodes, content, length = table(("", "d/n")), b"", 0
    below = leaf(table(), {b"k": b"1"})
    for height in range(12):
        content, length = content + below, len(below)
        at = len(content) - length
        children = [(bytes([97 + index]), 1, 0, at, length) for index in range(20)]
        below = interior(nodes, children, height=height + 1)
    files = {
        MANIFEST: manifest(nodes, offset=len(content), length=len(below), height=12),
        "d/n": content + below,
    }
    with pytest.raises(LimitExceededError):
        walked(files, Limits(max_items=500))
