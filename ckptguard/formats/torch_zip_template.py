"""Small tensor items, proven in microseconds: equal to a sound item in all but payload and CRC.

Everything before the payload is constant for items of one kind; everything after it
is constant but for the payload's CRC and what follows from it. So one sound item,
proven by `ZipVerifier`, teaches a template, and an item that equals the template
rebuilt from its own payload is byte for byte what torch writes.
"""

from typing import Final, NamedTuple

from zlib_ng.zlib_ng import crc32

from ckptguard.formats.protocol import CrcState, ItemReport, RecordExtent, StoredTensor
from ckptguard.formats.torch_zip_render import (
    CENTRAL_CRC_OFFSET,
    CENTRAL_FIXED_BYTES,
    HASH_DIGITS,
    SERIALIZATION_ID,
    Record,
    combine_hash,
    fingerprint,
)
from ckptguard.model.layout import Item

MAX_TEMPLATES: Final = 4096
MAX_ITEM_BYTES: Final = 1 << 20
"""Longer items are cheap enough by the generic path."""

_CRC_IN_DESCRIPTOR: Final = 4
_ID_BYTES: Final = 2 * HASH_DIGITS

_Key = tuple[int, str | None, tuple[int, ...] | None]


class Template(NamedTuple):
    """The constant parts of a kind of item, in order.

    Args:
        head: Up to the payload.
        payload_end: Offset after the payload.
        before_id: From the payload's CRC to the second half of the serialization id.
        after_id: From there to the id record's CRC.
        between_crcs: From that CRC to the payload's in the central directory.
        before_last_crc: From there to the id record's CRC in the central directory.
        end: The rest.
        payload_magic: Magic of the payload's descriptor.
        seed: Fingerprint of the records before the payload.
        later_crcs: CRCs of the records between payload and id.
        id_seed: CRC-32 of the first half of the id.
        tensor: What all items with this head store.
    """

    head: bytes
    payload_end: int
    payload_magic: bytes
    before_id: bytes
    after_id: bytes
    between_crcs: bytes
    before_last_crc: bytes
    end: bytes
    seed: int
    later_crcs: tuple[int, ...]
    id_seed: int
    tensor: StoredTensor


class TemplateCache:
    """Templates by kind of item. Used by one thread.

    Args:
        max_templates: Kinds to keep; the cache is emptied when full.
    """

    def __init__(self, max_templates: int = MAX_TEMPLATES) -> None:
        self._templates: dict[_Key, Template] = {}
        self._max_templates = max_templates

    def verify(self, view: memoryview, item: Item) -> tuple[memoryview, StoredTensor] | None:
        """Prove a whole item by its template.

        Args:
            view: The item's bytes, contiguous.
            item: What the metadata says of it.

        Returns:
            The payload, a part of `view`, and the tensor stored; None if there is no
            template for it or it differs: then `ZipVerifier` finds out how.

        Cost: about 4 us, and the CRC-32 of the payload.
        """
        template = self._templates.get(_key(item))
        if template is None or len(view) != item.length_bytes:
            return None
        start, end = len(template.head), template.payload_end
        # Comparing copies is eight times faster than comparing memoryviews.
        if bytes(view[:start]) != template.head:
            return None
        payload = view[start:end]
        if bytes(view[end:]) != _render_tail(template, crc32(payload)):
            return None
        return payload, template.tensor

    def learn(self, view: memoryview, item: Item, report: ItemReport) -> memoryview:
        """Keep the structure of a sound item; items that have no template shape are left alone.

        Args:
            view: The item's bytes.
            item: What the metadata says of it; must agree with the report's tensor.
            report: What `ZipVerifier` said of exactly these bytes: no problems, a tensor.

        Returns:
            The payload, a part of `view`.

        Raises:
            ValueError: The report has problems or no tensor.
        """
        tensor = report.tensor
        if tensor is None or report.problems:
            msg = "only a sound tensor item can teach a template"
            raise ValueError(msg)
        name = f"data/{tensor.storage_key}".encode()
        index = next(at for at, extent in enumerate(report.extents) if extent.name == name)
        payload = report.extents[index]
        if report.crc is CrcState.CHECKED and payload.length_bytes and len(view) <= MAX_ITEM_BYTES:
            template = _make_template(bytes(view), report.extents, index, tensor)
            if template is not None:
                if len(self._templates) >= self._max_templates:
                    self._templates.clear()
                self._templates[_key(item)] = template
        return view[payload.payload_offset : payload.payload_offset + payload.length_bytes]


def _key(item: Item) -> _Key:
    return item.length_bytes, item.dtype, item.slice.sizes if item.slice else None


def _render_tail(template: Template, crc: int) -> bytes:
    """Rebuild everything after a payload from its CRC-32."""
    combined = combine_hash(template.seed, crc)
    for later in template.later_crcs:
        combined = combine_hash(combined, later)
    digits = b"%020d" % combined
    crc_bytes = crc.to_bytes(4, "little")
    id_crc = crc32(digits, template.id_seed).to_bytes(4, "little")
    return b"".join(
        (
            template.payload_magic,
            crc_bytes,
            template.before_id,
            digits,
            template.after_id,
            id_crc,
            template.between_crcs,
            crc_bytes,
            template.before_last_crc,
            id_crc,
            template.end,
        )
    )


def _make_template(
    content: bytes, extents: tuple[RecordExtent, ...], index: int, tensor: StoredTensor
) -> Template | None:
    """Cut a sound item at its variable places; None if it has no serialization id after the payload."""
    payload, last = extents[index], extents[-1]
    if last.name != SERIALIZATION_ID or last is payload:
        return None
    payload_end = payload.payload_offset + payload.length_bytes
    id_half = last.payload_offset + HASH_DIGITS
    id_end = last.payload_offset + _ID_BYTES
    central = _central_crc_offsets(content, extents)
    template = Template(
        head=content[: payload.payload_offset],
        payload_end=payload_end,
        payload_magic=content[payload_end : payload_end + _CRC_IN_DESCRIPTOR],
        before_id=content[payload_end + _CRC_IN_DESCRIPTOR + 4 : id_half],
        after_id=content[id_end : id_end + _CRC_IN_DESCRIPTOR],
        between_crcs=content[id_end + _CRC_IN_DESCRIPTOR + 4 : central[index]],
        before_last_crc=content[central[index] + 4 : central[-1]],
        end=content[central[-1] + 4 :],
        seed=fingerprint(
            [Record(extent.name, 0, extent.length_bytes, extent.crc) for extent in extents[:index]]
        ),
        later_crcs=tuple(extent.crc for extent in extents[index + 1 : -1] if extent.length_bytes),
        id_seed=crc32(content[last.payload_offset : id_half]),
        tensor=tensor,
    )
    # A payload that begins like a descriptor counts twice in the id (see `fingerprint`).
    is_exact = _render_tail(template, payload.crc) == content[payload_end:]
    return template if is_exact else None


def _central_crc_offsets(content: bytes, extents: tuple[RecordExtent, ...]) -> list[int]:
    last = extents[-1]
    at = last.payload_offset + last.length_bytes + 16
    archive_length = content.index(b"/") + 1 - 30
    offsets = []
    for extent in extents:
        offsets.append(at + CENTRAL_CRC_OFFSET)
        at += CENTRAL_FIXED_BYTES + archive_length + len(extent.name)
    return offsets
