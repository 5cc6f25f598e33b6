"""The database that the page tests look at is one that the service could have made."""

import json
from pathlib import Path

import pytest
from sqlalchemy import func, select

from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.model.service import Lifecycle, ResumeState
from ckptguard.model.verdict import Verdict
from ckptguard_api.domain.evidence_files import evidence_files
from ckptguard_api.domain.resume import Question
from ckptguard_api.repositories.history import evidence_of
from ckptguard_api.tables import checkpoints, leases, runs
from ckptguard_api.use_cases.history import show_manifest
from ckptguard_api.use_cases.resume_target import answer_resume_target
from tests.databases import fresh_database
from tests.pages.hostile_names import FILES, RUN_NAMES
from tests.pages.seeded import HEAVY, NUM_HEAVY, NUM_RUNS, SeededApp, seed
from tests.pages.seeded_large import DAMAGED, MISSING, NUM_FILES

PROJECT_ID = 1


def test_it_has_what_the_budget_is_stated_for(seeded: SeededApp) -> None:
    with seeded.served.services.database.read() as tx:
        assert tx.execute(select(func.count()).select_from(runs)).scalar_one() == NUM_RUNS
        heavy = select(func.count()).select_from(checkpoints.join(runs, runs.c.id == checkpoints.c.run_id))
        assert tx.execute(heavy.where(runs.c.name == HEAVY)).scalar_one() == NUM_HEAVY
        assert set(tx.execute(select(runs.c.name)).scalars()) >= set(RUN_NAMES)


def test_every_lifecycle_and_every_verdict_is_in_it(seeded: SeededApp) -> None:
    with seeded.served.services.database.read() as tx:
        assert set(tx.execute(select(checkpoints.c.lifecycle)).scalars()) == {one.value for one in Lifecycle}
        verdicts = set(tx.execute(select(checkpoints.c.verdict)).scalars())
        assert verdicts == {None, *(one.value for one in Verdict)}


def test_every_answer_that_a_launcher_may_get_is_in_it(seeded: SeededApp) -> None:
    database = seeded.served.services.database
    states = {
        answer_resume_target(database, project_id=PROJECT_ID, run=name, question=Question()).choice.state
        for name in seeded.where.run_names[:40]
    }
    assert states == set(ResumeState) - {ResumeState.UNKNOWN_RUN}


def test_the_large_checkpoint_has_its_manifest_and_its_files(seeded: SeededApp) -> None:
    services, where = seeded.served.services, seeded.where
    text = show_manifest(services, project_id=PROJECT_ID, checkpoint_id=where.damaged_large_id, part=None)
    manifest = json.loads(text)
    some = manifest | {name: manifest[name][:100] + manifest[name][-100:] for name in ("files", "items")}
    some["files"] += manifest["files"][-101:-100]  # the last is the one without a shard
    assert len(parse_manifest(json.dumps(some).encode()).items) == 200
    with services.database.read() as tx:
        packed = evidence_of(tx, where.damaged_validation_id)
    assert packed is not None
    seen = {file["path"]: file["checksum"] for file in evidence_files(packed.body)}
    assert len(manifest["files"]) == NUM_FILES == len(seen) + len(MISSING)
    assert set(FILES) <= seen.keys()
    differing = [
        one for one in manifest["files"] if seen.get(one["path"], one["checksum"]) != one["checksum"]
    ]
    assert len(differing) == len(DAMAGED)


def test_a_worker_holds_one_lease(seeded: SeededApp) -> None:
    with seeded.served.services.database.read() as tx:
        holders = tx.execute(select(leases.c.worker_id)).scalars().all()
    assert len(set(holders)) == len(holders) == 51


@pytest.mark.slow
def test_it_is_the_same_on_postgresql(seeded: SeededApp, postgres: str, tmp_path: Path) -> None:
    with fresh_database("postgresql", folder=tmp_path, postgres=postgres) as database:
        where = seed(database)
        with database.read() as tx:
            count = tx.execute(select(func.count()).select_from(checkpoints)).scalar_one()
        with seeded.served.services.database.read() as tx:
            assert tx.execute(select(func.count()).select_from(checkpoints)).scalar_one() == count
    assert where == seeded.where
