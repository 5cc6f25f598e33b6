"""A DCP folder without `.metadata`: the save never ended, or this is not all of it."""

import re
from collections.abc import Sequence
from typing import Final

from ckptguard.errors import LimitExceededError
from ckptguard.formats.dcp_builders import BUILDERS
from ckptguard.formats.dcp_values import Metadata
from ckptguard.formats.pickle_reader import PickleError, read_pickle
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store, read_whole

METADATA: Final = ".metadata"
METADATA_TMP: Final = ".metadata.tmp"
RANK_LOCAL: Final = re.compile(r"__(\d{1,9})\.metadata")
"""`_get_metadata_path(rank)`, torch 2.13, checkpoint/filesystem.py."""
RANK_LOCAL_TMP: Final = re.compile(r"__(\d{1,9})\.metadata\.tmp")
SHARD_SUFFIX: Final = ".distcp"

_RANK_FILE: Final = re.compile(r"__(\d{1,9})_\d{1,9}\.distcp")


def not_committed(store: Store, listing: Listing, limits: Limits) -> tuple[Finding, ...]:
    """Say that a folder was never committed, with what stands in it.

    torch writes the shards, then `.metadata.tmp`, then removes an older `.metadata`, then
    renames (`FileSystemWriter.finish`, torch 2.13): without `.metadata` no load begins.
    """
    shards = [name for name in listing.names if name.endswith(SHARD_SUFFIX)]
    seen = [f"{len(shards)} shard{'' if len(shards) == 1 else 's'} present" if shards else "no shards"]
    seen += _temporary(store, listing, limits)
    finding = Finding(
        code=FindingCode.NOT_COMMITTED,
        check=CheckName.EXISTENCE,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message=f"not committed: no {METADATA}; {', '.join(seen)}",
        file=METADATA,
        expected=METADATA,
        observed=", ".join(seen),
    )
    return (finding, *_one_nodes_part(shards))


def _temporary(store: Store, listing: Listing, limits: Limits) -> list[str]:
    ranks = sum(1 for name in listing.names if RANK_LOCAL_TMP.fullmatch(name))
    told = [f"{ranks} rank-local metadata files that were never renamed"] if ranks else []
    if METADATA_TMP in listing.files:
        is_complete = _is_complete(store, listing, limits)
        told.append(f"{'complete' if is_complete else 'incomplete'} {METADATA_TMP} present")
    return told


def _is_complete(store: Store, listing: Listing, limits: Limits) -> bool:
    """Say whether `.metadata.tmp` reads as torch's Metadata: then only the rename was missing."""
    try:
        data = read_whole(store, listing.in_store(METADATA_TMP), max_bytes=limits.max_metadata_bytes)
        return type(read_pickle(data, builders=BUILDERS).value) is Metadata
    except (PickleError, LimitExceededError):
        return False


def _one_nodes_part(shards: Sequence[str]) -> tuple[Finding, ...]:
    """Warn where the files are those of later ranks only: each node wrote to its own disk."""
    ranks = {int(match[1]) for name in shards if (match := _RANK_FILE.fullmatch(name))}
    if not ranks or min(ranks) == 0:
        return ()
    return (
        Finding(
            code=FindingCode.NOT_COMMITTED,
            check=CheckName.EXISTENCE,
            severity=Severity.WARNING,
            message=f"looks like one node's part of a multi-node save: files of ranks {min(ranks)} to"
            f" {max(ranks)}, none of rank 0, which writes {METADATA}",
            expected="files of all ranks",
            observed=f"files of {len(ranks)} ranks from {min(ranks)} on",
        ),
    )
