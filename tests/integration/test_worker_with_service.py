"""The worker and the real service: from a registration to the verdict in force."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ckptguard.model.service import Scope
from ckptguard.testing.edits import copy_checkpoint
from tests.databases import fresh_database
from tests.integration.lease_service import eventually
from tests.integration.worker_process import WorkerProcess, running_worker
from tests.served_app import ServedApp, served_app

pytestmark = pytest.mark.torch

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
SAVE = "dcp_torch2_14_1_fsdp2_ws2"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedApp]:
    with fresh_database("sqlite", folder=tmp_path) as database, served_app(database) as running:
        yield running


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for step in (1, 2):
        copy_checkpoint(CORPUS / SAVE, tmp_path / "store" / f"step-{step}")
    shard = tmp_path / "store" / "step-2" / "__0_0.distcp"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    return tmp_path / "store"


@pytest.fixture
def worker(served: ServedApp, root: Path, tmp_path: Path) -> Iterator[WorkerProcess]:
    token = served.token(Scope.WORK)
    environment = {"CKPTGUARD_TOKEN": token}
    with running_worker(served.url, root, tmp_path / "log", environment=environment) as running:
        yield running


def registered(admin: httpx.Client, step: int) -> dict[str, Any]:
    location = {"store": "demo", "path": f"step-{step}"}
    body = {"location": location, "step": step, "format": "dcp", "created_at": f"2026-01-0{step}T00:00:00Z"}
    answer = admin.post("/v1/runs/r/checkpoints", json=body)
    assert answer.status_code == 201, answer.text
    checkpoint: dict[str, Any] = answer.json()["checkpoint"]
    return checkpoint


def test_a_registered_checkpoint_gets_its_verdict(
    served: ServedApp, root: Path, worker: WorkerProcess
) -> None:
    admin = served.client()
    store = {"name": "demo", "url": f"file://{root}", "times": "copied", "settle_s": 0}
    assert admin.post("/v1/stores", json=store).status_code in (200, 201)
    registered(admin, 1)
    registered(admin, 2)

    def target() -> dict[str, Any] | None:
        value: dict[str, Any] = admin.get("/v1/runs/r/resume-target").json()
        is_settled = value["state"] == "valid" and value["passed_over"][0]["reason"] == "invalid"
        return value if is_settled else None

    found = eventually(target, what="a resume target", said=worker.said)
    assert (found["target"]["step"], found["target"]["assurance"]) == (1, "loaded")
    assert found["passed_over"][0]["basis"] == "damage"
