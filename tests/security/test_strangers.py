"""What a stranger, or a small token, can learn, cost and change (docs/threats.md)."""

import resource
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import event

from ckptguard.model.service import Scope
from ckptguard_api import doorkeeper
from ckptguard_api.answers.waiting import MAX_WAITING as MAX_WAITING_LAUNCHERS
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.token_cache import TokenCache
from ckptguard_api.domain.tokens import Holder, new_token
from ckptguard_api.leasing.work_bell import MAX_WAITING as MAX_WAITING_WORKERS
from ckptguard_api.live.hub import MAX_LISTENERS
from ckptguard_api.serving import bounded_http
from ckptguard_api.serving.open_files import KEPT_FREE, MAX_CONNECTIONS, allow_open_files, max_connections
from ckptguard_api.tables import METADATA
from ckptguard_api.transport import MAX_ACTIVE
from ckptguard_migrations import upgrade
from tests.api_routes import doors
from tests.leased_service import LeasedService
from tests.served_app import ServedApp

LEFT_FOR_OTHERS = 500


def _without_id(answer: httpx.Response) -> dict[str, Any]:
    return {name: value for name, value in answer.json().items() if name != "request_id"}


def _statements(served: ServedApp, ask: Any) -> list[str]:  # noqa: ANN401 - what is done meanwhile
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    engine = served.services.database.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        ask()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return seen


def test_what_is_another_projects_looks_like_what_is_not_there(served: ServedApp) -> None:
    served.client(acts_in="other").post("/v1/stores", json={"name": "s", "url": "/data/ckpts"})
    foreign, own = served.client(project="other"), served.client(project="default")
    body = {"location": {"store": "s", "path": "r/1"}, "step": 1, "created_at": "2026-11-29T12:00:00Z"}
    assert foreign.post("/v1/runs/r/checkpoints", json=body).status_code == 201
    hook = foreign.post("/v1/webhooks", json={"url": "https://hooks.example/x"}).json()["id"]
    for there, absent in (
        ("/v1/checkpoints/1", "/v1/checkpoints/999999"),
        ("/v1/checkpoints/1/manifest", "/v1/checkpoints/999999/manifest"),
        ("/v1/validations/1", "/v1/validations/999999"),
        ("/v1/validations/1/evidence", "/v1/validations/999999/evidence"),
        (f"/v1/webhooks/{hook}/deliveries", "/v1/webhooks/999999/deliveries"),
        ("/v1/runs/r", "/v1/runs/q"),
        ("/v1/runs/r/resume-target", "/v1/runs/q/resume-target"),
    ):
        told = [own.get(path) for path in (there, absent)]
        assert told[0].status_code == told[1].status_code
        shapes = [
            str(_without_id(answer)).replace("999999", "N").replace("'q'", "'r'").replace(" 1", " N")
            for answer in told
        ]
        assert shapes[0] == shapes[1], there
    listed = own.get("/v1/stores").text + own.get("/v1/workers").text + own.get("/v1/events").text
    assert "r/1" not in listed
    assert "other" not in own.get("/v1/projects").text


def _facts(served: ServedApp) -> list[str]:
    own_work = {"schedule", "workers", "deliveries", "delivery_tries"}
    with served.services.database.read() as tx:
        kept = [table for table in METADATA.sorted_tables if table.name not in own_work]
        return [str(tx.execute(table.select()).all()) for table in kept]


def test_nothing_is_changed_by_a_get_and_no_cookie_is_ever_set(door: ServedApp) -> None:
    client = door.client()
    ways = [
        way for way in doors(door.app) if way.method == "GET" and not way.path.endswith(("stream", "events"))
    ]
    assert len(ways) > 10
    before = _facts(door)
    answers = [client.get(way.path) for way in ways]
    assert _facts(door) == before
    assert [answer.url for answer in answers if answer.status_code >= 500] == []
    assert {answer.headers.get("set-cookie") for answer in answers} == {None}
    evil = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    preflight = httpx.options(f"{door.url}/v1/runs", headers=evil, trust_env=False)
    assert not [name for name in preflight.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/<script>alert(1)</script>",
        "/v1/runs/%3Cimg%20src=x%3E",
        "/v1/tokens/%0d%0aX-Evil:1",
        "/v1/..%2f..%2fetc",
    ],
)
def test_no_answer_is_a_page_and_none_repeats_a_header(door: ServedApp, path: str) -> None:
    answer = door.client().get(path)
    assert answer.status_code in (404, 405, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "x-evil" not in answer.headers


def _raw(door: ServedApp, *lines: bytes) -> bytes:
    address = urlsplit(door.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10) as connection:
        connection.sendall(b"GET /v1/runs HTTP/1.1\r\nhost: x\r\nconnection: close\r\n")
        connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
        got = b""
        while piece := connection.recv(65536):
            got += piece
    return got


@pytest.mark.parametrize(
    "value", [b"a\x00b", b"a\rX-Evil: 1", b"\xff\xfe", b"\xc2\x9b31m", "\u2028".encode(), b"x" * 500]
)
@pytest.mark.parametrize(
    "header", [b"X-Request-ID", b"Ckptguard-Project", b"Ckptguard-Lease", b"Last-Event-ID"]
)
def test_no_header_of_a_request_breaks_an_answer(door: ServedApp, header: bytes, value: bytes) -> None:
    token = door.token().encode()
    answer = _raw(door, b"Authorization: Bearer " + token, header + b": " + value)
    head = answer.partition(b"\r\n\r\n")[0]
    assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 ", b"HTTP/1.1 404 ", b"HTTP/1.1 422 ")), (
        answer[:200]
    )
    assert b"x-evil" not in head.lower()
    assert value not in head
    assert not any((byte < 0x20 and byte not in b"\r\n") or byte > 0x7E for byte in head)


@pytest.mark.parametrize("path", ["/v1/checkpoints", "/v1/events", "/v1/runs", "/v1/workers", "/v1/stores"])
def test_no_filter_is_a_pattern_and_none_is_slow(door: ServedApp, path: str) -> None:
    client = door.client()
    started = time.process_time()  # of client and server: both are in this process
    for evil in ("%", "_", "*", "a" * 20_000, "(a+)+$" * 1000, "' OR 1=1 --", "\\", "0" * 20_000):
        for name in ("run", "cursor", "kind", "step", "limit", "newer_than", "state", "checkpoint"):
            answer = client.get(path, params={name: evil})
            assert answer.status_code < 500, (name, evil[:20], answer.text)
    assert time.process_time() - started < 15


def test_a_wildcard_is_a_name_like_any_other(served: ServedApp) -> None:
    admin = served.client()
    admin.post("/v1/stores", json={"name": "s", "url": "/data/ckpts"})
    body = {"location": {"store": "s", "path": "r/1"}, "step": 1, "created_at": "2026-11-29T12:00:00Z"}
    assert admin.post("/v1/runs/r/checkpoints", json=body).status_code == 201
    for wildcard in ("%", "_", "*"):
        assert admin.get("/v1/checkpoints", params={"run": wildcard}).status_code in (200, 404)
        assert "r/1" not in admin.get("/v1/checkpoints", params={"run": wildcard}).text
        above = {**body, "location": {"store": "s", "path": wildcard}, "step": 2}
        assert admin.post("/v1/runs/q/checkpoints", json=above).json()["superseded"] == []


def test_a_head_that_never_ends_is_given_up(door: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "HEAD_TIMEOUT_S", 0.3)
    address = urlsplit(door.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        assert slow.recv(1) == b"", "closed"


def test_a_body_that_never_ends_is_given_up(door: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorkeeper, "_SMALL_TIMEOUT_S", 0.3)
    address = urlsplit(door.url)
    head = f"POST /v1/runs HTTP/1.1\r\nhost: x\r\nAuthorization: Bearer {door.token()}\r\n"
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10) as slow:
        slow.sendall(head.encode() + b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        assert b" 422 " in slow.recv(4096)


def test_a_project_that_floods_the_queue_keeps_no_other_waiting(database: Database) -> None:
    service = LeasedService(database=database)
    flood, other = service.add_project(), service.add_project()
    stores = {project: service.add_store(project) for project in (flood, other)}
    run = service.add_run(flood)
    for step in range(60):
        service.queue(service.add_checkpoint(run, stores[flood], step=step))
    alone = service.add_checkpoint(service.add_run(other), stores[other], step=1)
    service.queue(alone)
    claimed = [service.leased(f"w{number}").checkpoint.id for number in range(3)]
    assert alone in claimed


def test_a_token_that_was_refused_is_refused_again_without_a_query_of_its_own(served: ServedApp) -> None:
    stranger = httpx.Client(
        base_url=served.url, headers={"Authorization": f"Bearer {new_token().text}"}, trust_env=False
    )
    assert stranger.get("/v1/runs").status_code == 401
    asked = _statements(served, lambda: [stranger.get("/v1/runs") for _ in range(20)])
    assert [statement for statement in asked if "tokens.hash" in statement] == []
    stranger.close()


def test_refused_tokens_push_no_good_one_out_and_are_forgotten_with_the_next_token() -> None:
    cache = TokenCache(max_holders=2)
    cache.put("good", Holder(token_id=1, actor=SERVICE, project_name=None, good_for_s=None), revision=1)
    for number in range(10):
        cache.refuse(f"bad-{number}", revision=1)
    assert cache.find("good", revision=1) is not None
    assert [n for n in range(10) if cache.is_refused(f"bad-{n}", revision=1)] == [8, 9]
    assert not cache.is_refused("bad-9", revision=2)
    cache.refuse("bad-9", revision=2)
    cache.refuse("late", revision=1)
    assert (cache.is_refused("bad-9", revision=2), cache.is_refused("late", revision=2)) == (True, False)


def test_all_that_may_wait_leaves_room_for_what_does_not() -> None:
    waiting = MAX_WAITING_LAUNCHERS + MAX_WAITING_WORKERS + MAX_LISTENERS
    assert waiting + LEFT_FOR_OTHERS <= MAX_ACTIVE
    assert MAX_ACTIVE + LEFT_FOR_OTHERS <= MAX_CONNECTIONS


_CONNECTIONS = """
import resource
from ckptguard_api.serving.open_files import allow_open_files, max_connections
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, {hard}))
before = max_connections()
allow_open_files()
print(before, resource.getrlimit(resource.RLIMIT_NOFILE)[0], max_connections())
"""


@pytest.mark.parametrize(
    ("hard", "told"),
    [("hard", f"512 {MAX_CONNECTIONS + KEPT_FREE} {MAX_CONNECTIONS}"), ("1024", "512 1024 512")],
)
def test_connections_leave_open_files_to_the_database(hard: str, told: str) -> None:
    assert callable(allow_open_files)
    assert max_connections() <= MAX_CONNECTIONS
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < MAX_CONNECTIONS + KEPT_FREE:
        pytest.skip("this machine allows fewer open files")
    script = _CONNECTIONS.format(hard=hard)
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == told


def test_no_file_of_the_database_can_be_read_by_others_whoever_makes_it(tmp_path: Path) -> None:
    file = tmp_path / "ckptguard.sqlite"
    upgrade(f"sqlite:///{file}")
    writer = sqlite3.connect(file)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("CREATE TABLE more (x)")
    writer.commit()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    writer.close()
    assert len(modes) == 3
    assert set(modes.values()) == {0o600}


def test_no_token_lies_in_the_database(served: ServedApp, tmp_path: Path) -> None:
    made = served.client().post("/v1/tokens", json={"name": "n", "scopes": ["read"]}).json()["token"]
    texts = [served.token(Scope.READ), made]
    if served.services.database.is_postgresql:
        with served.services.database.read() as tx:
            rows = [str(tx.execute(table.select()).all()) for table in METADATA.sorted_tables]
        content = "".join(rows).encode()
    else:
        content = b"".join(path.read_bytes() for path in tmp_path.rglob("*sqlite*"))
    assert texts[0][:8].encode() in content, "its hint is there"
    assert [text for text in texts if text[8:].encode() in content] == []
