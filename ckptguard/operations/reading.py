"""Read every byte once: in this process, or in a canary child that loads as it reads."""

import importlib.util
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ckptguard.canary.job import CanaryJob
from ckptguard.canary.outcome import CanaryOutcome, Ending
from ckptguard.canary.spawn import run_canary
from ckptguard.clock import Clock
from ckptguard.errors import CanaryError
from ckptguard.model.checksum import Algorithm
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Shard
from ckptguard.model.policy import Depth, Policy
from ckptguard.operations.look import Look
from ckptguard.operations.place import Place
from ckptguard.scan.files import ScanSetting, scan_files
from ckptguard.scan.progress import Progress, ProgressListener, ProgressMeter
from ckptguard.scan.result import FileScan
from ckptguard.scan.spans import BLOCK_BYTES
from ckptguard.storage.caching import CachingStore

_LOADABLE = frozenset({Encoding.TORCH_ZIP_ITEMS, Encoding.SAFETENSORS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the pass over the bytes gave.

    Args:
        scans: Every file that was read, by path.
        outcome: How the canary ended; None where none was asked for.
        findings: What became of the canary (check `load`), and of files that are in no scan.
        seconds: Time of reading alone: starts, imports and parsing of metadata left out.
    """

    scans: dict[str, FileScan] = field(default_factory=dict)
    outcome: CanaryOutcome | None = None
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """Where the bytes are and how to read them.

    Args:
        store: Remembers the metadata already read.
        place: How the child reaches the same store.
        policy: Depth, device, limits.
        algorithms: Checksums that the manifests ask for.
        clock: Measures.
        progress: Told.
    """

    store: CachingStore
    place: Place
    policy: Policy
    algorithms: frozenset[Algorithm]
    clock: Clock
    progress: ProgressListener | None


def read_bytes(seen: Look, shards: Sequence[Shard], others: Iterable[Shard], source: Bytes) -> Reading:
    """Read shards and other files, each byte once; load what can be loaded, if asked.

    A canary that dies is an outcome: what it has not read to its end is read here, without it.

    Args:
        seen: The checkpoint.
        shards: Those whose files exist.
        others: Further files to hash, and to verify where their encoding is known.
        source: Where and how.
    """
    policy = source.policy
    if policy.depth is Depth.STRUCTURE:
        return Reading()
    wants_load = policy.depth is Depth.LOAD and any(shard.encoding in _LOADABLE for shard in shards)
    outcome, findings = _load(seen, shards, source) if wants_load else (None, ())
    scans = dict(outcome.scans) if outcome is not None else {}
    rest = [shard for shard in shards if shard.path not in scans]
    rest += [shard for shard in others if shard.path not in scans]
    started = source.clock.monotonic_s()
    scans |= {scan.path: scan for scan in scan_files(rest, scan_setting(seen, rest, source))}
    scan_seconds = source.clock.monotonic_s() - started if rest else 0.0
    return Reading(
        scans=scans,
        outcome=outcome,
        findings=findings,
        seconds=scan_seconds + (outcome.load_seconds if outcome is not None else 0.0),
    )


def load_by_stock(seen: Look, source: Bytes) -> tuple[Finding, ...]:
    """Let stock `dcp.load` open what our own pass found sound (`--load stock`)."""
    outcome = _run(_job(seen, source, mode="stock"), seen, source)
    return outcome_findings(outcome, who="stock dcp.load")


def _load(
    seen: Look, shards: Sequence[Shard], source: Bytes
) -> tuple[CanaryOutcome | None, tuple[Finding, ...]]:
    if importlib.util.find_spec("torch") is None:
        return None, (
            Finding(
                code=FindingCode.READER_NOT_INSTALLED,
                check=CheckName.LOAD,
                severity=Severity.WARNING,
                message="torch is not installed here, so nothing was loaded: pip install 'ckptguard[canary]'",
            ),
        )
    outcome = _run(_job(seen, source, mode="verify"), seen, source)
    return outcome, (*outcome_findings(outcome, who="the load"), *_not_loaded(shards, outcome))


def outcome_findings(outcome: CanaryOutcome, *, who: str) -> tuple[Finding, ...]:
    """Turn the end of a canary into findings. Infrastructure trouble is never INVALID.

    Args:
        outcome: How it ended.
        who: Subject of the sentence.
    """
    codes = {
        Ending.CRASHED: FindingCode.CANARY_CRASHED,
        Ending.DEADLINE: FindingCode.DEADLINE_EXCEEDED,
        Ending.LOAD_FAILED: FindingCode.LOAD_FAILED,
    }
    code = codes.get(outcome.ending)
    if code is None:
        return ()
    # Stock is asked only about bytes that were proven, and it fails on some good ones (quantised tensors).
    is_refusal = outcome.ending is Ending.LOAD_FAILED and outcome.is_about_bytes
    return (
        Finding(
            code=code,
            check=CheckName.LOAD,
            severity=Severity.UNKNOWN,
            message=f"{who} did not finish: {outcome.reason}",
            observed=outcome.output_tail or None,
            is_retryable=not is_refusal,
        ),
    )


def _not_loaded(shards: Sequence[Shard], outcome: CanaryOutcome) -> tuple[Finding, ...]:
    """Hold that a canary that says it is done has read every shard it was given."""
    unread = [
        shard.path for shard in shards if shard.encoding in _LOADABLE and shard.path not in outcome.scans
    ]
    if outcome.ending is not Ending.DONE or not unread:
        return ()
    return (
        Finding(
            code=FindingCode.LOAD_FAILED,
            check=CheckName.LOAD,
            severity=Severity.UNKNOWN,
            message=f"the load ended without reading {len(unread)} shard(s), {unread[0]} first",
            file=unread[0],
        ),
    )


def _run(job: CanaryJob, seen: Look, source: Bytes) -> CanaryOutcome:
    try:
        return _in_child(job, seen, source)
    except CanaryError as error:
        return CanaryOutcome(ending=Ending.CRASHED, reason=str(error))


def _in_child(job: CanaryJob, seen: Look, source: Bytes) -> CanaryOutcome:
    bytes_total = sum(stat.length_bytes for stat in seen.listing.files.values())
    shards = [shard for layout in seen.checkpoint.layouts for shard in layout.shards]
    total = Progress(phase="starting torch", bytes_total=bytes_total, files_total=len(shards))
    if source.progress is not None:
        source.progress(total)
    return run_canary(
        job,
        deadline_s=source.policy.deadline_s or _default_deadline_s(bytes_total),
        clock=source.clock,
        progress=source.progress,
        total=replace(total, phase="loading"),
    )


_START_S = 300.0
_SLOWEST_BYTES_PER_S = 10_000_000


def _default_deadline_s(bytes_total: int) -> float:
    """Time for a start on a busy node and for the slowest store that anybody would resume from."""
    return _START_S + bytes_total / _SLOWEST_BYTES_PER_S


def _job(seen: Look, source: Bytes, *, mode: str) -> CanaryJob:
    policy = source.policy
    return CanaryJob(
        target=source.place.target,
        store_root=str(source.place.root) if source.place.root is not None else None,
        options=source.place.options,
        listing=seen.listing,
        blobs=dict(source.store.blobs),
        device=policy.device,
        mode=mode,
        jobs=_jobs(policy),
        window_bytes=policy.window_bytes,
        numerics=policy.numerics,
        is_direct=policy.is_direct,
        algorithms=source.algorithms,
        limits=policy.limits,
    )


def _jobs(policy: Policy) -> int:
    """Files read side by side: as many as asked for, as far as their buffers fit into the window."""
    return max(1, min(policy.jobs or os.cpu_count() or 1, policy.window_bytes // BLOCK_BYTES))


def scan_setting(seen: Look, shards: Sequence[Shard], source: Bytes) -> ScanSetting:
    """Say how files are read in this process.

    Args:
        seen: Where they lie, and how long they are.
        shards: What progress counts up to.
        source: Store, limits, listener.
    """
    lengths = (seen.listing.files[shard.path].length_bytes for shard in shards)
    return ScanSetting(
        store=source.store,
        root=seen.listing.root,
        limits=source.policy.limits,
        jobs=_jobs(source.policy),
        is_direct=source.policy.is_direct,
        algorithms=source.algorithms,
        meter=ProgressMeter(
            source.progress, phase="reading", bytes_total=sum(lengths), files_total=len(shards)
        ),
    )
