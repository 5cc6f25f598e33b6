"""Ways in which a validator could give a wrong verdict, each tried on a real, damaged checkpoint."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ckptguard.clock import SystemClock
from ckptguard.model.finding import Basis, CheckName, FindingCode, Severity
from ckptguard.model.policy import Depth, NumericsMode, Policy, Reader
from ckptguard.model.report import Report
from ckptguard.model.verdict import Assurance, CheckStatus, Provenance, Verdict
from ckptguard.operations.validate import validate
from ckptguard.scan.progress import Progress
from ckptguard.testing.edits import copy_checkpoint, set_time, times_kept
from ckptguard.testing.own_metadata import edit_metadata, find_item
from ckptguard.testing.save_manifest import leave_manifest
from ckptguard.testing.saves import BASE, BASE_NEWER, EXECUTED_MARKER, HF_SHARDED, TORCH_SAVE

pytestmark = pytest.mark.torch

CONTENT = Policy(depth=Depth.CONTENT, settle_s=0, jobs=1)
LOAD = replace(CONTENT, depth=Depth.LOAD)
STOCK = replace(LOAD, is_stock_load=True)

Arrange = Callable[[str], Path]


@pytest.fixture
def arrange(saves_dir: Path, tmp_path: Path) -> Arrange:
    """Return a maker of private copies of the kit's saves."""
    return lambda name: copy_checkpoint(saves_dir / name, tmp_path / "checkpoint")


def check(folder: Path, policy: Policy = CONTENT, **more: Any) -> Report:
    return validate(str(folder), policy=policy, **more)


def codes(report: Report) -> set[FindingCode]:
    return {finding.code for finding in report.findings}


def status_of(report: Report, name: CheckName) -> CheckStatus:
    return next(check.status for check in report.checks if check.name is name)


# -- stock loads run only what we know


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


@pytest.mark.parametrize("save", [HF_SHARDED, TORCH_SAVE, "quantized", "rank_local"])
def test_what_stock_dcp_cannot_open_is_no_damage(arrange: Arrange, save: str) -> None:
    report = check(arrange(save), STOCK)

    assert report.judgement.verdict is not Verdict.INVALID, report.findings
    assert report.judgement.assurance is not Assurance.LOADED


def test_stock_load_of_a_plain_save_reaches_loaded(arrange: Arrange) -> None:
    assert check(arrange(BASE), STOCK).judgement.assurance is Assurance.LOADED


# -- items that lie on each other


def test_a_denied_global_in_an_overlapping_item_is_found(arrange: Arrange, saves_dir: Path) -> None:
    folder = arrange("hostile_system")
    bait = find_item(folder, "obj")

    def add_overlapping(metadata: Any) -> None:
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

    def split(metadata: Any) -> None:
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


def test_a_shard_cut_after_the_listing_never_passes(arrange: Arrange, monkeypatch: pytest.MonkeyPatch) -> None:
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
        started = time.monotonic()
        parent.send_signal(sent)
        parent.wait(30)
        _wait_until(lambda: not _is_running(child))

    assert time.monotonic() - started < 5.0


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


def test_a_manifest_kept_in_a_folder_without_a_part_condemns_nothing(arrange: Arrange) -> None:
    folder = arrange(BASE)
    leave_manifest(folder, format_name="dcp")
    (folder / "old").mkdir()
    (folder / "ckptguard.manifest.json").rename(folder / "old" / "ckptguard.manifest.json")

    assert check(folder).judgement.verdict is Verdict.VALID


def test_integrity_json_of_another_tool_condemns_nothing(arrange: Arrange) -> None:
    folder = arrange(BASE)
    (folder / "integrity.json").write_text('{"passed": true, "suite": "acme"}')

    assert check(folder).judgement.verdict is Verdict.VALID


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

    def lengthen(metadata: Any) -> None:
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

    def claim(metadata: Any) -> None:
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


# -- helpers


def _after_listing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something to the checkpoint between its listing and the first read."""
    from ckptguard.operations import validate as module  # noqa: PLC0415 - patched here alone

    real, done = module.list_folder, list[bool]()

    def list_then_act(*args: Any, **kwargs: Any) -> Any:
        listing = real(*args, **kwargs)
        if not done:
            done.append(True)
            act()
        return listing

    monkeypatch.setattr(module, "list_folder", list_then_act)


class _Waking(SystemClock):
    """A clock whose sleep does something instead."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def sleep(self, seconds: float) -> None:
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


def _wait_until(is_so: Callable[[], bool], *, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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
