"""DCP: bytes changed, lost or added in the files of one finished save."""

from collections.abc import Callable
from functools import partial
from typing import Final

from ckptguard.model.finding import FindingCode as Code
from ckptguard.testing import edits
from ckptguard.testing.case import Case, Damage, Expectation, Scene, invalid, valid
from ckptguard.testing.own_metadata import find_item
from ckptguard.testing.saves import BASE
from ckptguard.testing.zip_map import Area, map_zip

_TARGET: Final = "__1_0.distcp"
"""Holds model.w[16:32], model.bias and optim.exp_avg.w[16:32], in this order."""
_CHANGED: Final = invalid(Code.CHECKSUM_MISMATCH, file=_TARGET)


def _flip(
    area: Area, scene: Scene, *, fqn: str = "model.w", record: str = "", within: int = 5, bit: int = 3
) -> Damage:
    """Flip a bit in one area of an item, `within` bytes after the area's start."""
    corner = (16, 0) if fqn == "model.w" else None
    item = find_item(scene.folder, fqn, corner)
    data = (scene.folder / item.file).read_bytes()[item.offset : item.offset + item.length_bytes]
    region = next(
        region for region in map_zip(data) if region.area is area and region.record.startswith(record)
    )
    offset = item.offset + region.start + within
    return edits.flip_bit(scene.folder, item.file, offset=offset, bit=bit, fqn=fqn)


def _flips(name: str, area: Area, code: Code, **place: object) -> Case:
    return Case(
        name=f"dcp/bit_flip_{name}",
        source="B08, M1b",
        base=BASE,
        arrange=partial(_flip, area, **place),  # type: ignore[arg-type]
        expected=invalid(code, file=_TARGET, fqn="model.w"),
        with_manifest=_CHANGED,
    )


def _zero_payload(scene: Scene) -> Damage:
    item = find_item(scene.folder, "model.w", (16, 0))
    return edits.zero_range(scene.folder, item.file, offset=item.offset + 704 + 512, length_bytes=1024)


def _flip_frame(scene: Scene) -> Damage:
    """Flip a bit of the magic number of the first zstd frame."""
    return edits.flip_bit(scene.folder, "__0_0.distcp", offset=0, bit=1)


def _on_target(
    name: str,
    edit: Callable[..., Damage],
    expected: Expectation,
    *,
    source: str,
    with_manifest: Expectation | None = None,
    **arguments: object,
) -> Case:
    def arrange(scene: Scene) -> Damage:
        return edit(scene.folder, _TARGET, **arguments)

    return Case(
        name=f"dcp/{name}",
        source=source,
        base=BASE,
        arrange=arrange,
        expected=expected,
        with_manifest=with_manifest or expected,
    )


_SHORT: Final = invalid(Code.SHORT_SHARD, file=_TARGET)
_HALF_BYTES: Final = 8955 // 2

DCP_BYTES: Final[tuple[Case, ...]] = (
    _flips("payload", Area.PAYLOAD, Code.CRC_MISMATCH),
    _flips("data_pkl", Area.PICKLE, Code.CRC_MISMATCH, within=40),
    _flips("small_record", Area.SMALL_RECORD, Code.CRC_MISMATCH, record="byteorder", within=1),
    _flips("local_header", Area.LOCAL_HEADER, Code.ZIP_MALFORMED, within=8),
    _flips("padding", Area.PADDING, Code.ZIP_MALFORMED, record="data/0", within=9),
    _flips("descriptor", Area.DESCRIPTOR, Code.ZIP_MALFORMED, record="data/0"),
    _flips("central_directory", Area.CENTRAL_DIRECTORY, Code.ZIP_MALFORMED, within=38),
    _flips("end_record", Area.END_RECORDS, Code.ZIP_MALFORMED, within=48),
    Case(
        name="dcp/bit_flip_bytes_item",
        source="B08",
        base=BASE,
        arrange=partial(_flip, Area.PICKLE, fqn="train.note", within=9),
        expected=invalid(Code.CRC_MISMATCH, file="__3_0.distcp", fqn="train.note"),
        with_manifest=invalid(Code.CHECKSUM_MISMATCH, file="__3_0.distcp"),
    ),
    Case(
        name="dcp/zero_range",
        source="B09",
        base=BASE,
        arrange=_zero_payload,
        expected=invalid(Code.CRC_MISMATCH, file=_TARGET, fqn="model.w"),
        with_manifest=_CHANGED,
    ),
    _on_target(
        "sparse_hole",
        edits.make_sparse,
        invalid(Code.ZIP_MALFORMED, file=_TARGET, fqn="model.w"),
        source="B09",
        with_manifest=_CHANGED,
    ),
    Case(
        name="dcp/bit_flip_zstd_frame",
        source="facts a: zstd frames carry no checksum, the zip inside does",
        base="dcp_torch2_13_0_zstd_ws2",
        arrange=_flip_frame,
        expected=invalid(Code.TRANSFORM_MALFORMED, file="__0_0.distcp"),
        with_manifest=invalid(Code.CHECKSUM_MISMATCH, file="__0_0.distcp"),
        is_corpus=True,
    ),
    _on_target("truncate_1", edits.truncate_by, _SHORT, source="B06", removed_bytes=1),
    _on_target("truncate_4096", edits.truncate_by, _SHORT, source="B07", removed_bytes=4096),
    _on_target("truncate_half", edits.truncate, _SHORT, source="B07", length_bytes=_HALF_BYTES),
    _on_target("truncate_all", edits.truncate, _SHORT, source="B06", length_bytes=0),
    _on_target("missing", edits.remove, invalid(Code.MISSING_SHARD, file=_TARGET), source="B04"),
    _on_target(
        "append_byte",
        edits.append,
        valid(Code.LONG_SHARD),
        source="facts c: loads right, but torch leaves no tail",
        with_manifest=invalid(Code.LONG_SHARD, file=_TARGET),
        data=b"\x00",
    ),
    _on_target(
        "insert_byte",
        edits.insert,
        invalid(Code.ZIP_MALFORMED, file=_TARGET),
        source="facts c",
        with_manifest=invalid(Code.LONG_SHARD, file=_TARGET),
        offset=0,
        data=b"\x00",
    ),
)
