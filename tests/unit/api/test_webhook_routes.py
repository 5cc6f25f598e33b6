"""Webhooks over HTTP: secrets shown once, lists paged, other projects' not found."""

from typing import Any

import pytest

from ckptguard.model.service import Scope
from tests.served_app import ServedApp

HOOK = {"url": "https://receiver.invalid/hook", "kinds": ["run.unprotected"]}


def create(served: ServedApp, **body: Any) -> dict[str, Any]:  # noqa: ANN401 - a body
    """Make a webhook and return the answer."""
    answer = served.client().post("/v1/webhooks", json=HOOK | body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_the_secret_is_shown_once(served: ServedApp) -> None:
    made = create(served)
    assert made["secret"].startswith("whsec_")
    listed = served.client().get("/v1/webhooks").json()
    assert listed == {"items": [{key: made[key] for key in made if key != "secret"}], "next": None}
    rotated = served.client().post(f"/v1/webhooks/{made['id']}/rotate").json()
    assert rotated["secret"] not in ("", made["secret"])


def test_without_kinds_it_is_told_everything_it_may_ask_for(served: ServedApp) -> None:
    assert len(create(served, kinds=[])["kinds"]) == 5


def test_every_problem_is_in_one_answer(served: ServedApp) -> None:
    answer = served.client().post("/v1/webhooks", json={"url": "ftp://10.0.0.1", "kinds": ["nonsense"]})
    assert answer.status_code == 422
    assert [problem.partition(":")[0] for problem in answer.json()["problems"]] == [
        "/url",
        "/url",
        "/kinds/0",
    ]
    assert served.client().post("/v1/webhooks", json=HOOK | {"secret": "mine"}).status_code == 422


def test_a_test_and_a_redelivery_are_in_the_log(served: ServedApp) -> None:
    made = create(served)
    client = served.client()
    sent = client.post(f"/v1/webhooks/{made['id']}/test")
    assert sent.status_code == 202
    delivery_id = sent.json()["id"]
    again = client.post(f"/v1/deliveries/{delivery_id}/redeliver")
    assert again.status_code == 202
    assert again.json()["message_id"] == sent.json()["message_id"]
    (item,) = client.get(f"/v1/webhooks/{made['id']}/deliveries").json()["items"]
    assert item["id"] == delivery_id


def test_deliveries_are_paged_newest_first(served: ServedApp) -> None:
    made = create(served)
    client = served.client()
    ids = [client.post(f"/v1/webhooks/{made['id']}/test").json()["id"] for _ in range(5)]
    path, seen, cursor = f"/v1/webhooks/{made['id']}/deliveries", [], None
    while True:
        page = client.get(path, params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == ids[::-1]


def test_a_removed_one_is_gone(served: ServedApp) -> None:
    made = create(served)
    client = served.client()
    assert client.delete(f"/v1/webhooks/{made['id']}").status_code == 204
    assert client.delete(f"/v1/webhooks/{made['id']}").status_code == 404
    assert client.get("/v1/webhooks").json()["items"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/v1/webhooks/{id}"),
        ("POST", "/v1/webhooks/{id}/test"),
        ("POST", "/v1/webhooks/{id}/rotate"),
        ("GET", "/v1/webhooks/{id}/deliveries"),
    ],
)
def test_another_projects_are_not_found(served: ServedApp, method: str, path: str) -> None:
    made = create(served)
    stranger = served.client(Scope.ADMIN, project="other")
    assert stranger.request(method, path.format(id=made["id"])).status_code == 404
    assert stranger.get("/v1/webhooks").json()["items"] == []


def test_only_an_admin_sees_or_changes_webhooks(served: ServedApp) -> None:
    """A receiver's URL often holds a secret of its own."""
    made = create(served)
    reader = served.client(Scope.READ, Scope.REGISTER, Scope.WORK)
    assert reader.get("/v1/webhooks").status_code == 403
    assert reader.get(f"/v1/webhooks/{made['id']}/deliveries").status_code == 403
    assert reader.post("/v1/webhooks", json=HOOK).status_code == 403
