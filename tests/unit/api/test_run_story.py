"""One run: its timeline, its starts, what a failure now costs; the same on both databases."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select

from ckptguard.errors import NotFoundError
from ckptguard.model.service import RestartOutcome, ResumeState
from ckptguard.model.verdict import Verdict
from ckptguard_api.domain.starts import starts_of
from ckptguard_api.pages.run_timeline import timeline_json
from ckptguard_api.repositories import run_story as repository
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.tables import checkpoints, projects
from ckptguard_api.use_cases import run_story
from ckptguard_api.use_cases.run_story import Timeline, failure_now, read_timeline, show_run_story
from tests import service_rows as rows
from tests.databases import fresh_database
from tests.pages.seeded_runs import FULL_RUN, Seeded, seed_runs

START = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Services, int, Seeded]]:
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    folder = tmp_path_factory.mktemp("story")
    with fresh_database(request.param, folder=folder, postgres=server) as database:
        with database.write() as tx:
            project_id = rows.add_project(tx)
        seeded = seed_runs(database, project_id=project_id)
        yield Services(database=database, settings=Settings()), project_id, seeded


def timeline(told: tuple[Services, int, Seeded], name: str = FULL_RUN) -> Timeline:
    services, project_id, _ = told
    return read_timeline(services, project_id=project_id, name=name)


def summed(differences: list[int]) -> list[int]:
    return [sum(differences[: place + 1]) for place in range(len(differences))]


def test_a_timeline_says_what_the_rows_say(told: tuple[Services, int, Seeded]) -> None:
    found = timeline(told)
    told_json = timeline_json(found)
    steps = summed(told_json["step"])
    names = [told_json["marks"][mark]["name"] for mark in told_json["mark"]]
    assert steps == [*range(100, 4600, 100), *range(3100, 5200, 100), 5150, 5200, 5300]
    assert dict(zip(steps, names, strict=True)) | {} == {
        step: {1700: "invalid", 2300: "unknown", 5100: "invalid", 5150: "incomplete", 5200: "running",
               5300: "queued"}.get(step, "valid-content" if step in {1000, 2000, 3000} else "valid-loaded")
        for step in steps
    }  # fmt: skip
    assert summed(told_json["id"])[told_json["target"]] == told[2].target_id
    assert [bits for step, bits in zip(steps, told_json["flags"], strict=True) if step == 5000] == [1]
    assert told_json["flags"].count(4) == 15
    place = steps.index(1700)
    assert told_json["lag_s"][place] == 60 + 1700 % 700
    assert told_json["bytes_per_s"][place] == pytest.approx(640e9 / (40 + 1700 % 70), rel=0.005)
    assert told_json["lag_s"][-1] is None
    assert told_json["bytes_per_s"][-1] is None


def test_times_of_a_timeline_are_exact_to_the_second(told: tuple[Services, int, Seeded]) -> None:
    found = timeline(told)
    with told[0].database.read() as tx:
        rows_of_run = checkpoints.select().where(checkpoints.c.id.in_([row.id for row in found.checkpoints]))
        moments = {row.id: row.created_at.timestamp() for row in tx.execute(rows_of_run)}
    assert all(abs(row.created_s - moments[row.id]) < 0.01 for row in found.checkpoints)


def test_the_lag_is_that_of_the_first_verdict_and_scrubs_do_not_change_it(
    told: tuple[Services, int, Seeded],
) -> None:
    services, _, _ = told
    with services.database.write() as tx:
        project = rows.add_project(tx, "scrubbed")
        store = rows.add_store(tx, project)
        run = rows.add_run(tx, project, "scrubbed")
        saved = tx.now - timedelta(seconds=90)
        one = rows.add_checkpoint(tx, run, store, step=1, verdict=Verdict.VALID, created_at=saved)
    with services.database.write() as tx:
        rows.add_verdict(tx, one, Verdict.VALID)
        later = tx.now
    (row,) = read_timeline(services, project_id=project, name="scrubbed").checkpoints
    assert row.first_verdict_s < later.timestamp()
    assert row.first_verdict_s - row.created_s == pytest.approx(90, abs=0.5)


def test_a_long_run_shows_its_newest_and_says_so(
    told: tuple[Services, int, Seeded], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [row.id for row in timeline(told).checkpoints]
    monkeypatch.setattr(repository, "MAX_TIMELINE", 10)
    monkeypatch.setattr(run_story, "MAX_TIMELINE", 10)
    found = timeline(told)
    assert [row.id for row in found.checkpoints] == every[-10:]
    assert found.is_cut
    assert not timeline(told, "over").is_cut


def test_an_unknown_run_is_said_to_be_none(told: tuple[Services, int, Seeded]) -> None:
    services, project_id, _ = told
    with pytest.raises(NotFoundError):
        read_timeline(services, project_id=project_id, name="nothing")
    with pytest.raises(NotFoundError):
        show_run_story(services, project_id=project_id + 999, name=FULL_RUN)


def test_a_story_counts_by_verdict_and_by_lifecycle(told: tuple[Services, int, Seeded]) -> None:
    services, project_id, _ = told
    story = show_run_story(services, project_id=project_id, name=FULL_RUN)
    assert dict(story.verdicts) == {"VALID": 63, "INVALID": 2, "UNKNOWN": 1, "none": 3}
    assert dict(story.lifecycles) == {"registered": 53, "superseded": 15, "incomplete": 1}
    assert [branch.number for branch in story.branches] == [1, 0]
    assert [(start.attempt, start.outcome) for start in story.starts] == [
        ("start-2", RestartOutcome.PROGRESSED),
        ("start-1", RestartOutcome.FAILED_LOADING),
    ]


def test_a_failure_now_costs_what_the_target_is_away(told: tuple[Services, int, Seeded]) -> None:
    services, project_id, seeded = told
    story = show_run_story(services, project_id=project_id, name=FULL_RUN)
    failure = failure_now(services, story)
    target = failure.answer.choice.target
    assert target is not None
    assert (failure.answer.choice.state, target.id) == (ResumeState.VALID, seeded.target_id)
    assert (failure.exposure.steps, failure.newest_step) == (400, 5300)
    seconds = (story.now - target.created_at).total_seconds()
    assert failure.exposure.gpu_hours == pytest.approx(seconds / 3600 * 8000)
    assert failure.exposure.usd == pytest.approx(seconds / 3600 * 8000 * 3, abs=0.01)


def test_what_lets_nothing_resume_costs_nothing_that_could_be_told(
    told: tuple[Services, int, Seeded],
) -> None:
    services, project_id, _ = told
    failure = failure_now(services, show_run_story(services, project_id=project_id, name="never-valid"))
    assert failure.answer.choice.state is ResumeState.NONE_VALID
    assert (failure.exposure.seconds, failure.exposure.usd) == (None, None)


def test_a_story_is_of_one_project(told: tuple[Services, int, Seeded]) -> None:
    services, _, _ = told
    with services.database.read() as tx:
        ids = list(tx.execute(select(projects.c.id)).scalars())
    for project_id in ids[1:]:
        with pytest.raises(NotFoundError):
            show_run_story(services, project_id=project_id, name=FULL_RUN)


def report(attempt: str, outcome: RestartOutcome, minutes: int, **values: Any) -> SimpleNamespace:  # noqa: ANN401 - columns
    columns = {"checkpoint_id": 7, "step": 70, "branch": 1, "nodes": [], "steps_done": None, "detail": None}
    moment = START + timedelta(minutes=minutes)
    return SimpleNamespace(
        **(columns | {"attempt_key": attempt, "outcome": outcome.value, "reported_at": moment} | values)
    )


def test_several_reports_of_a_start_are_one() -> None:
    reports = [
        report(
            "b", RestartOutcome.FAILED_EARLY, 9, checkpoint_id=None, step=None, steps_done=3, detail="NaN"
        ),
        report("a", RestartOutcome.PROGRESSED, 6, nodes=["n1"]),
        report("b", RestartOutcome.RESUMED, 5, nodes=["n1", "n2"]),
        report("a", RestartOutcome.RESUMED, 1),
    ]
    second, first = starts_of(reports)
    assert (first.attempt, first.outcome, first.num_nodes) == ("a", RestartOutcome.PROGRESSED, 1)
    assert (second.outcome, second.checkpoint_id, second.step) == (RestartOutcome.FAILED_EARLY, 7, 70)
    assert (second.steps_done, second.detail, second.num_nodes) == (3, "NaN", 2)
    assert (second.started_at, second.reported_at) == (
        START + timedelta(minutes=5),
        START + timedelta(minutes=9),
    )
