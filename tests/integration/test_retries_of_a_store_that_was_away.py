"""A store that is away for a while: in doubt, asked for again by the service, and VALID when it is back."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from ckptguard.model.service import Scope
from ckptguard.testing.edits import copy_checkpoint
from ckptguard_api.database import Database
from ckptguard_api.settings import Settings
from tests.integration.lease_service import eventually
from tests.integration.worker_process import WorkerProcess, running_worker
from tests.served_app import ServedApp, served_app

pytestmark = [pytest.mark.torch, pytest.mark.timeout(150)]

SAVE = Path(__file__).resolve().parent.parent / "data" / "corpus" / "dcp_torch2_14_1_fsdp2_ws2"
RETRY_S = 2.0


@pytest.fixture
def served(database: Database, tmp_path: Path) -> Iterator[ServedApp]:
    settings = Settings(
        database_url=SecretStr(database.engine.url.render_as_string(hide_password=False)),
        data_dir=tmp_path / "unused",
        retry_first_s=RETRY_S,
        retry_max_s=RETRY_S,
        max_retries=1000,
    )
    with served_app(database, settings=settings) as running:
        yield running


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a store whose disk is not mounted; `away` is where its folder waits."""
    copy_checkpoint(SAVE, tmp_path / "away" / "step-1")
    return tmp_path / "store"


@pytest.fixture
def worker(served: ServedApp, root: Path, tmp_path: Path) -> Iterator[WorkerProcess]:
    environment = {"CKPTGUARD_TOKEN": served.token(Scope.WORK)}
    with running_worker(served.url, root, tmp_path / "log", environment=environment) as running:
        yield running


def resume(served: ServedApp, tmp_path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Ask as a launcher does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    return subprocess.run(
        [sys.executable, "-m", "ckptguard", "resume", "--run", "r", "--no-report", *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env=kept
        | {
            "CKPTGUARD_URL": served.url,
            "CKPTGUARD_TOKEN": served.token(Scope.READ),
            "CKPTGUARD_CACHE_DIR": str(tmp_path / "cache"),
        },
    )


def test_a_store_that_comes_back_makes_its_checkpoint_valid_without_a_person(
    served: ServedApp, root: Path, worker: WorkerProcess, tmp_path: Path
) -> None:
    admin = served.client()
    store = {"name": "demo", "url": f"file://{root}", "times": "copied", "settle_s": 0}
    assert admin.post("/v1/stores", json=store).status_code in (200, 201)
    location = {"store": "demo", "path": "step-1"}
    body = {"location": location, "step": 1, "format": "dcp", "created_at": "2026-01-01T00:00:00Z"}
    checkpoint_id = admin.post("/v1/runs/r/checkpoints", json=body).json()["checkpoint"]["id"]

    def in_doubt() -> dict[str, Any] | None:
        value: dict[str, Any] = admin.get("/v1/runs/r/resume-target").json()
        return value if value["passed_over"][0]["verdict"] == "UNKNOWN" else None

    seen = eventually(in_doubt, what="a verdict", said=worker.said)
    assert seen["state"] == "pending"
    assert "store_unavailable" in seen["passed_over"][0]["detail"]
    early = resume(served, tmp_path)
    assert (early.returncode, early.stdout) == (20, ""), early.stderr

    (tmp_path / "away").rename(root)
    eventually(lambda: _verdict_of(admin, checkpoint_id) == "VALID", what="a VALID", said=worker.said)
    found = resume(served, tmp_path)
    assert (found.returncode, found.stdout) == (0, f"{root / 'step-1'}\n"), found.stderr
    history = admin.get(f"/v1/checkpoints/{checkpoint_id}").json()["history"]
    assert {one["reason"] for one in history[:-1]} == {"retry"}
    assert history[-1]["reason"] == "registered"


def _verdict_of(admin: httpx.Client, checkpoint_id: int) -> str | None:
    verdict = admin.get(f"/v1/checkpoints/{checkpoint_id}").json()["verdict"]
    return None if verdict is None else str(verdict["verdict"])
