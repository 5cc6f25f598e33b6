"""`adopt` on a real object store: one paginated listing, metadata alone, a re-save, a watcher."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptguard.clock import SystemClock
from ckptguard.formats.registry import adapters
from ckptguard.operations.adopt.adoption import Adoption, Wish
from ckptguard.operations.adopt.loop import adopt_once
from ckptguard.operations.adopt.news import News, NewsKind
from ckptguard.operations.adopt.sweep import Naming, sweep
from ckptguard.storage.fsspec_store import FsspecStore
from ckptguard.testing.raw_dcp import RawCheckpoint
from tests.databases import fresh_database
from tests.integration.adopt_process import adopting
from tests.integration.lease_service import eventually
from tests.integration.s3_server import S3Server
from tests.integration.test_check_s3 import Bucket
from tests.served_app import ServedApp, served_app
from tests.unit.operations.adopt.adopting import CORPUS, SAVE, CountingStore, RememberingService

pytestmark = pytest.mark.s3
OTHER = "dcp_torch2_13_0_uneven_ws4"


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> Bucket:
    return Bucket.of(s3_server, CORPUS)


def adopted(bucket: Bucket, prefix: str) -> tuple[CountingStore, RememberingService, list[News]]:
    """Adopt a prefix, at rest or not, and return what was asked and told."""
    store = CountingStore(FsspecStore(f"s3://{bucket.name}", bucket.server.options("reader")))
    service, news, clock = RememberingService(), list[News](), SystemClock()
    wish = Wish(target=f"s3://{bucket.name}/{prefix}", naming=Naming(run="r"), settle_s=0)
    adopt_once(
        Adoption(wish, service, clock=clock, tell=news.append, opened=(store, prefix)), clock, news.append
    )
    return store, service, news


@pytest.mark.slow
def test_more_than_a_page_of_keys_is_one_listing_and_only_metadata_is_read(
    bucket: Bucket, tmp_path: Path
) -> None:
    made = RawCheckpoint().write(tmp_path)
    contents = {path.name: path.read_bytes() for path in made.iterdir()}
    keys = {
        f"{bucket.name}/many/step-{step}/{name}": data
        for step in range(550)
        for name, data in contents.items()
    }
    assert len(keys) > 1_000  # what S3 puts on one page
    bucket.filesystem.pipe(keys)
    store, service, _ = adopted(bucket, "many")
    assert (store.walks, store.link_walks) == (1, 0)
    assert sorted(store.opened) == sorted(f"many/step-{step}/.metadata" for step in range(550))
    assert store.stats == 0
    assert service.steps() == list(range(550))
    assert service.told[0]["location"] == {"url": f"s3://{bucket.name}/many/step-0"}


def test_a_re_save_changes_the_version_of_the_save(bucket: Bucket) -> None:
    bucket.put(SAVE, "resaved/step-1")
    store = FsspecStore(f"s3://{bucket.name}", bucket.server.options("reader"))

    def versions() -> tuple[str, str]:
        (found,) = sweep(store, "resaved", Naming(run="r"), adapters()).found
        return found.version, found.save_version

    before = versions()
    assert versions() == before
    bucket.write("resaved/step-1/notes.txt", b"x")
    assert versions()[0] != before[0]
    assert versions()[1] == before[1]
    bucket.put(OTHER, "resaved/step-1")
    assert versions()[1] != before[1]


def test_pointers_and_unfinished_saves_are_told(bucket: Bucket) -> None:
    for step in (200, 1000):
        bucket.put(SAVE, f"told/checkpoint-{step}")
    bucket.put(SAVE, "told/checkpoint-1200")
    bucket.delete("told/checkpoint-1200/.metadata")
    bucket.write("told/latest", b"checkpoint-200")
    _, service, news = adopted(bucket, "told")
    assert service.steps() == [200, 1000]
    told = {each.kind: each for each in news if each.kind is not NewsKind.REGISTERED}
    assert told[NewsKind.SKIPPED].path == "checkpoint-1200"
    assert told[NewsKind.POINTER].fault == "stale"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedApp]:
    with fresh_database("sqlite", folder=tmp_path) as database, served_app(database) as running:
        yield running


def test_a_watcher_registers_what_comes_to_a_bucket(
    bucket: Bucket, served: ServedApp, tmp_path: Path
) -> None:
    admin = served.client()
    store = {"name": "demo", "url": f"s3://{bucket.name}", "settle_s": 0}
    assert admin.post("/v1/stores", json=store).status_code in (200, 201)
    environment = {name: value for name, value in bucket.environment.items() if name.startswith("AWS_")}
    environment |= {"CKPTGUARD_URL": served.url, "CKPTGUARD_TOKEN": served.token()}
    given = (f"s3://{bucket.name}/watched", "--run", "r", "--every", "0.2", "--settle", "0.5")
    with adopting(*given, environment=environment, folder=tmp_path) as watcher:
        bucket.put(SAVE, "watched/step-1")
        eventually(lambda: watcher.of("registered", step=1), what="step 1")
        bucket.put(OTHER, "watched/step-1")
        eventually(lambda: len(watcher.of("registered", step=1)) == 2, what="the re-save of step 1")
        bucket.put(SAVE, "watched/step-2")
        eventually(lambda: watcher.of("registered", step=2), what="step 2")
        bucket.filesystem.rm(f"{bucket.name}/watched/step-1", recursive=True)
        eventually(lambda: watcher.of("deleted", step=1), what="the deletion of step 1")
        assert watcher.stop() == 0
    items = admin.get("/v1/checkpoints", params={"run": "r"}).json()["items"]
    assert sorted((each["step"], each["lifecycle"]) for each in items) == [
        (1, "deleted"),
        (1, "superseded"),
        (2, "registered"),
    ]
