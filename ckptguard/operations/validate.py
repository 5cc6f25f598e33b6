"""Validate one checkpoint: the whole protocol, from a path to a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ckptguard.checks.against_manifest import referenced_paths
from ckptguard.checks.globals import check_metadata_globals
from ckptguard.checks.overlap import check_overlap
from ckptguard.checks.phrases import some_of
from ckptguard.checks.profile import check_profile
from ckptguard.checks.reader import check_reader
from ckptguard.checks.times import check_times
from ckptguard.clock import Clock, SystemClock
from ckptguard.errors import LimitExceededError, ObjectNotFoundError, StoreError
from ckptguard.formats.checkpoint import Checkpoint, distinct_shards
from ckptguard.formats.dcp_builders import KNOWN_GLOBALS
from ckptguard.formats.denied_globals import is_denied
from ckptguard.formats.discover import discover
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout, Shard
from ckptguard.model.manifest import Manifest
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report, TensorNumerics
from ckptguard.model.verdict import Assurance, CheckResult, derive_judgement, skipped
from ckptguard.operations.changes import (
    confirmed_by_name,
    doubted,
    doubted_reading,
    file_changes,
    has_changed,
    metadata_changes,
    metadata_rereads,
    only_as_listed,
)
from ckptguard.operations.checksums import ConfirmedChecksums, confirm_checksums
from ckptguard.operations.evidence import bytes_of_canary, evidence_of, intact_files, proven_files
from ckptguard.operations.held import Held, find_manifests, hold_content, hold_structure, judge_held
from ckptguard.operations.look import Look, below_root, look, refuse_part_of_a_set, settled_look, unrecognised
from ckptguard.operations.place import Place
from ckptguard.operations.reading import Attempt, Bytes, Reading, load_by_stock, read_bytes, scan_setting
from ckptguard.operations.results import (
    content_result,
    load_result,
    merge_numerics,
    numerics_result,
    of_check,
    structure_results,
    unbuilt_classes,
    with_stock,
)
from ckptguard.operations.sidecars import files_of, hidden_sidecars, sidecar_zips
from ckptguard.operations.tensor_listing import list_tensors
from ckptguard.operations.versions import canary_as_reader, has_module, versions_of
from ckptguard.scan.faults import store_finding
from ckptguard.scan.files import whole_file
from ckptguard.scan.progress import ProgressListener
from ckptguard.storage.caching import CachingStore
from ckptguard.storage.fresh import FreshStore
from ckptguard.storage.listing import Listing, list_folder

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


def validate(
    target: str,
    *,
    policy: Policy | None = None,
    root: Path | None = None,
    manifest: Manifest | None = None,
    step: int | None = None,
    progress: ProgressListener | None = None,
    clock: Clock | None = None,
) -> Report:
    """Run the whole protocol on one checkpoint and report everything that was found.

    Args:
        target: Local path or URL of a checkpoint, or of a folder of steps.
        policy: Everything that may change the verdict besides the bytes.
        root: Folder that links may not leave; local targets only.
        manifest: What to hold the checkpoint against; None: what lies beside the shards.
        step: Which step of a folder of steps; None: the newest committed one.
        progress: Told of bytes and files as they are read, from several threads.
        clock: Time.

    Returns:
        The report. Damage, and a store that did not answer, are findings in it.

    Raises:
        ObjectNotFoundError: Nothing is there.
        ConfigError: The target, the step or an adapter cannot be used.
    """
    place = Place.of(target, root=root)
    manifests = {} if manifest is None else {"": manifest}
    return validate_in(place, policy=policy, manifests=manifests, step=step, progress=progress, clock=clock)


def validate_in(
    place: Place,
    *,
    policy: Policy | None = None,
    manifests: Mapping[str, Manifest] = _NONE,
    step: int | None = None,
    progress: ProgressListener | None = None,
    clock: Clock | None = None,
    attempt: Attempt | None = None,
) -> Report:
    """As `validate`, in a store that is open already.

    Args:
        place: The store, and how the canary child reaches the same one.
        policy: As for `validate`, and so are the others without a word here.
        manifests: What to hold it against, by folder: "" is the whole, else of each part its own.
        step: See `validate`.
        progress: See `validate`.
        clock: See `validate`.
        attempt: Who runs the child that loads, and what an earlier attempt has read.

    Raises:
        ObjectNotFoundError: There is no such step.
        ConfigError: An adapter cannot be used.
    """
    asked = _Asked(
        place=place,
        step=step,
        manifests=manifests,
        policy=policy or Policy(),
        progress=progress,
        clock=clock or SystemClock(),
        attempt=attempt or Attempt(),
    )
    return _Validation(asked).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    place: Place
    step: int | None
    manifests: Mapping[str, Manifest]
    policy: Policy
    progress: ProgressListener | None
    clock: Clock
    attempt: Attempt


class _Validation:
    """One run of the protocol; a step per method."""

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked
        self._policy = asked.policy
        self._store = CachingStore(asked.place.store)
        self._held = Held(by_folder={})
        self._bytes_of_first_look = 0
        self._started_at = asked.clock.now()
        self._started = asked.clock.monotonic_s()

    def run(self) -> Report:
        try:
            seen = settled_look(self._look(), self._look_again, policy=self._policy, clock=self._asked.clock)
        except ObjectNotFoundError as error:
            if not error.key:  # no such step; with a key: something that was listed is gone
                raise
            return self._report_of_nothing(error)
        except (StoreError, LimitExceededError) as error:
            return self._report_of_nothing(error)
        return self._judge(seen, self._held)

    def _look(self) -> Look:
        """List, read the metadata and the manifests, and say what condemns or is in doubt so far."""
        asked, policy = self._asked, self._policy
        listing = list_folder(self._store, asked.place.prefix, max_files=policy.limits.max_files)
        checkpoint = discover(self._store, listing, policy.limits, step=asked.step)
        bare = Look(checkpoint=checkpoint, listing=below_root(listing, checkpoint.root), findings=())
        self._held = find_manifests(self._store, bare, asked.manifests)
        seen = look(checkpoint, bare.listing, listed=self._held.expected)
        refuse_part_of_a_set(seen, listing, asked.place.target)
        findings = (
            *seen.findings,
            *unrecognised(seen),
            *self._held.findings,
            *self._structure_findings(seen, self._held),
        )
        return replace(seen, findings=findings)

    def _look_again(self) -> Look:
        """Forget what was read, and reach past every cache: only what is seen twice condemns."""
        place = self._asked.place
        self._bytes_of_first_look = self._store.bytes_read
        self._store = CachingStore(FreshStore(place.store))
        seen = self._look()
        self._bytes_of_first_look += self._store.bytes_read
        self._store = CachingStore(place.store, self._store.blobs)
        return replace(seen, findings=confirmed_by_name(seen, self._store))

    def _judge(self, seen: Look, held: Held) -> Report:
        seconds = self._asked.clock.monotonic_s() - self._started
        metadata_bytes = self._bytes_of_first_look + self._store.bytes_read
        source = self._source(held)
        reading = only_as_listed(seen, self._read(seen, held, source))
        confirmed = self._confirmed(seen, held, reading, source)
        observed = confirmed.observed
        findings = [
            *seen.findings,
            *confirmed.findings,
            *self._content_findings(held, confirmed),
            *self._reader_findings(seen.checkpoint.layouts, reading),
        ]
        changes = self._changes(seen, reading, findings, source)
        if has_changed(changes):
            reading, findings = doubted_reading(reading), doubted(findings)
        findings += changes
        proven = proven_files(held, observed)
        findings += self._doubts_of_one_save(seen, proven & held.saved_paths)
        provenance = judge_held(
            held,
            seen,
            observed=observed,
            intact=intact_files(reading) if not changes else frozenset(),
            doubts=of_check(findings, CheckName.PROVENANCE),
        )
        numerics = merge_numerics(reading.scans.values())
        results = [
            *structure_results(seen, findings, seconds=seconds, bytes_read=metadata_bytes),
            content_result(seen, reading, findings, policy=self._policy, proven=proven),
            load_result(seen, reading, findings, policy=self._policy),
            provenance.result,
            numerics_result(seen, numerics, reading, policy=self._policy),
            skipped(CheckName.PROBE, "no probe was asked for"),
        ]
        results = self._stock(seen, reading, results, source)
        shards = distinct_shards(seen.checkpoint.layouts)
        return Report(
            target=self._asked.place.target,
            path=_place(self._store.url, seen.listing.root),
            format="+".join(dict.fromkeys(layout.format for layout in seen.checkpoint.layouts)) or "unknown",
            checks=tuple(results),
            provenance=provenance.provenance,
            device=reading.outcome.device if reading.outcome is not None else None,
            started_at=self._started_at,
            seconds=self._asked.clock.monotonic_s() - self._started,
            seconds_reading=reading.seconds,
            num_shards=len(shards),
            num_items=sum(len(shard.items) for shard in shards),
            num_tensors=sum(len(layout.tensors) for layout in seen.checkpoint.layouts),
            bytes_total=sum(stat.length_bytes for stat in seen.listing.files.values()),
            bytes_read=self._bytes_of_first_look + self._store.bytes_read + bytes_of_canary(reading),
            step=seen.checkpoint.step,
            steps=seen.checkpoint.steps,
            files=tuple(observed[path] for path in sorted(observed)),
            numerics=numerics,
            other_findings=seen.checkpoint.surroundings,
            versions=versions_of(reading),
            manifest_identity=held.identity,
            tensor_list=self._tensor_list(seen.checkpoint.layouts, numerics),
        )

    def _tensor_list(self, layouts: Sequence[Layout], numerics: Mapping[str, TensorNumerics]) -> bytes:
        return list_tensors(layouts, numerics) if self._asked.attempt.is_tensor_list_wanted else b""

    def _structure_findings(self, seen: Look, held: Held) -> list[Finding]:
        layouts, policy = seen.checkpoint.layouts, self._policy
        return [
            *check_metadata_globals(
                layouts,
                is_denied=is_denied,
                is_known=KNOWN_GLOBALS.__contains__,
                allowed_globals=policy.allowed_globals,
            ),
            *check_profile(layouts, policy.required_fqns, files=files_of(layouts, seen.listing.files)),
            *hold_structure(held, seen),
            *hidden_sidecars(seen),
        ]

    def _doubts_of_one_save(self, seen: Look, vouched: frozenset[str]) -> tuple[Finding, ...]:
        """Look at times and markers of parts whose bytes no save-time manifest proves (design §3)."""
        layouts = seen.checkpoint.layouts
        parts = {layout.part for layout in layouts if not vouched.issuperset(referenced_paths([layout]))}
        unproven = [layout for layout in layouts if layout.part in parts]
        return (*check_times(unproven, seen.listing, self._policy), *check_overlap(unproven, seen.listing))

    def _read(self, seen: Look, held: Held, source: Bytes) -> Reading:
        if self._policy.depth is Depth.STRUCTURE:
            return Reading()
        shards = [
            shard for shard in distinct_shards(seen.checkpoint.layouts) if shard.path in seen.listing.files
        ]
        sidecars, findings = self._sidecars(seen)
        hashed = {
            file.path: file.checksum.algorithm
            for layout in seen.checkpoint.layouts
            for file in layout.metadata_files
        }
        read = {shard.path for shard in (*shards, *sidecars)}
        others = [
            whole_file(path)
            for path, checksum in held.expected.items()
            if path in seen.listing.files and path not in read and hashed.get(path) is not checksum.algorithm
        ]
        reading = read_bytes(seen, shards, [*sidecars, *others], source)
        return replace(reading, findings=(*reading.findings, *findings))

    def _sidecars(self, seen: Look) -> tuple[tuple[Shard, ...], tuple[Finding, ...]]:
        try:
            return sidecar_zips(seen, self._store, required=self._policy.required_fqns), ()
        except StoreError as error:
            return (), (store_finding(error, file=error.key),)

    def _confirmed(self, seen: Look, held: Held, reading: Reading, source: Bytes) -> ConfirmedChecksums:
        observed = evidence_of(seen, reading, held)
        if self._policy.depth is Depth.STRUCTURE:
            return ConfirmedChecksums(observed=observed)
        return confirm_checksums(held.expected, observed, seen.listing.files, scan_setting(seen, (), source))

    def _changes(
        self, seen: Look, reading: Reading, findings: Sequence[Finding], source: Bytes
    ) -> tuple[Finding, ...]:
        """See that the metadata is still what the shards were judged by."""
        of_files = [finding for scan in reading.scans.values() for finding in scan.findings]
        is_condemned = any(
            finding.severity is Severity.ERROR
            for finding in (*of_check(findings, CheckName.CONTENT), *of_files)
        )
        rereads = metadata_rereads(seen, scan_setting(seen, (), source)) if is_condemned else ()
        return (*metadata_changes(seen, self._store), *rereads)

    def _content_findings(self, held: Held, confirmed: ConfirmedChecksums) -> list[Finding]:
        if self._policy.depth is Depth.STRUCTURE:
            return []
        observed = confirmed.observed
        return hold_content(held, {path: observed[path] for path in observed.keys() - confirmed.doubtful})

    def _source(self, held: Held) -> Bytes:
        asked = self._asked
        return Bytes(
            store=self._store,
            place=asked.place,
            policy=asked.policy,
            algorithms=frozenset(checksum.algorithm for checksum in held.expected.values()),
            clock=asked.clock,
            progress=asked.progress,
            attempt=asked.attempt,
        )

    def _reader_findings(self, layouts: Sequence[Layout], reading: Reading) -> tuple[Finding, ...]:
        if self._policy.depth is not Depth.LOAD:
            return ()
        reader = self._policy.reader or canary_as_reader(reading)
        return check_reader(layouts, reader=reader, has_module=has_module)

    def _stock(
        self, seen: Look, reading: Reading, results: list[CheckResult], source: Bytes
    ) -> list[CheckResult]:
        """Let stock torch load too, if asked: it unpickles, so only what is `loaded`, and all known."""
        if not self._policy.is_stock_load or self._policy.depth is not Depth.LOAD:
            return results
        assurance = derive_judgement(results).assurance
        if assurance is None or assurance.rank < Assurance.LOADED.rank:
            return results
        refusal = self._why_not_stock(seen, reading)
        findings = load_by_stock(seen, source) if refusal is None else ()
        if findings and file_changes(seen, self._store):
            findings = tuple(doubted(findings))
        return [
            with_stock(result, findings, refusal=refusal) if result.name is CheckName.LOAD else result
            for result in results
        ]

    def _why_not_stock(self, seen: Look, reading: Reading) -> str | None:
        unbuilt = unbuilt_classes(seen, reading, policy=self._policy)
        if unbuilt:
            return f"it would build {some_of(unbuilt)}; vouch with --allow-global"
        layouts = seen.checkpoint.layouts
        gaps = check_reader(layouts, reader=canary_as_reader(reading), has_module=has_module)
        return gaps[0].message if gaps else None

    def _report_of_nothing(self, error: StoreError | LimitExceededError) -> Report:
        """Report that the store did not let us look: UNKNOWN, never INVALID."""
        place = self._asked.place
        finding = _why_not_seen(error, place.prefix or place.target)
        empty = Look(
            checkpoint=Checkpoint(root=place.prefix, layouts=()),
            listing=Listing(root=place.prefix, files={}),
            findings=(finding,),
        )
        return self._judge(empty, Held(by_folder={}))


def _why_not_seen(error: StoreError | LimitExceededError, place: str) -> Finding:
    if isinstance(error, StoreError):
        return store_finding(error, file=error.key or place, check=CheckName.EXISTENCE)
    return Finding(
        code=FindingCode.LIMIT_EXCEEDED,
        check=CheckName.EXISTENCE,
        severity=Severity.UNKNOWN,
        message=str(error),
    )


def _place(url: str, root: str) -> str:
    return f"{url.rstrip('/')}/{root}" if root else url
