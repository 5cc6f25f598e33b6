"""`ckptguard serve`: one command starts everything, and leaves nothing behind (issue 3, design §7)."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ckptguard.testing.edits import copy_checkpoint
from ckptguard_migrations import upgrade
from tests.postgres_server import create_database, drop_database

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
_DEADLINE_S = 90.0
STOPS_WITHIN_S = 30.0
"""On a machine with other work; a container engine gives `api` as long (docker-compose.yml)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A running `ckptguard serve`."""

    process: subprocess.Popen[str]
    folder: Path
    address: dict[str, Any]

    @property
    def token(self) -> str:
        """Of its operator."""
        return (self.folder / "token").read_text().strip()

    def ask(self, path: str, token: str | None = None, method: str = "GET") -> httpx.Response:
        """Ask it, as its operator."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.request(
            method, f"{self.address['url']}{path}", headers=headers, trust_env=False, timeout=20
        )

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, float]:
        """Send a signal; return exit code, standard error and the seconds it took."""
        started = time.monotonic()
        self.process.send_signal(number)
        errors = self.process.communicate(timeout=_DEADLINE_S)[1]
        return self.process.returncode, errors, time.monotonic() - started


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    return kept | {"OMP_NUM_THREADS": "1"} | more


def _command(folder: Path, *options: str) -> list[str]:
    return [
        sys.executable, "-m", "ckptguard", "serve", "--port", "0", "--data-dir", str(folder), *options
    ]  # fmt: skip


def _refused(folder: Path, *options: str, **environment: str) -> str:
    done = subprocess.run(
        _command(folder, *options),
        check=False,
        capture_output=True,
        text=True,
        env=_environment(**environment),
        timeout=_DEADLINE_S,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    return done.stderr


@contextmanager
def _serving(folder: Path, *options: str, **environment: str) -> Iterator[Serving]:
    with subprocess.Popen(
        _command(folder, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(**environment),
    ) as process:
        try:
            yield Serving(process=process, folder=folder, address=_address(folder, process))
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=_DEADLINE_S)


def _address(folder: Path, process: subprocess.Popen[str]) -> dict[str, Any]:
    file = folder / "address.json"

    def is_there() -> bool:
        return file.is_file() and json.loads(file.read_text())["pid"] == process.pid

    _wait_until(lambda: process.poll() is not None or is_there())
    if process.poll() is not None:
        pytest.fail(f"it ended with {process.returncode}: {process.communicate()[1]}")
    address: dict[str, Any] = json.loads(file.read_text())
    return address


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def _worker_pids(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children")
    tasks = Path(f"/proc/{parent}/task").iterdir()
    pids = [int(pid) for task in tasks for pid in (task / children.name).read_text().split()]
    return [pid for pid in pids if b"ckptguard_workers" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_one_command_serves_alone_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "ckpts").mkdir()
    folder = tmp_path / "data"
    options = ("--store", f"demo={tmp_path / 'ckpts'}", "--no-worker")
    with _serving(folder, *options) as serving:
        assert serving.address["url"].startswith("http://127.0.0.1:")
        assert not serving.address["url"].endswith(":0")
        assert serving.ask("/readyz").status_code == 200
        stores = serving.ask("/v1/stores").json()["items"]
        assert [(store["name"], store["url"]) for store in stores] == [
            ("demo", f"file://{tmp_path / 'ckpts'}")
        ]
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        first_token = serving.token
        message = _refused(folder, "--no-worker")
        assert f"pid {serving.process.pid}" in message, "a second one on the same folder"
        assert "--data-dir" in message
        assert serving.ask("/readyz").status_code == 200
        assert (folder / "address.json").exists()
        code, errors, seconds = serving.stop()
    assert code == 0, errors
    assert seconds < STOPS_WITHIN_S
    assert not (folder / "address.json").exists()
    assert first_token not in errors
    (said,) = [event for event in map(json.loads, errors.splitlines()) if event["event"] == "serving"]
    assert (said["url"], said["token_file"]) == (serving.address["url"], str(folder / "token"))
    with _serving(folder, *options) as again:
        assert again.token == first_token, "the token of the first start stays"
        assert again.ask("/v1/tokens").status_code == 200
        assert len(again.ask("/v1/tokens").json()["items"]) == 1
        headers = {"Authorization": f"Bearer {first_token}"}
        client = httpx.Client(base_url=again.address["url"], headers=headers, trust_env=False)
        with client.stream("GET", "/v1/events/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 2000"
            code, errors, seconds = again.stop(signal.SIGINT)
            assert [line for line in lines if line.startswith("data")] == [], "the stream ended"
        client.close()
    assert code == 0, errors
    assert seconds < STOPS_WITHIN_S


def test_a_service_that_was_killed_leaves_no_lock(tmp_path: Path) -> None:
    with _serving(tmp_path, "--no-worker") as serving:
        serving.process.kill()
        serving.process.communicate(timeout=_DEADLINE_S)
        token = serving.token
    assert (tmp_path / "address.json").exists()
    with _serving(tmp_path, "--no-worker") as again:
        assert again.ask("/v1/tokens", token).status_code == 200


def test_what_cannot_be_served_is_refused_before_anything_starts(tmp_path: Path) -> None:
    message = _refused(tmp_path, "--host", "0.0.0.0", "--no-worker")  # noqa: S104 - it is refused
    assert "--tls-terminated-by-proxy" in message
    assert "Traceback" not in message
    assert list(tmp_path.iterdir()) == []


def test_the_worker_is_a_child_with_a_token_of_its_own_and_comes_again(tmp_path: Path) -> None:
    folder, secret = tmp_path / "data", "postgresql+psycopg://u:swordfish@h/d"
    options = ("--store", f"demo={tmp_path}", "--database-url", f"sqlite:///{folder}/ckptguard.sqlite")
    with _serving(folder, *options, CKPTGUARD_DATABASE_URL=secret) as serving:
        _wait_until(lambda: bool(serving.ask("/v1/workers").json()["items"]))
        tokens = serving.ask("/v1/tokens").json()["items"]
        assert sorted(tuple(token["scopes"]) for token in tokens) == [("admin",), ("work",)]
        (pid,) = _worker_pids(serving.process.pid)
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"ckg_" not in line
        assert b"swordfish" not in Path(f"/proc/{pid}/environ").read_bytes()
        os.kill(pid, signal.SIGKILL)
        _wait_until(lambda: _worker_pids(serving.process.pid) not in ([], [pid]))
        (second,) = _worker_pids(serving.process.pid)
        code, errors, seconds = serving.stop()
    assert code == 0, errors
    assert seconds < STOPS_WITHIN_S
    _wait_until(lambda: not Path(f"/proc/{second}").exists())


@pytest.mark.slow
@pytest.mark.torch
def test_a_store_that_is_allowed_later_reaches_the_worker_without_a_restart(tmp_path: Path) -> None:
    save = tmp_path / "later" / "step-1"
    copy_checkpoint(CORPUS / "dcp_torch2_14_1_fsdp2_ws2", save)
    with _serving(tmp_path / "data") as serving, _client(serving) as client:
        assert client.post("/v1/projects", json={"name": "research"}).status_code == 201
        client.headers["Ckptguard-Project"] = "research"
        _wait_until(lambda: bool(serving.ask("/v1/workers").json()["items"]))
        store = {"name": "later", "url": str(save.parent), "times": "copied", "settle_s": 0}
        assert client.post("/v1/stores", json=store).status_code == 201
        body = {
            "location": {"url": str(save)},
            "step": 1,
            "depth": "content",
            "created_at": "2026-01-01T00:00:00Z",
        }
        made = client.post("/v1/runs/r/checkpoints", json=body).json()["checkpoint"]
        at = f"/v1/checkpoints/{made['id']}"
        _wait_until(lambda: client.get(at).json()["validated_at"] is not None)
        assert client.get(at).json()["assurance"] == "content"


def _client(serving: Serving) -> httpx.Client:
    headers = {"Authorization": f"Bearer {serving.token}"}
    return httpx.Client(base_url=serving.address["url"], headers=headers, trust_env=False, timeout=20)


def test_several_processes_share_one_postgresql(tmp_path: Path, postgres: str) -> None:
    url = create_database(postgres, "serve_several")
    try:
        message = _refused(tmp_path, "--no-worker", CKPTGUARD_DATABASE_URL=url)
        assert "ckptguard db upgrade" in message
        upgrade(url)
        with _serving(tmp_path, "--no-worker", "--api-processes", "2", CKPTGUARD_DATABASE_URL=url) as serving:
            assert serving.ask("/readyz").status_code == 200
            made = httpx.post(
                f"{serving.address['url']}/v1/tokens",
                headers={"Authorization": f"Bearer {serving.token}"},
                json={"name": "t", "scopes": ["read"]},
                trust_env=False,
                timeout=20,
            ).json()
            assert {serving.ask("/v1/projects", made["token"]).status_code for _ in range(10)} == {200}
            assert serving.ask(f"/v1/tokens/{made['id']}", method="DELETE").status_code == 204
            assert {serving.ask("/v1/projects", made["token"]).status_code for _ in range(10)} == {401}
            code, errors, seconds = serving.stop()
        assert code == 0, errors
        assert seconds < STOPS_WITHIN_S
    finally:
        drop_database(postgres, "serve_several")
