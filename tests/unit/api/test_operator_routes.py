"""What an operator reads and changes over HTTP: shapes, statuses, and nothing of another project."""

from typing import Any

import httpx
import pytest

from ckptguard.client import answers
from ckptguard.client.decode import decode
from ckptguard.model.service import Scope, ValidationState
from ckptguard.model.verdict import Verdict
from tests import service_rows as rows
from tests.served_app import ServedApp


def _ok(answer: httpx.Response, kind: type, status: int = 200) -> Any:  # noqa: ANN401 - a shape
    """Hold the status, and that the client understands the answer."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    if isinstance(body, dict) and "items" in body:
        return [decode(kind, item, at="item") for item in body["items"]]
    return decode(kind, body, at="answer")


@pytest.fixture
def client(served: ServedApp) -> httpx.Client:
    return served.client()


@pytest.fixture
def saved(served: ServedApp) -> dict[str, int]:
    """Return ids: a VALID and an INVALID checkpoint of `run-7`, and of another project."""
    with served.services.database.write() as tx:
        store = rows.add_store(tx, 1)
        run = rows.add_run(tx, 1)
        valid = rows.add_checkpoint(tx, run, store, step=1, verdict=Verdict.VALID)
        damaged = rows.add_checkpoint(tx, run, store, step=2, verdict=Verdict.INVALID)
        other_run = rows.add_run(tx, 2, "secret")
        other_store = rows.add_store(tx, 2)
        other = rows.add_checkpoint(tx, other_run, other_store, step=1, verdict=Verdict.VALID)
        rows.add_worker(tx)
    return {"valid": valid, "damaged": damaged, "other": other}


def test_a_run_is_made_changed_and_shown(client: httpx.Client) -> None:
    wanted = {"name": "llama 3", "gpus": 8, "usd_per_gpu_hour": 3}
    made = _ok(client.post("/v1/runs", json=wanted), answers.Run, 201)
    assert (made.name, made.gpus, made.usd_per_gpu_hour) == ("llama 3", 8, 3.0)
    assert client.post("/v1/runs", json=wanted).status_code == 200
    conflict = client.post("/v1/runs", json=wanted | {"gpus": 9})
    assert (conflict.status_code, conflict.json()["type"]) == (409, "urn:ckptguard:problem:conflict")
    changed = _ok(client.patch("/v1/runs/llama%203", json={"min_assurance": "content"}), answers.Run)
    assert (changed.min_assurance, changed.gpus) == ("content", 8)
    assert _ok(client.get("/v1/runs/llama%203"), answers.Run) == changed
    assert _ok(client.get("/v1/runs"), answers.Run) == [changed]
    assert client.patch("/v1/runs/none", json={}).status_code == 404


BAD_RUNS: tuple[object, ...] = (
    {},
    {"name": "a/b"},
    {"name": ".."},
    {"name": "a", "gpus": 0},
    {"name": "a", "gpus": 1.5},
    {"name": "a", "gpus": True},
    {"name": "a", "usd_per_gpu_hour": -1},
    {"name": "a", "min_assurance": "best"},
    {"name": "a", "unknown": 1},
    {"name": 5},
    [],
)


def test_a_bad_run_is_one_problem_that_lists_all(client: httpx.Client) -> None:
    for body in BAD_RUNS:
        answer = client.post("/v1/runs", json=body)
        assert answer.status_code == 422, body
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["problems"], body
    assert client.get("/v1/runs").json()["items"] == []


def test_checkpoints_are_listed_shown_and_explained(
    served: ServedApp, client: httpx.Client, saved: dict[str, int]
) -> None:
    with served.services.database.write() as tx:
        validation = rows.add_validation(tx, saved["valid"], state=ValidationState.RUNNING)
    listed = _ok(client.get("/v1/checkpoints", params={"run": "run-7"}), answers.Checkpoint)
    assert [one.id for one in listed] == [saved["damaged"], saved["valid"]]
    damaged = client.get("/v1/checkpoints", params={"verdict": "INVALID", "limit": 1})
    assert [one.id for one in _ok(damaged, answers.Checkpoint)] == [saved["damaged"]]
    shown = client.get(f"/v1/checkpoints/{saved['damaged']}")
    assert shown.status_code == 200
    detail = answers.read_checkpoint_detail(shown.json())
    assert detail.in_force is not None
    assert (detail.in_force.verdict, detail.in_force.basis) == ("INVALID", "damage")
    assert [one.verdict for one in detail.history] == [Verdict.INVALID]
    running = _ok(client.get(f"/v1/validations/{validation}"), answers.Validation)
    assert (running.state, running.verdict, running.attempts) == ("running", None, ())
    page = client.get(f"/v1/checkpoints/{saved['valid']}/validations", params={"limit": 1})
    assert [one.id for one in _ok(page, answers.Validation)] == [validation]
    assert page.json()["next"] is not None


def test_findings_are_as_the_report_has_them(
    served: ServedApp, client: httpx.Client, saved: dict[str, int]
) -> None:
    shown = client.get(f"/v1/checkpoints/{saved['damaged']}").json()
    validation = shown["verdict_validation_id"]
    with served.services.database.write() as tx:
        rows.add_finding(tx, validation, message="\x1b[2J<script>")
    answer = client.get(f"/v1/validations/{validation}/findings")
    (finding,) = _ok(answer, answers.Finding)
    assert (finding.code, finding.offset, finding.message) == ("crc_mismatch", 12, "\x1b[2J<script>")
    assert b"\x1b" not in answer.content
    assert _ok(client.get(f"/v1/validations/{validation}/evidence"), answers.FileSeen) == []


def test_holds_need_a_reason_and_show_who_set_them(client: httpx.Client, saved: dict[str, int]) -> None:
    place = f"/v1/checkpoints/{saved['valid']}"
    for verb in ("pin", "quarantine", "release", "deleted"):
        assert client.post(f"{place}/{verb}", json={}).status_code == 422
        assert client.post(f"{place}/{verb}", json={"reason": "a\x1b"}).status_code == 422
    held = _ok(client.post(f"{place}/pin", json={"reason": "paper"}), answers.Checkpoint)
    assert held.holds == ("pinned",)
    assert client.post(f"{place}/deleted", json={"reason": "space"}).status_code == 409
    (hold,) = client.get(place).json()["holds"]
    assert (hold["hold"], hold["reason"]) == ("pinned", "paper")
    assert hold["by"].startswith("token:test")
    released = client.post(f"{place}/release", json={"reason": "done", "hold": "pinned"})
    assert _ok(released, answers.Checkpoint).holds == ()
    damage = client.post(
        f"/v1/checkpoints/{saved['damaged']}/release", json={"reason": "sure", "hold": "damage"}
    )
    assert damage.status_code == 409
    assert "another worker" in damage.json()["detail"]
    gone = _ok(client.post(f"{place}/deleted", json={"reason": "space"}), answers.Checkpoint)
    assert gone.lifecycle == "deleted"


def test_a_validation_is_asked_for_once(client: httpx.Client, saved: dict[str, int]) -> None:
    place = f"/v1/checkpoints/{saved['valid']}/validations"
    first = _ok(client.post(place, json={"depth": "content"}), answers.Validation, 202)
    again = _ok(client.post(place, json={"reason": "again"}), answers.Validation, 200)
    assert (first.id, first.state) == (again.id, "queued")


def test_restarts_are_told_once(client: httpx.Client, saved: dict[str, int]) -> None:
    body = {"attempt": "job-1", "outcome": "resumed", "checkpoint_id": saved["valid"]}
    told = _ok(client.post("/v1/runs/run-7/restarts", json=body), answers.Restart, 201)
    assert told == answers.Restart(branch=1, opened=True)
    assert _ok(client.post("/v1/runs/run-7/restarts", json=body), answers.Restart, 200) == told
    fresh = {"attempt": "job-2", "outcome": "resumed", "is_fresh_despite": True}
    assert client.post("/v1/runs/run-7/restarts", json=fresh).status_code == 422
    assert client.post("/v1/runs/run-7/restarts", json=fresh | {"run": "run-7"}).status_code == 201
    (event,) = _ok(client.get("/v1/events", params={"kind": "run.fresh_start"}), answers.Event)
    assert (event.run, event.actor.startswith("token:test")) == ("run-7", True)


def test_workers_are_shown_with_their_age(client: httpx.Client, saved: dict[str, int]) -> None:
    del saved
    (worker,) = _ok(client.get("/v1/workers"), answers.Worker)
    assert (worker.name, worker.doing) == ("canary-1", None)
    assert worker.age_s is not None
    assert worker.age_s >= 0


def test_nothing_of_another_project_is_told(
    served: ServedApp, client: httpx.Client, saved: dict[str, int]
) -> None:
    other = served.client(project="other")
    validation = other.get(f"/v1/checkpoints/{saved['other']}").json()["verdict_validation_id"]
    hidden = [
        ("GET", f"/v1/checkpoints/{saved['other']}"),
        ("GET", f"/v1/checkpoints/{saved['other']}/manifest"),
        ("GET", f"/v1/checkpoints/{saved['other']}/validations"),
        ("GET", f"/v1/validations/{validation}"),
        ("GET", f"/v1/validations/{validation}/findings"),
        ("GET", f"/v1/validations/{validation}/evidence"),
        ("GET", "/v1/runs/secret"),
        ("GET", "/v1/checkpoints?run=secret"),
        ("GET", "/v1/events?run=secret"),
        ("PATCH", "/v1/runs/secret"),
        ("POST", f"/v1/checkpoints/{saved['other']}/pin"),
        ("POST", f"/v1/checkpoints/{saved['other']}/validations"),
        ("POST", "/v1/runs/secret/restarts"),
    ]
    bodies = {"pin": {"reason": "x"}, "restarts": {"attempt": "a", "outcome": "resumed"}}
    for method, path in hidden:
        body = bodies.get(path.rpartition("/")[2], {}) if method != "GET" else None
        answer = client.request(method, path, json=body)
        assert answer.status_code == 404, (path, answer.text)
        assert "secret" not in answer.json()["detail"], path
    seen = client.get("/v1/checkpoints").json()["items"]
    assert {item["id"] for item in seen} == {saved["valid"], saved["damaged"]}
    assert [item["name"] for item in client.get("/v1/runs").json()["items"]] == ["run-7"]


def test_a_reader_changes_nothing(served: ServedApp, saved: dict[str, int]) -> None:
    reader = served.client(Scope.READ)
    place = f"/v1/checkpoints/{saved['valid']}"
    assert reader.get(place).status_code == 200
    for path, body in (
        (f"{place}/pin", {"reason": "x"}),
        (f"{place}/release", {"reason": "x"}),
        (f"{place}/deleted", {"reason": "x"}),
        (f"{place}/validations", {}),
        ("/v1/runs", {"name": "n"}),
        ("/v1/runs/run-7/restarts", {"attempt": "a", "outcome": "resumed"}),
    ):
        assert reader.post(path, json=body).status_code == 403, path


BAD_FILTERS = (
    "cursor=nonsense",
    "limit=0",
    "limit=501",
    "verdict=MAYBE",
    "state=finished",
    "min_step=-1",
    "step=9999999999999999999999",
    "newer_than=2026-11-29T12:00:00",
    "newer_than=yesterday",
    "newer_than=0001-01-01T00:00:01%2B05:05",
    "older_than=9999-12-31T23:59:59-05:05",
)


def test_a_bad_filter_is_a_problem(client: httpx.Client) -> None:
    for query in BAD_FILTERS:
        answer = client.get(f"/v1/checkpoints?{query}")
        assert answer.status_code == 422, query
        assert answer.json()["problems"], query


def test_filters_of_time_and_step_are_taken(client: httpx.Client, saved: dict[str, int]) -> None:
    taken = {
        "newer_than": "2020-01-01T00:00:00+02:00",
        "older_than": "2100-01-01T00:00:00Z",
        "step": "1",
        "hold": "pinned",
        "lifecycle": "registered",
        "assurance": "loaded",
    }
    assert client.get("/v1/checkpoints", params=taken).json() == {"items": [], "next": None}
    del taken["hold"]
    (item,) = client.get("/v1/checkpoints", params=taken).json()["items"]
    assert item["id"] == saved["valid"]
