"""Where Orbax's arrays lie: each in a folder of files, or all in one OCDBT database.

Both are maps from keys (`params.w/.zarray`, `params.w/0.0`) to bytes of files.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ckptguard.errors import FormatError
from ckptguard.formats.dcp_paths import contained
from ckptguard.formats.ocdbt import MANIFEST, Database, FaultKind, NodeFault, Value, read_database
from ckptguard.formats.zarr_arrays import V2_NAME, V3_NAME
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import MetadataFile
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

MAX_ARRAY_BYTES: Final = 1 << 20
"""Of one array's metadata; real ones have some hundred bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMap:
    """Keys and where their values lie.

    Args:
        values: By key.
        is_database: They lie in an OCDBT database; else each is a file.
        metadata_files: Files that were read whole.
        reach: By file of a database: bytes that the database refers to.
        findings: What is wrong with the database.
    """

    values: Mapping[str, Value]
    is_database: bool
    metadata_files: tuple[MetadataFile, ...] = ()
    reach: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def read_key_map(store: Store, listing: Listing, limits: Limits) -> KeyMap:
    """Find all keys of an Orbax folder.

    Raises:
        StoreError: The store did not deliver.
        LimitExceededError: Beyond `limits`.
    """
    if MANIFEST not in listing.files:
        files = {path: Value(path, 0, stat.length_bytes) for path, stat in listing.files.items()}
        return KeyMap(values=files, is_database=False)
    database = read_database(store, listing, limits)
    escaping = sorted({path for path in _paths(database) if contained(path) is None})
    return KeyMap(
        values={key: value for key, value in database.values.items() if value.path not in escaping},
        is_database=True,
        metadata_files=(database.manifest,),
        reach=_reach(database, frozenset(escaping)),
        findings=(*map(_of_fault, database.faults), *map(_of_escape, escaping[:1])),
    )


def array_names(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Yield name and key of each array's metadata, sorted."""
    for key in sorted(values):
        name, _, last = key.rpartition("/")
        if name and last in (V2_NAME, V3_NAME):
            yield name, key


def read_value(store: Store, listing: Listing, value: Value) -> bytes:
    """Read the value of a key, where it is small.

    Raises:
        StoreError: The store did not deliver.
        FormatError: It is not there, or larger than an array's metadata.
    """
    if value.inline is not None:
        return value.inline
    stat = listing.files.get(value.path)
    if stat is None or value.offset + value.length_bytes > stat.length_bytes:
        msg = f"ends beyond {value.path}"
        raise FormatError(msg)
    if value.length_bytes > MAX_ARRAY_BYTES:
        msg = f"has {value.length_bytes} bytes"
        raise FormatError(msg)
    buffer = bytearray(value.length_bytes)
    with store.open(listing.in_store(value.path)) as reader:
        got = reader.readinto(memoryview(buffer), value.offset)
    return bytes(buffer[:got])


def _paths(database: Database) -> Iterator[str]:
    yield from (value.path for value in database.values.values() if value.inline is None)
    yield from (node.file.path for node in database.nodes)
    yield from (fault.path for fault in database.faults)


def _reach(database: Database, escaping: frozenset[str]) -> dict[str, int]:
    reach: dict[str, int] = {}
    extents = [
        *(
            (value.path, value.offset + value.length_bytes)
            for value in database.values.values()
            if value.path
        ),
        *((node.file.path, node.offset + node.length_bytes) for node in database.nodes),
        *((fault.path, fault.offset + fault.length_bytes) for fault in database.faults),
    ]
    for path, end in extents:
        if path not in escaping and path != MANIFEST:
            reach[path] = max(reach.get(path, 1), end)
    return reach


def _of_fault(fault: NodeFault) -> Finding:
    place = f" at byte {fault.offset}" if fault.length_bytes else ""
    codes = {FaultKind.CRC: FindingCode.CRC_MISMATCH, FaultKind.UNREAD: FindingCode.READER_NOT_INSTALLED}
    is_damage = fault.kind is not FaultKind.UNREAD
    return Finding(
        code=codes.get(fault.kind, FindingCode.MALFORMED_METADATA),
        check=CheckName.COVERAGE,
        severity=Severity.ERROR if is_damage else Severity.UNKNOWN,
        basis=Basis.DAMAGE if is_damage else None,
        message=f"{fault.path}{place}: a block of the database {fault.reason}; what is below it is not known",
        file=fault.path,
        offset=fault.offset,
        length_bytes=fault.length_bytes or None,
        observed=fault.reason,
    )


def _of_escape(path: str) -> Finding:
    return Finding(
        code=FindingCode.PATH_ESCAPE,
        check=CheckName.EXISTENCE,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message=f"{MANIFEST} leads to {path[:200]!a}, outside the checkpoint; not opened",
        file=MANIFEST,
        observed=ascii(path[:200]),
    )
