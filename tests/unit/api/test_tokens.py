"""Tokens and projects: made, listed, revoked; shown once."""

import threading

import pytest
from sqlalchemy import select

from ckptguard.errors import ConflictError
from ckptguard.model.service import Scope
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.repositories.tokens import REVISION
from ckptguard_api.tables import events, revisions
from ckptguard_api.use_cases.tokens import revoke_token
from tests.served_app import ServedApp


def test_a_token_is_shown_once_and_never_again(served: ServedApp) -> None:
    client = served.client()
    made = client.post("/v1/tokens", json={"name": "trainer", "scopes": ["register", "read"]})
    assert made.status_code == 201
    assert made.json()["token"].startswith("ckg_")
    listed = client.get("/v1/tokens")
    row = listed.json()["items"][0]
    assert (row["id"], row["name"], row["scopes"]) == (made.json()["id"], "trainer", ["read", "register"])
    assert "token" not in row
    assert made.json()["token"][9:] not in listed.text


def test_every_write_raises_the_revision_and_is_told(served: ServedApp) -> None:
    client = served.client()
    before = _revision(served)
    made = client.post("/v1/tokens", json={"name": "t", "scopes": ["read"]}).json()
    assert _revision(served) == before + 1
    assert client.delete(f"/v1/tokens/{made['id']}").status_code == 204
    assert _revision(served) == before + 2
    with served.services.database.read() as tx:
        rows = tx.execute(select(events).order_by(events.c.id.desc()).limit(2)).all()
    assert [row.kind for row in rows] == ["token.revoked", "token.created"]
    assert [row.data["token_id"] for row in rows] == [made["id"]] * 2
    assert made["token"][9:] not in str([tuple(row) for row in rows])


def test_revoking_twice_is_revoking_once(served: ServedApp) -> None:
    client = served.client()
    made = client.post("/v1/tokens", json={"name": "t", "scopes": ["read"]}).json()
    assert [client.delete(f"/v1/tokens/{made['id']}").status_code for _ in range(2)] == [204, 204]
    row = client.get("/v1/tokens").json()["items"][0]
    assert row["revoked_at"] is not None


def test_the_last_admin_of_all_projects_cannot_revoke_itself(served: ServedApp) -> None:
    last, only_default = served.client(), served.client(project="default")
    reader = served.client(Scope.READ)
    own = {
        row["scopes"][0]: row["id"] for row in last.get("/v1/tokens").json()["items"] if not row["project"]
    }
    refused = last.delete(f"/v1/tokens/{own['admin']}")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:ckptguard:problem:conflict")
    assert reader.get("/v1/projects").status_code == 200
    assert only_default.get("/v1/tokens").status_code == 200
    served.token()
    assert last.delete(f"/v1/tokens/{own['admin']}").status_code == 204
    assert last.get("/v1/tokens").status_code == 401


def test_of_two_admins_that_revoke_themselves_at_once_one_stays(served: ServedApp) -> None:
    clients = [served.client(), served.client()]
    ids = [row["id"] for row in clients[0].get("/v1/tokens").json()["items"]]
    barrier, refused = threading.Barrier(2), []

    def revoke(token_id: int) -> None:
        barrier.wait()
        try:
            revoke_token(served.services, token_id, by=SERVICE, own_id=token_id)
        except ConflictError:
            refused.append(token_id)

    threads = [threading.Thread(target=revoke, args=(token_id,)) for token_id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 2
    assert len(refused) == 1


def test_an_admin_of_one_project_sees_and_makes_only_its_tokens(door: ServedApp) -> None:
    everywhere, own = door.client(), door.client(project="other")
    foreign = everywhere.post(
        "/v1/tokens", json={"name": "f", "scopes": ["read"], "project": "default"}
    ).json()
    made = own.post("/v1/tokens", json={"name": "o", "scopes": ["read"]}).json()
    assert made["project"] == "other"
    assert {row["project"] for row in own.get("/v1/tokens").json()["items"]} == {"other"}
    assert own.delete(f"/v1/tokens/{foreign['id']}").status_code == 404
    for project in ("default", "nowhere"):
        body = {"name": "x", "scopes": ["read"], "project": project}
        assert own.post("/v1/tokens", json=body).status_code == 404, project


def test_tokens_are_listed_page_by_page_without_holes(door: ServedApp) -> None:
    client = door.client()
    for number in range(7):
        client.post("/v1/tokens", json={"name": f"n{number}", "scopes": ["read"]})
    everything = [row["id"] for row in client.get("/v1/tokens?limit=500").json()["items"]]
    paged, cursor = [], None
    while True:
        page = client.get("/v1/tokens", params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        assert len(page["items"]) <= 3
        paged += [row["id"] for row in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert paged == everything == sorted(everything, reverse=True)


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["root"]},
        {"name": "x\n", "scopes": ["read"]},
        {"name": "x", "scopes": ["read"], "expires_in_s": 0},
        {"name": "x", "scopes": ["read"], "expires_in_s": 1e300},
        {"name": "x", "scopes": ["read"], "token": "mine"},
        {"scopes": ["read"]},
        [],
        None,
    ],
)
def test_a_wish_that_breaks_the_rules_makes_no_token(door: ServedApp, body: object) -> None:
    client = door.client()
    before = _revision(door)
    assert client.post("/v1/tokens", json=body).status_code == 422
    assert _revision(door) == before


def test_a_project_is_made_once(served: ServedApp) -> None:
    client = served.client()
    body = {"name": "lab", "allowed_globals": ["numpy.random.Generator", "my.module.Thing"]}
    answers = [client.post("/v1/projects", json=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json() == answers[1].json()
    assert client.post("/v1/projects", json={"name": "lab"}).status_code == 409
    assert client.get("/v1/projects", headers={"Ckptguard-Project": "lab"}).status_code == 200


def test_an_admin_of_one_project_makes_no_other(door: ServedApp) -> None:
    answer = door.client(project="other").post("/v1/projects", json={"name": "third"})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:ckptguard:problem:forbidden")


def _revision(served: ServedApp) -> int:
    with served.services.database.read() as tx:
        statement = select(revisions.c.value).where(revisions.c.name == REVISION)
        return int(tx.execute(statement).scalar_one())
