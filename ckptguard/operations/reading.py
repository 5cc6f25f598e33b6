"""Read every byte once: in this process, or in a canary child that loads as it reads."""

import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ckptguard.canary.job import CanaryJob
from ckptguard.canary.outcome import CanaryOutcome, Ending
from ckptguard.canary.spawn import CanaryRunner, run_canary
from ckptguard.clock import Clock
from ckptguard.errors import CanaryError
from ckptguard.model.checksum import Algorithm
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Shard
from ckptguard.model.policy import Depth, Policy
from ckptguard.operations.look import Look
from ckptguard.operations.place import Place
from ckptguard.operations.reuse import LOADABLE, Asked, is_loaded_alike, reusable, versions_of_results
from ckptguard.scan.files import ScanSetting, scan_files
from ckptguard.scan.progress import Progress, ProgressListener, ProgressMeter
from ckptguard.scan.result import FileListener, FileResult, FileScan
from ckptguard.scan.spans import BLOCK_BYTES
from ckptguard.storage.caching import CachingStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the pass over the bytes gave.

    Args:
        scans: Every file that was read, by path.
        outcome: How the canary ended; None where none was asked for.
        findings: What became of the canary (check `load`), and of files that are in no scan.
        seconds: Time of reading alone: starts, imports and parsing of metadata left out.
        reused: Files of `scans` that an earlier attempt read; of them no byte was read now.
    """

    scans: dict[str, FileScan] = field(default_factory=dict)
    outcome: CanaryOutcome | None = None
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    reused: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How one try at a validation runs; nothing of this may change the verdict.

    Args:
        canary: Runs the child that loads.
        known: Results of files, by path, of which an earlier attempt told `on_file`. What would
            come out the same is taken over and not read again.
        on_file: Told of each file that was read to its end, with all that its result rests on.
        is_tensor_list_wanted: The report is to carry the tensors, for whoever keeps it.
    """

    canary: CanaryRunner = run_canary
    known: Mapping[str, FileResult] = field(default_factory=dict)
    on_file: FileListener | None = None
    is_tensor_list_wanted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """Where the bytes are and how to read them.

    Args:
        store: Remembers the metadata already read.
        place: How the child reaches the same store.
        policy: Depth, device, limits.
        algorithms: Checksums that the manifests ask for.
        clock: Measures.
        progress: Told of bytes and files.
        attempt: Who runs the child, and what is known already.
    """

    store: CachingStore
    place: Place
    policy: Policy
    algorithms: frozenset[Algorithm]
    clock: Clock
    progress: ProgressListener | None
    attempt: Attempt


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
    files = [*shards, *others]
    versions = versions_of_results(seen, policy.numerics)
    reused = reusable(source.attempt.known, files, seen, asked=_asked(source, versions))
    wants_load = policy.depth is Depth.LOAD and any(shard.encoding in LOADABLE for shard in shards)
    outcome, findings = _load(seen, shards, source, versions, reused) if wants_load else (None, ())
    if outcome is not None and not is_loaded_alike(reused, outcome):
        reused = {}
        outcome, findings = _load(seen, shards, source, versions, reused)
    scans = {path: result.scan for path, result in reused.items()}
    scans |= dict(outcome.scans) if outcome is not None else {}
    rest = [shard for shard in files if shard.path not in scans]
    started = source.clock.monotonic_s()
    for scan in scan_files(rest, scan_setting(seen, rest, source)):
        scans[scan.path] = scan
        _tell(scan, versions, source)
    scan_seconds = source.clock.monotonic_s() - started if rest else 0.0
    return Reading(
        scans=dict(sorted(scans.items())),  # the same report, whichever file was read first
        outcome=outcome,
        findings=findings,
        seconds=scan_seconds + (outcome.load_seconds if outcome is not None else 0.0),
        reused=frozenset(reused),
    )


def _asked(source: Bytes, versions: Mapping[str, str]) -> Asked:
    policy = source.policy
    return Asked(
        versions=versions,
        algorithms=source.algorithms,
        device=policy.device if policy.depth is Depth.LOAD else None,
    )


def _tell(scan: FileScan, versions: Mapping[str, str], source: Bytes) -> None:
    if source.attempt.on_file is not None and scan.checksums:
        source.attempt.on_file(FileResult(scan=scan, versions=versions))


def load_by_stock(seen: Look, source: Bytes) -> tuple[Finding, ...]:
    """Let stock `dcp.load` open what our own pass found sound (`--load stock`)."""
    outcome = _run(_job(seen, source, mode="stock"), seen, source)
    return outcome_findings(outcome, who="stock dcp.load")


def _load(
    seen: Look,
    shards: Sequence[Shard],
    source: Bytes,
    versions: Mapping[str, str],
    reused: Mapping[str, FileResult],
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
    job = replace(_job(seen, source, mode="verify"), done=frozenset(reused), versions=versions)
    outcome = _run(job, seen, source)
    not_loaded = _not_loaded(shards, outcome, reused)
    return outcome, (*outcome_findings(outcome, who="the load"), *not_loaded)


def outcome_findings(outcome: CanaryOutcome, *, who: str) -> tuple[Finding, ...]:
    """Turn the end of a canary into findings. Infrastructure trouble is never INVALID.

    Args:
        outcome: How it ended.
        who: Subject of the sentence.
    """
    codes = {
        Ending.CRASHED: FindingCode.CANARY_CRASHED,
        Ending.STOPPED: FindingCode.CANARY_CRASHED,
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


def _not_loaded(
    shards: Sequence[Shard], outcome: CanaryOutcome, reused: Mapping[str, FileResult]
) -> tuple[Finding, ...]:
    """Hold that a canary that says it is done has read every shard it was given."""
    given = [shard.path for shard in shards if shard.encoding in LOADABLE and shard.path not in reused]
    unread = [path for path in given if path not in outcome.scans]
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
    return source.attempt.canary(
        job,
        deadline_s=source.policy.deadline_s or _default_deadline_s(bytes_total),
        clock=source.clock,
        progress=source.progress,
        total=replace(total, phase="loading"),
        on_file=source.attempt.on_file,
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
