"""What pages of a checkpoint ask of the database: tensors that were told, neighbours, descent, files."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import insert, update

from ckptguard.errors import InvalidRequestError, NotFoundError
from ckptguard.model.service import Lifecycle, RestartOutcome
from ckptguard.model.tensor_list import TensorEntry, pack_tensors
from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Database, Transaction
from ckptguard_api.repositories import lineage
from ckptguard_api.repositories.checkpoint_list import find_checkpoint
from ckptguard_api.repositories.file_faults import faults_of
from ckptguard_api.tables import branches, checkpoints, findings, restarts
from ckptguard_api.use_cases.checkpoint_diff import diff_checkpoint
from ckptguard_api.use_cases.checkpoint_files import chosen_validation, list_cells, show_file_map
from ckptguard_api.use_cases.checkpoint_story import show_descent
from ckptguard_api.use_cases.checkpoint_tensors import list_tensors
from tests.leased_service import LeasedService, valid
from tests.service_rows import (
    add_checkpoint,
    add_finding,
    add_project,
    add_run,
    add_store,
    add_validation,
    add_verdict,
)


@pytest.fixture
def tx(database: Database) -> Iterator[Transaction]:
    with database.write() as tx:
        yield tx


def tensors(*fqns: str) -> bytes:
    return pack_tensors(TensorEntry(fqn, "", "float32", (4,), 1, 16, 1, ("f",)) for fqn in sorted(fqns))


@pytest.fixture
def judged(database: Database) -> tuple[LeasedService, int, list[int]]:
    """Return a service, a project, and two checkpoints with a verdict that tells tensors."""
    service = LeasedService(database=database)
    project_id = service.add_project()
    run_id, store_id = service.add_run(project_id), service.add_store(project_id)
    ids = []
    for step, fqns in ((1, ("w", "old")), (2, ("w", 'hos"tile\\\N{SNOWMAN}', "new\0\ud800"))):
        ids.append(service.add_checkpoint(run_id, store_id, step=step))
        service.judge(ids[-1], valid(num_tensors=len(fqns), tensor_list=tensors(*fqns)))
    return service, project_id, ids


def test_the_tensors_that_a_worker_told_are_found_by_any_part_of_their_name(
    judged: tuple[LeasedService, int, list[int]],
) -> None:
    service, project_id, ids = judged
    for part, expected in (
        ("", ['hos"tile\\\N{SNOWMAN}', "new\0\ud800", "w"]),
        ('s"t', ['hos"tile\\\N{SNOWMAN}']),
        ("\N{SNOWMAN}", ['hos"tile\\\N{SNOWMAN}']),
        ("\\", ['hos"tile\\\N{SNOWMAN}']),
        ("\0", ["new\0\ud800"]),
        ("f", []),  # only files are called so
        ("u2603", []),  # only the JSON has it
    ):
        found = list_tensors(
            service.services, project_id=project_id, checkpoint_id=ids[1], fqn=part, start=0, limit=9
        )
        assert [entry.fqn for entry in found.page.entries] == expected, part
        assert (found.num_listed, found.num_tensors) == (3, 3)


def test_tensors_are_paged(judged: tuple[LeasedService, int, list[int]]) -> None:
    service, project_id, ids = judged
    seen: list[str] = []
    start: int | None = 0
    while start is not None:
        page = list_tensors(
            service.services, project_id=project_id, checkpoint_id=ids[1], fqn="", start=start, limit=1
        ).page
        seen += [entry.fqn for entry in page.entries]
        start = page.next
    assert len(seen) == len(set(seen)) == 3


def test_two_checkpoints_are_compared_by_what_was_told(
    judged: tuple[LeasedService, int, list[int]],
) -> None:
    service, project_id, ids = judged
    diff = diff_checkpoint(
        service.services, project_id=project_id, checkpoint_id=ids[1], other_id=None, limit=10
    )
    assert diff.before is not None
    assert diff.before.row.id == ids[0]
    assert diff.tensors is not None
    assert [(one.entry.fqn[:3], *one.differences) for one in diff.tensors.changes] == [
        ("hos", "added"),
        ("new", "added"),
        ("old", "removed"),
    ]
    with pytest.raises(InvalidRequestError, match="itself"):
        diff_checkpoint(
            service.services, project_id=project_id, checkpoint_id=ids[1], other_id=ids[1], limit=10
        )


def test_a_checkpoint_of_another_run_or_project_is_not_compared(
    judged: tuple[LeasedService, int, list[int]],
) -> None:
    service, project_id, ids = judged
    same_project = service.add_checkpoint(service.add_run(project_id), 1, step=1)
    elsewhere = service.add_project()
    other = service.add_checkpoint(service.add_run(elsewhere), service.add_store(elsewhere), step=1)
    for wrong, error in ((same_project, InvalidRequestError), (other, NotFoundError)):
        with pytest.raises(error):
            diff_checkpoint(
                service.services, project_id=project_id, checkpoint_id=ids[1], other_id=wrong, limit=10
            )


def test_files_are_shown_by_the_verdict_asked_for_of_this_checkpoint_alone(
    judged: tuple[LeasedService, int, list[int]],
) -> None:
    service, project_id, ids = judged
    mapped = show_file_map(service.services, project_id=project_id, checkpoint_id=ids[0], validation_id=None)
    assert (mapped.validation_id, mapped.map.states) == (1, "r")
    page = list_cells(
        service.services, project_id=project_id, checkpoint_id=ids[0], validation_id=1, start=0, limit=5
    )
    assert [(cell.path, cell.rank) for cell in page.cells] == [("__0_0.distcp", 0)]
    with pytest.raises(NotFoundError):
        show_file_map(service.services, project_id=project_id, checkpoint_id=ids[0], validation_id=2)


def test_a_checkpoint_without_a_verdict_has_an_empty_map_and_no_tensors(database: Database) -> None:
    service = LeasedService(database=database)
    project_id = service.add_project()
    checkpoint_id = service.add_checkpoint(service.add_run(project_id), service.add_store(project_id), step=1)
    mapped = show_file_map(
        service.services, project_id=project_id, checkpoint_id=checkpoint_id, validation_id=None
    )
    assert (mapped.validation_id, mapped.map.states) == (None, "")
    found = list_tensors(
        service.services, project_id=project_id, checkpoint_id=checkpoint_id, fqn="", start=0, limit=5
    )
    assert (found.validation_id, found.num_listed) == (None, None)


def test_earlier_valid_is_the_newest_in_the_order_of_the_run(tx: Transaction) -> None:
    project_id = add_project(tx)
    run_id, store_id = add_run(tx, project_id), add_store(tx, project_id)
    old, invalid, none, last, later = (
        add_checkpoint(
            tx, run_id, store_id, step=step, verdict=verdict, created_at=tx.now + timedelta(minutes=step)
        )
        for step, verdict in (
            (1, Verdict.VALID), (2, Verdict.INVALID), (3, None), (4, Verdict.UNKNOWN), (5, Verdict.VALID)
        )
    )  # fmt: skip
    assert lineage.earlier_valid(tx, find_checkpoint(tx, project_id, last)) == old
    assert lineage.earlier_valid(tx, find_checkpoint(tx, project_id, old)) is None
    around = lineage.neighbours(tx, find_checkpoint(tx, project_id, none), limit=1)
    assert [row.id for row in around] == [last, invalid]
    on_new_branch = add_checkpoint(tx, run_id, store_id, step=2, branch=1)
    assert lineage.earlier_valid(tx, find_checkpoint(tx, project_id, on_new_branch)) == later


def test_starts_are_told_with_all_their_outcomes_newest_first(database: Database) -> None:
    with database.write() as tx:
        project_id = add_project(tx)
        run_id, store_id = add_run(tx, project_id), add_store(tx, project_id)
        one, other = (
            add_checkpoint(tx, run_id, store_id, step=step, verdict=Verdict.VALID) for step in (1, 2)
        )
        values = {"run_id": run_id, "branch": 1, "is_branch_opened": False, "is_settled": False}
        for checkpoint_id, attempt, outcome, node in (
            (one, "a", RestartOutcome.RESUMED, "n1"),
            (other, "b", RestartOutcome.RESUMED, "n1"),
            (one, "c", RestartOutcome.RESUMED, "n3"),
            (one, "a", RestartOutcome.FAILED_EARLY, "n2"),
        ):
            row = {"checkpoint_id": checkpoint_id, "attempt_key": attempt, "outcome": outcome.value}
            tx.execute(insert(restarts).values(values | row | {"nodes": [node], "reported_at": tx.now}))
        opened = {"run_id": run_id, "number": 1, "from_checkpoint_id": one, "from_step": 1}
        tx.execute(insert(branches).values(opened | {"opened_at": tx.now, "opened_by": "test"}))
        add_checkpoint(tx, run_id, store_id, step=2, branch=1, lifecycle=Lifecycle.ANNOUNCED)
    services = LeasedService(database=database).services
    descent = show_descent(services, project_id=project_id, checkpoint_id=one)
    told = [
        (start.attempt, [report.outcome for report in start.reports], start.nodes) for start in descent.starts
    ]
    assert told == [("a", ["resumed", "failed_early"], ("n1", "n2")), ("c", ["resumed"], ("n3",))]
    assert ([branch.number for branch in descent.branches], dict(descent.saves)) == ([1], {1: 1})


def test_the_gravest_finding_of_a_file_counts_and_untold_ones_are_known_of(tx: Transaction) -> None:
    project_id = add_project(tx)
    run_id, store_id = add_run(tx, project_id), add_store(tx, project_id)
    checkpoint_id = add_checkpoint(tx, run_id, store_id, step=1)
    validation_id = add_verdict(tx, checkpoint_id, Verdict.INVALID)
    add_finding(tx, validation_id, code="stale_shard")
    tx.execute(update(findings).values(severity="warning"))
    add_finding(tx, validation_id, code="crc_mismatch")
    faults = faults_of(tx, validation_id)
    assert {path: fault.code for path, fault in faults.by_path.items()} == {"__0_0.distcp": "crc_mismatch"}
    assert not faults.is_cut
    number = add_finding(tx, validation_id, message="and 7 more findings of this kind (missing_shard)")
    tx.execute(update(findings).where(findings.c.id == number).values(file=None))
    assert faults_of(tx, validation_id).is_cut


def test_a_verdict_that_is_not_in_force_is_shown_where_no_other_is(tx: Transaction) -> None:
    project_id = add_project(tx)
    run_id, store_id = add_run(tx, project_id), add_store(tx, project_id)
    checkpoint_id = add_checkpoint(tx, run_id, store_id, step=1)
    validation_id = add_verdict(tx, checkpoint_id, Verdict.UNKNOWN)
    gone = {"verdict": None, "verdict_validation_id": None}
    tx.execute(update(checkpoints).values(gone))
    add_validation(tx, checkpoint_id)
    assert chosen_validation(tx, find_checkpoint(tx, project_id, checkpoint_id), None) == validation_id
