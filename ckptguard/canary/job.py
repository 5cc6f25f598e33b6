"""What the parent asks of its canary child, and how it crosses the pipe."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, BinaryIO, Final, TypeVar

from ckptguard.errors import CanaryError
from ckptguard.model.checksum import Algorithm
from ckptguard.model.policy import Limits, NumericsMode
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import ObjectStat

_PING: Final = "ping"
_HEADER_LENGTH_BYTES: Final = 8
_MAX_HEADER_BYTES: Final = 4 << 30
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The process group that several canaries form; each child is one rank.

    Args:
        rank: This child's rank.
        world_size: Children in the group.
        init_method: torch.distributed rendezvous, e.g. `tcp://127.0.0.1:29400`.
        backend: `gloo` or `nccl`.
    """

    rank: int
    world_size: int
    init_method: str
    backend: str = "gloo"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryJob:
    """One load in one child.

    Args:
        target: Store as `ckptguard.storage.open_url.open_location` takes it.
        store_root: Root that links may not leave, for local targets.
        options: Endpoint and credentials of the store, as `open_location` takes them; JSON values.
        listing: What the parent listed; the child lists nothing again.
        blobs: Metadata files that the parent has read, by store path, so that no byte is read twice.
        device: torch device.
        mode: `verify` (our reader and planner) or `stock` (torch's own, after `verify` found nothing).
        jobs: Files read at the same time.
        window_bytes: Bound on read buffers, all threads together.
        numerics: Whether values are measured.
        is_direct: Drop each file's cache before reading it.
        algorithms: Checksums wanted besides XXH3-128.
        limits: As in the parent.
        done: Shards that need not be read: their results are known.
        versions: Of everything besides torch that the results of files rest on; told with each.
        group: Set where several children share the load.
    """

    target: str
    listing: Listing
    store_root: str | None = None
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    device: str = "cpu"
    mode: str = "verify"
    jobs: int = 1
    window_bytes: int = 1 << 30
    numerics: NumericsMode = NumericsMode.REPORT
    is_direct: bool = False
    algorithms: frozenset[Algorithm] = frozenset()
    limits: Limits = field(default_factory=Limits)
    done: frozenset[str] = frozenset()
    versions: Mapping[str, str] = field(default_factory=dict)
    group: Group | None = None


def write_job(job: CanaryJob, stream: BinaryIO) -> None:
    """Write a job: length, JSON, then the blobs one after another; its group travels apart."""
    _write_header(_to_json(job), stream)
    stream.writelines(job.blobs.values())
    stream.flush()


def job_bytes(job: CanaryJob) -> bytes:
    """Return what `write_job` writes."""
    stream = io.BytesIO()
    write_job(job, stream)
    return stream.getvalue()


def read_job(stream: BinaryIO) -> CanaryJob:
    """Read what `write_job` wrote.

    Raises:
        CanaryError: The stream ended early, or holds something else.
    """
    return _reading(_read_job, stream)


def write_group(group: Group | None, stream: BinaryIO) -> None:
    """Write which rank of which group a child is: before its job, by whoever passes that on unread."""
    _write_header(asdict(group) if group else None, stream)


def write_ping(stream: BinaryIO) -> None:
    """Ask a child that waits for its group whether it lives."""
    _write_header(_PING, stream)


def read_group(stream: BinaryIO, *, on_ping: Callable[[], None] = lambda: None) -> Group | None:
    """Read what `write_group` wrote.

    Args:
        stream: From the parent.
        on_ping: Called for each `write_ping` before it.

    Raises:
        CanaryError: The stream ended early, or holds something else.
    """
    return _reading(lambda source: _read_group(source, on_ping), stream)


def as_seen_by(job: CanaryJob, shared: CanaryJob) -> CanaryJob:
    """Return the job of one rank: what to load is rank 0's, where and onto what is its own.

    Each machine reaches the store in its own way, and each rank has its own device.
    """
    return replace(
        shared,
        target=job.target,
        store_root=job.store_root,
        options=job.options,
        device=job.device,
        group=job.group,
    )


def _reading(read: Callable[[BinaryIO], _Read], stream: BinaryIO) -> _Read:
    try:
        return read(stream)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        msg = f"no job: {type(error).__name__}: {error}"
        raise CanaryError(msg) from error


def _read_group(stream: BinaryIO, on_ping: Callable[[], None]) -> Group | None:
    while (value := json.loads(_read_header(stream))) == _PING:
        on_ping()
    return Group(**value) if value is not None else None


def _write_header(value: object, stream: BinaryIO) -> None:
    header = json.dumps(value).encode()
    stream.write(len(header).to_bytes(_HEADER_LENGTH_BYTES, "little"))
    stream.write(header)


def _read_header(stream: BinaryIO) -> bytes:
    length = int.from_bytes(_read_exactly(stream, _HEADER_LENGTH_BYTES), "little")
    if length > _MAX_HEADER_BYTES:
        msg = f"job header of {length} bytes"
        raise CanaryError(msg)
    return _read_exactly(stream, length)


def _read_job(stream: BinaryIO) -> CanaryJob:
    value = json.loads(_read_header(stream))
    blobs = {path: _read_exactly(stream, count) for path, count in value.pop("blobs")}
    listing = Listing(
        root=value["listing"]["root"],
        files={stat["path"]: _stat_from_json(stat) for stat in value["listing"]["files"]},
        escapes=tuple(value["listing"]["escapes"]),
    )
    return CanaryJob(
        **{
            **value,
            "listing": listing,
            "blobs": blobs,
            "numerics": NumericsMode(value["numerics"]),
            "algorithms": frozenset(map(Algorithm, value["algorithms"])),
            "limits": Limits(**value["limits"]),
            "done": frozenset(value["done"]),
        }
    )


def _to_json(job: CanaryJob) -> dict[str, Any]:
    return {
        "target": job.target,
        "store_root": job.store_root,
        "options": dict(job.options),
        "device": job.device,
        "mode": job.mode,
        "jobs": job.jobs,
        "window_bytes": job.window_bytes,
        "numerics": job.numerics.value,
        "is_direct": job.is_direct,
        "algorithms": sorted(job.algorithms),
        "limits": asdict(job.limits),
        "done": sorted(job.done),
        "versions": dict(job.versions),
        "blobs": [[path, len(blob)] for path, blob in job.blobs.items()],
        "listing": {
            "root": job.listing.root,
            "escapes": list(job.listing.escapes),
            "files": [_stat_to_json(path, stat) for path, stat in job.listing.files.items()],
        },
    }


def _stat_to_json(path: str, stat: ObjectStat) -> dict[str, Any]:
    modified = stat.modified_at.isoformat() if stat.modified_at else None
    return {**asdict(stat), "path": path, "modified_at": modified}


def _stat_from_json(value: Mapping[str, Any]) -> ObjectStat:
    modified = datetime.fromisoformat(value["modified_at"]) if value["modified_at"] else None
    return ObjectStat(**{**value, "modified_at": modified})


def _read_exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        msg = f"job ended after {len(data)} of {count} bytes"
        raise CanaryError(msg)
    return data
