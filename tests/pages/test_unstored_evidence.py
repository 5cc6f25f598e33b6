"""A verdict whose evidence is not there, as an import or a restore may leave it, is shown and is no fault."""

from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import delete

from ckptguard.model.verdict import Verdict
from ckptguard_api.tables import checkpoints, validations, verdicts
from tests import service_rows as rows
from tests.databases import fresh_database
from tests.pages.form_client import form_client
from tests.served_app import ServedApp, served_app

UI = "/ui/in/default"
NOT_STORED = "The evidence of this verdict is not stored"
VERDICT, VALIDATION = "no verdict row", "no validation"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    folder = tmp_path_factory.mktemp("unstored")
    with fresh_database("sqlite", folder=folder) as database, served_app(database) as running:
        yield running


@pytest.fixture(scope="module")
def client(served: ServedApp) -> httpx.Client:
    return form_client(served).http


@pytest.fixture(scope="module", params=[VERDICT, VALIDATION])
def lacks(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def left(lacks: str, served: ServedApp) -> tuple[int, int]:
    """Return a VALID checkpoint without its evidence, and a validation of it."""
    with served.services.database.write() as tx:
        run, store = rows.add_run(tx, 1, lacks), rows.add_store(tx, 1, lacks)
        rows.add_checkpoint(tx, run, store, step=1, verdict=Verdict.VALID)
        one = rows.add_checkpoint(tx, run, store, step=2, verdict=Verdict.VALID)
        found = tx.execute(checkpoints.select().where(checkpoints.c.id == one)).one()
        validation_id = found.verdict_validation_id
        tx.execute(delete(verdicts).where(verdicts.c.validation_id == validation_id))
        if lacks == VALIDATION:
            tx.execute(delete(validations).where(validations.c.id == validation_id))
    return one, validation_id


def test_its_page_shows_what_is_known(client: httpx.Client, left: tuple[int, int]) -> None:
    page = client.get(f"{UI}/checkpoints/{left[0]}")
    assert page.status_code == 200, page.text
    assert NOT_STORED in page.text
    assert "None yet" not in page.text
    assert "<dt>Provenance</dt><dd>unproven</dd>" in page.text
    assert "<dt>Device</dt><dd>cpu</dd>" in page.text
    assert "ckptguard revalidate --run" in page.text


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("files", NOT_STORED),
        ("findings", NOT_STORED),
        ("tensors", NOT_STORED),
        ("diff", "or no evidence of it, is stored"),
        ("files.json", '"states":""'),
        ("cells.json?start=0", "[]"),
    ],
)
def test_its_further_pages_say_that_there_is_nothing(
    client: httpx.Client, left: tuple[int, int], part: str, words: str
) -> None:
    page = client.get(f"{UI}/checkpoints/{left[0]}/{part}")
    assert page.status_code == 200, page.text
    assert words in page.text


def test_a_validation_that_ended_without_its_verdict_says_so(
    client: httpx.Client, left: tuple[int, int], lacks: str
) -> None:
    page = client.get(f"{UI}/validations/{left[1]}")
    assert page.status_code == (200 if lacks == VERDICT else 404), page.text
    assert "its verdict is not stored" in page.text or lacks == VALIDATION


@pytest.mark.parametrize("path", ["", "/timeline.json", "/checkpoints.csv"])
@pytest.mark.usefixtures("left")
def test_its_run_is_shown(client: httpx.Client, lacks: str, path: str) -> None:
    page = client.get(f"{UI}/runs/{lacks}{path}")
    assert page.status_code == 200, page.text
    assert client.get(f"{UI}/runs").status_code == 200


def test_the_api_answers_with_what_is_known(served: ServedApp, left: tuple[int, int], lacks: str) -> None:
    admin = served.client()
    checkpoint_id, validation_id = left
    detail = admin.get(f"/v1/checkpoints/{checkpoint_id}")
    assert detail.status_code == 200, detail.text
    assert detail.json()["verdict"] is None
    listed = admin.get("/v1/checkpoints", params={"run": detail.json()["run"]}).json()["items"]
    assert [one["verdict"] for one in listed] == ["VALID", "VALID"]
    for path in (
        f"/v1/checkpoints/{checkpoint_id}/validations",
        f"/v1/runs/{lacks}/resume-target",
    ):
        assert admin.get(path).status_code == 200, path
    for path in ("", "/findings", "/evidence"):
        answer = admin.get(f"/v1/validations/{validation_id}{path}")
        assert answer.status_code == (200 if lacks == VERDICT else 404), path


@pytest.mark.parametrize("part", ["", "files", "findings", "tensors", "diff", "files.json"])
def test_a_checkpoint_that_nobody_judged_has_all_its_pages(
    served: ServedApp, client: httpx.Client, part: str
) -> None:
    with served.services.database.write() as tx:
        run, store = rows.add_run(tx, 1, f"new {part}"), rows.add_store(tx, 1, f"new {part}")
        checkpoint_id = rows.add_checkpoint(tx, run, store, step=1)
    page = client.get(f"{UI}/checkpoints/{checkpoint_id}/{part}".rstrip("/"))
    assert page.status_code == 200, page.text
    assert NOT_STORED not in page.text
