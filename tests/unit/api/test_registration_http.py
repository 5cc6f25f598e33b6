"""Registering and announcing over HTTP: statuses, problems, scopes, projects, encodings."""

import gzip
import json
from typing import Any

import httpx
import pytest
import zstandard
from sqlalchemy import func, select

from ckptguard.formats.manifest_json import parse_manifest, to_json
from ckptguard.model.service import Scope
from ckptguard_api.tables import checkpoints, manifests, parts, runs, validations
from tests.registrations import saved
from tests.served_app import ServedApp

URL = "/v1/runs/r/checkpoints"


@pytest.fixture
def trainer(served: ServedApp) -> httpx.Client:
    """Return a client that may register in project `default`, which has the store `demo`."""
    served.client().post("/v1/stores", json={"name": "demo", "url": "/data/ckpts"}).raise_for_status()
    return served.client(Scope.REGISTER)


def _body(step: int = 5, **members: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    manifest = json.loads(to_json(saved("r", step)))
    return {"location": {"url": f"/data/ckpts/r/step-{step}"}, "step": step, "manifest": manifest, **members}


def _code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["type"]).removeprefix("urn:ckptguard:problem:")


def _counts(served: ServedApp) -> list[int]:
    with served.services.database.read() as tx:
        return [
            tx.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (runs, checkpoints, parts, manifests, validations)
        ]


def test_a_registration_is_created_once(served: ServedApp, trainer: httpx.Client) -> None:
    first, again = trainer.post(URL, json=_body()), trainer.post(URL, json=_body())
    assert (first.status_code, again.status_code) == (201, 200)
    told = first.json()
    assert (told["is_new"], told["superseded"], told["notes"]) == (True, [], [])
    assert told["validation"]["state"] == "queued"
    shown = told["checkpoint"]
    assert (shown["run"], shown["store"], shown["path"]) == ("r", "demo", "r/step-5")
    assert (shown["url"], shown["lifecycle"]) == ("file:///data/ckpts/r/step-5", "registered")
    assert again.json() == {**told, "is_new": False}
    assert _counts(served) == [1, 1, 1, 1, 1]


def test_a_compressed_registration_is_the_same(trainer: httpx.Client) -> None:
    plain = json.dumps(_body()).encode()
    headers = {"Content-Type": "application/json"}
    packed = {"zstd": zstandard.compress(plain), "gzip": gzip.compress(plain), "identity": plain}
    answers = [
        trainer.post(URL, content=content, headers={**headers, "Content-Encoding": encoding}).status_code
        for encoding, content in packed.items()
    ]
    assert answers == [201, 200, 200]


def test_the_manifest_can_be_read_again(served: ServedApp, trainer: httpx.Client) -> None:
    made = trainer.post(URL, json=_body()).json()["checkpoint"]["id"]
    text = served.client(Scope.READ).get(f"/v1/checkpoints/{made}/manifest").content
    assert parse_manifest(text) == saved("r", 5)


def test_other_content_is_a_conflict(served: ServedApp, trainer: httpx.Client) -> None:
    trainer.post(URL, json=_body())
    other = _body()
    other["manifest"]["files"][0]["length_bytes"] += 1
    refused = trainer.post(URL, json=other)
    assert _code(refused) == (409, "conflict")
    assert len(refused.json()["problems"]) == 1
    assert _counts(served) == [1, 1, 1, 1, 1]


def test_every_problem_of_a_bad_manifest_is_told_and_nothing_is_stored(
    served: ServedApp, trainer: httpx.Client
) -> None:
    body = _body()
    body["manifest"]["files"][0]["path"] = "../x"
    body["manifest"]["files"][1]["length_bytes"] = 2**53
    refused = trainer.post(URL, json=body)
    assert _code(refused) == (422, "manifest_format")
    places = sorted(problem.partition(":")[0] for problem in refused.json()["problems"])
    assert places == ["/manifest/files/0/path", "/manifest/files/1/length_bytes"]
    assert _counts(served) == [0, 0, 0, 0, 0]


def test_a_request_that_breaks_a_rule_stores_nothing(served: ServedApp, trainer: httpx.Client) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"location": {"url": "/etc/passwd"}}, "location_refused"),
        ({"location": {"url": "http://169.254.169.254/"}}, "location_refused"),
        ({"location": {"store": "demo", "path": "../x"}}, "location_refused"),
        ({"branch": 1}, "invalid_request"),
        ({"step": 6}, "invalid_request"),
        ({"unknown": 1}, "invalid_request"),
        ({"manifest": None}, "invalid_request"),
        ({"manifest": {"manifest_version": 2}}, "unsupported_format"),
    ]
    for change, code in cases:
        assert _code(trainer.post(URL, json=_body() | change)) == (422, code), change
    for run in ("a%2Fb", "x" * 257, "a%00b", "a%0Ab"):
        assert trainer.post(f"/v1/runs/{run}/checkpoints", json=_body()).status_code in (404, 422), run
    assert _counts(served) == [0, 0, 0, 0, 0]


def test_announce_keep_alive_and_register(trainer: httpx.Client) -> None:
    url, body = "/v1/runs/r/announcements", {"step": 5, "location": {"store": "demo", "path": "r/step-5"}}
    first, again = trainer.post(url, json=body), trainer.post(url, json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert (first.json()["lifecycle"], first.json()["superseded"]) == ("announced", [])
    made = trainer.post(URL, json=_body())
    assert made.status_code == 201
    assert made.json()["checkpoint"]["id"] == first.json()["id"]
    late = trainer.post(url, json={**body, "save_id": first.json()["save_id"]})
    assert (late.status_code, late.json()["lifecycle"]) == (200, "registered")


def test_only_who_may_register_registers(served: ServedApp, trainer: httpx.Client) -> None:
    for scope in (Scope.READ, Scope.WORK):
        assert served.client(scope).post(URL, json=_body()).status_code == 403
    assert trainer.post(URL, json=_body()).status_code == 201


def test_a_store_of_another_project_is_none(served: ServedApp, trainer: httpx.Client) -> None:
    other = served.client(Scope.REGISTER, project="other")
    assert _code(other.post(URL, json=_body())) == (422, "location_refused")
    assert trainer.post(URL, json=_body()).status_code == 201
