"""What is told of single files while a validation runs."""

from typing import Any

import pytest
from sqlalchemy import update

from ckptguard.errors import NotFoundError
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.scan.result import FileResult, FileScan, file_result_to_json
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.file_map import FileState
from ckptguard_api.domain.registration import Described
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.claim import claim
from ckptguard_api.leasing.heartbeat import Progress, hear
from ckptguard_api.leasing.lease import Lease
from ckptguard_api.leasing.results import store_files
from ckptguard_api.tables import checkpoints
from ckptguard_api.use_cases.live import latest_news
from ckptguard_api.use_cases.notes import note_checkpoint
from ckptguard_api.use_cases.running import (
    MAX_FILES_MAPPED,
    RunningFiles,
    files_of_running,
    going_of,
    watch_validation,
)
from tests.leased_service import key_of
from tests.registrations import SAVED_AT, Trainer, saved

SHARD = "__0_0.distcp"


def leased(trainer: Trainer) -> Lease:
    can = Capabilities(stores=("demo",))
    lease = claim(trainer.services, worker="w", capabilities=can, actor=SERVICE)
    assert lease is not None
    return lease


def tell(trainer: Trainer, lease: Lease, path: str, *severities: Severity) -> None:
    found = tuple(
        Finding(
            code=FindingCode.CRC_MISMATCH,
            check=CheckName.CONTENT,
            severity=severity,
            basis=Basis.DAMAGE if severity is Severity.ERROR else None,
            file=path,
            message="m",
        )
        for severity in severities
    )
    result = FileResult(scan=FileScan(path=path, length_bytes=1, findings=found))
    store_files(trainer.services, key_of(lease), files=[file_result_to_json(result)], actor=SERVICE)


def seen(trainer: Trainer, validation_id: int) -> RunningFiles:
    return files_of_running(trainer.services, project_id=trainer.project_id, validation_id=validation_id)


def states(trainer: Trainer, lease: Lease) -> dict[str, FileState]:
    return {file.path: file.state for file in seen(trainer, lease.validation.id).files}


def test_files_wait_are_read_and_are_judged_so_far(database: Database) -> None:
    trainer = Trainer(database=database)
    trainer.register(1, content=b"x" * 7)
    lease = leased(trainer)
    assert states(trainer, lease) == {".metadata": FileState.LISTED, SHARD: FileState.LISTED}
    tell(trainer, lease, ".metadata")
    assert states(trainer, lease) == {".metadata": FileState.READ, SHARD: FileState.LISTED}
    tell(trainer, lease, SHARD, Severity.UNKNOWN, Severity.WARNING)
    assert states(trainer, lease)[SHARD] is FileState.DOUBTED
    tell(trainer, lease, SHARD, Severity.UNKNOWN, Severity.ERROR)
    assert states(trainer, lease)[SHARD] is FileState.FAULTY, "the later look counts"
    lengths = {file.path: file.length_bytes for file in seen(trainer, lease.validation.id).files}
    assert lengths == {".metadata": 1, SHARD: 7}


def test_files_of_parts_are_named_with_their_folder(database: Database) -> None:
    trainer = Trainer(database=database)
    for part in ("model", "optim"):
        manifest = saved("r", 1, part=part, parts=("model", "optim"))
        trainer.register(1, manifest=manifest)
    lease = leased(trainer)
    tell(trainer, lease, f"optim/{SHARD}")
    assert states(trainer, lease) == {
        "model/.metadata": FileState.LISTED,
        f"model/{SHARD}": FileState.LISTED,
        "optim/.metadata": FileState.LISTED,
        f"optim/{SHARD}": FileState.READ,
    }


def test_without_a_manifest_only_what_was_read_is_known(database: Database) -> None:
    trainer = Trainer(database=database)
    trainer.register(1, described=Described(format="dcp", num_files=2, created_at=SAVED_AT))
    lease = leased(trainer)
    assert states(trainer, lease) == {}
    tell(trainer, lease, "half\ud800name")
    assert states(trainer, lease) == {"half\\ud800name": FileState.READ}


def test_of_too_many_files_none_is_read(database: Database) -> None:
    trainer = Trainer(database=database)
    done = trainer.register(1)
    lease = leased(trainer)
    with database.write() as tx:
        tx.execute(update(checkpoints).values(num_files=MAX_FILES_MAPPED + 1))
    assert done.checkpoint.id == seen(trainer, lease.validation.id).checkpoint_id
    assert states(trainer, lease) == {}


def test_a_watcher_sees_the_live_attempt(database: Database) -> None:
    trainer = Trainer(database=database)
    trainer.register(1)
    lease = leased(trainer)
    progress = Progress(phase="loading", bytes_done=1, bytes_total=4, file=SHARD)
    hear(trainer.services, key_of(lease), progress=progress, is_draining=False, actor=SERVICE)
    about: dict[str, Any] = {"project_id": trainer.project_id, "validation_id": lease.validation.id}
    watched = watch_validation(trainer.services, **about)
    assert watched.going is not None
    assert (watched.going.progress.bytes_done, watched.going.progress.bytes_total) == (1, 4)
    assert (watched.going.lease.worker, watched.going.lease.number) == ("w", 1)
    assert [file.path for file in watched.going.files] == [".metadata", SHARD]
    assert [attempt.ended_at for attempt in watched.attempts] == [None]


def test_a_validation_of_another_project_is_none(database: Database) -> None:
    trainer = Trainer(database=database)
    trainer.register(1)
    lease = leased(trainer)
    about = {"project_id": trainer.project_id + 1, "validation_id": lease.validation.id}
    with pytest.raises(NotFoundError):
        watch_validation(trainer.services, **about)
    with pytest.raises(NotFoundError):
        files_of_running(trainer.services, **about)


def test_how_far_the_running_validation_of_a_checkpoint_is_is_known(database: Database) -> None:
    trainer = Trainer(database=database)
    about = {"project_id": trainer.project_id, "checkpoint_id": trainer.register(1).checkpoint.id}
    assert going_of(trainer.services, **about) is None, "it waits"
    lease = leased(trainer)
    progress = Progress(bytes_done=3, bytes_total=8)
    hear(trainer.services, key_of(lease), progress=progress, is_draining=False, actor=SERVICE)
    going = going_of(trainer.services, **about)
    assert going is not None
    assert (going.lease.validation_id, going.lease.worker) == (lease.validation.id, "w")
    assert (going.progress.bytes_done, going.progress.bytes_total) == (3, 8)
    with pytest.raises(NotFoundError):
        going_of(trainer.services, project_id=trainer.project_id, checkpoint_id=10**6)


def test_news_of_a_run_are_of_that_run(database: Database) -> None:
    trainer = Trainer(database=database)
    trainer.register(1)
    other = trainer.register(1, run="other").checkpoint.id

    def told(run: str | None = None) -> Any:  # noqa: ANN401 - `LatestNews`
        return latest_news(trainer.services, project_id=trainer.project_id, run=run)

    before, whole = told("r"), told()
    assert (before.progress_at, whole.progress_at) == (None, None)
    note_checkpoint(
        trainer.services, project_id=trainer.project_id, checkpoint_id=other, text="n", actor=SERVICE
    )
    assert told("r").event_id == before.event_id
    assert told().event_id > whole.event_id
    assert told("other").event_id == told().event_id == told("r").position
    lease = leased(trainer)
    progress = Progress(bytes_done=3, bytes_total=8)
    hear(trainer.services, key_of(lease), progress=progress, is_draining=False, actor=SERVICE)
    working = {run: told(run).progress_at is not None for run in ("r", "other")}
    assert sorted(working.values()) == [False, True]
    with pytest.raises(NotFoundError):
        told("none")
