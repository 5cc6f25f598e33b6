"""Ways in which a validator could give a wrong verdict, each tried on a real, damaged checkpoint."""

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ckptguard.cli.answers import is_nothing_there
from ckptguard.clock import Clock, SystemClock
from ckptguard.formats.manifest_json import parse_manifest, to_json
from ckptguard.model.finding import Basis, CheckName, FindingCode, Severity
from ckptguard.model.policy import Depth, NumericsMode, Policy, Reader
from ckptguard.model.report import Report
from ckptguard.model.verdict import Assurance, CheckStatus, Provenance, Verdict
from ckptguard.operations.validate import validate
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.protocol import Store
from ckptguard.testing.edits import copy_checkpoint, set_time, times_kept
from ckptguard.testing.own_metadata import edit_metadata, find_item, read_metadata
from ckptguard.testing.save_manifest import leave_manifest
from ckptguard.testing.saves import BASE, BASE_NEWER, EXECUTED_MARKER, HF_SHARDED, TORCH_SAVE

pytestmark = pytest.mark.torch

CONTENT = Policy(depth=Depth.CONTENT, settle_s=0, jobs=1)
LOAD = replace(CONTENT, depth=Depth.LOAD)
STOCK = replace(LOAD, is_stock_load=True)

Arrange = Callable[[str], Path]
TorchMetadata: TypeAlias = Any  # without importing torch


@pytest.fixture
def arrange(saves_dir: Path, tmp_path: Path) -> Arrange:
    """Return a maker of private copies of the kit's saves."""
    return lambda name: copy_checkpoint(saves_dir / name, tmp_path / "checkpoint")


def check(folder: Path, policy: Policy = CONTENT, *, clock: Clock | None = None) -> Report:
    return validate(str(folder), policy=policy, clock=clock)


def codes(report: Report) -> set[FindingCode]:
    return {finding.code for finding in report.findings}


def status_of(report: Report, name: CheckName) -> CheckStatus:
    return next(check.status for check in report.checks if check.name is name)


# -- stock loads run only what we know


@pytest.mark.slow
def test_stock_never_builds_an_object_of_a_class_that_nobody_vouched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, marker = tmp_path / "checkpoint", tmp_path / "IMPORTED"
    (tmp_path / "acme_loaders.py").write_text(
        f"import pathlib\npathlib.Path({str(marker)!r}).touch()\nclass State: pass\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    _python(_SAVE_FOREIGN, folder)
    marker.unlink()

    report = check(folder, STOCK)

    assert FindingCode.OBJECT_NOT_BUILT in codes(report)
    assert not marker.exists(), "stock torch imported a module that the checkpoint names"
    assert report.judgement.verdict is Verdict.VALID
    assert report.judgement.assurance is Assurance.CONTENT
    assert status_of(report, CheckName.LOAD) is CheckStatus.UNKNOWN

    vouched = check(folder, replace(STOCK, allowed_globals=frozenset({"acme_loaders.State"})))
    assert marker.exists()
    assert vouched.judgement.assurance is Assurance.LOADED


@pytest.mark.slow
@pytest.mark.parametrize("save", [HF_SHARDED, TORCH_SAVE, "quantized", "rank_local"])
def test_what_stock_dcp_cannot_open_is_no_damage(arrange: Arrange, save: str) -> None:
    report = check(arrange(save), STOCK)

    assert report.judgement.verdict is not Verdict.INVALID, report.findings
    assert report.judgement.assurance is not Assurance.LOADED


@pytest.mark.slow
def test_stock_load_of_a_plain_save_reaches_loaded(arrange: Arrange) -> None:
    assert check(arrange(BASE), STOCK).judgement.assurance is Assurance.LOADED


@pytest.mark.slow
def test_stock_is_not_run_where_it_cannot_open_the_metadata_here(arrange: Arrange) -> None:
    folder = arrange(BASE)
    state = folder / ".metadata"
    with times_kept(state):
        plain = pickle.dumps(read_metadata(folder), protocol=2)
        state.write_bytes(re.sub(rb"pathlib(\._local)?\n", b"pathlib._local\n", plain))
    report = check(folder, replace(STOCK, reader=Reader(torch=(2, 13), python=(3, 13))))

    can_open = sys.version_info >= (3, 13)
    assert report.judgement.assurance is (Assurance.LOADED if can_open else Assurance.CONTENT)


# -- items that lie on each other


def test_a_denied_global_in_an_overlapping_item_is_found(arrange: Arrange, saves_dir: Path) -> None:
    folder = arrange("hostile_system")
    bait = find_item(folder, "obj")

    def add_overlapping(metadata: TorchMetadata) -> None:
        index, info = next((i, s) for i, s in metadata.storage_data.items() if i.fqn == "obj")
        metadata.storage_data.pop(index)
        cover = type(index)("cover")
        metadata.state_dict_metadata["cover"] = metadata.state_dict_metadata["obj"]
        metadata.storage_data[cover] = type(info)(info.relative_path, 0, bait.offset + 1)
        metadata.storage_data[index] = info

    edit_metadata(folder, add_overlapping)
    report = check(folder)

    assert FindingCode.UNSAFE_PICKLE in codes(report)
    assert not (saves_dir / EXECUTED_MARKER).exists()


def test_two_slices_at_one_place_are_not_counted_as_one_loaded(arrange: Arrange) -> None:
    folder = arrange("one_plain_tensor")

    def split(metadata: TorchMetadata) -> None:
        import torch  # noqa: PLC0415 - torch late

        entry = metadata.state_dict_metadata["w"]
        index, info = next(iter(metadata.storage_data.items()))
        chunk = entry.chunks[0]
        other = type(chunk)(torch.Size([8]), torch.Size([8]))
        entry.chunks.append(other)
        entry.size = torch.Size([16])
        metadata.storage_data[type(index)("w", torch.Size([8]))] = info

    edit_metadata(folder, split)
    report = check(folder, LOAD)

    assert FindingCode.ITEM_OVERLAP in codes(report)
    assert report.judgement.assurance is not Assurance.LOADED


# -- what changes while it is looked at


def test_a_shard_cut_after_the_listing_never_passes(
    arrange: Arrange, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = arrange(BASE)

    def cut() -> None:
        shard = folder / "__1_0.distcp"
        with times_kept(shard), shard.open("r+b") as stream:
            stream.truncate(shard.stat().st_size - 1)

    _after_listing(monkeypatch, cut)
    report = check(folder)

    assert report.judgement.verdict is Verdict.UNKNOWN
    assert FindingCode.CHANGED_DURING_CHECK in codes(report)
    assert report.judgement.is_retryable


@pytest.mark.parametrize("file", ["__1_0.distcp", ".metadata"])
def test_a_file_replaced_after_the_listing_is_not_vouched_for(
    arrange: Arrange, monkeypatch: pytest.MonkeyPatch, file: str, saves_dir: Path
) -> None:
    folder = arrange(BASE)
    _after_listing(monkeypatch, lambda: shutil.copyfile(saves_dir / BASE_NEWER / file, folder / file))

    report = check(folder)

    assert report.judgement.verdict is Verdict.UNKNOWN
    assert FindingCode.CHANGED_DURING_CHECK in codes(report)


def test_metadata_that_goes_away_between_listing_and_reading_is_no_empty_folder(
    arrange: Arrange, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = arrange(BASE)
    _after_listing(monkeypatch, (folder / ".metadata").unlink)

    report = check(folder)

    assert report.judgement.verdict is Verdict.UNKNOWN
    assert report.judgement.is_retryable


def test_the_second_look_reads_the_metadata_anew(arrange: Arrange) -> None:
    folder = arrange(BASE)
    metadata = folder / ".metadata"
    whole = metadata.read_bytes()
    metadata.write_bytes(whole[: len(whole) // 2])

    report = check(folder, replace(CONTENT, settle_s=1.0), clock=_Waking(lambda: metadata.write_bytes(whole)))

    assert report.judgement.verdict is Verdict.VALID, report.findings


# -- a canary that dies or lies


def test_a_child_that_says_nonsense_is_an_outcome(arrange: Arrange, tmp_path: Path) -> None:
    for nonsense in ("{not json", "[1]", '{"event": "file", "scan": {}}', '{"event": "progress"}', "\\xff"):
        report = _with_child(arrange, tmp_path, f"os.write(int(sys.argv[1]), b'{nonsense}\\n')")
        assert FindingCode.CANARY_CRASHED in codes(report), nonsense
        assert status_of(report, CheckName.CONTENT) is CheckStatus.PASS
        shutil.rmtree(tmp_path / "checkpoint")


def test_a_child_that_takes_no_job_is_an_outcome(arrange: Arrange, tmp_path: Path) -> None:
    report = _with_child(arrange, tmp_path, "os._exit(7)", blob_bytes=4 << 20)

    assert FindingCode.CANARY_CRASHED in codes(report)
    assert status_of(report, CheckName.CONTENT) is CheckStatus.PASS


def test_a_child_that_cannot_be_started_is_an_outcome(
    arrange: Arrange, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = arrange(BASE)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")

    report = check(folder, LOAD)

    assert FindingCode.CANARY_CRASHED in codes(report)
    assert status_of(report, CheckName.CONTENT) is CheckStatus.PASS


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_child_outlives_its_parent(arrange: Arrange, tmp_path: Path, sent: signal.Signals) -> None:
    folder, pid_file = arrange(BASE), tmp_path / "pid"
    (tmp_path / "torch.py").write_text(  # the child imports it after it began to watch its parent
        f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "ckptguard", "check", str(folder)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as parent:
        _wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
        child = int(pid_file.read_text())
        parent.send_signal(sent)
        parent.wait(30)
        _wait_until(lambda: not _is_running(child))


def test_an_interrupt_ends_the_reading_of_large_files_at_once(tmp_path: Path) -> None:
    for name in ("model.pt", "optimizer.pt"):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(1 << 40)
    with subprocess.Popen(
        [sys.executable, "-m", "ckptguard", "check", str(tmp_path), "--depth", "content", "--settle", "0s"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as reader:
        _wait_until(lambda: _bytes_read_by(reader.pid) > 64 << 20)
        reader.send_signal(signal.SIGINT)
        try:
            reader.wait(60)  # of a terabyte each, which takes a quarter of an hour
        finally:
            reader.kill()


# -- manifests and times


def test_a_manifest_of_one_part_proves_nothing_about_another(saves_dir: Path, tmp_path: Path) -> None:
    folder = _two_parts(saves_dir, tmp_path)
    leave_manifest(folder / "model_0", format_name="dcp")

    report = check(folder)

    assert report.judgement.verdict is Verdict.VALID
    assert report.provenance is Provenance.UNPROVEN


def test_a_manifest_of_one_part_hides_no_torn_save_of_another(saves_dir: Path, tmp_path: Path) -> None:
    folder = _two_parts(saves_dir, tmp_path)
    leave_manifest(folder / "model_0", format_name="dcp")
    torn = folder / "optimizer_0" / "__1_0.distcp"
    set_time(torn, (folder / "optimizer_0" / ".metadata").stat().st_mtime + 60)

    report = check(folder)

    assert FindingCode.REWRITTEN_AFTER_COMMIT in codes(report)
    assert report.judgement.verdict is Verdict.UNKNOWN


def test_a_manifest_without_its_part_is_a_doubt_and_never_ignored(saves_dir: Path, tmp_path: Path) -> None:
    folder = _two_parts(saves_dir, tmp_path)
    left = leave_manifest(folder / "optimizer_0", format_name="dcp")
    for path in (folder / "optimizer_0").iterdir():
        if path != left:
            path.unlink()

    report = check(folder)

    assert report.judgement.verdict is Verdict.UNKNOWN
    assert FindingCode.MANIFEST_MISMATCH in codes(report)


def test_integrity_json_of_another_tool_condemns_nothing(arrange: Arrange) -> None:
    folder = arrange(BASE)
    (folder / "integrity.json").write_text('{"passed": true, "suite": "acme"}')

    assert check(folder).judgement.verdict is Verdict.VALID


def test_a_part_that_the_manifest_of_another_lists_is_missed(saves_dir: Path, tmp_path: Path) -> None:
    folder = _two_parts(saves_dir, tmp_path)
    parts = ("model_0", "optimizer_0")
    for part in parts:
        path = leave_manifest(folder / part, format_name="dcp")
        path.write_bytes(to_json(replace(parse_manifest(path.read_bytes()), part=part, parts=parts)))
    assert check(folder).provenance is Provenance.PROVEN
    shutil.rmtree(folder / "optimizer_0")

    report = check(folder)

    assert report.judgement.verdict is Verdict.INVALID
    assert FindingCode.NOT_COMMITTED in codes(report)


def test_a_manifest_of_another_step_is_told(arrange: Arrange) -> None:
    folder = arrange(BASE)
    leave_manifest(folder, format_name="dcp")
    folder = folder.rename(folder.with_name("step-777"))

    report = check(folder)

    assert report.judgement.verdict is Verdict.VALID
    assert FindingCode.MANIFEST_MISMATCH in codes(report)


# -- tensors of classes that nobody here has


def test_a_tensor_of_an_unknown_class_is_not_called_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    _python(_SAVE_SUBCLASS, folder)

    report = check(folder)

    assert report.judgement.verdict is not Verdict.INVALID, report.findings
    assert FindingCode.OBJECT_NOT_BUILT in codes(report)


# -- transforms


def test_bytes_after_a_compressed_stream_are_found(own_corpus: Path, tmp_path: Path) -> None:
    folder = copy_checkpoint(own_corpus / "dcp_torch2_13_0_zstd_ws2", tmp_path / "checkpoint")

    def lengthen(metadata: TorchMetadata) -> None:
        index, info = max(metadata.storage_data.items(), key=lambda pair: pair[1].offset)
        shard = folder / info.relative_path
        with times_kept(shard), shard.open("ab") as stream:
            stream.write(b"tail")
        last = shard.stat().st_size
        metadata.storage_data[index] = replace(info, length=last - info.offset)

    edit_metadata(folder, lengthen)
    report = check(folder)

    assert FindingCode.TRANSFORM_MALFORMED in codes(report)


def test_a_plain_item_that_claims_a_transform_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    _python(_SAVE_EQUAL, folder)

    def claim(metadata: TorchMetadata) -> None:
        index, info = max(metadata.storage_data.items(), key=lambda pair: pair[1].offset)
        metadata.storage_data[index] = replace(info, transform_descriptors=["stream.zstd"])

    edit_metadata(folder, claim)

    assert check(folder).judgement.verdict is Verdict.INVALID


# -- files beside the shards


@pytest.mark.parametrize("name", ["common.pt", "meta.pt"])
def test_a_damaged_sidecar_that_every_load_reads_is_found(
    arrange: Arrange, saves_dir: Path, name: str
) -> None:
    folder = arrange(BASE)
    shutil.copyfile(saves_dir / TORCH_SAVE / "model.pt", folder / name)
    (folder / "metadata.json").write_text('{"sharded_backend": "torch_dist"}')  # beside Megatron's common.pt
    assert check(folder).judgement.verdict is Verdict.VALID
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)

    report = check(folder)

    assert report.judgement.verdict is Verdict.INVALID
    assert any(finding.file == name and finding.severity is Severity.ERROR for finding in report.findings)


def test_a_truncated_sidecar_is_found_and_a_healthy_one_may_be_newer_than_the_commit(
    arrange: Arrange, saves_dir: Path
) -> None:
    folder = arrange(BASE)
    sidecar = folder / "meta.pt"
    shutil.copyfile(saves_dir / TORCH_SAVE / "model.pt", sidecar)
    set_time(sidecar, (folder / ".metadata").stat().st_mtime + 3600)
    assert check(folder).judgement.assurance is Assurance.CONTENT

    os.truncate(sidecar, sidecar.stat().st_size - 1)

    assert check(folder).judgement.verdict is Verdict.INVALID


def test_an_empty_sidecar_and_one_that_leads_out_of_the_root_are_found(
    arrange: Arrange, tmp_path: Path
) -> None:
    folder = arrange(BASE)
    sidecar = folder / "common.pt"
    sidecar.touch()
    assert check(folder).judgement.verdict is Verdict.INVALID
    sidecar.unlink()
    (tmp_path / "elsewhere.pt").touch()
    sidecar.symlink_to(tmp_path / "elsewhere.pt")

    report = validate(str(folder), policy=CONTENT, root=folder)

    assert report.judgement.verdict is Verdict.UNKNOWN
    assert FindingCode.PATH_ESCAPE in codes(report)


# -- ranks that commit by themselves


def test_a_rank_that_never_committed_is_missed(arrange: Arrange) -> None:
    folder = arrange("rank_local")
    (folder / "__1.metadata").unlink()

    report = check(folder)

    assert report.judgement.verdict is not Verdict.VALID
    assert FindingCode.NOT_COMMITTED in codes(report)


def test_the_last_rank_that_wrote_shards_and_never_committed_is_missed(arrange: Arrange) -> None:
    folder = arrange("rank_local")
    (folder / "__3.metadata").unlink()

    assert check(folder).judgement.verdict is not Verdict.VALID


# -- policies that must not be dropped in silence


@pytest.mark.parametrize(("save", "policy"), [("all_nan", CONTENT), (TORCH_SAVE, LOAD)])
def test_values_that_should_be_enforced_and_were_not_measured_leave_a_doubt(
    arrange: Arrange, save: str, policy: Policy
) -> None:
    folder = arrange(save)
    report = check(folder, replace(policy, numerics=NumericsMode.ENFORCE))

    assert report.judgement.verdict is Verdict.UNKNOWN
    assert check(folder, policy).judgement.verdict is Verdict.VALID


@pytest.mark.slow
def test_nan_in_one_shard_of_many_is_enforced_and_only_reported_by_default(arrange: Arrange) -> None:
    folder = arrange("all_nan")

    assert check(folder, LOAD).judgement.assurance is Assurance.LOADED
    enforced = check(folder, replace(LOAD, numerics=NumericsMode.ENFORCE)).judgement
    assert (enforced.verdict, enforced.basis) == (Verdict.INVALID, Basis.POLICY)


def test_a_denied_global_is_unsafe_whoever_vouches_for_it(arrange: Arrange, saves_dir: Path) -> None:
    names = frozenset({"os.system", "posix.system"})
    report = check(arrange("hostile_system"), replace(STOCK, allowed_globals=names))

    assert (report.judgement.verdict, report.judgement.basis) == (Verdict.INVALID, Basis.UNSAFE)
    assert not (saves_dir / EXECUTED_MARKER).exists()


class Odd:
    """A class of a training script."""


def test_a_class_of_the_main_module_in_the_metadata_is_a_doubt_and_no_error(
    arrange: Arrange, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = arrange(BASE)
    monkeypatch.setattr(sys.modules["__main__"], "Odd", Odd, raising=False)
    monkeypatch.setattr(Odd, "__module__", "__main__")
    edit_metadata(folder, lambda metadata: setattr(metadata, "planner_data", Odd()))
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)  # as in a console script

    report = check(folder, LOAD)

    assert report.judgement.verdict is Verdict.UNKNOWN
    assert FindingCode.UNKNOWN_GLOBAL in codes(report)


def test_a_profile_may_name_a_file_beside_the_shards(arrange: Arrange, saves_dir: Path) -> None:
    folder = arrange(BASE)
    data = folder / "data.pt"
    shutil.copyfile(saves_dir / TORCH_SAVE / "model.pt", data)
    profile = replace(CONTENT, required_fqns=("model.w", "data.pt"))
    assert check(folder, profile).judgement.verdict is Verdict.VALID

    os.truncate(data, data.stat().st_size // 2)

    assert check(folder).judgement.verdict is Verdict.VALID
    assert check(folder, profile).judgement.verdict is Verdict.INVALID


# -- formats whose limits cap


def test_without_zstandard_a_compressed_save_is_valid_at_structure(
    own_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_checkpoint(own_corpus / "dcp_torch2_13_0_zstd_ws2", tmp_path / "checkpoint")
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['zstandard'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "zstandard", None)

    for policy in (CONTENT, LOAD):
        report = check(folder, policy)
        assert report.judgement.assurance is Assurance.STRUCTURE, report.findings
        assert FindingCode.READER_NOT_INSTALLED in codes(report)


def test_a_manifest_read_back_raises_the_content_and_never_the_provenance(arrange: Arrange) -> None:
    folder = arrange("crc_off")
    assert check(folder).judgement.assurance is Assurance.STRUCTURE
    subprocess.run(
        [sys.executable, "-m", "ckptguard", "manifest", str(folder), "--run", "r", "--step", "1", "--write"],
        check=True,
        capture_output=True,
    )

    report = check(folder)

    assert report.judgement.assurance is Assurance.CONTENT
    assert report.provenance is Provenance.UNCHANGED


# -- nothing there


@pytest.mark.parametrize("name", ["step-100", "anything"])
def test_a_folder_of_links_out_of_the_root_is_not_an_empty_one(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (run / name).symlink_to(tmp_path / "elsewhere")

    report = validate(str(run), policy=CONTENT, root=run)

    assert report.judgement.verdict is not Verdict.VALID
    assert FindingCode.PATH_ESCAPE in codes(report)
    assert not is_nothing_there(report)


# -- extents that lie


@pytest.mark.parametrize(
    "change",
    [
        {"length": 0},
        {"length": 1},
        {"length": 10**15},
        {"offset": 10**15},
        {"offset": -1},
        {"relative_path": "/etc/passwd"},
        {"relative_path": "../checkpoint/__0_0.distcp"},
    ],
    ids=str,
)
def test_an_extent_that_lies_is_an_error(arrange: Arrange, change: dict[str, Any]) -> None:
    folder = arrange(BASE)

    def lie(metadata: TorchMetadata) -> None:
        index = next(index for index in metadata.storage_data if index.fqn == "model.w")
        metadata.storage_data[index] = replace(metadata.storage_data[index], **change)

    edit_metadata(folder, lie)

    assert check(folder).judgement.verdict is Verdict.INVALID


def test_two_spellings_of_one_path_are_one_shard(arrange: Arrange) -> None:
    folder = arrange(BASE)

    def respell(metadata: TorchMetadata) -> None:
        for index, info in list(metadata.storage_data.items())[::2]:
            metadata.storage_data[index] = replace(info, relative_path=f".//./{info.relative_path}")

    edit_metadata(folder, respell)
    report = check(folder, LOAD)

    assert report.judgement.assurance is Assurance.LOADED
    assert report.num_shards == len(list(folder.glob("*.distcp")))


# -- helpers


def _after_listing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something to the checkpoint between its listing and the first read."""
    done: list[bool] = []

    def list_then_act(store: Store, root: str, *, max_files: int) -> Listing:
        listing = list_folder(store, root, max_files=max_files)
        if not done:
            done.append(True)
            act()
        return listing

    monkeypatch.setattr("ckptguard.operations.validate.list_folder", list_then_act)


class _Waking(SystemClock):
    """A clock whose sleep does something instead."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self._act()


def _stub(folder: Path, body: str) -> Path:
    """Return a folder that, on PYTHONPATH, puts `body` in place of the canary child."""
    place = folder / "stub"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "if 'ckptguard.canary.child' in ' '.join(sys.orig_argv):\n"
        "    sys.argv = sys.orig_argv[-2:]\n"
        f"    {body}\n"
        "    os._exit(0)\n"
    )
    return place


def _with_child(arrange: Arrange, tmp_path: Path, body: str, *, blob_bytes: int = 0) -> Report:
    folder = arrange(BASE)
    if blob_bytes:
        edit_metadata(folder, lambda metadata: setattr(metadata, "planner_data", {"x": "y" * blob_bytes}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(_stub(tmp_path, body)))
        return check(folder, LOAD)


def _wait_until(is_so: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _bytes_read_by(pid: int) -> int:
    counters = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(counters["rchar"])


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _two_parts(saves_dir: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    copy_checkpoint(saves_dir / BASE, folder / "model_0")
    copy_checkpoint(saves_dir / BASE_NEWER, folder / "optimizer_0")
    return folder


_SAVE_SUBCLASS = """
import sys, types, torch, torch.distributed.checkpoint as dcp
from torch.testing._internal.two_tensor import TwoTensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter
state = {"w": TwoTensor(torch.arange(8.0), torch.arange(8.0)), "plain": torch.arange(4.0)}
dcp.save(state, storage_writer=FileSystemWriter(sys.argv[1], sync_files=False), no_dist=True)
"""

_SAVE_FOREIGN = """
import sys, torch, acme_loaders, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter
state = {"w": torch.arange(8.0), "loader": acme_loaders.State()}
dcp.save(state, storage_writer=FileSystemWriter(sys.argv[1], sync_files=False), no_dist=True)
"""
_SAVE_EQUAL = """
import sys, torch, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter
state = {f"w{number}": torch.arange(8.0) + number for number in range(4)}
dcp.save(state, storage_writer=FileSystemWriter(sys.argv[1], sync_files=False), no_dist=True)
"""


def _python(source: str, *arguments: object) -> None:
    subprocess.run([sys.executable, "-c", source, *map(str, arguments)], check=True, capture_output=True)
