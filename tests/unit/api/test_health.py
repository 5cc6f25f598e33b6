"""What launchers of the service ask: does it live, can it answer."""

from pathlib import Path

import httpx
from pydantic import SecretStr

from ckptguard_api.database import Database
from ckptguard_api.settings import Settings
from ckptguard_migrations import head, upgrade
from tests.served_app import ServedApp, served_app


def test_a_process_lives_without_a_token(door: ServedApp) -> None:
    answer = httpx.get(f"{door.url}/healthz", trust_env=False)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_it_is_ready_when_the_database_is_at_head(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.sqlite'}"
    upgrade(url)
    with served_app(Database(url)) as running:
        answer = httpx.get(f"{running.url}/readyz", trust_env=False)
        assert (answer.status_code, answer.json()["revision"]) == (200, head())


def test_it_is_not_ready_with_a_database_of_another_version(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.sqlite'}"
    upgrade(url)
    settings = Settings(database_url=SecretStr(f"sqlite:///{tmp_path / 'empty.sqlite'}"))
    with served_app(Database(url), settings=settings) as running:
        answer = httpx.get(f"{running.url}/readyz", trust_env=False)
        assert answer.status_code == 503
        assert "ckptguard db upgrade" in answer.json()["detail"]
        assert httpx.get(f"{running.url}/healthz", trust_env=False).status_code == 200


def test_it_is_not_ready_with_a_database_that_gives_no_answer(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.sqlite'}"
    upgrade(url)
    settings = Settings(database_url=SecretStr(f"sqlite:///{tmp_path}/no/such/folder/a.sqlite"))
    with served_app(Database(url), settings=settings) as running:
        answer = httpx.get(f"{running.url}/readyz", trust_env=False)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert str(tmp_path) not in answer.text
