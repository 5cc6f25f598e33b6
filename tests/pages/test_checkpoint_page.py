"""One checkpoint as an operator sees it; its verdicts were given by a real worker."""

from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from ckptguard.formats.discover import discover
from ckptguard.model.policy import Limits
from ckptguard.model.service import Scope
from ckptguard.operations.place import Place
from ckptguard.storage.listing import list_folder
from ckptguard_api.use_cases.checkpoint_tensors import list_tensors
from tests.pages.axe import grave_faults
from tests.pages.browsing import PHONE, visitor
from tests.pages.validated_run import CORPUS, RUN, SAVE, ValidatedRun, validated_run

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValidatedRun]:
    with validated_run(tmp_path_factory.mktemp("validated")) as run:
        yield run


def test_damage_is_named_with_file_tensor_place_and_what_to_do(browser: Browser, run: ValidatedRun) -> None:
    with visitor(browser, run.served) as someone:
        page = someone.go(run.path(3))
        expect(page.get_by_role("heading", level=1)).to_contain_text("INVALID damage")
        error = page.locator(".finding.error").first
        for label in ("File", "Bytes", "Tensor", "Slice", "Expected", "Observed"):
            expect(error.get_by_text(label, exact=True)).to_be_visible()
        expect(error).to_contain_text("__0_0.distcp")
        expect(error).to_contain_text("What to do: If this is a copy, copy __0_0.distcp again")
        error.get_by_role("link").first.click()
        expect(page.get_by_text("What to do", exact=True)).to_be_visible()


def test_the_ladder_shows_each_check_with_its_evidence(browser: Browser, run: ValidatedRun) -> None:
    with visitor(browser, run.served) as someone:
        page = someone.go(run.path(2))
        rows = page.locator("table.ladder tbody tr")
        expect(rows).to_have_count(8)
        expect(rows.nth(3)).to_contain_text("pass")
        expect(rows.nth(3)).to_contain_text("221 items")
        expect(rows.nth(4)).to_contain_text("proves loaded")
        expect(rows.nth(5)).to_contain_text("unknown")
        expect(rows.nth(7)).to_contain_text("skipped")
        expect(page.get_by_text("Nothing against it.")).to_have_count(0 if has_findings(run, 2) else 1)


def has_findings(run: ValidatedRun, step: int) -> bool:
    detail = run.served.client(Scope.READ).get(f"/v1/checkpoints/{run.ids[step]}").json()
    return bool(detail["verdict"]["findings"])


def test_tensors_are_found_by_name_with_what_was_measured(browser: Browser, run: ValidatedRun) -> None:
    with visitor(browser, run.served) as someone:
        page = someone.go(run.path(2, "tensors"))
        expect(page.get_by_text("100 shown, 106 in the list")).to_be_visible()
        page.get_by_role("link", name="Next page").click()
        expect(page.get_by_text("6 shown, 106 in the list")).to_be_visible()
        page.get_by_label("Name contains").fill("layers.1.w1.weight")
        page.get_by_role("button", name="Search").click()
        rows = page.locator("table.tensors tbody tr")
        expect(rows).to_have_count(4)
        first = rows.first
        for text in ("app.model.layers.1.w1.weight", "bfloat16", "[32, 16]", "__1_0.distcp", "finite"):
            expect(first).to_contain_text(text)
        assert "fqn=layers.1.w1.weight" in page.url, "a search has an address that can be sent to somebody"


def test_a_search_that_finds_nothing_says_so(browser: Browser, run: ValidatedRun) -> None:
    with visitor(browser, run.served) as someone:
        page = someone.go(run.path(2, "tensors?fqn=%3Cscript%3Ealert(1)%3C/script%3E"))
        expect(page.get_by_text("No tensor has <script>alert(1)</script> in its name")).to_be_visible()


def test_a_checkpoint_is_compared_with_the_last_valid_one_or_any_other(
    browser: Browser, run: ValidatedRun
) -> None:
    with visitor(browser, run.served) as someone:
        page = someone.go(run.path(3, "diff"))
        expect(page.get_by_role("columnheader", name="Before: step 2")).to_be_visible()
        expect(page.get_by_text("1 with other bytes of the same length, 2 the same.")).to_be_visible()
        expect(page.get_by_text("106 of the same dtype and shape")).to_be_visible()
        page.get_by_label("What changed since").select_option(str(run.ids[1]))
        page.get_by_role("button", name="Compare").click()
        expect(page.get_by_role("columnheader", name="Before: step 1")).to_be_visible()
        page = someone.go(run.path(1, "diff"))
        expect(page.get_by_text("No earlier VALID checkpoint")).to_be_visible()


def test_the_map_and_the_table_name_the_faulty_file(browser: Browser, run: ValidatedRun) -> None:
    with visitor(browser, run.served) as someone:
        page = someone.go(run.path(3))
        page.locator(".file-map[data-ready]").wait_for()
        expect(page.locator(".map-legend")).to_contain_text("faulty: 1")
        page.get_by_role("application").focus()
        page.keyboard.press("n")
        readout = page.locator(".map-readout")
        expect(readout).to_contain_text(
            "File 2 of 3: faulty · __0_0.distcp · 148.2 kB · rank 0 · zip malformed"
        )
        page = someone.go(run.path(3, "files?state=f"))
        expect(page.locator("table tbody tr")).to_have_count(1)
        expect(page.locator("table tbody tr")).to_contain_text("__0_0.distcp")


def test_starts_from_it_and_branches_that_began_at_it_are_told(browser: Browser, run: ValidatedRun) -> None:
    admin = run.served.client()
    told = {"attempt": "job-1", "checkpoint_id": run.ids[1], "nodes": ["n1", "n2"]}
    for outcome in ("resumed", "failed_loading"):
        answer = admin.post(f"/v1/runs/{RUN}/restarts", json=told | {"outcome": outcome})
        assert answer.status_code == 201, answer.text
    with visitor(browser, run.served) as someone:
        page = someone.go(run.path(1))
        row = page.locator("section[aria-labelledby=descent] tbody tr")
        expect(row).to_contain_text("job-1")
        expect(row).to_contain_text("resumed, then ✗ failed loading")
        expect(row).to_contain_text("n1, n2")
        expect(page.get_by_text("Branch 1 began here")).to_be_visible()


def test_the_page_fits_a_phone_and_needs_no_pointer(browser: Browser, run: ValidatedRun) -> None:
    with visitor(browser, run.served, Scope.READ, size=PHONE, scheme="dark") as someone:
        for rest in ("", "files", "tensors", "diff", "findings"):
            page = someone.go(run.path(3, rest) if rest else run.path(3))
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= PHONE[0], f"{rest or 'overview'} is {width} px wide"
        page = someone.go(run.path(3))
        link = page.get_by_role("link", name="Tensors", exact=True)
        for _ in range(30):
            page.keyboard.press("Tab")
            if link.evaluate("one => one === document.activeElement"):
                break
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Tensors")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_kept_out(browser: Browser, run: ValidatedRun, scheme: Literal["light", "dark"]) -> None:
    with visitor(browser, run.served, scheme=scheme) as someone:
        for rest in ((), ("files",), ("tensors",), ("diff",), ("findings",)):
            page = someone.go(run.path(3, *rest))
            assert grave_faults(page) == [], rest
        page = someone.go("/ui/in/default/findings/zip_malformed")
        assert grave_faults(page) == []


def test_everything_is_there_without_scripts(browser: Browser, run: ValidatedRun) -> None:
    with visitor(browser, run.served, java_script_enabled=False) as someone:
        page = someone.go(run.path(3))
        expect(page.locator(".finding.error").first).to_be_visible()
        expect(page.locator(".file-map tbody tr")).to_contain_text("__0_0.distcp")
        page.get_by_role("link", name="All files in a table").click()
        expect(page.locator("table tbody tr")).to_have_count(3)
        page = someone.go(run.path(2, "tensors"))
        page.get_by_label("Name contains").fill("tok_embeddings")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("table.tensors tbody tr").first).to_contain_text("tok_embeddings")


def test_the_list_of_tensors_is_that_of_the_metadata(run: ValidatedRun) -> None:
    """What worker, service and page tell equals what the checkpoint itself declares, tensor by tensor."""
    place = Place.of(str(CORPUS / SAVE))
    listing = list_folder(place.store, place.prefix, max_files=100)
    (layout,) = discover(place.store, listing, Limits()).layouts
    found = list_tensors(
        run.served.services, project_id=1, checkpoint_id=run.ids[1], fqn="", start=0, limit=1000
    )
    told = [(entry.fqn, entry.dtype, entry.shape, entry.num_slices) for entry in found.page.entries]
    assert told == [(one.fqn, one.dtype, one.shape, len(one.slices)) for one in layout.tensors]
    assert sum(entry.numerics is not None for entry in found.page.entries) == 102
