"""A run of real checkpoints, validated by a real worker."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from ckptguard.model.service import Scope
from ckptguard.testing.edits import copy_checkpoint
from tests.databases import fresh_database
from tests.integration.lease_service import eventually
from tests.integration.worker_process import running_worker
from tests.served_app import ServedApp, served_app

CORPUS: Final = Path(__file__).resolve().parent.parent / "data" / "corpus"
SAVE: Final = "dcp_torch2_14_1_fsdp2_ws2"
RUN: Final = "pretrain-7"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedRun:
    """Three saves of one model: two VALID ones, and one with a bit flipped in a shard.

    Args:
        served: The service that holds them.
        ids: Of the checkpoints, by step.
    """

    served: ServedApp
    ids: dict[int, int]

    def path(self, step: int, *rest: str) -> str:
        """Return the address of a page of the checkpoint of a step."""
        return "/".join(["/ui/in/default/checkpoints", str(self.ids[step]), *rest])


@contextmanager
def validated_run(folder: Path) -> Iterator[ValidatedRun]:
    """Yield the run, once every checkpoint has its verdict."""
    root = _saved(folder / "store")
    with fresh_database("sqlite", folder=folder) as database, served_app(database) as served:
        admin = served.client()
        store = {"name": "demo", "url": f"file://{root}", "times": "copied", "settle_s": 0}
        assert admin.post("/v1/stores", json=store).status_code in (200, 201)
        ids = {step: _registered(admin, step) for step in (1, 2, 3)}
        environment = {"CKPTGUARD_TOKEN": served.token(Scope.WORK)}
        with running_worker(served.url, root, folder / "log", environment=environment) as worker:
            eventually(lambda: _are_judged(admin, ids), what="three verdicts", said=worker.said)
            worker.stop()
        yield ValidatedRun(served=served, ids=ids)


def _saved(root: Path) -> Path:
    for step in (1, 2, 3):
        copy_checkpoint(CORPUS / SAVE, root / f"step-{step}")
    shard = root / "step-3" / "__0_0.distcp"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    return root


def _registered(admin: httpx.Client, step: int) -> int:
    location = {"store": "demo", "path": f"step-{step}"}
    body = {"location": location, "step": step, "format": "dcp", "created_at": f"2026-01-0{step}T00:00:00Z"}
    answer = admin.post(f"/v1/runs/{RUN}/checkpoints", json=body)
    assert answer.status_code == 201, answer.text
    checkpoint_id: int = answer.json()["checkpoint"]["id"]
    return checkpoint_id


def _are_judged(admin: httpx.Client, ids: dict[int, int]) -> bool:
    checkpoints: list[dict[str, Any]] = [admin.get(f"/v1/checkpoints/{one}").json() for one in ids.values()]
    return all(checkpoint["verdict"] is not None for checkpoint in checkpoints)
