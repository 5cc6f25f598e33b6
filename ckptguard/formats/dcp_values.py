"""The classes of DCP's `.metadata`, as values of our own: no torch, no code of the writer.

Fields are taken as pickled, of any type; `ckptguard.formats.dcp_declared` and
`ckptguard.formats.dcp_stored` judge them.

Source: torch 2.1 to 2.14, distributed/checkpoint/metadata.py and filesystem.py.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ckptguard.formats.pickle_reader import Buildable


class Dtype(NamedTuple):
    """A torch dtype.

    Args:
        name: Without prefix, e.g. `bfloat16`.
    """

    name: str


class StandIn(NamedTuple):
    """Something that matters to nobody here: a path, a tensor layout.

    Wrapped, so that it cannot pass for a string, a number or a size in another place.

    Args:
        content: What it was made of, as pickled.
    """

    content: object


class MemoryFormat(NamedTuple):
    """A memory format, by its number; known apart, because stock insists on one."""

    content: object


class Fields(Buildable):
    """A value whose fields come as a dict (dataclasses) or as `(dict or None, dict)` (slots)."""

    __slots__ = ()
    is_hashable = False  # dataclasses with `eq` and without `frozen`

    def set_state(self, state: object) -> None:
        """Hand the fields to `take`."""
        if isinstance(state, tuple) and len(state) == 2:  # noqa: PLR2004 - object.__reduce_ex__ of slots
            attributes, slots = state
            state = slots if attributes is None else attributes
        if not isinstance(state, dict):
            msg = f"the state of a {type(self).__name__} is a {type(state).__name__}"
            raise ValueError(msg)  # noqa: TRY004 - what the pickle reader turns into a finding
        self.take(state)

    def take(self, fields: Mapping[object, object]) -> None:
        """Keep those fields that are needed; absent ones become None, as the class default is."""
        raise NotImplementedError


class MetadataIndex(Fields):
    """Key of `storage_data`: FQN and, for slices of tensors, the slice's first element."""

    __slots__ = ("fqn", "offset")
    is_hashable = True

    def __init__(self, fqn: object = None, offset: object = None) -> None:
        """Start empty when a pickle makes it."""
        self.fqn = fqn
        self.offset = offset

    def take(self, fields: Mapping[object, object]) -> None:
        """Keep what tells two keys apart; `index` is a hint for searches."""
        self.fqn = fields.get("fqn")
        self.offset = fields.get("offset")


class StorageInfo(Fields):
    """Value of `storage_data`: where an item lies."""

    __slots__ = ("length", "offset", "relative_path", "transform_descriptors")

    def __init__(
        self,
        relative_path: object = None,
        offset: object = None,
        length: object = None,
        transform_descriptors: object = None,
    ) -> None:
        """Start empty when a pickle makes it."""
        self.relative_path = relative_path
        self.offset = offset
        self.length = length
        self.transform_descriptors = transform_descriptors

    def take(self, fields: Mapping[object, object]) -> None:
        """Keep all; `transform_descriptors` is written since torch 2.7 where there are any."""
        self.relative_path = fields.get("relative_path")
        self.offset = fields.get("offset")
        self.length = fields.get("length")
        self.transform_descriptors = fields.get("transform_descriptors")


class Chunk(Fields):
    """ChunkStorageMetadata: a slice."""

    __slots__ = ("offsets", "sizes")

    def __init__(self) -> None:
        """Start empty."""
        self.offsets: object = None
        self.sizes: object = None

    def take(self, fields: Mapping[object, object]) -> None:
        """Keep both."""
        self.offsets = fields.get("offsets")
        self.sizes = fields.get("sizes")


class Properties(Buildable):
    """TensorProperties: only the dtype is kept; what stock would refuse is refused."""

    __slots__ = ("dtype",)
    is_hashable = False

    def __init__(self, dtype: object = None) -> None:
        """Start empty when a pickle makes it."""
        self.dtype = dtype

    def set_state(self, state: object) -> None:
        """Take the dtype: first of the five that `__getstate__` makes.

        Source: torch 2.13 checkpoint/metadata.py, `TensorProperties.__setstate__`, which
        raises where the fourth is no memory format.
        """
        if not isinstance(state, tuple) or len(state) != 5 or type(state[3]) is not MemoryFormat:  # noqa: PLR2004 - its fields
            msg = "tensor properties that torch does not restore"
            raise ValueError(msg)
        self.dtype = state[0]


class TensorEntry(Fields):
    """TensorStorageMetadata."""

    __slots__ = ("chunks", "properties", "size")

    def __init__(self, properties: object = None, size: object = None, chunks: object = None) -> None:
        """Start empty when a pickle makes it."""
        self.properties = properties
        self.size = size
        self.chunks = chunks

    def take(self, fields: Mapping[object, object]) -> None:
        """Keep all."""
        self.properties = fields.get("properties")
        self.size = fields.get("size")
        self.chunks = fields.get("chunks")


class BytesEntry(Fields):
    """BytesStorageMetadata: a pickled object."""

    __slots__ = ()

    def take(self, fields: Mapping[object, object]) -> None:
        """Keep nothing; there is nothing."""


class StorageMeta(Fields):
    """StorageMeta: which save this is (torch >= 2.4)."""

    __slots__ = ("save_id",)

    def __init__(self) -> None:
        """Start empty."""
        self.save_id: object = None

    def take(self, fields: Mapping[object, object]) -> None:
        """Keep the save id; `checkpoint_id` names a place the checkpoint may have left."""
        self.save_id = fields.get("save_id")


class Metadata(Fields):
    """Metadata: the outermost value."""

    __slots__ = ("state_dict_metadata", "storage_data", "storage_meta")

    def __init__(self) -> None:
        """Start empty."""
        self.state_dict_metadata: object = None
        self.storage_data: object = None
        self.storage_meta: object = None

    def take(self, fields: Mapping[object, object]) -> None:
        """Keep what says what is stored where; the planner's data is about names in a state dict."""
        self.state_dict_metadata = fields.get("state_dict_metadata")
        self.storage_data = fields.get("storage_data")
        self.storage_meta = fields.get("storage_meta")
