"""Safetensors: headers that lie, files cut or grown, an index that maps to the wrong file.

There is no checksum in the format, so what changes only payload stays VALID at
`structure` without a manifest.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ckptguard.model.finding import FindingCode as Code
from ckptguard.model.verdict import Assurance
from ckptguard.testing import edits
from ckptguard.testing.case import Case, Damage, Expectation, Scene, invalid, valid
from ckptguard.testing.safetensors_bytes import INDEX_NAME, decode, encode, write_index
from ckptguard.testing.saves import HF_SHARDED

_FIRST: Final = "model-00001-of-00002.safetensors"
_SECOND: Final = "model-00002-of-00002.safetensors"
_UNSEEN: Final = valid(Code.NO_CHECKSUM, at_most=Assurance.STRUCTURE)
_BROKEN: Final = invalid(Code.HEADER_MALFORMED, file=_FIRST)
_SHORT: Final = invalid(Code.SHORT_SHARD, file=_FIRST)
_LONG: Final = invalid(Code.LONG_SHARD, file=_FIRST)
_CHANGED: Final = invalid(Code.CHECKSUM_MISMATCH, file=_FIRST)


def _case(
    name: str,
    arrange: Callable[[Scene], Damage],
    expected: Expectation,
    *,
    source: str = "B33",
    with_manifest: Expectation | None = None,
) -> Case:
    return Case(
        name=f"safetensors/{name}",
        source=source,
        base=HF_SHARDED,
        arrange=arrange,
        expected=expected,
        with_manifest=with_manifest,
    )


def _on_first(edit: Callable[..., Damage], **arguments: object) -> Callable[[Scene], Damage]:
    def arrange(scene: Scene) -> Damage:
        return edit(scene.folder, _FIRST, **arguments)

    return arrange


def _edit_header(scene: Scene, *, change: Callable[[dict[str, Any]], None], kind: str) -> Damage:
    path = scene.folder / _FIRST
    header, data = decode(path)
    change(header)
    with edits.times_kept(path):
        path.write_bytes(encode(header, data))
    return Damage(kind=kind, file=_FIRST)


def _header(
    name: str, change: Callable[[dict[str, Any]], None], expected: Expectation, *, source: str = "B33"
) -> Case:
    return _case(name, partial(_edit_header, change=change, kind=name), expected, source=source)


def _leave_gap(header: dict[str, Any]) -> None:
    header["a"] = {"dtype": "F32", "shape": [7], "data_offsets": [0, 28]}


def _overlap(header: dict[str, Any]) -> None:
    header["b"] = {"dtype": "F32", "shape": [25], "data_offsets": [28, 128]}


def _without_dtype(header: dict[str, Any]) -> None:
    header["a"]["dtype"] = ""


def _wrong_size(header: dict[str, Any]) -> None:
    header["a"]["shape"] = [9]


def _zero_tail(scene: Scene) -> Damage:
    length = (scene.folder / _FIRST).stat().st_size
    return edits.zero_range(scene.folder, _FIRST, offset=length - 64, length_bytes=64)


def _flip_payload(scene: Scene) -> Damage:
    offset = (scene.folder / _FIRST).stat().st_size - 10
    return edits.flip_bit(scene.folder, _FIRST, offset=offset, bit=6, fqn="b")


def _remap(scene: Scene) -> Damage:
    """The index says that `c` is in the first file; it is in the second."""
    path = scene.folder / INDEX_NAME
    with edits.times_kept(path):
        write_index(scene.folder, {"a": _FIRST, "b": _FIRST, "c": _FIRST}, total_bytes=256)
    return Damage(kind="index_wrong_file", file=INDEX_NAME)


def _wrong_total(scene: Scene) -> Damage:
    path = scene.folder / INDEX_NAME
    with edits.times_kept(path):
        write_index(scene.folder, {"a": _FIRST, "b": _FIRST, "c": _SECOND}, total_bytes=999)
    return Damage(kind="index_total", file=INDEX_NAME)


def _index_not_json(scene: Scene) -> Damage:
    return edits.truncate_by(scene.folder, INDEX_NAME, removed_bytes=20)


def _remove_second(scene: Scene) -> Damage:
    return edits.remove(scene.folder, _SECOND)


_HUGE_HEADER: Final = struct.pack("<Q", 10**12)

SAFETENSORS: Final[tuple[Case, ...]] = (
    _case("bit_flip_payload", _flip_payload, _UNSEEN, source="M11", with_manifest=_CHANGED),
    _case("zero_range", _zero_tail, _UNSEEN, source="B09", with_manifest=_CHANGED),
    _case("truncate_1", _on_first(edits.truncate_by, removed_bytes=1), _SHORT, with_manifest=_SHORT),
    _case("truncate_half", _on_first(edits.truncate_by, removed_bytes=64), _SHORT, with_manifest=_SHORT),
    _case(
        "truncate_in_header",
        _on_first(edits.truncate, length_bytes=40),
        invalid(any_codes=(Code.HEADER_MALFORMED, Code.SHORT_SHARD), file=_FIRST),
    ),
    _case(
        "truncate_all",
        _on_first(edits.truncate, length_bytes=0),
        invalid(any_codes=(Code.HEADER_MALFORMED, Code.SHORT_SHARD), file=_FIRST),
    ),
    _case("append_8", _on_first(edits.append, data=bytes(8)), _LONG, with_manifest=_LONG),
    _case(
        "sparse_hole",
        _on_first(edits.make_sparse),
        invalid(any_codes=(Code.HEADER_MALFORMED, Code.LONG_SHARD), file=_FIRST),
        source="B09",
        with_manifest=invalid(any_codes=(Code.CHECKSUM_MISMATCH, Code.HEADER_MALFORMED), file=_FIRST),
    ),
    _case(
        "header_length_10_12",
        _on_first(edits.overwrite, offset=0, data=_HUGE_HEADER),
        invalid(any_codes=(Code.HEADER_MALFORMED, Code.SHORT_SHARD), file=_FIRST),
    ),
    _case(
        "header_bit_flip",
        _on_first(edits.flip_bit, offset=8, bit=3),
        _BROKEN,
        source="facts f",
        with_manifest=_CHANGED,
    ),
    _header("gap", _leave_gap, _BROKEN),
    _header("overlap", _overlap, _BROKEN),
    _header("dtype_empty", _without_dtype, _BROKEN, source="B32"),
    _header("wrong_size", _wrong_size, _BROKEN),
    _case(
        "missing",
        _remove_second,
        invalid(Code.MISSING_SHARD, file=_SECOND),
        source="B32",
        with_manifest=invalid(Code.MISSING_SHARD, file=_SECOND),
    ),
    _case("index_wrong_file", _remap, invalid(Code.INDEX_MISMATCH, fqn="c"), source="B32"),
    _case("index_total", _wrong_total, valid(Code.INDEX_MISMATCH, at_most=Assurance.STRUCTURE), source="B32"),
    _case(
        "index_truncated",
        _index_not_json,
        invalid(any_codes=(Code.MALFORMED_METADATA, Code.TRUNCATED_METADATA), file=INDEX_NAME),
        source="facts f",
    ),
)
