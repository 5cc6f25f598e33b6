"""DCP: `.metadata` missing, cut, or saying what is not so."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ckptguard.model.finding import FindingCode as Code
from ckptguard.model.policy import Limits
from ckptguard.testing import edits
from ckptguard.testing.case import WITHOUT_WAITING, Case, Damage, Expectation, Scene, invalid, unknown, valid
from ckptguard.testing.own_metadata import METADATA, edit_metadata
from ckptguard.testing.saves import BASE, BASE_OLDER

_CHANGED: Final = invalid(
    any_codes=(Code.CHECKSUM_MISMATCH, Code.LONG_SHARD, Code.SHORT_SHARD, Code.MANIFEST_MISMATCH)
)

_RESIZED: Final = invalid(Code.SHAPE_MISMATCH, fqn="model.bias")


def _on_file(name: str, edit: Callable[..., Damage], expected: Expectation, **arguments: object) -> Case:
    def arrange(scene: Scene) -> Damage:
        return edit(scene.folder, METADATA, **arguments)

    return Case(name=f"dcp/{name}", source="B01, B02", base=BASE, arrange=arrange, expected=expected)


def _zero_whole(scene: Scene) -> Damage:
    length = (scene.folder / METADATA).stat().st_size
    return edits.zero_range(scene.folder, METADATA, offset=0, length_bytes=length)


def _only_temporary(scene: Scene) -> Damage:
    """Leave what a crash between delete and rename leaves."""
    (scene.folder / METADATA).rename(scene.folder / f"{METADATA}.tmp")
    return Damage(kind="metadata_tmp_only", file=METADATA)


def _not_committed(scene: Scene) -> Damage:
    """Leave what a kill in the middle of the write leaves."""
    edits.remove(scene.folder, METADATA)
    edits.truncate(scene.folder, "__3_0.distcp", length_bytes=4096)
    return edits.remove(scene.folder, "__2_0.distcp")


def _edited(
    name: str,
    change: Callable[[Any], None],
    expected: Expectation,
    *,
    source: str,
    with_manifest: Expectation = _CHANGED,
) -> Case:
    def arrange(scene: Scene) -> Damage:
        edit_metadata(scene.folder, change)
        return Damage(kind=name, file=METADATA)

    return Case(
        name=f"dcp/{name}",
        source=source,
        base=BASE,
        arrange=arrange,
        expected=expected,
        with_manifest=with_manifest,
    )


def _index(metadata: Any, fqn: str, chunk: int = 0) -> Any:  # noqa: ANN401 - torch's Metadata
    return next(index for index in metadata.storage_data if index.fqn == fqn and (index.index or 0) == chunk)


def _drop_slice_and_entry(metadata: Any) -> None:  # noqa: ANN401
    """Slice and entry of model.w[32:48] are gone: a hole."""
    del metadata.storage_data[_index(metadata, "model.w", 2)]
    del metadata.state_dict_metadata["model.w"].chunks[2]


def _drop_entry(metadata: Any) -> None:  # noqa: ANN401
    """The entry of model.w[32:48] is gone, its slice still listed."""
    del metadata.storage_data[_index(metadata, "model.w", 2)]


def _move_slice(metadata: Any) -> None:  # noqa: ANN401
    """model.w[16:32] says that it starts at row 8: an overlap and a hole."""
    import torch  # noqa: PLC0415 - torch late

    chunk = metadata.state_dict_metadata["model.w"].chunks[1]
    metadata.state_dict_metadata["model.w"].chunks[1] = type(chunk)(
        offsets=torch.Size([8, 0]), sizes=chunk.sizes
    )
    index = _index(metadata, "model.w", 1)
    info = metadata.storage_data.pop(index)
    metadata.storage_data[type(index)("model.w", torch.Size([8, 0]), 1)] = info


def _slice_outside(metadata: Any) -> None:  # noqa: ANN401
    """model.w says that it has 56 rows; its last slice ends at row 64."""
    import torch  # noqa: PLC0415 - torch late

    metadata.state_dict_metadata["model.w"].size = torch.Size([56, 32])


def _forget_slice(metadata: Any) -> None:  # noqa: ANN401
    """model.w[32:48] is declared no more, its entry still there."""
    del metadata.state_dict_metadata["model.w"].chunks[2]


def _cast(metadata: Any) -> None:  # noqa: ANN401
    """model.bias is stored as float32 and declared as bfloat16."""
    import dataclasses  # noqa: PLC0415 - used once

    import torch  # noqa: PLC0415 - torch late

    entry = metadata.state_dict_metadata["model.bias"]
    entry.properties = dataclasses.replace(entry.properties, dtype=torch.bfloat16)


def _resize_bias(metadata: Any, *, size: int) -> None:  # noqa: ANN401
    """model.bias is stored with 32 elements and declared with another number."""
    import torch  # noqa: PLC0415 - torch late

    entry = metadata.state_dict_metadata["model.bias"]
    entry.size = torch.Size([size])
    entry.chunks[0] = type(entry.chunks[0])(offsets=torch.Size([0]), sizes=torch.Size([size]))


def _orphan(metadata: Any) -> None:  # noqa: ANN401
    """An entry more than there are tensors."""
    index = _index(metadata, "model.bias")
    extra = type(index)("model.forgotten", index.offset, index.index)
    metadata.storage_data[extra] = metadata.storage_data[index]


def _forget_tensor(metadata: Any) -> None:  # noqa: ANN401
    """model.bias is declared no more, its entry still there."""
    del metadata.state_dict_metadata["model.bias"]


def _swap_entries(metadata: Any) -> None:  # noqa: ANN401
    """model.w[0:16] and optim.exp_avg.w[0:16], equal in shape, point at each other's bytes."""
    first, second = _index(metadata, "model.w"), _index(metadata, "optim.exp_avg.w")
    stored = metadata.storage_data
    stored[first], stored[second] = stored[second], stored[first]


def _point_elsewhere(metadata: Any, **fields: object) -> None:  # noqa: ANN401
    """The entry of model.bias names bytes that are not the checkpoint's."""
    info = metadata.storage_data[_index(metadata, "model.bias")]
    for name, value in fields.items():
        setattr(info, name, value)


def _elsewhere(name: str, expected: Expectation, **fields: object) -> Case:
    return _edited(name, partial(_point_elsewhere, **fields), expected, source="B25")


def _older_metadata(scene: Scene) -> Damage:
    return edits.replace(scene.folder, METADATA, scene.saves / BASE_OLDER / METADATA)


DCP_METADATA: Final[tuple[Case, ...]] = (
    _on_file("metadata_missing", edits.remove, invalid(Code.NOT_COMMITTED)),
    _on_file("metadata_empty", edits.truncate, invalid(Code.EMPTY_METADATA, file=METADATA), length_bytes=0),
    _on_file(
        "metadata_half", edits.truncate, invalid(Code.TRUNCATED_METADATA, file=METADATA), length_bytes=1206
    ),
    _on_file(
        "metadata_short_by_1",
        edits.truncate_by,
        invalid(Code.TRUNCATED_METADATA, file=METADATA),
        removed_bytes=1,
    ),
    _on_file(
        "metadata_bit_flip",
        edits.flip_bit,
        invalid(Code.MALFORMED_METADATA, file=METADATA),
        offset=0,
        bit=3,
    ),
    Case(
        name="dcp/metadata_zeros",
        source="B02",
        base=BASE,
        arrange=_zero_whole,
        expected=invalid(Code.MALFORMED_METADATA, file=METADATA),
    ),
    Case(
        name="dcp/metadata_tmp_only",
        source="B01",
        base=BASE,
        arrange=_only_temporary,
        expected=invalid(Code.NOT_COMMITTED),
    ),
    Case(
        name="dcp/killed_before_commit",
        source="B01",
        base=BASE,
        arrange=_not_committed,
        expected=invalid(Code.NOT_COMMITTED),
    ),
    _edited("hole", _drop_slice_and_entry, invalid(Code.COVERAGE_HOLE, fqn="model.w"), source="B03a"),
    _edited("missing_item", _drop_entry, invalid(Code.MISSING_ITEM, fqn="model.w"), source="B03b"),
    _edited(
        "overlap",
        _move_slice,
        invalid(Code.COVERAGE_OVERLAP, Code.COVERAGE_HOLE, fqn="model.w"),
        source="B03c",
    ),
    _edited("slice_outside", _slice_outside, invalid(Code.SLICE_OUT_OF_BOUNDS, fqn="model.w"), source="M4"),
    _edited(
        "slice_forgotten",
        _forget_slice,
        invalid(Code.COVERAGE_HOLE, Code.ORPHAN_ITEM, fqn="model.w"),
        source="M4",
    ),
    _edited("dtype", _cast, invalid(Code.DTYPE_MISMATCH, fqn="model.bias"), source="B19"),
    _edited("shape_smaller", partial(_resize_bias, size=16), _RESIZED, source="B18"),
    _edited("shape_larger", partial(_resize_bias, size=64), _RESIZED, source="B18"),
    _edited("orphan", _orphan, invalid(Code.ORPHAN_ITEM, Code.ITEM_OVERLAP), source="M4"),
    _edited("tensor_forgotten", _forget_tensor, invalid(Code.ORPHAN_ITEM), source="facts c: Missing key"),
    _edited("limit_swapped_entries", _swap_entries, valid(), source="M5: no trace in bare files"),
    Case(
        name="dcp/more_items_than_allowed",
        source="design 3: what was started and could not be finished",
        base=BASE,
        arrange=lambda _scene: Damage(kind="as_saved"),
        expected=unknown(Code.LIMIT_EXCEEDED),
        policy=replace(WITHOUT_WAITING, limits=Limits(max_items=5)),
    ),
    _elsewhere("escape_parent", invalid(Code.PATH_ESCAPE), relative_path="../outside.distcp"),
    _elsewhere("escape_absolute", invalid(Code.PATH_ESCAPE), relative_path="/etc/hostname"),
    _elsewhere("huge_length", invalid(Code.SHORT_SHARD, file="__1_0.distcp"), length=10**15),
    _elsewhere("negative_offset", invalid(Code.ITEM_OUT_OF_BOUNDS), offset=-1),
    Case(
        name="dcp/limit_older_metadata",
        source="facts c: right, because offsets are equal",
        base=BASE,
        arrange=_older_metadata,
        expected=valid(),
    ),
)
