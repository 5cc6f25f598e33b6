"""Who is let in, where, and until when (design §7, threats.md "Token scope")."""

import hmac
import time

import httpx
import pytest
from sqlalchemy import select

from ckptguard.errors import UnauthorizedError
from ckptguard.model.service import Scope
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.token_cache import TokenCache
from ckptguard_api.domain.tokens import Holder, hash_token, new_token
from ckptguard_api.tables import tokens
from ckptguard_api.use_cases.access import bearer_token
from ckptguard_api.use_cases.tokens import revoke_token
from tests.api_routes import doors
from tests.served_app import ServedApp, served_app


def problem_code(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return str(answer.json()["type"]).removeprefix("urn:ckptguard:problem:")


def _get(url: str, authorization: bytes, **headers: str) -> httpx.Response:
    sent = [(b"authorization", authorization), *((k.encode(), v.encode()) for k, v in headers.items())]
    return httpx.get(url, headers=sent, trust_env=False)


def test_every_route_refuses_who_has_no_token(door: ServedApp) -> None:
    with httpx.Client(base_url=door.url, trust_env=False) as stranger:
        for way in doors(door.app):
            answer = stranger.request(way.method, way.path)
            assert (answer.status_code, problem_code(answer)) == (401, "unauthorized"), way
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_every_route_asks_for_a_scope(door: ServedApp) -> None:
    assert [way for way in doors(door.app) if not way.scopes] == []


@pytest.mark.parametrize("scope", [scope for scope in Scope if scope is not Scope.ADMIN])
def test_every_route_refuses_a_token_without_its_scope(door: ServedApp, scope: Scope) -> None:
    client = door.client(scope)
    closed = [way for way in doors(door.app) if scope not in way.scopes]
    assert closed
    for way in closed:
        answer = client.request(way.method, way.path)
        assert (answer.status_code, problem_code(answer)) == (403, "forbidden"), way


@pytest.mark.parametrize(
    "authorization",
    [b"Bearer x", b"Bearer ckg_short", b"Bearer ckg_" + "é".encode() * 43, b"Basic Y2tn", b"Bearer"],
)
def test_what_is_no_token_of_ours_is_refused(door: ServedApp, authorization: bytes) -> None:
    answer = _get(f"{door.url}/v1/tokens", authorization)
    assert (answer.status_code, problem_code(answer)) == (401, "unauthorized")


def test_a_token_that_is_unknown_is_refused_with_the_words_for_one_that_is_missing(door: ServedApp) -> None:
    unknown = _get(f"{door.url}/v1/tokens", f"Bearer {new_token().text}".encode())
    missing = httpx.get(f"{door.url}/v1/tokens", trust_env=False)
    assert unknown.status_code == missing.status_code == 401
    assert unknown.json()["detail"] == missing.json()["detail"]


def test_the_tables_hold_no_token(door: ServedApp) -> None:
    token = door.token()
    with door.services.database.read() as tx:
        row = tx.execute(select(tokens).order_by(tokens.c.id.desc()).limit(1)).one()
    assert row.hash == hash_token(token)
    assert hmac.compare_digest(row.hint, token[:8])
    assert token[8:] not in str(tuple(row))


def test_a_token_has_256_bits_of_chance() -> None:
    made = {new_token().text for _ in range(100)}
    assert len(made) == 100
    assert {len(text) for text in made} == {len("ckg_") + 43}
    assert all(bearer_token(f"bearer {text}") == text for text in made)


def test_the_text_of_a_token_is_not_in_its_repr() -> None:
    token = new_token()
    assert token.text not in repr(token)


def test_a_token_of_one_project_acts_in_it_alone(door: ServedApp) -> None:
    own = door.client(project="other")
    assert [item["name"] for item in own.get("/v1/projects").json()["items"]] == ["other"]
    assert own.get("/v1/projects", headers={"Ckptguard-Project": "other"}).status_code == 200
    for name in ("default", "nowhere"):
        refused = own.get("/v1/projects", headers={"Ckptguard-Project": name})
        assert (refused.status_code, problem_code(refused)) == (404, "not_found"), name


def test_a_foreign_project_is_told_like_one_that_does_not_exist(door: ServedApp) -> None:
    own = door.client(project="other")
    answers = [
        own.get("/v1/projects", headers={"Ckptguard-Project": name}) for name in ("default", "defaulT")
    ]
    assert answers[0].json()["detail"].lower() == answers[1].json()["detail"].lower()
    assert {answer.status_code for answer in answers} == {404}


def test_everything_of_another_project_is_404_whatever_is_asked_of_it(served: ServedApp) -> None:
    # Everything below is named or numbered 1, as the paths of `doors` are.
    foreign = served.client(project="other")
    location = {"store": "1", "path": "r/1"}
    body = {"location": location, "step": 1, "save_id": "s", "created_at": "2026-11-29T12:00:00Z"}
    made = [
        served.client(acts_in="other").post("/v1/stores", json={"name": "1", "url": "/data/ckpts"}),
        foreign.post("/v1/runs", json={"name": "1"}),
        foreign.post("/v1/runs/1/checkpoints", json=body),
        foreign.post(
            "/v1/webhooks", json={"url": "https://hooks.example/x", "kinds": ["checkpoint.verdict.changed"]}
        ),
    ]
    assert [answer.status_code for answer in made] == [201] * len(made), [answer.text for answer in made]
    assert made[2].json()["checkpoint"]["id"] == made[2].json()["validation"]["id"] == 1
    client = served.client(project="default")
    asked = [
        way
        for way in doors(served.app)
        if way.method in ("GET", "DELETE") and "/1" in way.path and "leases" not in way.path
    ]
    assert len(asked) >= 12
    for way in asked:
        answer = client.request(way.method, way.path)
        expected = (200, "unknown_run") if way.path.endswith("resume-target") else (404, None)
        assert (answer.status_code, answer.json().get("state")) == expected, (way, answer.text)
    for verb in ("pin", "quarantine", "release", "deleted", "validations"):
        answer = client.post(f"/v1/checkpoints/1/{verb}", json={"reason": "x"})
        assert answer.status_code == 404, (verb, answer.text)
    assert foreign.get("/v1/checkpoints/1").status_code == 200


def test_a_token_of_all_projects_acts_where_it_says(served: ServedApp) -> None:
    client = served.client()
    for _ in range(2):  # the second time from memory
        assert client.get("/v1/projects", headers={"Ckptguard-Project": "other"}).status_code == 200
        assert client.get("/v1/projects", headers={"Ckptguard-Project": "nowhere"}).status_code == 404


def test_a_revoked_token_is_refused_at_once(served: ServedApp) -> None:
    client = served.client(Scope.READ)
    assert client.get("/v1/projects").status_code == 200
    with served.services.database.read() as tx:
        newest = tx.execute(select(tokens.c.id).order_by(tokens.c.id.desc()).limit(1)).scalar_one()
    revoke_token(served.services, newest, by=SERVICE, own_id=None)
    assert client.get("/v1/projects").status_code == 401


def test_a_revoked_token_is_refused_at_once_by_another_process(served: ServedApp) -> None:
    url = served.services.database.engine.url.render_as_string(hide_password=False)
    with served_app(Database(url), projects=()) as another:
        headers = {"Authorization": f"Bearer {served.token(Scope.READ)}"}
        client = httpx.Client(base_url=another.url, headers=headers, trust_env=False)
        assert [client.get("/v1/projects").status_code for _ in range(2)] == [200, 200]
        with served.services.database.read() as tx:
            newest = tx.execute(select(tokens.c.id).order_by(tokens.c.id.desc()).limit(1)).scalar_one()
        assert served.client().delete(f"/v1/tokens/{newest}").status_code == 204
        assert client.get("/v1/projects").status_code == 401
        client.close()


def test_a_token_ends_by_itself(served: ServedApp) -> None:
    headers = {"Authorization": f"Bearer {served.token(Scope.READ, expires_in_s=0.5)}"}
    deadline = time.monotonic() + 60
    seen = set()
    while 401 not in seen and time.monotonic() < deadline:
        seen.add(httpx.get(f"{served.url}/v1/projects", headers=headers, trust_env=False).status_code)
    assert seen <= {200, 401}
    assert 401 in seen


def test_nothing_but_a_good_token_lets_in_by_its_hash(door: ServedApp) -> None:
    token = door.token()
    assert _get(f"{door.url}/v1/tokens", f"Bearer {hash_token(token)[:47]}".encode()).status_code == 401
    with pytest.raises(UnauthorizedError):
        bearer_token(None)


def _holder(token_id: int, good_for_s: float | None = None) -> Holder:
    return Holder(token_id=token_id, actor=SERVICE, project_name=None, good_for_s=good_for_s)


def test_the_cache_forgets_all_with_each_revision() -> None:
    cache = TokenCache()
    cache.put("a", _holder(1), revision=1)
    assert cache.find("a", revision=1) is not None
    assert cache.find("a", revision=2) is None
    cache.put("b", _holder(2), revision=2)
    assert cache.find("a", revision=2) is None
    cache.put("a", _holder(1), revision=1)  # read before the write that made revision 2
    assert cache.find("a", revision=2) is None
    assert cache.find("a", revision=1) is None


def test_the_cache_keeps_no_more_than_it_may_and_the_ones_used_last() -> None:
    cache = TokenCache(max_holders=2)
    for name in "ab":
        cache.put(name, _holder(1), revision=1)
    assert cache.find("a", revision=1) is not None
    cache.put("c", _holder(3), revision=1)
    assert [name for name in "abc" if cache.find(name, revision=1)] == ["a", "c"]


def test_the_cache_never_outlives_a_token() -> None:
    clock = FakeClock()
    cache = TokenCache(clock=clock)
    cache.put("ends", _holder(1, good_for_s=5.0), revision=1)
    cache.put("stays", _holder(2), revision=1)
    clock.advance(4.9)
    assert cache.find("ends", revision=1) is not None
    clock.advance(0.2)
    assert cache.find("ends", revision=1) is None
    assert cache.find("stays", revision=1) is not None
    clock.advance(60)
    assert cache.find("stays", revision=1) is None
