"""Leases on both databases: who gets what, who may write, and what is left when somebody dies."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from ckptguard.errors import ConflictError, ForbiddenError, InvalidRequestError, LeaseLostError
from ckptguard.model.policy import Depth
from ckptguard.model.report import report_to_json
from ckptguard.model.service import AttemptEnding, EventKind, Lifecycle, Scope, ValidationReason
from ckptguard.model.verdict import Provenance
from ckptguard.scan.result import FileScan, scan_to_json
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE, Actor
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.claim import claim
from ckptguard_api.leasing.expiry import end_expired
from ckptguard_api.leasing.heartbeat import Progress, hear
from ckptguard_api.leasing.lease import Lease, LeaseKey
from ckptguard_api.leasing.lift import lift_damage
from ckptguard_api.leasing.queue import cancel_open
from ckptguard_api.leasing.release import release
from ckptguard_api.leasing.results import known_files, store_files
from ckptguard_api.leasing.verdict import give_verdict
from ckptguard_api.repositories.resume_details import mark_waited_for
from ckptguard_api.repositories.runs import lock_run
from ckptguard_api.repositories.validations import lock_checkpoint
from ckptguard_api.tables import (
    attempts,
    checkpoints,
    events,
    evidence,
    file_results,
    findings,
    leases,
    runs,
    stores,
    validations,
)
from tests.leased_service import LeasedService, files_of, invalid, key_of, unknown, valid


@dataclass(kw_only=True)
class Scene:
    """One project with one store and two runs."""

    service: LeasedService
    project_id: int
    store_id: int
    run_ids: tuple[int, int]

    def queued(
        self, step: int, *, run: int = 0, reason: ValidationReason = ValidationReason.REGISTERED
    ) -> int:
        """Add a checkpoint and ask for its verdict."""
        checkpoint_id = self.service.add_checkpoint(self.run_ids[run], self.store_id, step=step)
        self.service.queue(checkpoint_id, reason=reason)
        return checkpoint_id


@pytest.fixture
def scene(database: Database) -> Scene:
    service = LeasedService(database=database)
    project_id = service.add_project()
    return Scene(
        service=service,
        project_id=project_id,
        store_id=service.add_store(project_id),
        run_ids=(service.add_run(project_id), service.add_run(project_id)),
    )


def _file(path: str, length: int = 1) -> dict[str, object]:
    return {"scan": scan_to_json(FileScan(path=path, length_bytes=length)), "device": "cpu", "versions": {}}


def _let_expire(scene: Scene, lease: Lease) -> None:
    with scene.service.database.write() as tx:
        past = tx.now - timedelta(seconds=1)
        tx.execute(update(leases).where(leases.c.attempt_id == lease.id).values(expires_at=past))


def _let_wait(scene: Scene) -> None:
    with scene.service.database.write() as tx:
        tx.execute(update(validations).values(not_before=None))


def _turns(scene: Scene) -> list[tuple[int, int]]:
    claimed = []
    while (lease := scene.service.claim()) is not None:
        claimed.append((int(lease.checkpoint.run == _names(scene)[1]), lease.checkpoint.step))
    return claimed


def _names(scene: Scene) -> list[str]:
    with scene.service.database.read() as tx:
        names = {row.id: row.name for row in tx.execute(select(runs.c.id, runs.c.name))}
    return [names[run_id] for run_id in scene.run_ids]


def test_the_newest_of_each_run_comes_first_then_older_ones_then_scrubs(scene: Scene) -> None:
    scene.queued(9, run=0, reason=ValidationReason.SCRUB)
    for step in (1, 2, 3):
        scene.queued(step, run=0)
    scene.queued(1, run=1)
    assert _turns(scene) == [(0, 3), (1, 1), (0, 2), (0, 1), (0, 9)]


def test_runs_take_turns_and_projects_too(scene: Scene) -> None:
    for step in (1, 2, 3):
        scene.queued(step, run=0)
        scene.queued(step, run=1)
    assert _turns(scene)[:4] == [(0, 3), (1, 3), (0, 2), (1, 2)]
    other = scene.service.add_project()
    store, run = scene.service.add_store(other), scene.service.add_run(other)
    for step in (1, 2):
        scene.queued(step + 10)
        scene.service.queue(scene.service.add_checkpoint(run, store, step=step))
    steps = [scene.service.leased("another").checkpoint.step for _ in range(2)]
    assert steps == [2, 12], "the project that never had a claim comes first, then the other"


def test_what_somebody_waits_for_comes_first(scene: Scene) -> None:
    waited = scene.queued(1)
    scene.queued(2)
    with scene.service.database.write() as tx:
        row = tx.execute(select(validations).where(validations.c.checkpoint_id == waited)).one()
        mark_waited_for(tx, [row.id], until=tx.now + timedelta(seconds=60))
    assert scene.service.leased().checkpoint.id == waited


def test_one_claim_in_eight_takes_what_has_waited_longest(scene: Scene) -> None:
    oldest = scene.queued(1, reason=ValidationReason.SCRUB)
    for step in range(2, 12):
        scene.queued(step)
    claimed = [scene.service.leased().checkpoint.id for _ in range(8)]
    assert oldest in claimed


def test_a_verdict_that_is_not_valid_makes_the_next_older_one_the_newest(scene: Scene) -> None:
    scene.queued(1)
    scene.queued(2)
    give_verdict(
        scene.service.services,
        key_of(scene.service.leased()),
        report=report_to_json(invalid()),
        actor=SERVICE,
    )
    tiers = {row.step: row.tier for row in scene.service.rows(validations) if row.state == "queued"}
    assert tiers == {1: 1}


def test_behind_a_valid_the_older_ones_do_not_hurry(scene: Scene) -> None:
    scene.queued(1)
    scene.queued(2)
    give_verdict(
        scene.service.services, key_of(scene.service.leased()), report=report_to_json(valid()), actor=SERVICE
    )
    tiers = {row.step: row.tier for row in scene.service.rows(validations) if row.state == "queued"}
    assert tiers == {1: 2}


def test_asking_again_gives_the_open_validation_as_deep_as_anybody_asked(scene: Scene) -> None:
    checkpoint = scene.service.add_checkpoint(scene.run_ids[0], scene.store_id, step=1)
    first, is_new = scene.service.queue(checkpoint, reason=ValidationReason.SCRUB, depth=Depth.STRUCTURE)
    again, is_new_again = scene.service.queue(
        checkpoint, reason=ValidationReason.REQUESTED, depth=Depth.CONTENT
    )
    last, _ = scene.service.queue(checkpoint, depth=Depth.STRUCTURE)
    assert (is_new, is_new_again) == (True, False)
    assert first.id == again.id == last.id
    assert (last.depth, last.reason, last.tier) == ("content", "requested", 1)


@pytest.mark.parametrize("lifecycle", [Lifecycle.ANNOUNCED, Lifecycle.INCOMPLETE, Lifecycle.DELETED])
def test_what_has_no_bytes_is_not_queued(scene: Scene, lifecycle: Lifecycle) -> None:
    checkpoint = scene.service.add_checkpoint(scene.run_ids[0], scene.store_id, step=1, lifecycle=lifecycle)
    with pytest.raises(ConflictError, match=lifecycle.value):
        scene.service.queue(checkpoint)
    assert scene.service.rows(validations) == []


def test_only_stores_that_the_worker_maps_and_its_project_are_given(scene: Scene) -> None:
    scene.queued(1)
    assert scene.service.claim(stores=("elsewhere",)) is None
    stranger = Actor(name="t", project_id=scene.service.add_project(), scopes=frozenset({Scope.WORK}))
    capabilities = Capabilities(stores=("demo",))
    assert claim(scene.service.services, worker="s", capabilities=capabilities, actor=stranger) is None
    with pytest.raises(ForbiddenError):
        claim(scene.service.services, worker="s", capabilities=capabilities, actor=SERVICE)


def test_a_worker_that_cannot_load_is_not_asked_to(scene: Scene) -> None:
    scene.queued(1)
    shallow = Capabilities(stores=("demo",), depths=("structure", "content"))
    assert claim(scene.service.services, worker="w", capabilities=shallow, actor=SERVICE) is None
    assert scene.service.claim() is not None


def _writes(scene: Scene, key: LeaseKey) -> list[Callable[[], object]]:
    services = scene.service.services
    return [
        lambda: hear(services, key, progress=Progress(bytes_done=9), is_draining=False, actor=SERVICE),
        lambda: store_files(services, key, files=[_file("a")], actor=SERVICE),
        lambda: give_verdict(services, key, report=report_to_json(valid()), actor=SERVICE),
        lambda: release(services, key, ending=AttemptEnding.FAILED, reason="", actor=SERVICE),
    ]


def _all_rows(scene: Scene) -> list[object]:
    tables = (validations, attempts, leases, file_results, events)
    return [sorted(map(repr, scene.service.rows(table))) for table in tables]


def test_late_stolen_and_unknown_leases_write_nothing(scene: Scene) -> None:
    scene.queued(1)
    lease = scene.service.leased()
    stolen = LeaseKey(id=lease.id, token="ckl_another")  # noqa: S106 - of no lease
    unknown_one = LeaseKey(id=lease.id + 1, token=lease.token)
    _let_expire(scene, lease)
    before = _all_rows(scene)
    for key in (stolen, unknown_one, key_of(lease)):
        for write in _writes(scene, key):
            with pytest.raises(LeaseLostError):
                write()
    assert _all_rows(scene) == before


def test_a_worker_of_another_project_cannot_use_a_lease_that_it_learned_of(scene: Scene) -> None:
    scene.queued(1)
    lease = scene.service.leased()
    stranger = Actor(name="t", project_id=scene.service.add_project(), scopes=frozenset({Scope.WORK}))
    with pytest.raises(LeaseLostError):
        hear(scene.service.services, key_of(lease), progress=Progress(), is_draining=False, actor=stranger)


def test_a_zombie_is_refused_after_its_validation_was_given_to_another(scene: Scene) -> None:
    scene.queued(1)
    zombie = scene.service.leased("zombie")
    _let_expire(scene, zombie)
    assert scene.service.claim("heir") is None, "not before the pause after a failure"
    _let_wait(scene)
    heir = scene.service.leased("heir")
    assert heir.id > zombie.id
    assert heir.validation.attempt == 2
    for write in _writes(scene, key_of(zombie)):
        with pytest.raises(LeaseLostError):
            write()
    given = give_verdict(scene.service.services, key_of(heir), report=report_to_json(valid()), actor=SERVICE)
    assert (given.verdict, given.is_in_force) == ("VALID", True)


def test_the_same_verdict_again_is_the_same_answer(scene: Scene) -> None:
    scene.queued(1)
    lease = scene.service.leased()
    first = give_verdict(scene.service.services, key_of(lease), report=report_to_json(valid()), actor=SERVICE)
    before = _all_rows(scene)
    again = give_verdict(
        scene.service.services, key_of(lease), report=report_to_json(invalid()), actor=SERVICE
    )
    assert again == first
    assert _all_rows(scene) == before


def test_a_report_that_is_none_says_all_that_is_wrong_and_the_lease_goes_on(scene: Scene) -> None:
    scene.queued(1)
    lease = scene.service.leased()
    with pytest.raises(InvalidRequestError) as caught:
        give_verdict(scene.service.services, key_of(lease), report={"schema": 1}, actor=SERVICE)
    assert len(caught.value.problems) > 3
    give_verdict(scene.service.services, key_of(lease), report=report_to_json(valid()), actor=SERVICE)


def test_what_a_report_says_of_its_verdict_is_not_believed(scene: Scene) -> None:
    checkpoint = scene.queued(1)
    forged = report_to_json(invalid()) | {"verdict": "VALID", "basis": None, "assurance": "resumable"}
    given = give_verdict(scene.service.services, key_of(scene.service.leased()), report=forged, actor=SERVICE)
    assert given.verdict == "INVALID"
    assert scene.service.checkpoint(checkpoint).verdict == "INVALID"


def test_a_verdict_leaves_its_evidence_and_no_lease_and_no_file_results(scene: Scene) -> None:
    scene.queued(1)
    lease = scene.service.leased()
    store_files(scene.service.services, key_of(lease), files=[_file("a")], actor=SERVICE)
    give_verdict(scene.service.services, key_of(lease), report=report_to_json(invalid()), actor=SERVICE)
    assert scene.service.rows(leases) == scene.service.rows(file_results) == []
    assert [row.num_files for row in scene.service.rows(evidence)] == [1]
    (finding,) = scene.service.rows(findings)
    assert (finding.code, finding.file, finding.value["basis"]) == ("crc_mismatch", "__0_0.distcp", "damage")
    (attempt,) = scene.service.rows(attempts)
    assert (attempt.ending, attempt.bytes_read) == ("finished", 100)


def test_names_that_no_database_holds_are_written_out(scene: Scene) -> None:
    scene.queued(1)
    lease = scene.service.leased()
    report = report_to_json(invalid())
    report["findings"][0] |= {"file": "a\0b\ud800", "message": "in a\0b"}
    report["files"][0]["path"] = "a\0b"
    give_verdict(scene.service.services, key_of(lease), report=report, actor=SERVICE)
    (finding,) = scene.service.rows(findings)
    assert (finding.file, finding.message) == ("a\\x00b\\ud800", "in a\\x00b")


@pytest.mark.parametrize("told", [Provenance.PROVEN, Provenance.UNCHANGED])
def test_only_a_manifest_from_the_writer_proves_provenance(scene: Scene, told: Provenance) -> None:
    checkpoint = scene.queued(1)
    scene.service.add_part(checkpoint, is_from_writer=told is Provenance.PROVEN)
    report = report_to_json(valid(provenance=Provenance.PROVEN))
    give_verdict(scene.service.services, key_of(scene.service.leased()), report=report, actor=SERVICE)
    assert scene.service.checkpoint(checkpoint).provenance == told.value


def test_file_results_are_stored_once_and_the_next_attempt_gets_them(scene: Scene) -> None:
    scene.queued(1)
    lease = scene.service.leased()
    services = scene.service.services
    first = store_files(services, key_of(lease), files=[_file("a"), _file("b")], actor=SERVICE)
    again = store_files(services, key_of(lease), files=[_file("a"), _file("b", 2)], actor=SERVICE)
    assert ((first.stored, first.new), (again.stored, again.new)) == ((2, 2), (2, 0))
    release(services, key_of(lease), ending=AttemptEnding.DRAINED, reason="leaving", actor=SERVICE)
    heir = scene.service.leased("heir")
    page = known_files(services, key_of(heir), actor=SERVICE)
    scans = [json.loads(text)["scan"] for text in page.files]
    lengths = {scan["path"]: scan["length_bytes"] for scan in scans}
    assert (heir.known_files, page.next, lengths) == (2, None, {"a": 1, "b": 2})


def test_no_file_result_is_stored_where_one_is_none(scene: Scene) -> None:
    scene.queued(1)
    lease = scene.service.leased()
    files = [_file("a"), {"scan": {}}, 3]
    with pytest.raises(InvalidRequestError) as caught:
        store_files(scene.service.services, key_of(lease), files=files, actor=SERVICE)
    assert len(caught.value.problems) == 2
    assert scene.service.rows(file_results) == []


def test_draining_costs_nothing_and_three_failures_end_in_unknown(scene: Scene) -> None:
    checkpoint = scene.queued(1)
    services = scene.service.services
    for ending in (AttemptEnding.DRAINED, *[AttemptEnding.FAILED] * 3):
        key = key_of(scene.service.leased())
        release(services, key, ending=ending, reason="lost its store", actor=SERVICE)
        release(services, key, ending=ending, reason="told twice", actor=SERVICE)
        _let_wait(scene)
    assert scene.service.claim() is None
    row = scene.service.checkpoint(checkpoint)
    assert (row.verdict, row.validation_state) == ("UNKNOWN", None)
    (finding,) = scene.service.rows(findings)
    assert finding.code == "worker_lost"
    assert "lost its store" in finding.message
    assert [row.is_counted for row in scene.service.rows(attempts)] == [False, True, True, True]


def test_giving_up_never_replaces_a_valid(scene: Scene) -> None:
    checkpoint = scene.queued(1)
    give_verdict(
        scene.service.services, key_of(scene.service.leased()), report=report_to_json(valid()), actor=SERVICE
    )
    scene.service.queue(checkpoint, reason=ValidationReason.SCRUB)
    for _ in range(3):
        _let_expire(scene, scene.service.leased())
        with scene.service.database.write() as tx:
            assert end_expired(tx, scene.service.settings) == 1
        _let_wait(scene)
    assert scene.service.checkpoint(checkpoint).verdict == "VALID"


def test_a_cancelled_attempt_learns_it_at_its_next_heartbeat_and_cannot_judge(scene: Scene) -> None:
    checkpoint = scene.queued(1)
    lease = scene.service.leased()
    with scene.service.database.write() as tx:
        lock_run(tx, scene.run_ids[0])
        cancel_open(tx, checkpoint, why="rewritten", actor=SERVICE)
    heard = hear(scene.service.services, key_of(lease), progress=Progress(), is_draining=False, actor=SERVICE)
    assert not heard.is_wanted
    with pytest.raises(LeaseLostError):
        give_verdict(scene.service.services, key_of(lease), report=report_to_json(valid()), actor=SERVICE)
    release(
        scene.service.services, key_of(lease), ending=AttemptEnding.FAILED, reason="not wanted", actor=SERVICE
    )
    assert scene.service.checkpoint(checkpoint).verdict is None


def test_only_a_real_change_of_the_verdict_is_an_event(scene: Scene) -> None:
    checkpoint = scene.service.add_checkpoint(scene.run_ids[0], scene.store_id, step=1)
    for report in (valid(), valid(), unknown(), invalid(), invalid()):
        scene.service.judge(checkpoint, report)
    kinds = [row.kind for row in scene.service.rows(events)]
    assert kinds.count(EventKind.CHECKPOINT_VERDICT_CHANGED.value) == 2
    assert kinds.count(EventKind.VALIDATION_FINISHED.value) == 5


def test_damage_is_lifted_only_by_a_second_workers_valid_and_an_operator(scene: Scene) -> None:
    checkpoint = scene.service.add_checkpoint(scene.run_ids[0], scene.store_id, step=1)

    def lift() -> None:
        with scene.service.database.write() as tx:
            lock_run(tx, scene.run_ids[0])
            lift_damage(tx, lock_checkpoint(tx, checkpoint), actor=SERVICE, reason="a bad memory module")

    scene.service.judge(checkpoint, invalid(), worker="one")
    scene.service.judge(checkpoint, valid(), worker="one")
    with pytest.raises(ConflictError):
        lift()
    scene.service.judge(checkpoint, valid(files=files_of("others", version="v2")), worker="two")
    with pytest.raises(ConflictError, match="another"):
        lift()
    scene.service.judge(checkpoint, valid(), worker="two")
    assert scene.service.checkpoint(checkpoint).verdict == "INVALID", "these bytes are damaged, as before"
    lift()
    assert scene.service.checkpoint(checkpoint).verdict == "VALID"
    scene.service.judge(checkpoint, valid(), worker="three")
    assert scene.service.checkpoint(checkpoint).verdict == "VALID"


def test_a_verdict_measures_its_store(scene: Scene) -> None:
    checkpoint = scene.service.add_checkpoint(scene.run_ids[0], scene.store_id, step=1)
    scene.service.judge(checkpoint, valid(bytes_read=10**9, seconds_reading=2.0))
    scene.queued(2)
    with scene.service.database.write() as tx:
        tx.execute(update(validations).values(waited_until=None))
    lease = scene.service.leased()
    assert lease.deadline_at > lease.expires_at


def test_many_workers_never_get_the_same_one(scene: Scene) -> None:
    checkpoints = [scene.queued(step, run=step % 2) for step in range(40)]
    start = threading.Barrier(4)

    def work(name: str) -> list[Lease]:
        start.wait()
        leased = []
        while (lease := scene.service.claim(name)) is not None:
            leased.append(lease)
        return leased

    with ThreadPoolExecutor(4) as pool:
        leased = [lease for got in pool.map(work, ["a", "b", "c", "d"]) for lease in got]
    assert sorted(lease.checkpoint.id for lease in leased) == sorted(checkpoints)
    with scene.service.database.read() as tx:
        assert tx.execute(select(func.count()).select_from(leases)).scalar_one() == 40


def test_a_worker_that_finds_out_the_size_gets_the_deadline_of_that_size(scene: Scene) -> None:
    checkpoint_id = scene.queued(1)
    with scene.service.database.write() as tx:
        tx.execute(update(checkpoints).where(checkpoints.c.id == checkpoint_id).values(bytes_total=None))
        tx.execute(update(stores).values(bytes_per_s=1e6))
    lease = scene.service.leased()
    started_at = lease.deadline_at - timedelta(days=1)
    for told, seconds in ((None, 86_400), (0, 86_400), (10**9, 4_000), (2 * 10**9, 8_000), (None, 8_000)):
        _beat(scene, lease, bytes_total=told)
        (row,) = scene.service.rows(leases)
        assert row.deadline_at == started_at + timedelta(seconds=seconds), told


def test_a_registered_size_is_believed_and_not_what_the_worker_says(scene: Scene) -> None:
    scene.queued(1)
    lease = scene.service.leased()
    _beat(scene, lease, bytes_total=1 << 60)
    (row,) = scene.service.rows(leases)
    assert row.deadline_at == lease.deadline_at


def test_a_worker_of_every_store_is_given_those_of_all_projects(scene: Scene) -> None:
    other = scene.service.add_project()
    run_id = scene.service.add_run(other)
    scene.queued(1)
    scene.service.queue(
        scene.service.add_checkpoint(run_id, scene.service.add_store(other, "added-later"), step=1)
    )
    names = {
        lease.store.name for lease in (scene.service.claim("w", stores=("*",)) for _ in range(2)) if lease
    }
    assert names == {"demo", "added-later"}


def _beat(scene: Scene, lease: Lease, *, bytes_total: int | None) -> None:
    progress = Progress(bytes_total=bytes_total)
    hear(scene.service.services, key_of(lease), progress=progress, is_draining=False, actor=SERVICE)
