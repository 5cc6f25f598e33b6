"""The torch.save adapter: folders of `.pt`, `.pth`, `.bin`, `.ckpt` and `.pkl` files.

Each file is one item, proven like an item of DCP: by re-serialising it. What is no
zip of torch's writer has no checksum inside and is carried along as it is.
"""

import re
from enum import Enum, auto
from pathlib import PurePosixPath
from typing import Final

from ckptguard.errors import LimitExceededError
from ckptguard.formats.deepspeed import read_zero_facts
from ckptguard.formats.torch_save_sets import find_missing, last_of_unstated
from ckptguard.formats.torch_zip_render import LOCAL_FIXED_BYTES, LOCAL_MAGIC
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, Shard
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

FORMAT: Final = "torch_save"
STOCK_READER_GAP: Final = "torch.save file, not a DCP folder"

TORCH_SUFFIXES: Final = frozenset({".pt", ".pth", ".ckpt"})
_SHARED_SUFFIXES: Final = frozenset({".bin", ".pkl"})  # others write such files, too
_SIDECAR_SUFFIXES: Final = frozenset({".json", ".jinja", ".md", ".model", ".py", ".txt", ".yaml", ".yml"})

_SNIFFED_BYTES: Final = 512
_PICKLE_NAME: Final = b"/data.pkl"
# First records of zips that torch writes otherwise (TorchScript: export_module.cpp, `writeArchive`).
_SCRIPT_RECORD: Final = re.compile(rb"[^/]+/(?:data/\d+|code/|constants|extra/|version|byteorder|\.data/)")
_PICKLE_PROTO: Final = 0x80
_MAX_PICKLE_PROTO: Final = 5


class _Content(Enum):
    TORCH_ZIP = auto()
    UNPROVABLE = auto()
    FOREIGN = auto()


class TorchSaveAdapter:
    """Folders that hold `torch.save` files."""

    name = FORMAT

    def recognises(self, listing: Listing) -> bool:
        """Say whether a file with one of torch's usual suffixes stands directly in this folder."""
        return any(_is_candidate(name) for name in _names(listing))

    def open(self, store: Store, listing: Listing, limits: Limits) -> tuple[Layout, ...]:
        """Look at the first bytes of each file.

        Returns:
            One layout. A legacy (non-zip) torch.save file is an opaque shard: it holds no
            checksum. Files that other files imply (ranks, numbered parts) stand in the
            layout as shards that are not there.

        Raises:
            StoreError: The store did not deliver.
            LimitExceededError: More files than `limits.max_items`.
        """
        names = [name for name in _names(listing) if _is_candidate(name)]
        if len(names) > limits.max_items:
            msg = f"more than {limits.max_items} torch.save files"
            raise LimitExceededError(msg)
        zero = read_zero_facts(store, listing, names)
        ranks, folder = zero.num_ranks, listing.root.rpartition("/")[2]
        missing = find_missing(names, zero_ranks=ranks, folder=folder)
        shards = {name: _missing_shard(name) for name in missing}
        notes, foreign = [], []
        for name in names:
            content = _sniff(store, listing, name) if name in listing.files else _Content.TORCH_ZIP
            if content is _Content.FOREIGN:
                foreign.append(name)
                continue
            if content is _Content.UNPROVABLE:
                notes.append(f"{name}: no zip of torch.save, so its content cannot be proven")
            shards[name] = _shard(listing, name, content)
        return (
            Layout(
                format=FORMAT,
                shards=tuple(shards[name] for name in sorted(shards)),
                objects=tuple(item.fqn for name in sorted(shards) for item in shards[name].items),
                findings=(
                    *zero.findings,
                    *map(_last_known, last_of_unstated(names, zero_ranks=ranks, folder=folder)),
                ),
                stock_reader_gap=STOCK_READER_GAP,
                sidecars=tuple(sorted([*foreign, *filter(_is_sidecar, listing.names)])),
                notes=tuple(notes),
            ),
        )


ADAPTER: Final = TorchSaveAdapter()


def _last_known(name: str) -> Finding:
    return Finding(
        code=FindingCode.RANK_LOCAL_METADATA,
        check=CheckName.COVERAGE,
        severity=Severity.INFO,
        message=f"{name} is of the last rank that is here; nothing says how many ranks there were,"
        " so that the loss of later ones would go unseen",
        file=name,
    )


def _names(listing: Listing) -> list[str]:
    """Return the files directly in a folder, those that are links out of the root included."""
    return [*listing.names, *(path for path in listing.escapes if "/" not in path)]


def _is_candidate(name: str) -> bool:
    is_hidden = name.startswith(".")
    return not is_hidden and PurePosixPath(name).suffix in TORCH_SUFFIXES | _SHARED_SUFFIXES


def _is_sidecar(name: str) -> bool:
    return not name.startswith(".") and PurePosixPath(name).suffix in _SIDECAR_SUFFIXES


def sniff_torch_zip(store: Store, listing: Listing, name: str) -> bool:
    """Say from a listed file's first bytes whether it is held to be a zip of torch.save.

    Raises:
        StoreError: The store did not deliver.
    """
    return _sniff(store, listing, name) is _Content.TORCH_ZIP


def _sniff(store: Store, listing: Listing, name: str) -> _Content:
    buffer = bytearray(min(_SNIFFED_BYTES, listing.files[name].length_bytes))
    with store.open(listing.in_store(name)) as reader:
        got = reader.readinto(memoryview(buffer), 0)
    return classify(bytes(buffer[:got]), suffix=PurePosixPath(name).suffix)


def classify(head: bytes, *, suffix: str) -> _Content:
    """Say from a file's first bytes what to make of it.

    Damage to these very bytes must not turn a checkpoint into a file that is not
    looked at: a file that torch's suffixes promise to be a torch.save zip, or that has
    half of a zip's beginning, or is empty or zero-filled, is held to be one.
    """
    if _PICKLE_NAME in head:
        return _Content.TORCH_ZIP
    if head.startswith(LOCAL_MAGIC) and _SCRIPT_RECORD.match(head, LOCAL_FIXED_BYTES):
        return _Content.UNPROVABLE
    if len(head) > 1 and head[0] == _PICKLE_PROTO and head[1] <= _MAX_PICKLE_PROTO:
        return _Content.UNPROVABLE
    if suffix in TORCH_SUFFIXES or head.startswith(LOCAL_MAGIC) or not any(head):
        return _Content.TORCH_ZIP
    return _Content.FOREIGN


def _shard(listing: Listing, name: str, content: _Content) -> Shard:
    stat = listing.files.get(name)
    length = stat.length_bytes if stat else 0
    is_zip = content is _Content.TORCH_ZIP
    whole = Item(fqn=name, kind=ItemKind.BYTES, offset=0, length_bytes=length)
    return Shard(
        path=name,
        encoding=Encoding.TORCH_SAVE if is_zip else Encoding.OPAQUE,
        items=(whole,) if is_zip else (),
        min_length_bytes=length,
    )


def _missing_shard(name: str) -> Shard:
    return Shard(path=name, encoding=Encoding.TORCH_SAVE, items=(), min_length_bytes=1)
