"""A real worker before a store in which somebody left traps (docs/threats.md)."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckptguard.model.policy import Depth, Policy
from ckptguard.testing.edits import copy_checkpoint
from tests.integration.lease_service import TOKEN, LeaseService, eventually, lease_service
from tests.integration.worker_process import WorkerProcess, running_worker

pytestmark = pytest.mark.torch

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus" / "dcp_torch2_14_1_fsdp2_ws2"
CONTENT = Policy(settle_s=0, depth=Depth.CONTENT, is_mtime_ignored=True)
MANIFEST = "ckptguard.manifest.json"
SECRET = b"a file outside the store, which nobody may learn of"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the store of all tests here."""
    folder = tmp_path_factory.mktemp("hostile") / "store"
    folder.mkdir()
    (folder.parent / "secret").write_bytes(SECRET)
    return folder


@pytest.fixture(scope="module")
def running(root: Path) -> Iterator[tuple[LeaseService, WorkerProcess]]:
    """Run one worker for all tests: it outlives every trap."""
    with (
        lease_service() as service,
        running_worker(service.url, root, root.parent / "log") as worker,
    ):
        yield service, worker


def _fifo(shard: Path) -> None:
    os.mkfifo(shard)


def _socket(shard: Path) -> None:
    here = Path.cwd()
    os.chdir(shard.parent)  # the path of a socket has 107 bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(shard.name)
    finally:
        os.chdir(here)


def _device(shard: Path) -> None:
    shard.symlink_to("/dev/zero")


def _link_out(shard: Path) -> None:
    shard.symlink_to(shard.parent.parent.parent / "secret")


def _loop(shard: Path) -> None:
    shard.symlink_to(shard.name)


def _folder(shard: Path) -> None:
    shard.mkdir()


TRAPS = [_fifo, _socket, _device, _link_out, _loop, _folder]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", MANIFEST])
def test_what_is_no_regular_file_in_the_store_is_not_opened_and_hangs_nobody(
    running: tuple[LeaseService, WorkerProcess],
    root: Path,
    trap: Callable[[Path], None],
    name: str,
) -> None:
    service, worker = running
    folder = root / f"{trap.__name__}-{name}"
    copy_checkpoint(CORPUS, folder)
    (folder / name).unlink(missing_ok=True)
    trap(folder / name)
    report = _report(service, worker, folder.name)
    if name == MANIFEST:  # it is not opened, and a checkpoint needs none
        assert report["provenance"] == "unproven"
    else:
        assert report["verdict"] in ("UNKNOWN", "INVALID"), report
    assert SECRET.decode() not in str(report)


def test_names_that_are_no_text_do_not_stop_a_worker(
    running: tuple[LeaseService, WorkerProcess], root: Path
) -> None:
    service, worker = running
    folder = root / "names"
    copy_checkpoint(CORPUS, folder)
    for name in (b"\xff\xfe.distcp", b"\x1b]0;owned\x07.bin", b"new\nline", "e\u0301".encode(), b"-rf"):
        shutil.copyfile(os.fsencode(folder / "__0_0.distcp"), os.fsencode(folder) + b"/" + name)
    report = _report(service, worker, folder.name)
    assert report["format"] == "dcp"
    assert "\x1b" not in worker.said()


def test_the_token_is_in_nothing_that_a_worker_says(running: tuple[LeaseService, WorkerProcess]) -> None:
    service, worker = running
    service.is_down = True
    eventually(lambda: "trying again" in worker.said(), what="a log line")
    service.is_down = False
    assert TOKEN not in worker.said()


def _report(service: LeaseService, worker: WorkerProcess, path: str) -> dict[str, Any]:
    validation = service.add(path, policy=CONTENT)
    reports = eventually(
        lambda: validation.reports or worker.process.poll() or _failures(validation),
        what=f"a verdict; {worker.said()[-2000:]}",
    )
    assert isinstance(reports, list), (reports, worker.said()[-3000:])
    found: dict[str, Any] = reports[0]
    return found


def _failures(validation: Any) -> str:  # noqa: ANN401 - of the fake service
    ended = [attempt for attempt in validation.attempts if attempt.ending == "failed"]
    return ended[0].reason if ended else ""
