"""Orbax's `_METADATA` and `_CHECKPOINT_METADATA`: which arrays and items there are, and the commit.

Source: orbax-checkpoint 0.12 metadata/tree.py, metadata/checkpoint.py, path/atomicity.py.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ckptguard.formats.metadata_files import malformed, parse_json
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity

TREE: Final = "_METADATA"
CHECKPOINT: Final = "_CHECKPOINT_METADATA"
COMMIT_MARKER: Final = "commit_success.txt"

_ARRAY_TYPES: Final = frozenset({"jax.Array", "np.ndarray", "scalar"})
_PLAIN_NAME: Final = re.compile(r"[\w.\- ]+")
_MAX_KEYS: Final = 64
_TREE_HANDLER: Final = re.compile(r"\.(?:PyTree|Standard)CheckpointHandler$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What `_METADATA` says.

    Args:
        arrays: Names of the leaves that are stored as arrays, sorted.
        is_ocdbt: They lie in a key-value database; None where it does not say.
        is_zarr3: They are Zarr version 3.
        has_all_chunks: Chunks that hold nothing but the fill value are stored, too.
        findings: What is wrong with it.
    """

    arrays: tuple[str, ...] = ()
    is_ocdbt: bool | None = None
    is_zarr3: bool = False
    has_all_chunks: bool = False
    findings: tuple[Finding, ...] = ()


def read_tree(data: bytes) -> Tree:
    """Read `_METADATA`; damage becomes findings."""
    fields, faults = parse_json(data, file=TREE)
    if fields is None:
        return Tree(findings=faults)
    leaves = fields.get("tree_metadata")
    if not isinstance(leaves, dict):
        return Tree(findings=(malformed(TREE, "names no tree", is_certain=False),))
    is_ocdbt = fields.get("use_ocdbt")
    return Tree(
        arrays=tuple(sorted(_arrays(leaves))),
        is_ocdbt=is_ocdbt if isinstance(is_ocdbt, bool) else None,
        is_zarr3=fields.get("use_zarr3") is True,
        has_all_chunks=fields.get("store_array_data_equal_to_fill_value") is True,
    )


def is_plain_name(name: str) -> bool:
    """Say whether a leaf's keys are such that its array's folder is certainly called so."""
    return _PLAIN_NAME.fullmatch(name) is not None


def _arrays(leaves: Mapping[str, Any]) -> Iterator[str]:
    for leaf in leaves.values():
        match leaf:
            case {"key_metadata": list(keys), "value_metadata": {"value_type": str(kind), **facts}}:
                names = [str(key.get("key")) for key in keys if isinstance(key, dict)]
                is_stored = kind in _ARRAY_TYPES and facts.get("skip_deserialize") is not True
                if is_stored and 0 < len(names) <= _MAX_KEYS:
                    yield ".".join(names)


def check_commit(data: bytes, *, has_marker: bool) -> tuple[Finding, ...]:
    """Doubt a checkpoint of which neither its metadata nor a marker says that it was committed.

    A save to a local disk ends with a rename, one to an object store with a marker file; both
    write the time of the commit first. A copy may lose the marker (google/orbax#394).

    Args:
        data: `_CHECKPOINT_METADATA`.
        has_marker: `commit_success.txt` is there.
    """
    fields, faults = parse_json(data, file=CHECKPOINT)
    if fields is None:
        return faults
    if has_marker or fields.get("commit_timestamp_nsecs") is not None:
        return ()
    return (
        Finding(
            code=FindingCode.NOT_COMMITTED,
            check=CheckName.EXISTENCE,
            severity=Severity.UNKNOWN,
            message=f"{CHECKPOINT} has no time of a commit, and there is no {COMMIT_MARKER}",
            file=CHECKPOINT,
            expected="a commit",
            observed="none",
            is_retryable=True,
        ),
    )


def items_of(data: bytes) -> Mapping[str, bool]:
    """Return the items of a checkpoint of several, and which are trees of arrays; empty for one item."""
    fields, _ = parse_json(data, file=CHECKPOINT)
    handlers = fields.get("item_handlers") if fields is not None else None
    if not isinstance(handlers, dict):
        return {}
    return {name: _TREE_HANDLER.search(str(handler)) is not None for name, handler in handlers.items()}
