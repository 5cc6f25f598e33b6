"""What a checkpoint or a job brings is only ever shown; what is large is given out piece by piece."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import zstandard
from playwright.sync_api import Browser, expect
from sqlalchemy import insert, update

from ckptguard.formats.manifest_json import to_json
from ckptguard.model.service import Hold, Scope
from ckptguard.model.tensor_list import TensorEntry, pack_tensors
from ckptguard.model.verdict import Verdict
from ckptguard.testing.manifests import manifest_of
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.tensor_lists import kept_tensors
from ckptguard_api.tables import evidence, findings, restarts, tensor_lists, verdicts
from ckptguard_api.use_cases.holds import hold_checkpoint
from tests.databases import fresh_database
from tests.pages.browsing import DESKTOP, PHONE, visitor
from tests.pages.hostile_names import FILES, FQNS, RUN_NAMES, TEXT
from tests.served_app import ServedApp, served_app
from tests.service_rows import add_check, add_checkpoint, add_run, add_store, add_verdict

NUM_FINDINGS: Final = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """A served checkpoint of which every name is hostile, and an earlier one of the same run."""

    served: ServedApp
    ids: tuple[int, int]

    @property
    def path(self) -> str:
        """Return the address of its page."""
        return f"/ui/in/default/checkpoints/{self.ids[1]}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    folder = tmp_path_factory.mktemp("hostile")
    with fresh_database("sqlite", folder=folder) as database, served_app(database) as served:
        with database.write() as tx:
            run_id, store_id = add_run(tx, 1, RUN_NAMES[0]), add_store(tx, 1)
            first = add_checkpoint(tx, run_id, store_id, step=1)
            told(tx, first, Verdict.VALID, FQNS[:1], FILES[:1])
            second = add_checkpoint(
                tx, run_id, store_id, step=2, save_id=RUN_NAMES[1], format=RUN_NAMES[2],
                path=FILES[0], location=f"file:///data/demo/{FILES[0]}",
            )  # fmt: skip
            told(tx, second, Verdict.INVALID, FQNS, FILES)
            started = {"run_id": run_id, "checkpoint_id": second, "attempt_key": RUN_NAMES[6][:200]}
            outcome = {"outcome": "failed_loading", "nodes": [RUN_NAMES[0]], "detail": TEXT, "branch": 0}
            flags = {"reported_at": tx.now, "is_branch_opened": False, "is_settled": False}
            tx.execute(insert(restarts).values(started | outcome | flags))
        hold_checkpoint(
            served.services,
            project_id=1,
            checkpoint_id=second,
            hold=Hold.PINNED,
            reason=RUN_NAMES[0],
            actor=SERVICE,
        )
        yield Hostile(served=served, ids=(first, second))


def told(
    tx: Transaction, checkpoint_id: int, verdict: Verdict, fqns: tuple[str, ...], files: tuple[str, ...]
) -> None:
    validation_id = add_verdict(tx, checkpoint_id, verdict)
    hostile_version = {"checks": "1", "torch": RUN_NAMES[0], RUN_NAMES[1]: "x"}
    changed = update(verdicts).where(verdicts.c.validation_id == validation_id)
    tx.execute(changed.values(versions=hostile_version))
    add_check(tx, validation_id, "content", "fail")
    listed = [{"path": file, "length_bytes": 5, "checksum": None} for file in sorted(files)]
    body = zstandard.ZstdCompressor().compress(json.dumps(listed, separators=(",", ":")).encode())
    tx.execute(insert(evidence).values(validation_id=validation_id, body=body, num_files=len(listed)))
    entries = (TensorEntry(fqn, "", RUN_NAMES[0], (2,), 1, 8, 1, files[:1]) for fqn in sorted(fqns))
    kept = kept_tensors(pack_tensors(entries))
    tx.execute(
        insert(tensor_lists).values(validation_id=validation_id, body=kept.body, num_tensors=kept.count)
    )
    if verdict is Verdict.INVALID:
        tx.execute(insert(findings), [finding(validation_id, number) for number in range(NUM_FINDINGS)])


def finding(validation_id: int, number: int) -> dict[str, Any]:
    file, fqn = FILES[number % len(FILES)], FQNS[number % len(FQNS)]
    place = {"code": "crc_mismatch", "check": "content", "severity": "error", "file": file, "fqn": fqn}
    seen = {
        "expected": TEXT,
        "observed": RUN_NAMES[1],
        "record": RUN_NAMES[0],
        "offset": 12,
        "length_bytes": 3,
    }
    value = place | seen | {"message": f"{number} {TEXT}", "slice": {"offsets": [0], "sizes": [2]}}
    row = {"validation_id": validation_id, "number": number, "is_about_checkpoint": True}
    return place | row | {"message": value["message"], "value": value}


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_name_runs_breaks_a_policy_or_the_page(
    browser: Browser, hostile: Hostile, size: tuple[int, int]
) -> None:
    with visitor(browser, hostile.served, size=size) as someone:
        for rest in ("", "/files", "/tensors", "/diff", "/findings"):
            page = someone.go(hostile.path + rest)
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0], rest or "overview"
            assert page.locator("main script, main img").count() == 0
            assert "\u202e" not in page.locator("main").inner_text(), "a direction mark is shown, not obeyed"
        page = someone.go(hostile.path)
        page.locator(".file-map[data-ready]").wait_for()
        page.get_by_role("application").focus()
        page.keyboard.press("n")
        expect(page.locator(".map-readout")).to_contain_text("distcp")


def test_more_findings_are_fetched_where_they_are_wanted(browser: Browser, hostile: Hostile) -> None:
    with visitor(browser, hostile.served) as someone:
        page = someone.go(hostile.path)
        expect(page.locator("li.finding")).to_have_count(100)
        page.get_by_role("link", name=f"All {NUM_FINDINGS} findings").click()
        for count in (200, NUM_FINDINGS):
            page.get_by_role("link", name="More findings").click()
            expect(page.locator("li.finding")).to_have_count(count)
        expect(page.get_by_role("link", name="More findings")).to_have_count(0)


def test_a_page_is_small_and_what_is_wrong_in_its_address_is_told(hostile: Hostile) -> None:
    client = hostile.served.new_client(Origin=hostile.served.url)
    token = hostile.served.token(Scope.READ)
    assert client.post("/ui/sign-in", data={"token": token}).status_code == 303
    for address, status in (
        ("", 200),
        ("/files?state=z", 422),
        ("/files?start=-1", 422),
        ("/files?validation=1", 404),
        ("/diff?with=999", 404),
        ("/diff?tensors=1", 422),
        (f"/diff?with={hostile.ids[1]}", 422),
        ("/findings?cursor=bm8", 422),
        ("/tensors?start=99999999999", 422),
        ("/manifest.json", 404),
    ):
        answer = client.get(hostile.path + address)
        assert answer.status_code == status, address
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert int(answer.headers.get("content-length", 0)) < 300_000
    assert client.get("/ui/in/default/checkpoints/999").status_code == 404
    assert client.get("/ui/in/default/findings/no_such_code").status_code == 404


def test_a_manifest_is_given_out_as_it_was_registered(browser: Browser, hostile: Hostile) -> None:
    manifest = json.loads(to_json(manifest_of({"__0_0.distcp": b"shard", ".metadata": b"metadata"})))
    body = {"location": {"store": "demo", "path": "kit/7"}, "step": 7, "manifest": manifest}
    answer = hostile.served.client().post("/v1/runs/kit/checkpoints", json=body)
    assert answer.status_code == 201, answer.text
    with visitor(browser, hostile.served) as someone:
        page = someone.go(f"/ui/in/default/checkpoints/{answer.json()['checkpoint']['id']}")
        with page.expect_download() as downloading:
            page.get_by_role("link", name="Download").click()
        assert downloading.value.suggested_filename == "ckptguard.manifest.json"
        given = json.loads(downloading.value.path().read_text())
        assert given["files"] == manifest["files"]
        expect(page.get_by_text("made by the writer while it wrote")).to_be_visible()
