"""Design §3: what moves is looked at again, and what was written after its commit is not trusted."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckptguard.cli.exit_codes import ExitCode, exit_code_of_check
from ckptguard.formats.manifest_json import to_json
from ckptguard.model.finding import FindingCode as Code
from ckptguard.model.finding import Severity
from ckptguard.model.manifest import MANIFEST_NAME, ChecksumSource, Origin
from ckptguard.model.policy import Depth, Policy, StoreTimes
from ckptguard.model.report import Report
from ckptguard.model.verdict import Provenance, Verdict
from ckptguard.operations.validate import validate
from ckptguard.testing.edits import (
    COMMITTED_AT_S,
    WRITTEN_AT_S,
    append,
    copy_checkpoint,
    copy_tree,
    flip_bit,
    overwrite,
    set_time,
    truncate_by,
)
from ckptguard.testing.fakes import FakeClock
from ckptguard.testing.manifests import manifest_of
from ckptguard.testing.save_manifest import leave_manifest

if TYPE_CHECKING:
    import subprocess

CONTENT = Policy(depth=Depth.CONTENT)


@pytest.fixture
def broken_dir(corpus_dir: Path) -> Path:
    """Return the folder of checkpoints whose writers were killed."""
    return corpus_dir.parent / "corpus_broken"


@pytest.fixture
def save(tmp_path: Path, own_corpus: Path) -> Path:
    return copy_checkpoint(own_corpus / "dcp_torch2_14_1_fsdp2_ws2", tmp_path / "save")


def exit_code(report: Report) -> ExitCode:
    return exit_code_of_check(report.judgement, depth=Depth.CONTENT)


def doubts(report: Report) -> set[Code]:
    severities = (Severity.ERROR, Severity.UNKNOWN)
    return {finding.code for finding in report.findings if finding.severity in severities}


class Meanwhile:
    """What happens to a file while the check waits.

    Args:
        path: The file; what it holds now is what it will hold.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._whole = path.read_bytes()
        self._time_s = path.stat().st_mtime
        self.clock = FakeClock(on_sleep=lambda _: self.arrives())

    def arrives(self) -> None:
        """Let the file be whole, at the time at which it was written."""
        self._path.write_bytes(self._whole)
        set_time(self._path, self._time_s)


NOT_YET: dict[str, Callable[[Path], object]] = {
    "missing shard": lambda save: (save / "__1_0.distcp").unlink(),
    "short shard": lambda save: truncate_by(save, "__1_0.distcp", removed_bytes=4096),
    "missing metadata": lambda save: (save / ".metadata").unlink(),
    "short metadata": lambda save: truncate_by(save, ".metadata", removed_bytes=300),
    "empty metadata": lambda save: truncate_by(save, ".metadata", removed_bytes=1 << 30),
}
LATE_FILE = {name: ".metadata" if "metadata" in name else "__1_0.distcp" for name in NOT_YET}


@pytest.mark.parametrize("name", NOT_YET)
def test_file_that_becomes_whole_while_the_check_waits_is_fine(save: Path, name: str) -> None:
    meanwhile = Meanwhile(save / LATE_FILE[name])
    NOT_YET[name](save)
    report = validate(str(save), policy=CONTENT, clock=meanwhile.clock)
    assert report.judgement.verdict is Verdict.VALID, report.findings
    assert meanwhile.clock.sleeps_s == [30.0]


@pytest.mark.parametrize("settle_s", [30.0, 0.0])
@pytest.mark.parametrize("name", NOT_YET)
def test_file_that_stays_away_is_damage(save: Path, name: str, settle_s: float) -> None:
    NOT_YET[name](save)
    clock = FakeClock()
    report = validate(str(save), policy=Policy(depth=Depth.CONTENT, settle_s=settle_s), clock=clock)
    assert (report.judgement.verdict, exit_code(report)) == (Verdict.INVALID, ExitCode.UNUSABLE)
    assert clock.sleeps_s == ([settle_s] if settle_s else [])


def test_file_that_still_changes_is_worth_another_try(save: Path) -> None:
    truncate_by(save, "__1_0.distcp", removed_bytes=2000)

    def write(_: float) -> None:
        truncate_by(save, "__1_0.distcp", removed_bytes=1000)

    clock = FakeClock(on_sleep=write)
    report = validate(str(save), policy=CONTENT, clock=clock)
    assert (report.judgement.verdict, exit_code(report)) == (Verdict.UNKNOWN, ExitCode.TRY_AGAIN)


def test_another_save_that_commits_meanwhile_is_judged_by_what_it_left(save: Path, own_corpus: Path) -> None:
    """The second look reads the metadata anew, not what it remembers."""
    (save / "__1_0.distcp").unlink()

    def commit(_: float) -> None:
        shutil.rmtree(save)
        copy_checkpoint(own_corpus / "dcp_torch2_13_0_uneven_ws4", save)

    report = validate(str(save), policy=CONTENT, clock=FakeClock(on_sleep=commit))
    assert report.judgement.verdict is Verdict.VALID, report.findings
    assert report.num_shards == 4


def test_healthy_checkpoint_waits_for_nothing(save: Path) -> None:
    clock = FakeClock()
    assert validate(str(save), policy=CONTENT, clock=clock).judgement.verdict is Verdict.VALID
    assert clock.sleeps_s == []


def test_what_time_cannot_heal_is_not_waited_for(save: Path) -> None:
    (save / ".metadata").write_bytes(b"not a pickle at all")
    clock = FakeClock()
    assert validate(str(save), policy=CONTENT, clock=clock).judgement.verdict is Verdict.INVALID
    assert clock.sleeps_s == []


def overwritten(broken_dir: Path, tmp_path: Path, *, newer: tuple[str, ...]) -> Path:
    """Return the save that died while it overwrote an older one; `newer` shards after the old commit."""
    folder = copy_checkpoint(broken_dir / "dcp_killed_overwriting", tmp_path / "torn")
    for name in newer:
        set_time(folder / name, COMMITTED_AT_S + 600)
    return folder


def test_torn_resave_with_its_times_is_unknown_for_good(broken_dir: Path, tmp_path: Path) -> None:
    folder = overwritten(broken_dir, tmp_path, newer=("__0_0.distcp",))
    report = validate(str(folder), policy=CONTENT)
    assert (report.judgement.verdict, exit_code(report)) == (Verdict.UNKNOWN, ExitCode.UNUSABLE)
    (finding,) = (one for one in report.findings if one.code is Code.REWRITTEN_AFTER_COMMIT)
    assert (finding.file, finding.severity) == ("__0_0.distcp", Severity.UNKNOWN)
    copied = validate(str(folder), policy=Policy(depth=Depth.CONTENT, times=StoreTimes.COPIED))
    assert copied.judgement.verdict is Verdict.UNKNOWN


def test_torn_resave_without_its_times_is_a_declared_limit(broken_dir: Path, tmp_path: Path) -> None:
    """Sizes, CRCs and coverage hold and the times are gone: VALID, and provenance never claimed."""
    for times in (StoreTimes.ORIGINAL, StoreTimes.COPIED):
        folder = overwritten(broken_dir, tmp_path / times, newer=())
        report = validate(str(folder), policy=Policy(depth=Depth.CONTENT, times=times))
        assert report.judgement.verdict is Verdict.VALID
        assert report.provenance is Provenance.UNPROVEN


def test_torn_resave_is_let_through_only_on_demand(broken_dir: Path, tmp_path: Path) -> None:
    folder = overwritten(broken_dir, tmp_path, newer=("__0_0.distcp",))
    ignored = validate(str(folder), policy=Policy(depth=Depth.CONTENT, is_mtime_ignored=True))
    assert ignored.judgement.verdict is Verdict.VALID
    assert ignored.provenance is Provenance.UNPROVEN


@pytest.mark.parametrize(
    ("times", "verdict"), [(StoreTimes.ORIGINAL, Verdict.UNKNOWN), (StoreTimes.COPIED, Verdict.VALID)]
)
def test_all_shards_newer_is_doubt_only_where_times_are_the_writers(
    broken_dir: Path, tmp_path: Path, times: StoreTimes, verdict: Verdict
) -> None:
    folder = overwritten(broken_dir, tmp_path, newer=("__0_0.distcp", "__1_0.distcp"))
    report = validate(str(folder), policy=Policy(depth=Depth.CONTENT, times=times))
    assert report.judgement.verdict is verdict
    assert Code.REWRITTEN_AFTER_COMMIT in {finding.code for finding in report.findings}


@pytest.mark.parametrize(("late_s", "is_doubt"), [(4.9, False), (5.1, True)])
def test_tolerance_is_five_seconds(save: Path, late_s: float, *, is_doubt: bool) -> None:
    set_time(save / "__0_0.distcp", COMMITTED_AT_S + late_s)
    report = validate(str(save), policy=CONTENT)
    assert (report.judgement.verdict is Verdict.UNKNOWN) == is_doubt


def test_scrambled_times_of_the_corpus_itself_condemn_nothing(broken_dir: Path, tmp_path: Path) -> None:
    folder = copy_tree(broken_dir / "dcp_killed_overwriting", tmp_path / "as it lies")
    for name in (".metadata", "__0_0.distcp", "__1_0.distcp"):
        set_time(folder / name, WRITTEN_AT_S)
    assert validate(str(folder), policy=CONTENT).judgement.verdict is Verdict.VALID


def test_the_manifest_of_the_save_makes_times_irrelevant(save: Path) -> None:
    leave_manifest(save, format_name="dcp")
    set_time(save / "__0_0.distcp", COMMITTED_AT_S + 600)
    report = validate(str(save), policy=CONTENT)
    assert (report.judgement.verdict, report.provenance) == (Verdict.VALID, Provenance.PROVEN)
    assert doubts(report) == set()


def test_the_manifest_of_the_older_save_names_the_shard_of_the_torn_one(
    broken_dir: Path, tmp_path: Path
) -> None:
    """What times hint at and CRCs cannot see, the manifest proves."""
    folder = overwritten(broken_dir, tmp_path, newer=())
    newer = (folder / "__0_0.distcp").read_bytes()
    # What the older save had there is gone for ever: any other bytes of that length stand for it.
    overwrite(folder, "__0_0.distcp", offset=0, data=bytes(reversed(newer)))
    leave_manifest(folder, format_name="dcp")
    overwrite(folder, "__0_0.distcp", offset=0, data=newer)
    report = validate(str(folder), policy=CONTENT)
    assert report.judgement.verdict is Verdict.INVALID
    assert doubts(report) == {Code.CHECKSUM_MISMATCH, Code.MIXED_SAVES}
    files = {finding.file for finding in report.findings if finding.severity is Severity.ERROR}
    assert files == {"__0_0.distcp"}


@pytest.mark.parametrize("settle_s", [30.0, 0.0])
def test_save_killed_before_its_metadata_is_not_committed(
    broken_dir: Path, tmp_path: Path, settle_s: float
) -> None:
    folder = copy_checkpoint(broken_dir / "dcp_killed_before_metadata", tmp_path / "killed")
    policy = Policy(depth=Depth.CONTENT, settle_s=settle_s)
    report = validate(str(folder), policy=policy, clock=FakeClock())
    assert (report.judgement.verdict, exit_code(report)) == (Verdict.INVALID, ExitCode.UNUSABLE)
    assert doubts(report) == {Code.NOT_COMMITTED}


def leave_read_back(save: Path) -> None:
    contents = {path.name: path.read_bytes() for path in save.iterdir()}
    manifest = manifest_of(
        contents,
        origin=Origin.READ_BACK,
        source=ChecksumSource.STORAGE,
        save_id="c-" + "0" * 32,
    )
    (save / MANIFEST_NAME).write_bytes(to_json(manifest))


def test_manifest_that_was_read_back_proves_unchanged_and_no_more(save: Path) -> None:
    leave_read_back(save)
    report = validate(str(save), policy=CONTENT)
    assert (report.judgement.verdict, report.provenance) == (Verdict.VALID, Provenance.UNCHANGED)


def test_manifest_that_was_read_back_does_not_excuse_times(save: Path) -> None:
    leave_read_back(save)
    set_time(save / "__0_0.distcp", COMMITTED_AT_S + 600)
    report = validate(str(save), policy=CONTENT)
    assert doubts(report) == {Code.REWRITTEN_AFTER_COMMIT}


def test_bytes_that_no_crc_covers_are_held_against_the_manifest(save: Path) -> None:
    (save / "rng.bin").write_bytes(bytes(1000))
    leave_manifest(save, format_name="dcp")
    flip_bit(save, "rng.bin", offset=500, bit=0)
    report = validate(str(save), policy=CONTENT)
    assert (report.judgement.verdict, doubts(report)) == (Verdict.INVALID, {Code.CHECKSUM_MISMATCH})


@pytest.mark.parametrize("is_longer", [False, True], ids=["missing", "longer"])
def test_file_of_the_manifest_is_waited_for_as_well(save: Path, *, is_longer: bool) -> None:
    sidecar = save / "rng.bin"
    sidecar.write_bytes(bytes(1000))
    leave_manifest(save, format_name="dcp")
    meanwhile = Meanwhile(sidecar)
    if is_longer:
        append(save, sidecar.name, data=b"tail")
    else:
        sidecar.unlink()
    report = validate(str(save), policy=CONTENT, clock=meanwhile.clock)
    assert (report.judgement.verdict, report.provenance) == (Verdict.VALID, Provenance.PROVEN)


def test_the_command_answers_a_torn_resave_with_30_and_obeys_its_options(
    ckptguard: Callable[..., "subprocess.CompletedProcess[str]"], broken_dir: Path, tmp_path: Path
) -> None:
    folder = overwritten(broken_dir, tmp_path, newer=("__0_0.distcp",))

    def run(*options: str) -> tuple[int, dict[str, object]]:
        done = ckptguard("check", folder, "--depth", "content", "--json", *options)
        return done.returncode, json.loads(done.stdout)

    code, report = run()
    assert (code, report["verdict"]) == (30, "UNKNOWN")
    code, report = run("--ignore-mtime")
    assert (code, report["verdict"], report["provenance"]) == (0, "VALID", "unproven")
    set_time(folder / "__1_0.distcp", COMMITTED_AT_S + 600)
    code, report = run("--times", "copied")
    assert (code, report["verdict"]) == (0, "VALID")


def test_times_in_the_future_or_long_past_are_times_like_any(save: Path) -> None:
    moment = datetime(2038, 2, 1, tzinfo=UTC).timestamp()
    for path in save.iterdir():
        set_time(path, moment)
    assert validate(str(save), policy=CONTENT).judgement.verdict is Verdict.VALID
