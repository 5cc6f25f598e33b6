"""A guarded save tells the service in the background, and never needs it (issue 4, 1 and 2)."""

import errno
import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageWriter

from ckptguard.errors import ConfigError
from ckptguard.integrations import incidents
from ckptguard.integrations.dcp import (
    GuardedFileSystemWriter,
    GuardedFsspecWriter,
    GuardedWriter,
    counters,
    flush,
    install,
    uninstall,
)
from ckptguard.integrations.known_start import forget_start, note_start
from ckptguard.integrations.registration import sender
from ckptguard.integrations.registration.spool import Spool
from ckptguard.model.manifest import MANIFEST_NAME
from ckptguard.model.service import Scope
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.store_rules import StoreSettings
from ckptguard_api.use_cases.stores import create_store
from tests.databases import fresh_database
from tests.fresh_spool import end_sender
from tests.served_app import ServedApp, served_app

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.filterwarnings("ignore:Detected an existing checkpoint"),
]
_WITHIN_S = 60.0
_NO_WAIT_S = 5.0
"""What a save may take whatever the service does; it writes some kilobytes, on a busy machine."""


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spool]:
    """Return the spool of a fresh process in which no service is known."""
    for name in [name for name in os.environ if name.startswith("CKPTGUARD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CKPTGUARD_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("CKPTGUARD_DATA_DIR", str(tmp_path / "no-service"))
    incidents.forget()
    forget_start()
    sender._OF_PROCESS.reset()
    spool = Spool(tmp_path / "spool")
    yield spool
    forget_start()
    end_sender(spool)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServedApp]:
    """Return a running service whose store is the folder of the test."""
    with (
        fresh_database("sqlite", folder=tmp_path) as database,
        served_app(database) as served,
    ):
        create_store(
            served.services, "demo", f"file://{tmp_path}", StoreSettings(), project_id=1, actor=SERVICE
        )
        yield served


def _state(step: int = 0) -> dict[str, Any]:
    return {"w": torch.full((100,), float(step)), "step": step}


def _tell(monkeypatch: pytest.MonkeyPatch, url: str, token: str = "ckg_x") -> None:  # noqa: S107 - of no service
    monkeypatch.setenv("CKPTGUARD_URL", url)
    monkeypatch.setenv("CKPTGUARD_TOKEN", token)


def _checkpoints(service: ServedApp) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.client().get("/v1/checkpoints").json()["items"]
    return found


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _timed(act: Callable[[], object]) -> float:
    started_s = time.monotonic()
    act()
    return time.monotonic() - started_s


def test_a_save_is_registered_by_itself(
    service: ServedApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spool: Spool
) -> None:
    _tell(monkeypatch, service.url, service.token(Scope.REGISTER))
    for step in (1, 2):
        save(_state(step), storage_writer=GuardedWriter(tmp_path / "r" / f"step-{step}", run="r"))
    assert flush(_WITHIN_S)
    found = {one["step"]: one for one in _checkpoints(service)}
    assert set(found) == {1, 2}
    for step, one in found.items():
        manifest = json.loads((tmp_path / "r" / f"step-{step}" / MANIFEST_NAME).read_text())
        assert (one["save_id"], one["lifecycle"]) == (manifest["save_id"], "registered")
        detail = service.client().get(f"/v1/checkpoints/{one['id']}").json()
        assert [part["is_from_writer"] for part in detail["parts"]] == [True]
    assert spool.names() == []
    assert counters()["announcements_sent"] == 2


def test_parts_make_one_checkpoint_that_is_complete_with_the_last(
    service: ServedApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tell(monkeypatch, service.url, service.token(Scope.REGISTER))
    parts = ("model", "optim")
    for part, lifecycle in zip(parts, ("announced", "registered"), strict=True):
        path = tmp_path / "r" / "step-1" / part
        save(_state(), storage_writer=GuardedWriter(path, run="r", part=part, parts=parts))
        assert flush(_WITHIN_S)
        assert [one["lifecycle"] for one in _checkpoints(service)] == [lifecycle]


def test_a_folder_that_is_renamed_is_registered_under_its_final_name(
    service: ServedApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tell(monkeypatch, service.url, service.token(Scope.REGISTER))
    draft, final = tmp_path / "tmp-step-5", tmp_path / "step-5"
    writer = GuardedWriter(draft, run="r", final_path=final, announce=False)
    save(_state(), storage_writer=writer)
    assert not flush(_WITHIN_S)
    assert _checkpoints(service) == []
    draft.rename(final)
    assert flush(_WITHIN_S)
    assert [(one["step"], one["path"]) for one in _checkpoints(service)] == [(5, "step-5")]


def _resumed_from(service: ServedApp, step: int, *, attempt: str) -> int:
    """Report a start, and return the branch that it opened."""
    [known] = [one for one in _checkpoints(service) if one["step"] == step]
    told = {"attempt": attempt, "outcome": "resumed", "checkpoint_id": known["id"]}
    branch: int = service.client().post("/v1/runs/r/restarts", json=told).raise_for_status().json()["branch"]
    return branch


def _saved(tmp_path: Path, step: int, branch: int | None = None) -> None:
    writer = GuardedWriter(tmp_path / "r" / f"step-{step}", run="r", branch=branch)
    save(_state(step), storage_writer=writer)


@pytest.mark.parametrize("is_handed", [True, False])
def test_a_late_registration_belongs_to_the_branch_of_the_job_that_saved(
    service: ServedApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_handed: bool
) -> None:
    token = service.token(Scope.REGISTER)
    _tell(monkeypatch, service.url, token)
    _saved(tmp_path, 1)
    assert flush(_WITHIN_S)
    branch = _resumed_from(service, 1, attempt="first")
    if is_handed:
        monkeypatch.setenv("CKPTGUARD_RUN", "r")
        monkeypatch.setenv("CKPTGUARD_RESUME_BRANCH", str(branch))
    else:
        note_start("r", branch)
    _saved(tmp_path, 2)
    assert flush(_WITHIN_S)
    _tell(monkeypatch, service.url, "ckg_not_now")
    _saved(tmp_path, 3)
    assert not flush(_WITHIN_S)
    assert _resumed_from(service, 1, attempt="second") == branch + 1
    _tell(monkeypatch, service.url, token)
    assert flush(_WITHIN_S)
    found = {one["step"]: (one["branch"], one["lifecycle"]) for one in _checkpoints(service)}
    assert found == {1: (0, "registered"), 2: (branch, "superseded"), 3: (branch, "superseded")}


def test_what_is_asked_for_wins_over_the_branch_of_the_start(
    service: ServedApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tell(monkeypatch, service.url, service.token(Scope.REGISTER))
    _saved(tmp_path, 1)
    assert flush(_WITHIN_S)
    note_start("r", _resumed_from(service, 1, attempt="first"))
    _saved(tmp_path, 2, branch=0)
    assert flush(_WITHIN_S)
    assert {one["step"]: one["branch"] for one in _checkpoints(service)} == {1: 0, 2: 0}


def test_a_writer_takes_the_branch_along_to_the_process_that_saves(tmp_path: Path, spool: Spool) -> None:
    writer = GuardedWriter(tmp_path / "step-1", run="r")
    note_start("r", 5)
    sent = pickle.dumps(writer)
    forget_start()
    save(_state(), storage_writer=pickle.loads(sent))  # noqa: S301, TID251 - our own
    [name] = spool.names()
    waiting = spool.read(name)
    assert waiting is not None
    assert waiting.branch == 5


@pytest.mark.parametrize("address", ["https://no-such-host.invalid", "http://127.0.0.1:1"])
def test_a_save_succeeds_and_waits_on_disk_where_no_service_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spool: Spool, address: str
) -> None:
    _tell(monkeypatch, address)
    writer = GuardedWriter(tmp_path / "step-1", run="r")
    assert _timed(lambda: save(_state(), storage_writer=writer)) < _NO_WAIT_S
    assert len(spool.names()) == 1
    assert not flush(_WITHIN_S)
    assert (tmp_path / "step-1" / MANIFEST_NAME).exists()


def test_no_file_of_the_spool_holds_the_token(
    service: ServedApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spool: Spool
) -> None:
    token = service.token(Scope.READ)  # may not register
    _tell(monkeypatch, service.url, token)
    _saved(tmp_path, 1)
    assert not flush(_WITHIN_S)
    files = [file for file in spool.folder.rglob("*") if file.is_file()]
    assert len(files) == 1
    assert token.encode() not in files[0].read_bytes()


def test_a_save_does_not_wait_for_a_service_that_accepts_and_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spool: Spool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        _tell(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        for step in (1, 2):
            writer = GuardedWriter(tmp_path / f"step-{step}", run="r")
            assert _timed(partial(save, _state(), storage_writer=writer)) < _NO_WAIT_S
        assert len(spool.names()) == 2


def test_a_full_disk_under_the_spool_hurts_neither_the_save_nor_the_registration(
    service: ServedApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Spool, "put", full)
    _tell(monkeypatch, service.url, service.token(Scope.REGISTER))
    for step in (1, 2):
        save(_state(), storage_writer=GuardedWriter(tmp_path / f"step-{step}", run="r"))
    assert flush(_WITHIN_S)
    assert sorted(one["step"] for one in _checkpoints(service)) == [1, 2]
    assert counters()["spool_errors"] == 2
    assert len([record for record in caplog.records if "No space left" in record.message]) == 1


def test_a_manifest_that_cannot_be_written_fails_no_save(tmp_path: Path, spool: Spool) -> None:
    (tmp_path / "step-1" / MANIFEST_NAME / "in the way").mkdir(parents=True)
    save(_state(), storage_writer=GuardedWriter(tmp_path / "step-1", run="r"))
    assert (tmp_path / "step-1" / ".metadata").is_file()
    assert counters()["manifest_failed"] == 1
    assert spool.names() == []


def test_a_save_whose_step_nobody_tells_is_saved_and_not_blessed(tmp_path: Path, spool: Spool) -> None:
    save(_state(), storage_writer=GuardedWriter(tmp_path / "latest", run="r"))
    assert (tmp_path / "latest" / ".metadata").is_file()
    assert not (tmp_path / "latest" / MANIFEST_NAME).exists()
    assert counters()["manifest_failed"] == 1
    assert spool.names() == []


def test_one_writer_saves_wherever_checkpoint_id_sends_it(tmp_path: Path) -> None:
    writer = GuardedWriter(tmp_path / "step-1", step=1)
    for step in (1, 2):
        save(_state(), storage_writer=writer, checkpoint_id=tmp_path / f"step-{step}")
    manifests = [json.loads((tmp_path / f"step-{step}" / MANIFEST_NAME).read_text()) for step in (1, 2)]
    assert [manifest["step"] for manifest in manifests] == [1, 2]
    assert manifests[0]["save_id"] != manifests[1]["save_id"]


def test_what_is_wrong_with_the_facts_is_said_before_anything_is_saved(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not part"):
        GuardedWriter(tmp_path / "step-1" / "model", part="optim")


def test_the_options_of_the_storage_outlive_another_folder(tmp_path: Path) -> None:
    writer = GuardedWriter(f"file://{tmp_path}/step-1", auto_mkdir=True, thread_count=2)
    assert isinstance(writer, GuardedFsspecWriter)
    writer.reset(f"file://{tmp_path}/step-2")
    assert writer.fs.inner.fs.auto_mkdir
    assert writer.thread_count == 2


@pytest.fixture
def installing() -> Iterator[Callable[..., None]]:
    """Return `install`; what it did is undone after the test."""
    yield install
    uninstall()


def _as_a_trainer_does(path: Path) -> StorageWriter:
    """Build a writer as trainers do that offer no way in."""
    writer: StorageWriter = vars(dcp)["FileSystemWriter"](path)
    return writer


def test_a_stock_writer_is_guarded_while_installed(tmp_path: Path, installing: Callable[..., None]) -> None:
    installing(run="r")
    save(_state(), storage_writer=_as_a_trainer_does(tmp_path / "checkpoint-500"))
    save(_state(), checkpoint_id=tmp_path / "checkpoint-501")
    save(_state(), checkpoint_id=f"file://{tmp_path}/checkpoint-502")
    for step in (500, 501, 502):
        manifest = json.loads((tmp_path / f"checkpoint-{step}" / MANIFEST_NAME).read_text())
        assert (manifest["run"], manifest["step"]) == ("r", step)


def test_parts_that_every_checkpoint_has_are_told_once(
    tmp_path: Path, installing: Callable[..., None]
) -> None:
    parts = ("pytorch_model_fsdp_0", "optimizer_0")
    installing(run="r", parts=parts)
    for part in parts:
        save(_state(), storage_writer=_as_a_trainer_does(tmp_path / "checkpoint-5" / part))
    texts = [(tmp_path / "checkpoint-5" / part / MANIFEST_NAME).read_text() for part in parts]
    first, second = map(json.loads, texts)
    assert (first["step"], first["part"], second["part"]) == (5, *parts)
    assert first["save_id"] == second["save_id"]


def test_uninstalling_leaves_no_trace(tmp_path: Path, installing: Callable[..., None]) -> None:
    installing(run="r")
    installing(run="again")
    uninstall()
    assert vars(dcp)["FileSystemWriter"] is FileSystemWriter
    save(_state(), checkpoint_id=tmp_path / "checkpoint-1")
    assert not (tmp_path / "checkpoint-1" / MANIFEST_NAME).exists()


def test_a_writer_that_somebody_derives_meanwhile_stays_stock(
    tmp_path: Path, installing: Callable[..., None]
) -> None:
    installing(run="r")

    theirs = type("Theirs", (vars(dcp)["FileSystemWriter"],), {})  # of another library
    save(_state(), storage_writer=theirs(tmp_path / "checkpoint-1"))
    assert not (tmp_path / "checkpoint-1" / MANIFEST_NAME).exists()


def test_a_guarded_writer_goes_its_own_way(tmp_path: Path, installing: Callable[..., None]) -> None:
    installing(run="r")
    writer = GuardedWriter(tmp_path / "step-1", run="mine")
    assert type(writer) is GuardedFileSystemWriter
    assert writer.facts.run == "mine"


def test_an_installed_writer_travels_to_another_process(
    tmp_path: Path, installing: Callable[..., None]
) -> None:
    installing(run="r")
    writer = pickle.loads(pickle.dumps(_as_a_trainer_does(tmp_path / "step-1")))  # noqa: S301, TID251 - our own
    uninstall()
    assert writer.is_guarding
    assert writer.facts.run == "r"


def test_facts_of_one_save_are_refused(installing: Callable[..., None]) -> None:
    with pytest.raises(ConfigError, match="step"):
        installing(run="r", step=5)
    assert vars(dcp)["FileSystemWriter"] is FileSystemWriter


_TRAINER = """
import sys, warnings, torch
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageWriter
from ckptguard.integrations.dcp import GuardedWriter
warnings.simplefilter("ignore")
for step in (1, 2):
    writer = GuardedWriter(f"{sys.argv[1]}/step-{step}", run="r")
    save({"w": torch.full((100,), float(step))}, storage_writer=writer)
print("saved", flush=True)
"""


_LEAVES_EARLY = """
import sys, warnings, torch
from torch.distributed.checkpoint.state_dict_saver import async_save
from ckptguard.integrations.dcp import GuardedWriter
warnings.simplefilter("ignore")
state = {f"w{number}": torch.zeros(1 << 20) for number in range(30)}
async_save(state, storage_writer=GuardedWriter(f"{sys.argv[1]}/step-1", run="r"), no_dist=True)
"""


def test_a_program_that_ends_while_it_saves_still_leaves_a_manifest_and_its_registration(
    tmp_path: Path, spool: Spool
) -> None:
    command = [sys.executable, "-c", _LEAVES_EARLY, str(tmp_path)]
    done = subprocess.run(command, env=_environment(tmp_path, 1), check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "step-1" / MANIFEST_NAME).exists(), done.stderr
    assert len(spool.names()) == 1, done.stderr


def _environment(tmp_path: Path, port: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    token_file = tmp_path / "data" / "token"
    return kept | {
        "CKPTGUARD_SPOOL": str(tmp_path / "spool"),
        "CKPTGUARD_URL": f"http://127.0.0.1:{port}",
        "CKPTGUARD_TOKEN_FILE": str(token_file),
        "CKPTGUARD_DATA_DIR": str(tmp_path / "data"),
        "OMP_NUM_THREADS": "1",
    }


def _start(tmp_path: Path, port: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "ckptguard", "serve", "--port", str(port), "--no-worker", "--json"]
    server = subprocess.Popen(
        [*command, "--store", f"demo={tmp_path / 'store'}"],
        env=_environment(tmp_path, port),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline().startswith("{")
    return server


def _command(tmp_path: Path, port: int, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "ckptguard", *words],
        env=_environment(tmp_path, port),
        check=False,
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
    )


def test_what_was_saved_while_the_service_was_down_is_registered_once_when_it_is_back(
    tmp_path: Path, spool: Spool
) -> None:
    port = _free_port()
    trainer = [sys.executable, "-c", _TRAINER, str(tmp_path / "store")]
    (tmp_path / "store").mkdir()
    done = subprocess.run(
        trainer, env=_environment(tmp_path, port), check=True, capture_output=True, text=True
    )
    assert done.stdout == "saved\n"
    assert len(spool.names()) == 2
    server = _start(tmp_path, port)
    try:
        first = json.loads(_command(tmp_path, port, "spool", "--send", "--json").stdout)
        again = json.loads(_command(tmp_path, port, "spool", "--send", "--json").stdout)
        history = json.loads(_command(tmp_path, port, "history", "--run", "r", "--json").stdout)
    finally:
        server.terminate()
        server.communicate(timeout=_WITHIN_S)
    assert (first["sent"], first["waiting"], first["refused"]) == (2, [], [])
    assert (again["sent"], again["waiting"], again["refused"]) == (0, [], [])
    assert [(one["step"], one["lifecycle"]) for one in history["checkpoints"]] == [
        (2, "registered"),
        (1, "registered"),
    ]
