"""Which roots a project allows."""

from pathlib import Path

import pytest
from sqlalchemy import select

from ckptguard.errors import ConflictError, InvalidRequestError, LocationRefusedError, NotFoundError
from ckptguard.model.policy import StoreTimes
from ckptguard.model.service import EventKind, Scope
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.locations import AskedLocation
from ckptguard_api.domain.registration import Announcement
from ckptguard_api.domain.store_rules import StoreSettings, accepted_root
from ckptguard_api.repositories.stores import StoreRow
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.tables import checkpoints, events
from ckptguard_api.use_cases.announce import announce
from ckptguard_api.use_cases.stores import create_store, remove_store, stores_of
from tests.registrations import Trainer
from tests.served_app import ServedApp


def _put(
    trainer: Trainer, name: str, url: str, settings: StoreSettings | None = None
) -> tuple[StoreRow, bool]:
    chosen = settings or StoreSettings()
    return create_store(trainer.services, name, url, chosen, project_id=trainer.project_id, actor=SERVICE)


def _changes(trainer: Trainer) -> list[str]:
    with trainer.database.read() as tx:
        rows = tx.execute(select(events.c.data).where(events.c.kind == EventKind.STORE_CHANGED.value))
        return [data["change"] for data in rows.scalars()]


def test_a_root_is_kept_in_its_one_form(database: Database) -> None:
    trainer = Trainer(database=database)
    row, is_new = _put(trainer, "bucket", "s3a://b/runs/")
    assert (row.url, is_new) == ("s3://b/runs", True)


def test_the_same_store_again_is_the_same(database: Database) -> None:
    trainer = Trainer(database=database)
    row, _ = _put(trainer, "bucket", "s3://b/runs")
    again, is_new = _put(trainer, "bucket", "s3://b/runs/")
    assert (again.id, is_new) == (row.id, False)
    assert _changes(trainer) == ["added", "added"]  # the trainer's own, and this one


def test_settings_of_a_store_can_be_changed_and_the_audit_says_so(database: Database) -> None:
    trainer = Trainer(database=database)
    _put(trainer, "bucket", "s3://b/runs")
    changed, is_new = _put(trainer, "bucket", "s3://b/runs", StoreSettings(times=StoreTimes.COPIED))
    assert (changed.times, is_new) == ("copied", False)
    assert _changes(trainer)[-1] == "settings"


def test_a_name_means_one_place_for_ever(database: Database) -> None:
    trainer = Trainer(database=database)
    with pytest.raises(ConflictError, match="give s3://b another name"):
        _put(trainer, "demo", "s3://b")
    remove_store(trainer.services, "demo", project_id=trainer.project_id, actor=SERVICE)
    with pytest.raises(ConflictError, match="give s3://b another name"):
        _put(trainer, "demo", "s3://b")


def test_a_place_has_one_name_at_a_time(database: Database) -> None:
    trainer = Trainer(database=database)
    with pytest.raises(ConflictError, match="is store 'demo' already"):
        _put(trainer, "other", "/data/ckpts/")


def test_a_removed_store_takes_no_registration_until_it_is_allowed_again(database: Database) -> None:
    trainer = Trainer(database=database)
    remove_store(trainer.services, "demo", project_id=trainer.project_id, actor=SERVICE)
    with pytest.raises(LocationRefusedError, match="no store 'demo'"):
        trainer.register(1)
    with pytest.raises(NotFoundError):
        remove_store(trainer.services, "demo", project_id=trainer.project_id, actor=SERVICE)
    _, is_new = _put(trainer, "demo", "/data/ckpts")
    assert is_new
    assert trainer.register(1).is_new
    assert _changes(trainer) == ["added", "removed", "added"]


def test_a_store_inside_another_is_lawful_and_overlaps_are_still_seen(database: Database) -> None:
    trainer = Trainer(database=database)
    outer = trainer.register(1, "fast/a")
    _put(trainer, "inner", "/data/ckpts/fast")
    inner = trainer.register(2, "fast/a")
    assert inner.superseded == (outer.checkpoint.id,)


@pytest.mark.parametrize("name", ["", "Demo", "-demo", "a" * 65, "de mo", "de/mo", "../x", "d\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="/name"):
        accepted_root(name, "s3://bucket")


def test_everything_wrong_with_a_store_is_told_at_once(database: Database) -> None:
    trainer = Trainer(database=database)
    with pytest.raises(InvalidRequestError) as raised:
        _put(trainer, "No", "http://user:pw@10.0.0.1/x?q")
    assert [problem.partition(":")[0] for problem in raised.value.problems] == ["/name", "/url"]
    with pytest.raises(InvalidRequestError) as raised:
        StoreSettings(settle_s=-1.0, mtime_tolerance_s=float("nan"), scrub_every_s=0.0)
    assert len(raised.value.problems) == 3


def test_projects_do_not_see_each_others_stores(database: Database) -> None:
    trainer, other = Trainer(database=database), Trainer(database=database, project="other")
    _put(trainer, "mine", "s3://b")
    names = [
        row.name for row in stores_of(other.services, project_id=other.project_id, after_name=None, limit=9)
    ]
    assert names == ["demo"]


def test_a_name_means_one_place_in_all_projects_because_workers_know_no_projects(database: Database) -> None:
    trainer, other = Trainer(database=database), Trainer(database=database, project="other")
    _put(trainer, "mine", "s3://b")
    with pytest.raises(ConflictError, match="lies elsewhere"):
        _put(other, "mine", "s3://c")
    assert _put(other, "mine", "s3://b")[1]


def test_only_a_token_of_all_projects_allows_a_root_of_the_machines(served: ServedApp) -> None:
    body = {"name": "demo", "url": "/home"}
    own = served.client(project="other")
    refused = own.post("/v1/stores", json=body)
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:ckptguard:problem:forbidden")
    operator = served.client(acts_in="other")
    assert operator.post("/v1/stores", json=body).status_code == 201
    changed = own.post("/v1/stores", json=body | {"settle_s": 1.0})
    assert (changed.status_code, changed.json()["settle_s"]) == (200, 1.0)
    assert own.delete("/v1/stores/demo").status_code == 204
    assert own.post("/v1/stores", json=body).status_code == 403, "what was taken back stays so"
    assert operator.post("/v1/stores", json=body).status_code == 201


def _trainer_beside(database: Database, data_dir: Path) -> Trainer:
    trainer = Trainer(database=database)
    trainer.services = Services(database=database, settings=Settings(data_dir=data_dir))
    return trainer


def test_the_services_own_folder_is_no_store(database: Database, tmp_path: Path) -> None:
    own = tmp_path / "data"
    own.mkdir()
    (tmp_path / "link").symlink_to(own)
    trainer = _trainer_beside(database, tmp_path / "link")
    (own / "ckpts").mkdir()
    (tmp_path / "other").symlink_to(own / "ckpts")
    for root in (own, own / "ckpts", tmp_path / "link", tmp_path / "link" / "x", tmp_path / "other"):
        with pytest.raises(InvalidRequestError, match="own folder"):
            _put(trainer, "own", str(root))
    assert _put(trainer, "around", str(tmp_path))[1], "the default folder lies in the working folder"


def test_no_checkpoint_is_at_in_or_around_the_services_own_folder(database: Database, tmp_path: Path) -> None:
    trainer = _trainer_beside(database, tmp_path / "run" / "data")
    _put(trainer, "around", str(tmp_path))
    for path in ("run", "run/data", "run/data/step-1"):
        location = AskedLocation(store="around", path=path)
        request = Announcement(run="r", step=1, location=location)
        with pytest.raises(LocationRefusedError, match="own folder"):
            announce(trainer.services, request, project_id=trainer.project_id, actor=SERVICE)
    assert trainer.rows(checkpoints) == []
    fine = Announcement(run="r", step=1, location=AskedLocation(store="around", path="run/data-2"))
    assert announce(trainer.services, fine, project_id=trainer.project_id, actor=SERVICE).is_new


def test_stores_over_http(served: ServedApp) -> None:
    admin, reader = served.client(), served.client(Scope.READ)
    body = {"name": "demo", "url": "/data/ckpts/", "settle_s": 1.5}
    made = admin.post("/v1/stores", json=body)
    assert (made.status_code, made.json()["url"]) == (201, "file:///data/ckpts")
    assert admin.post("/v1/stores", json=body).status_code == 200
    assert reader.post("/v1/stores", json=body).status_code == 403
    for number in range(3):
        admin.post("/v1/stores", json={"name": f"s{number}", "url": f"s3://b{number}x"})
    first = reader.get("/v1/stores", params={"limit": 3}).json()
    second = reader.get("/v1/stores", params={"limit": 3, "cursor": first["next"]}).json()
    assert [row["name"] for row in first["items"] + second["items"]] == ["demo", "s0", "s1", "s2"]
    assert second["next"] is None
    refused = admin.post("/v1/stores", json={"name": "evil", "url": "http://169.254.169.254/"})
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:ckptguard:problem:invalid_request")
    assert admin.delete("/v1/stores/demo").status_code == 204
    assert admin.delete("/v1/stores/demo").status_code == 404
