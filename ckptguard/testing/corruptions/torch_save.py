"""One `torch.save` file: the same damage as to an item, without anything that describes it."""

from collections.abc import Callable
from functools import partial
from typing import Final

from ckptguard.model.finding import FindingCode as Code
from ckptguard.testing import edits
from ckptguard.testing.case import Case, Damage, Expectation, Scene, invalid
from ckptguard.testing.saves import TORCH_SAVE as BASE
from ckptguard.testing.zip_map import Area, map_zip

_FILE: Final = "model.pt"
_CHANGED: Final = invalid(Code.CHECKSUM_MISMATCH, file=_FILE)
_CRC: Final = invalid(Code.CRC_MISMATCH, file=_FILE)
_ZIP: Final = invalid(Code.ZIP_MALFORMED, file=_FILE)
_SHORT: Final = invalid(Code.SHORT_SHARD, file=_FILE)
_SHORT_OR_ZIP: Final = invalid(any_codes=(Code.ZIP_MALFORMED, Code.SHORT_SHARD), file=_FILE)


def _flip(area: Area, scene: Scene, *, record: str = "", within: int = 5) -> Damage:
    regions = map_zip((scene.folder / _FILE).read_bytes())
    region = next(each for each in regions if each.area is area and each.record.startswith(record))
    return edits.flip_bit(scene.folder, _FILE, offset=region.start + within, bit=3)


def _case(
    name: str,
    arrange: Callable[[Scene], Damage],
    expected: Expectation,
    *,
    with_manifest: Expectation = _CHANGED,
) -> Case:
    return Case(
        name=f"torch_save/{name}",
        source="B08, B09, M1b",
        base=BASE,
        arrange=arrange,
        expected=expected,
        with_manifest=with_manifest,
    )


def _on_file(edit: Callable[..., Damage], **arguments: object) -> Callable[[Scene], Damage]:
    def arrange(scene: Scene) -> Damage:
        return edit(scene.folder, _FILE, **arguments)

    return arrange


def _zero_payload(scene: Scene) -> Damage:
    regions = map_zip((scene.folder / _FILE).read_bytes())
    payload = next(region for region in regions if region.area is Area.PAYLOAD)
    return edits.zero_range(scene.folder, _FILE, offset=payload.start + 64, length_bytes=1024)


TORCH_SAVE: Final[tuple[Case, ...]] = (
    _case("bit_flip_payload", partial(_flip, Area.PAYLOAD), _CRC),
    _case("bit_flip_data_pkl", partial(_flip, Area.PICKLE, within=40), _CRC),
    _case("bit_flip_local_header", partial(_flip, Area.LOCAL_HEADER, within=8), _ZIP),
    _case("bit_flip_padding", partial(_flip, Area.PADDING, record="data/0", within=9), _ZIP),
    _case("bit_flip_descriptor", partial(_flip, Area.DESCRIPTOR, record="data/0"), _ZIP),
    _case("bit_flip_central_directory", partial(_flip, Area.CENTRAL_DIRECTORY, within=38), _ZIP),
    _case("bit_flip_end_record", partial(_flip, Area.END_RECORDS, within=48), _ZIP),
    _case("zero_range", _zero_payload, _CRC),
    _case("sparse_hole", _on_file(edits.make_sparse), _ZIP),
    _case("truncate_1", _on_file(edits.truncate_by, removed_bytes=1), _SHORT_OR_ZIP, with_manifest=_SHORT),
    _case(
        "truncate_4096",
        _on_file(edits.truncate_by, removed_bytes=4096),
        _SHORT_OR_ZIP,
        with_manifest=_SHORT,
    ),
    _case("truncate_all", _on_file(edits.truncate, length_bytes=0), _SHORT_OR_ZIP, with_manifest=_SHORT),
    _case(
        "insert_byte",
        _on_file(edits.insert, offset=0, data=b"\x00"),
        _ZIP,
        with_manifest=invalid(Code.LONG_SHARD, file=_FILE),
    ),
)
