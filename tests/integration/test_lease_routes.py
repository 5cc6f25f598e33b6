"""A worker's whole conversation over HTTP, on both databases."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from ckptguard.model.report import report_to_json
from ckptguard.model.service import Scope
from ckptguard.scan.result import FileScan, scan_to_json
from ckptguard_api.database import Database
from ckptguard_api.tables import projects
from tests.leased_service import LeasedService, valid
from tests.served_app import ServedApp, served_app

ASK: dict[str, Any] = {"worker": "w", "capabilities": {"stores": ["demo"], "depths": ["load", "content"]}}
JSON = {"Content-Type": "application/json"}
RESULT = {"scan": scan_to_json(FileScan(path="a", length_bytes=1)), "device": None, "versions": {}}


@dataclass(kw_only=True)
class Scene:
    """A service over HTTP, and one run in its project `default`."""

    app: ServedApp
    worker: httpx.Client
    service: LeasedService
    store_id: int
    run_id: int

    def save(self) -> int:
        """Register a checkpoint, and ask for its verdict."""
        checkpoint_id = self.service.add_checkpoint(self.run_id, self.store_id, step=1)
        self.service.queue(checkpoint_id)
        return checkpoint_id

    def leased(self) -> tuple[dict[str, Any], str, dict[str, str]]:
        """Take a lease; return it, its address and its header."""
        answer = self.worker.post("/v1/leases", json=ASK)
        assert answer.status_code == 201, answer.text
        lease = answer.json()
        return lease, f"/v1/leases/{lease['id']}", {"Ckptguard-Lease": lease["token"]}


@pytest.fixture
def scene(database: Database) -> Iterator[Scene]:
    with served_app(database) as app:
        service = LeasedService(database=database)
        with database.read() as tx:
            project_id = tx.execute(select(projects.c.id).where(projects.c.name == "default")).scalar_one()
        yield Scene(
            app=app,
            worker=app.client(Scope.WORK),
            service=service,
            store_id=service.add_store(project_id),
            run_id=service.add_run(project_id),
        )


def test_a_worker_takes_tells_and_judges(scene: Scene) -> None:
    scene.save()
    lease, at, key = scene.leased()
    assert lease["fence"] == lease["id"]
    assert lease["policy"]["depth"] == lease["validation"]["depth"] == "load"
    assert lease["store"]["url"] == "file:///data"
    beat = {"progress": {"phase": "reading", "bytes_done": 5, "file": "a"}}
    assert scene.worker.post(f"{at}/heartbeat", json=beat, headers=key).json()["is_wanted"] is True
    stored = scene.worker.post(f"{at}/files", json={"files": [RESULT, RESULT]}, headers=key)
    assert stored.json() == {"stored": 1, "new": 1}
    assert scene.worker.get(f"{at}/files", headers=key).json() == {"files": [RESULT], "next": None}
    told = [
        scene.worker.post(f"{at}/verdict", json={"report": report_to_json(valid())}, headers=key)
        for _ in range(2)
    ]
    assert [answer.status_code for answer in told] == [200, 200]
    assert told[0].json() == told[1].json() == {"verdict": "VALID", "is_in_force": True}
    late = scene.worker.post(f"{at}/heartbeat", json=beat, headers=key)
    assert (late.status_code, late.json()["type"]) == (409, "urn:ckptguard:problem:lease_lost")


def test_a_workers_token_alone_writes_nothing_to_a_lease(scene: Scene) -> None:
    scene.save()
    _, at, _ = scene.leased()
    body = {"report": report_to_json(valid())}
    without = scene.worker.post(f"{at}/verdict", json=body)
    wrong = scene.worker.post(f"{at}/verdict", json=body, headers={"Ckptguard-Lease": "ckl_guess"})
    assert (without.status_code, wrong.status_code) == (422, 409)


def test_the_leases_token_alone_is_not_enough_either(scene: Scene) -> None:
    scene.save()
    _, at, key = scene.leased()
    reader = scene.app.client(Scope.READ)
    body = {"report": report_to_json(valid())}
    assert reader.post(f"{at}/verdict", json=body, headers=key).status_code == 403
    bare = httpx.post(f"{scene.app.url}{at}/verdict", json=body, headers=key, trust_env=False)
    assert bare.status_code == 401


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"report": 3}', b'{"report": {}, "verdict": "VALID"}'])
def test_what_is_no_report_is_a_problem_and_the_lease_lives(scene: Scene, body: bytes) -> None:
    scene.save()
    _, at, key = scene.leased()
    answer = scene.worker.post(f"{at}/verdict", content=body, headers=key | JSON)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:ckptguard:problem:invalid_request")
    beat: dict[str, Any] = {"progress": {}}
    assert scene.worker.post(f"{at}/heartbeat", json=beat, headers=key).status_code == 200


def test_results_with_nan_come_back_as_they_went(scene: Scene) -> None:
    scene.save()
    _, at, key = scene.leased()
    value = json.loads(json.dumps(RESULT))
    value["scan"]["numerics"] = {"w": [float("nan"), float("inf"), False, False, False]}
    content = json.dumps({"files": [value]})
    assert scene.worker.post(f"{at}/files", content=content, headers=key | JSON).status_code == 200
    back = scene.worker.get(f"{at}/files", headers=key)
    assert json.dumps(json.loads(back.content)["files"][0], sort_keys=True) == json.dumps(
        value, sort_keys=True
    )


def test_a_waiting_worker_gets_work_as_soon_as_it_is_there(scene: Scene) -> None:
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(scene.worker.post("/v1/leases", json=ASK | {"wait_s": 20}))
    )
    asking.start()
    deadline = time.monotonic() + 10
    while scene.app.services.work.num_waiting == 0:
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.01)
    checkpoint_id = scene.save()
    asking.join(20)
    assert [answer.status_code for answer in answers] == [201]
    assert answers[0].json()["checkpoint"]["id"] == checkpoint_id


def test_without_work_the_answer_is_204(scene: Scene) -> None:
    answer = scene.worker.post("/v1/leases", json=ASK | {"wait_s": 0.1})
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_drained_attempt_is_given_back(scene: Scene) -> None:
    scene.save()
    _, at, key = scene.leased()
    body = {"ending": "drained", "reason": "the machine goes away"}
    assert scene.worker.post(f"{at}/release", json=body, headers=key).status_code == 204
    again, _, _ = scene.leased()
    assert again["validation"]["attempt"] == 2
