"""The whole protocol over stores that fail: a checkpoint is never INVALID for it."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ckptguard.errors import AccessDeniedError, ObjectNotFoundError
from ckptguard.model.finding import FindingCode as Code
from ckptguard.model.manifest import MANIFEST_NAME
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report
from ckptguard.model.verdict import Assurance, CheckStatus, Provenance, Verdict
from ckptguard.operations.place import Place
from ckptguard.operations.validate import validate_in
from ckptguard.scan.progress import Progress, ProgressListener
from ckptguard.storage.local import LocalStore
from ckptguard.storage.retry import RetryingStore, RetryPolicy
from ckptguard.testing.aim import find_payloads
from ckptguard.testing.edits import copy_checkpoint, flip_bit, overwrite, remove, truncate_by
from ckptguard.testing.fakes import (
    BrokenRead,
    BrokenRequest,
    FakeClock,
    Fault,
    FaultyStore,
    FlippedRead,
    HiddenObject,
    ShortStat,
)
from ckptguard.testing.save_manifest import leave_manifest

AT_ONCE = RetryPolicy(attempts=3, wait_initial_s=0, wait_max_s=0, wait_jitter_s=0)
ALWAYS = 1_000_000
SHARD, OTHER, METADATA = "save/__0_0.distcp", "save/__1_0.distcp", "save/.metadata"
MANIFEST = f"save/{MANIFEST_NAME}"


@pytest.fixture
def save(tmp_path: Path, corpus_dir: Path) -> Path:
    """Return a healthy checkpoint of two ranks: 440 kB in two shards."""
    return copy_checkpoint(corpus_dir / "dcp_torch2_13_0_run_ws2_step2", tmp_path / "save")


def check(
    folder: Path,
    *faults: Fault,
    denied: frozenset[str] = frozenset(),
    policy: Policy | None = None,
    progress: ProgressListener | None = None,
) -> Report:
    faulty = FaultyStore(LocalStore(folder.parent), *faults, denied=denied)
    place = Place(
        store=RetryingStore(faulty, AT_ONCE), prefix=folder.name, target=str(folder), root=folder.parent
    )
    policy = policy or Policy(depth=Depth.CONTENT, jobs=1)
    return validate_in(place, policy=policy, clock=FakeClock(), progress=progress)


def codes(report: Report) -> set[Code]:
    return {finding.code for finding in report.findings if finding.severity in ("error", "unknown")}


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What goes wrong with a store, and what may be said of a healthy checkpoint in it."""

    name: str
    faults: tuple[Fault, ...] = ()
    denied: frozenset[str] = field(default_factory=frozenset)
    code: Code | None = None
    is_retryable: bool = True

    @property
    def verdict(self) -> Verdict:
        """What a healthy checkpoint in this store may be called."""
        return Verdict.VALID if self.code is None else Verdict.UNKNOWN


TROUBLES = [
    Trouble(name="the listing lags behind a shard", faults=(HiddenObject(path=SHARD),)),
    Trouble(name="the listing lags behind the commit", faults=(HiddenObject(path=METADATA),)),
    Trouble(
        name="the listing lags for longer than the settle time",
        faults=(HiddenObject(path=SHARD, walks=ALWAYS),),
        code=Code.MISSING_SHARD,
    ),
    Trouble(name="a shard is shown short once", faults=(ShortStat(path=SHARD, missing_bytes=5000),)),
    Trouble(
        name="a shard is listed short twice, and whole when asked for",
        faults=(ShortStat(path=SHARD, missing_bytes=5000, times=2),),
        code=Code.SHORT_SHARD,
    ),
    Trouble(
        name="the metadata is shown short once",
        faults=(ShortStat(path=METADATA, missing_bytes=500),),
        code=Code.CHANGED_DURING_CHECK,
    ),
    Trouble(
        name="the metadata is shown short while it is read",
        faults=(ShortStat(path=METADATA, missing_bytes=500, times=2),),
        code=Code.STORE_UNAVAILABLE,
    ),
    Trouble(name="a read fails half-way", faults=(BrokenRead(path=SHARD, at_byte=100_000),)),
    Trouble(name="a read of metadata fails half-way", faults=(BrokenRead(path=METADATA, at_byte=20_000),)),
    Trouble(
        name="a read always fails",
        faults=(BrokenRead(path=SHARD, at_byte=100_000, times=ALWAYS),),
        code=Code.STORE_UNAVAILABLE,
    ),
    Trouble(
        name="the metadata cannot be read",
        faults=(BrokenRead(path=METADATA, at_byte=20_000, times=ALWAYS),),
        code=Code.STORE_UNAVAILABLE,
    ),
    Trouble(name="the listing breaks off once", faults=(BrokenRequest(operation="walk", after=1),)),
    Trouble(
        name="the listing is never whole",
        faults=(BrokenRequest(operation="walk", after=1, times=ALWAYS),),
        code=Code.STORE_UNAVAILABLE,
    ),
    Trouble(
        name="the search for links is never answered",
        faults=(BrokenRequest(operation="escapes", times=ALWAYS),),
        code=Code.STORE_UNAVAILABLE,
    ),
    Trouble(
        name="nothing is answered but listings",
        faults=(BrokenRequest(operation="stat", times=ALWAYS),),
        code=Code.STORE_UNAVAILABLE,
    ),
    Trouble(
        name="the folder is refused", denied=frozenset({"save"}), code=Code.ACCESS_DENIED, is_retryable=False
    ),
    Trouble(
        name="one shard is refused",
        faults=(BrokenRequest(operation="open", path=SHARD, times=ALWAYS, error=AccessDeniedError),),
        code=Code.ACCESS_DENIED,
        is_retryable=False,
    ),
    Trouble(
        name="the metadata is refused",
        faults=(BrokenRequest(operation="open", path=METADATA, times=ALWAYS, error=AccessDeniedError),),
        code=Code.ACCESS_DENIED,
        is_retryable=False,
    ),
    Trouble(
        name="a listed shard is gone",
        faults=(BrokenRequest(operation="open", path=SHARD, times=ALWAYS, error=ObjectNotFoundError),),
        code=Code.CHANGED_DURING_CHECK,
    ),
    Trouble(
        name="the listed metadata is gone",
        faults=(BrokenRequest(operation="open", path=METADATA, times=ALWAYS, error=ObjectNotFoundError),),
        code=Code.CHANGED_DURING_CHECK,
    ),
]


@pytest.mark.parametrize("settle_s", [30.0, 0.0], ids=["settled", "at once"])
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
def test_trouble_with_the_store_is_never_damage(save: Path, trouble: Trouble, settle_s: float) -> None:
    policy = Policy(depth=Depth.CONTENT, jobs=1, settle_s=settle_s)
    report = check(save, *trouble.faults, denied=trouble.denied, policy=policy)
    assert report.judgement.verdict is trouble.verdict, report.findings
    if trouble.code is None:
        assert report.judgement.assurance is Assurance.CONTENT
        return
    assert trouble.code in codes(report)
    assert report.judgement.is_retryable == trouble.is_retryable


def test_what_was_not_read_passes_no_check(save: Path) -> None:
    report = check(save, denied=frozenset({"save"}))
    assert not [result.name for result in report.checks if result.status is CheckStatus.PASS]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
def test_trouble_never_hides_damage_behind_a_valid(save: Path, trouble: Trouble) -> None:
    payload = next(extent for extent in find_payloads(save) if extent.file == "__1_0.distcp")
    flip_bit(save, payload.file, offset=payload.offset, bit=3)
    report = check(save, *trouble.faults, denied=trouble.denied)
    assert report.judgement.verdict is not Verdict.VALID
    if trouble.code is None:
        assert codes(report) == {Code.CRC_MISMATCH}


def flips(save: Path) -> dict[str, int]:
    """Offsets, in a tensor, in an object's record and in a zip's header, of the first shard."""
    shard = save / "__0_0.distcp"
    payload = next(extent for extent in find_payloads(save) if extent.file == shard.name)
    return {"tensor": payload.offset + 1, "header": 0, "end record": shard.stat().st_size - 3}


@pytest.mark.parametrize("where", ["tensor", "header", "end record"])
def test_byte_that_reads_wrong_once_is_an_unstable_read(save: Path, where: str) -> None:
    report = check(save, FlippedRead(path=SHARD, offset=flips(save)[where]))
    assert (report.judgement.verdict, codes(report)) == (Verdict.UNKNOWN, {Code.UNSTABLE_READ})
    assert report.judgement.is_retryable


@pytest.mark.parametrize("where", ["tensor", "header", "end record"])
def test_byte_that_always_reads_wrong_is_damage(save: Path, where: str) -> None:
    report = check(save, FlippedRead(path=SHARD, offset=flips(save)[where], times=ALWAYS))
    assert report.judgement.verdict is Verdict.INVALID
    assert {finding.file for finding in report.findings if finding.severity == "error"} == {"__0_0.distcp"}


def test_metadata_that_reads_wrong_once_is_never_damage(save: Path) -> None:
    length = (save / ".metadata").stat().st_size
    verdicts = {}
    for offset in range(0, length, length // 40):
        report = check(save, FlippedRead(path=METADATA, offset=offset, bit=offset % 8))
        verdicts[offset] = report.judgement.verdict
    assert Verdict.INVALID not in verdicts.values(), verdicts


def leave_and_flip(save: Path, file: str, *, times: int) -> Report:
    leave_manifest(save, format_name="dcp")
    offset = 200 if file == MANIFEST else flips(save)["tensor"]
    return check(save, FlippedRead(path=file, offset=offset, times=times))


def test_manifest_that_reads_wrong_once_is_an_unstable_read(save: Path) -> None:
    report = leave_and_flip(save, MANIFEST, times=1)
    assert report.judgement.verdict is not Verdict.INVALID


def test_checksum_that_differs_once_is_an_unstable_read(save: Path) -> None:
    report = leave_and_flip(save, SHARD, times=1)
    assert (report.judgement.verdict, codes(report)) == (Verdict.UNKNOWN, {Code.UNSTABLE_READ})
    assert report.provenance is Provenance.UNPROVEN


def test_sidecar_whose_checksum_differs_once_is_an_unstable_read(save: Path) -> None:
    """No CRC, no structure: only the second hashing can tell the path from the medium."""
    (save / "rng.bin").write_bytes(bytes(5000))
    leave_manifest(save, format_name="dcp")
    report = check(save, FlippedRead(path="save/rng.bin", offset=4000))
    assert (report.judgement.verdict, codes(report)) == (Verdict.UNKNOWN, {Code.UNSTABLE_READ})


def test_metadata_whose_checksum_differs_once_is_an_unstable_read(save: Path) -> None:
    leave_manifest(save, format_name="dcp")
    name = (save / ".metadata").read_bytes().index(b"model.tok_embeddings") + 6
    report = check(save, FlippedRead(path=METADATA, offset=name, bit=1))
    assert (report.judgement.verdict, codes(report)) == (Verdict.UNKNOWN, {Code.UNSTABLE_READ})


def test_checksum_that_differs_twice_is_damage_and_is_hashed_twice(save: Path) -> None:
    (save / "rng.bin").write_bytes(bytes(5000))
    leave_manifest(save, format_name="dcp")
    overwrite(save, "rng.bin", offset=4000, data=b"x")
    report = check(save)
    assert (report.judgement.verdict, codes(report)) == (Verdict.INVALID, {Code.CHECKSUM_MISMATCH})
    rereads = report.bytes_read - report.bytes_total
    assert rereads == 5000 + (save / ".metadata").stat().st_size


def test_listing_that_lags_behind_a_file_of_the_manifest_is_settled(save: Path) -> None:
    (save / "rng.bin").write_bytes(bytes(5000))
    leave_manifest(save, format_name="dcp")
    report = check(save, HiddenObject(path="save/rng.bin"))
    assert (report.judgement.verdict, report.provenance) == (Verdict.VALID, Provenance.PROVEN)


def replaced(path: Path, content: bytes | None = None) -> None:
    """Put another file in a file's place, as a writer that renames does."""
    aside = path.with_name(f"{path.name}.new")
    aside.write_bytes(path.read_bytes() if content is None else content)
    os.utime(aside, (path.stat().st_atime, path.stat().st_mtime + 1))
    aside.replace(path)


def at_first_file(action: Callable[[], object]) -> ProgressListener:
    acted: list[bool] = []

    def listener(progress: Progress) -> None:
        if progress.files_done and not acted:
            acted.append(True)
            action()

    return listener


@pytest.mark.parametrize("is_damaged", [False, True], ids=["same bytes", "other bytes"])
@pytest.mark.parametrize("name", ["__0_0.distcp", "__1_0.distcp", ".metadata"])
def test_object_replaced_during_the_check_is_never_judged(save: Path, name: str, *, is_damaged: bool) -> None:
    content = bytes((save / name).stat().st_size) if is_damaged else None
    report = check(save, progress=at_first_file(lambda: replaced(save / name, content)))
    if name == "__0_0.distcp":  # read to its end before it was replaced, or not, by the order of reading
        assert report.judgement.verdict is not Verdict.INVALID
        return
    assert report.judgement.verdict is Verdict.UNKNOWN
    assert codes(report) == {Code.CHANGED_DURING_CHECK}
    assert report.judgement.is_retryable


def test_damage_under_metadata_that_is_replaced_is_doubt(save: Path) -> None:
    flip_bit(save, "__0_0.distcp", offset=flips(save)["tensor"], bit=0)
    report = check(save, progress=at_first_file(lambda: replaced(save / ".metadata")))
    assert report.judgement.verdict is Verdict.UNKNOWN
    assert Code.CHANGED_DURING_CHECK in codes(report)


def test_shard_deleted_during_the_check_is_doubt(save: Path) -> None:
    report = check(save, progress=at_first_file(lambda: remove(save, "__1_0.distcp")))
    assert (report.judgement.verdict, codes(report)) == (Verdict.UNKNOWN, {Code.CHANGED_DURING_CHECK})


def test_store_that_is_gone_is_not_asked_for_every_shard(tmp_path: Path, corpus_dir: Path) -> None:
    save = copy_checkpoint(corpus_dir / "dcp_torch2_13_0_manyfiles300_ws2", tmp_path / "save")
    faulty = FaultyStore(LocalStore(tmp_path), BrokenRequest(operation="stat", times=ALWAYS))
    place = Place(store=RetryingStore(faulty, AT_ONCE), prefix="save", target=str(save))
    report = validate_in(place, policy=Policy(depth=Depth.CONTENT, jobs=2), clock=FakeClock())
    assert (report.judgement.verdict, codes(report)) == (Verdict.UNKNOWN, {Code.STORE_UNAVAILABLE})
    assert faulty.requests["stat"] < 10 * AT_ONCE.attempts


@pytest.mark.parametrize(
    ("faults", "verdict"),
    [
        ((HiddenObject(path=SHARD),), Verdict.VALID),
        ((BrokenRead(path=METADATA, at_byte=20_000),), Verdict.VALID),
        ((BrokenRead(path=METADATA, at_byte=20_000, times=ALWAYS),), Verdict.UNKNOWN),
    ],
    ids=["listing lags", "metadata on retry", "metadata never"],
)
@pytest.mark.torch
def test_the_load_is_not_confused_by_what_the_parent_met(
    save: Path, faults: tuple[Fault, ...], verdict: Verdict
) -> None:
    report = check(save, *faults, policy=Policy(jobs=1))
    assert report.judgement.verdict is verdict, report.findings
    if verdict is Verdict.VALID:
        assert report.judgement.assurance is Assurance.LOADED


@pytest.mark.torch
def test_shard_replaced_while_the_canary_loads_is_never_judged(tmp_path: Path, corpus_dir: Path) -> None:
    save = copy_checkpoint(corpus_dir / "dcp_torch2_13_0_many2000_ws2", tmp_path / "save")
    last = min(save.glob("*.distcp"), key=lambda path: path.stat().st_size)
    listener = at_first_file(lambda: replaced(last, bytes(last.stat().st_size)))
    report = check(save, policy=Policy(jobs=1), progress=listener)
    assert report.judgement.verdict is not Verdict.INVALID


def test_real_damage_is_still_found_through_every_second_look(save: Path) -> None:
    truncate_by(save, "__1_0.distcp", removed_bytes=1)
    assert codes(check(save)) == {Code.SHORT_SHARD}
    shutil.copyfile(save / "__0_0.distcp", save / "__1_0.distcp")
    assert check(save).judgement.verdict is Verdict.INVALID
