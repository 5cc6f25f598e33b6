"""The list of runs: what needs a person first, the same on both databases, in few reads."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event, select

from ckptguard.model.service import Lifecycle, ValidationState
from ckptguard.model.verdict import Verdict
from ckptguard_api.domain.attention import Attention
from ckptguard_api.repositories import run_board
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.tables import projects, runs
from ckptguard_api.use_cases import run_board as use_case
from ckptguard_api.use_cases.run_board import Board, show_board
from tests import service_rows as rows
from tests.databases import fresh_database
from tests.pages.seeded_runs import FULL_RUN, HOSTILE, seed_runs

ORDER = (
    ("restarts-fail", Attention.RESTARTS_FAILING),
    ("below-policy", Attention.NOTHING_VALID),
    ("never-valid", Attention.NOTHING_VALID),
    (FULL_RUN, Attention.NEWEST_INVALID),  # its price puts it before the next
    ("newest-damaged", Attention.NEWEST_INVALID),
    ("unprotected", Attention.UNPROTECTED),
    ("held-back", Attention.HELD),
    ("stays-unknown", Attention.NEWEST_UNKNOWN),
    ("never-came", Attention.NEVER_CAME),
    ("waits-long", Attention.PENDING_LONG),
    ("went-back", Attention.STEP_WENT_BACK),
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def services(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Return one service a kind of database for all tests: who writes does so in a project of its own."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    folder = tmp_path_factory.mktemp("board")
    with fresh_database(request.param, folder=folder, postgres=server) as database:
        with database.write() as tx:
            project_id = rows.add_project(tx)
        seed_runs(database, project_id=project_id)
        yield Services(database=database, settings=Settings())


def board(services: Services, project: str = "default", **asked: Any) -> Board:  # noqa: ANN401 - of `show_board`
    with services.database.read() as tx:
        project_id = tx.execute(select(projects.c.id).where(projects.c.name == project)).scalar_one()
    return show_board(services, project_id=project_id, **asked)


def names(found: Board) -> list[str]:
    return [run.row.name for run in found.shown]


def test_runs_are_in_the_order_in_which_they_need_a_person(services: Services) -> None:
    found = board(services)
    assert [(run.row.name, run.judged.attention) for run in found.shown[: len(ORDER)]] == list(ORDER)
    rest = [run.judged.attention for run in found.shown[len(ORDER) :]]
    assert rest == [Attention.FINE] * (len(rest) - 1) + [Attention.INACTIVE]
    assert (found.total, found.matching, found.pages, found.is_cut) == (len(rest) + len(ORDER),) * 2 + (
        1,
        False,
    )


def test_a_run_tells_what_it_has(services: Services) -> None:
    run = next(run for run in board(services).shown if run.row.name == FULL_RUN)
    assert (run.valid and run.valid.step, run.newest and run.newest.step) == (4900, 5300)
    assert (run.open.running, run.open.queued, run.num_held) == (1, 1, 1)
    assert run.exposure.steps == 400
    assert run.exposure.usd == pytest.approx((run.exposure.gpu_hours or 0) * 3.0, abs=0.01)
    assert len(run.strip) == use_case.STRIP_CHECKPOINTS
    assert [row.step for row in run.strip][-3:] == [5150, 5200, 5300]


@pytest.mark.parametrize("part", ["LTHY", "heal", "100%", "_", "'; DROP", "\u202egnp"])
def test_a_part_of_a_name_finds_exactly_the_names_that_have_it(services: Services, part: str) -> None:
    every = names(board(services))
    assert sorted(names(board(services, name_part=part))) == sorted(
        name for name in every if part in name or part.lower() in name.lower()
    )


def test_filters_by_attention_count_before_they_filter(services: Services) -> None:
    found = board(services, wanted=frozenset({Attention.HELD, Attention.INACTIVE}))
    assert names(found) == ["held-back", "over"]
    assert found.counts[Attention.NOTHING_VALID] == 2


def test_pages_have_every_run_once(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    every = names(board(services))
    monkeypatch.setattr(use_case, "RUNS_A_PAGE", 7)
    first = board(services)
    paged = [name for page in range(1, first.pages + 1) for name in names(board(services, page=page))]
    assert paged == every
    assert names(board(services, page=first.pages + 5)) == names(board(services, page=first.pages))


def test_more_runs_than_are_judged_is_said(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_board, "MAX_RUNS", 5)
    monkeypatch.setattr(use_case, "MAX_RUNS", 5)
    found = board(services)
    assert (len(found.shown), found.is_cut) == (5, True)
    assert names(board(services, name_part="healthy")) == ["healthy"]


def test_reads_do_not_grow_with_the_runs(services: Services) -> None:
    told: list[str] = []
    event.listen(services.database.engine, "before_cursor_execute", lambda *args: told.append(args[2]))
    board(services)
    asked = [
        statement
        for statement in told
        if statement.startswith("SELECT") and "clock_timestamp" not in statement
    ]
    assert len(asked) <= 7, asked


def test_superseded_and_deleted_damage_alarms_nobody(services: Services) -> None:
    with services.database.write() as tx:
        project_id = rows.add_project(tx, "tidy")
        store = rows.add_store(tx, project_id)
        run = rows.add_run(tx, project_id, "cleaned-up")
        rows.add_checkpoint(tx, run, store, step=1, verdict=Verdict.VALID)
        for step, lifecycle in ((2, Lifecycle.SUPERSEDED), (3, Lifecycle.DELETED)):
            rows.add_checkpoint(tx, run, store, step=step, verdict=Verdict.INVALID, lifecycle=lifecycle)
            rows.add_checkpoint(
                tx, run, store, step=step, verdict=Verdict.VALID, lifecycle=lifecycle, is_suspect=True
            )
    found = next(run for run in board(services, "tidy").shown if run.row.name == "cleaned-up")
    assert (found.judged.attention, found.num_held) == (Attention.FINE, 0)


def test_another_projects_runs_are_not_shown(services: Services) -> None:
    with services.database.write() as tx:
        other = rows.add_project(tx, "other")
        store = rows.add_store(tx, other)
        hidden = rows.add_run(tx, other, "hidden")
        saved = rows.add_checkpoint(tx, hidden, store, step=1, is_suspect=True)
        rows.add_validation(tx, saved, state=ValidationState.QUEUED)
        everything = tx.execute(select(runs.c.name)).scalars().all()
    assert "hidden" in everything
    shown = show_board(services, project_id=other)
    assert [(run.row.name, run.open.queued, run.num_held) for run in shown.shown] == [("hidden", 1, 1)]


def test_hostile_names_are_names(services: Services) -> None:
    assert set(HOSTILE) <= set(names(board(services)))
