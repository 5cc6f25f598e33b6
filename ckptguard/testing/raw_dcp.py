"""A small healthy DCP checkpoint from bytes alone, and the same with any one part hostile."""

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ckptguard.testing import raw_pickles as raw
from ckptguard.testing.edits import set_times
from ckptguard.testing.torch_zip_bytes import build_zip

SHARD: Final = "__0_0.distcp"
TENSOR: Final = "w"
OBJECT: Final = "obj"
VALUES: Final = (1.0, 2.0, 3.0, 4.0)


def tensor_item() -> bytes:
    """Return the item of the tensor."""
    pickle = raw.finished(raw.float_tensor(len(VALUES)), protocol=2)
    return build_zip(pickle, {"0": struct.pack(f"<{len(VALUES)}f", *VALUES)})


@dataclass(slots=True, kw_only=True)
class RawCheckpoint:
    """Parts of a checkpoint with one tensor and one object; each may be replaced before `write`.

    Args:
        object_pickle: Content of the object's `data.pkl`, with right CRCs around it.
        planner_data: Opcodes of `Metadata.planner_data`.
        entries: Further opcodes of `state_dict_metadata`, key and value.
        storage_data: Further opcodes of `storage_data`, key and value.
        metadata: The whole `.metadata`; None: a right one.
    """

    object_pickle: bytes = raw.finished(raw.dict_of([(raw.text("lr"), raw.decimal(0.1))]), protocol=2)
    planner_data: bytes = raw.NONE
    entries: list[tuple[bytes, bytes]] = field(default_factory=list)
    storage_data: list[tuple[bytes, bytes]] = field(default_factory=list)
    metadata: bytes | None = None

    def write(self, folder: Path) -> Path:
        """Write it; times are those of a clean save."""
        folder.mkdir(parents=True, exist_ok=True)
        tensor, pickled = tensor_item(), build_zip(self.object_pickle)
        (folder / SHARD).write_bytes(tensor + pickled)
        made = self._metadata(len(tensor), len(pickled)) if self.metadata is None else self.metadata
        (folder / ".metadata").write_bytes(made)
        set_times(folder)
        return folder

    def _metadata(self, tensor_bytes: int, object_bytes: int) -> bytes:
        size = raw.size_of([len(VALUES)])
        chunks = raw.list_of([raw.chunk(raw.size_of([0]), size)])
        entries = [
            (raw.text(TENSOR), raw.tensor_entry(size, chunks)),
            (raw.text(OBJECT), raw.bytes_entry()),
        ]
        shard = raw.text(SHARD)
        places = [
            (
                raw.index(raw.text(TENSOR), raw.size_of([0])),
                raw.stored(shard, raw.number(0), raw.number(tensor_bytes)),
            ),
            (
                raw.index(raw.text(OBJECT)),
                raw.stored(shard, raw.number(tensor_bytes), raw.number(object_bytes)),
            ),
        ]
        return raw.finished(
            raw.metadata([*entries, *self.entries], [*places, *self.storage_data], self.planner_data)
        )


def make_fifo(path: Path) -> None:
    """Put a FIFO where a file is expected: to open it for reading would wait for ever."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
