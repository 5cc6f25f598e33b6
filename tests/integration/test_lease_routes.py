"""A worker's whole conversation over HTTP, on both databases."""

import json
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from ckptguard.client.address import Address
from ckptguard.model.report import TensorNumerics, report_to_json
from ckptguard.model.service import Scope
from ckptguard.scan.result import (
    FileResult,
    FileScan,
    file_result_from_json,
    file_result_to_json,
    scan_to_json,
)
from ckptguard_api.database import Database
from ckptguard_api.tables import projects
from ckptguard_workers.service_calls import ServiceCalls
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


@pytest.mark.parametrize("what", ["verdict", "files"])
@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (('"bytes_read": 0', '"bytes_read": NaN'), "NaN is not JSON"),
        (('"bytes_read": 0', '"bytes_read": 0, "bytes_read": 0'), "key stands more than once"),
        (('"versions": {}', '"versions": {"a": "1", "a": "2"}'), "key stands more than once"),
        (('"versions": {}', '"versions": ' + "[" * 40 + "]" * 40), "deep"),
    ],
)
def test_the_bodies_of_a_lease_are_strict_json(
    scene: Scene, what: str, edit: tuple[str, str], problem: str
) -> None:
    scene.save()
    _, at, key = scene.leased()
    report = report_to_json(valid(bytes_read=0, versions={}))
    body = json.dumps({"files": [RESULT]} if what == "files" else {"report": report})
    assert edit[0] in body
    content = body.replace(*edit, 1)
    answer = scene.worker.post(f"{at}/{what}", content=content, headers=key | JSON)
    assert answer.status_code in (413, 422), answer.text
    assert problem in answer.text
    assert scene.worker.get(f"{at}/files", headers=key).json()["files"] == []
    assert scene.worker.post(f"{at}/{what}", content=body, headers=key | JSON).status_code == 200


def test_numbers_beyond_json_are_texts_and_nothing_else(scene: Scene) -> None:
    scene.save()
    _, at, key = scene.leased()
    value = json.loads(json.dumps(RESULT))
    for extremes in (["NaN", 1.0], [float("1e300"), "1_0"], [True, False], [[], 1]):
        value["scan"]["numerics"] = {"w": [*extremes, False, False, False]}
        answer = scene.worker.post(f"{at}/files", json={"files": [value]}, headers=key)
        assert answer.status_code == 422, f"{extremes}: {answer.text}"
        assert answer.json()["problems"][0].startswith("/files/0: scan: ")


def test_what_one_worker_stored_the_next_one_gets_page_by_page(scene: Scene) -> None:
    scene.save()
    results = [_result(number) for number in range(2100)]
    address = Address.of(scene.app.url, scene.app.token(Scope.WORK))
    calls = ServiceCalls(address)
    capabilities = ASK["capabilities"]
    first = calls.take_lease(worker="w", capabilities=capabilities, wait_s=0)
    assert first is not None
    calls.store_files(first, [file_result_to_json(result) for result in results])
    calls.release(first, ending="drained", reason="")
    second = calls.take_lease(worker="v", capabilities=capabilities, wait_s=0)
    assert second is not None
    assert second.known_files == len(results)
    known = [file_result_from_json(value) for value in calls.known_files(second)]
    calls.close()
    assert {one.scan.path for one in known} == {one.scan.path for one in results}
    assert len(known) == len(results)
    by_path = {one.scan.path: one for one in known}
    assert all(repr(by_path[one.scan.path]) == repr(one) for one in results)


def _result(number: int) -> FileResult:
    extremes = [(-1.5, 2.5), (math.nan, math.nan), (-math.inf, math.inf), (-math.inf, 3.0), (0.0, 1e300)]
    minimum, maximum = extremes[number % len(extremes)]
    is_finite = math.isfinite(minimum) and math.isfinite(maximum)
    numerics = TensorNumerics(
        minimum=minimum, maximum=maximum, is_finite=is_finite, is_zero=False, is_denormal=False
    )
    scan = FileScan(path=f"f{number}\udc80", length_bytes=number, numerics={"w": numerics}, version="1:2")
    return FileResult(scan=scan, device="cpu", versions={"torch": "2.13"})


def test_a_waiting_worker_gets_work_as_soon_as_it_is_there(scene: Scene) -> None:
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(scene.worker.post("/v1/leases", json=ASK | {"wait_s": 20}))
    )
    asking.start()
    deadline = time.monotonic() + 60
    while scene.app.services.work.num_waiting == 0:
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.01)
    checkpoint_id = scene.save()
    asking.join(60)
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
