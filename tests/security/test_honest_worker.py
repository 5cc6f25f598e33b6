"""A real worker's report of a registered manifest contradicts nothing: forgers alone are stopped."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ckptguard.model.service import Scope
from ckptguard.testing.edits import copy_checkpoint
from ckptguard.testing.save_manifest import leave_manifest
from tests.databases import fresh_database
from tests.integration.lease_service import eventually
from tests.integration.worker_process import WorkerProcess, running_worker
from tests.served_app import ServedApp, served_app

pytestmark = pytest.mark.torch

SAVE = Path(__file__).resolve().parent.parent / "data" / "corpus" / "dcp_torch2_14_1_fsdp2_ws2"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedApp]:
    """Return a service on a file."""
    with fresh_database("sqlite", folder=tmp_path) as database, served_app(database) as running:
        yield running


@pytest.fixture
def worker(served: ServedApp, tmp_path: Path) -> Iterator[WorkerProcess]:
    """Run a worker of its store."""
    environment = {"CKPTGUARD_TOKEN": served.token(Scope.WORK)}
    root = tmp_path / "store"
    root.mkdir()
    with running_worker(served.url, root, tmp_path / "log", environment=environment) as running:
        yield running


def test_a_registered_manifest_is_proven_by_an_honest_worker(
    served: ServedApp, worker: WorkerProcess, tmp_path: Path
) -> None:
    admin = served.client()
    store = {"name": "demo", "url": str(tmp_path / "store"), "settle_s": 0, "times": "copied"}
    admin.post("/v1/stores", json=store)
    for depth, step in (("structure", 1), ("content", 2), ("load", 3)):
        folder = tmp_path / "store" / f"step-{step}"
        copy_checkpoint(SAVE, folder)
        (folder / "sidecar.json").write_text("{}")
        manifest = json.loads(leave_manifest(folder, format_name="dcp").read_bytes())
        body = {
            "location": {"store": "demo", "path": folder.name},
            "step": step,
            "depth": depth,
            "manifest": manifest | {"run": "r", "step": step},
        }
        made = admin.post("/v1/runs/r/checkpoints", json=body)
        assert made.status_code == 201, made.text
        validation = made.json()["validation"]["id"]
        found = eventually(partial(_finished, served, validation), what=worker.said())
        expected = {"structure": "structure", "content": "content", "load": "loaded"}[depth]
        assert (found["verdict"], found["assurance"]) == ("VALID", expected), _findings(served, validation)
        assert found["provenance"] == ("unproven" if depth == "structure" else "proven")


def _findings(served: ServedApp, validation: int) -> str:
    return served.client().get(f"/v1/validations/{validation}/findings").text


def _finished(served: ServedApp, validation: int) -> dict[str, Any] | None:
    value: dict[str, Any] = served.client().get(f"/v1/validations/{validation}").json()
    assert not [each for each in value["attempts"] if each.get("ending") == "failed"], value["attempts"]
    return value if value["verdict"] else None
