"""The `data.pkl` of a torch.save file, read without its storages: it is the first record.

Source: torch/serialization.py `_save` writes it before `data/0`; seen in every file of the corpus.
"""

from struct import Struct
from typing import Final

from ckptguard.errors import FormatError, LimitExceededError
from ckptguard.formats.pickle_reader import PickleTruncatedError
from ckptguard.formats.torch_item_pickle import ItemPickle, read_item_pickle
from ckptguard.formats.torch_zip_render import LOCAL_FIXED_BYTES, LOCAL_MAGIC
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

_FIRST_BYTES: Final = 128 << 10
_GROWTH: Final = 8
MAX_BYTES: Final = 64 << 20
_NAME_AND_EXTRA: Final = Struct("<HH")
_NAME_AND_EXTRA_AT: Final = 26  # PKWARE APPNOTE 4.3.7
_RECORD: Final = b"/data.pkl"


def read_leading_pickle(store: Store, listing: Listing, path: str) -> ItemPickle | None:
    """Read the pickle of one listed file; None where there is none, or not a sound one.

    What is wrong with it is for the pass over the bytes to say.

    Raises:
        StoreError: The store did not deliver.

    Cost: reads at most `MAX_BYTES`, and parses at most an eighth more.
    """
    length = listing.files[path].length_bytes
    with store.open(listing.in_store(path)) as reader:
        wanted = _FIRST_BYTES
        while True:
            buffer = bytearray(min(wanted, length, MAX_BYTES))
            got = reader.readinto(memoryview(buffer), 0)
            try:
                return read_item_pickle(_payload(bytes(buffer[:got])))
            except PickleTruncatedError:
                if got < wanted or wanted >= MAX_BYTES:
                    return None
                wanted *= _GROWTH
            except (FormatError, LimitExceededError):
                return None


def _payload(head: bytes) -> bytes:
    if not head.startswith(LOCAL_MAGIC) or len(head) < LOCAL_FIXED_BYTES:
        msg = "no zip"
        raise FormatError(msg)
    name_bytes, extra_bytes = _NAME_AND_EXTRA.unpack_from(head, _NAME_AND_EXTRA_AT)
    if not head[LOCAL_FIXED_BYTES : LOCAL_FIXED_BYTES + name_bytes].endswith(_RECORD):
        msg = "another record first"
        raise FormatError(msg)
    return head[LOCAL_FIXED_BYTES + name_bytes + extra_bytes :]
