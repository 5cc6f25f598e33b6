"""A service with projects, stores, runs and checkpoints in its tables, for tests of leases and verdicts."""

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Row, insert, select

from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.policy import Depth
from ckptguard.model.report import FileEvidence, Report, report_to_json
from ckptguard.model.service import Lifecycle, ValidationReason
from ckptguard.model.verdict import CheckResult, CheckStatus, Provenance
from ckptguard_api.database import Database, Transaction
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.claim import claim
from ckptguard_api.leasing.lease import Lease, LeaseKey
from ckptguard_api.leasing.queue import queue_validation
from ckptguard_api.leasing.recording import Given
from ckptguard_api.leasing.verdict import give_verdict
from ckptguard_api.repositories.runs import lock_run
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.tables import checkpoints, parts, projects, runs, stores

LONG_AGO: Final = datetime(2025, 1, 1, tzinfo=UTC)
_NAMES = itertools.count()

_LADDER: Final = {
    Depth.STRUCTURE: (),
    Depth.CONTENT: (CheckName.CONTENT,),
    Depth.LOAD: (CheckName.CONTENT, CheckName.LOAD),
}


@dataclass(kw_only=True)
class LeasedService:
    """One service over a database, and short ways to fill it."""

    database: Database
    settings: Settings = field(default_factory=Settings)

    @property
    def services(self) -> Services:
        """What use cases take."""
        return services_over(self.database, self.settings)

    def add_project(self) -> int:
        """Add one and return its id."""
        with self.database.write() as tx:
            values = {"name": f"p{next(_NAMES)}", "allowed_globals": [], "created_at": tx.now}
            return _insert(tx, projects, values)

    def add_store(self, project_id: int, name: str = "demo") -> int:
        """Add one and return its id."""
        with self.database.write() as tx:
            values = {
                "project_id": project_id,
                "name": name,
                "url": "file:///data",
                "times": "original",
                "settle_s": 30.0,
                "mtime_tolerance_s": 5.0,
                "created_at": tx.now,
            }
            return _insert(tx, stores, values)

    def add_run(self, project_id: int) -> int:
        """Add one and return its id."""
        with self.database.write() as tx:
            return _insert(tx, runs, run_values(project_id, tx.now))

    def add_checkpoint(
        self, run_id: int, store_id: int, *, step: int, lifecycle: Lifecycle = Lifecycle.REGISTERED
    ) -> int:
        """Add one and return its id."""
        with self.database.write() as tx:
            run = lock_run(tx, run_id)
            return _insert(tx, checkpoints, checkpoint_values(run, store_id, step, lifecycle))

    def add_part(self, checkpoint_id: int, *, is_from_writer: bool) -> None:
        """Add its only part."""
        with self.database.write() as tx:
            values = {
                "checkpoint_id": checkpoint_id,
                "name": "",
                "identity": "sha256:" + "0" * 64,
                "registered_by": "test",
                "is_from_writer": is_from_writer,
                "registered_at": tx.now,
            }
            tx.execute(insert(parts).values(values))

    def queue(
        self,
        checkpoint_id: int,
        *,
        reason: ValidationReason = ValidationReason.REGISTERED,
        depth: Depth = Depth.LOAD,
    ) -> tuple[Row[Any], bool]:
        """Ask for a verdict."""
        with self.database.write() as tx:
            row = checkpoint_of(tx, checkpoint_id)
            lock_run(tx, row.run_id)
            return queue_validation(tx, row, reason=reason, depth=depth, actor=SERVICE)

    def claim(self, worker: str = "w", *, stores: tuple[str, ...] = ("demo",)) -> Lease | None:
        """Let a worker ask for work."""
        return claim(self.services, worker=worker, capabilities=Capabilities(stores=stores), actor=SERVICE)

    def leased(self, worker: str = "w") -> Lease:
        """Let a worker take what there must be."""
        lease = self.claim(worker)
        assert lease is not None
        return lease

    def judge(
        self, checkpoint_id: int, report: Report, *, worker: str = "w", depth: Depth = Depth.LOAD
    ) -> Given:
        """Let a worker give this report on a checkpoint."""
        self.queue(checkpoint_id, reason=ValidationReason.REQUESTED, depth=depth)
        lease = self.leased(worker)
        assert lease.checkpoint.id == checkpoint_id
        return give_verdict(self.services, key_of(lease), report=report_to_json(report), actor=SERVICE)

    def checkpoint(self, checkpoint_id: int) -> Row[Any]:
        """Return the row as it is now."""
        with self.database.read() as tx:
            return checkpoint_of(tx, checkpoint_id)

    def rows(self, table: Any) -> list[Row[Any]]:  # noqa: ANN401 - a table
        """Return all rows of a table."""
        with self.database.read() as tx:
            return list(tx.execute(select(table)).all())


def services_over(database: Database, settings: Settings) -> Services:
    return Services(database=database, settings=settings)


def key_of(lease: Lease) -> LeaseKey:
    return LeaseKey(id=lease.id, token=lease.token)


def checkpoint_of(tx: Transaction, checkpoint_id: int) -> Row[Any]:
    return tx.execute(select(checkpoints).where(checkpoints.c.id == checkpoint_id)).one()


def files_of(content: str, *, version: str = "v1", has_checksums: bool = True) -> tuple[FileEvidence, ...]:
    """Return the evidence of one file whose bytes are named by `content`."""
    checksum = Checksum(algorithm=Algorithm.XXH3_128, hex_digits=sha256(content.encode()).hexdigest()[:32])
    return (
        FileEvidence(
            path="__0_0.distcp",
            length_bytes=100,
            checksum=checksum if has_checksums else None,
            version=version,
        ),
    )


def valid(depth: Depth = Depth.LOAD, **changes: Any) -> Report:  # noqa: ANN401 - fields of a report
    """Return a report that gives VALID at the assurance of this depth."""
    names = (CheckName.EXISTENCE, CheckName.BYTE_COUNT, CheckName.COVERAGE, *_LADDER[depth])
    return _report([CheckResult(name=name, status=CheckStatus.PASS) for name in names], **changes)


def invalid(basis: Basis = Basis.DAMAGE, **changes: Any) -> Report:  # noqa: ANN401 - fields of a report
    """Return a report that gives INVALID."""
    finding = Finding(
        code=FindingCode.CRC_MISMATCH,
        check=CheckName.CONTENT,
        severity=Severity.ERROR,
        basis=basis,
        message="a record does not match its CRC",
        file="__0_0.distcp",
    )
    check = CheckResult(name=CheckName.CONTENT, status=CheckStatus.FAIL, findings=(finding,))
    return _report([check], **changes)


def unknown(code: FindingCode = FindingCode.STORE_UNAVAILABLE, **changes: Any) -> Report:  # noqa: ANN401 - fields of a report
    """Return a report that gives UNKNOWN for this doubt."""
    finding = Finding(
        code=code,
        check=CheckName.EXISTENCE,
        severity=Severity.UNKNOWN,
        message="not found out",
        is_retryable=True,
    )
    check = CheckResult(name=CheckName.EXISTENCE, status=CheckStatus.UNKNOWN, findings=(finding,))
    return _report([check], **changes)


def _report(checks: list[CheckResult], **changes: Any) -> Report:  # noqa: ANN401 - fields of a report
    values: dict[str, Any] = {
        "target": "demo",
        "path": "file:///data/demo",
        "format": "dcp",
        "provenance": Provenance.UNPROVEN,
        "device": "cpu",
        "started_at": LONG_AGO,
        "seconds": 1.0,
        "seconds_reading": 0.5,
        "num_shards": 1,
        "num_items": 1,
        "num_tensors": 1,
        "bytes_total": 100,
        "bytes_read": 100,
        "files": files_of("a"),
        "versions": {"checks": "1", "ckptguard": "0.1.0"},
    }
    return Report(checks=tuple(checks), **(values | changes))


def _insert(tx: Transaction, table: Any, values: dict[str, Any]) -> int:  # noqa: ANN401 - a table
    row_id: int = tx.execute(insert(table).values(values).returning(table.c.id)).scalar_one()
    return row_id


def run_values(project_id: int, now: datetime) -> dict[str, Any]:
    """Return a row of `runs`."""
    return {
        "project_id": project_id,
        "name": f"r{next(_NAMES)}",
        "revision": 0,
        "min_assurance": "loaded",
        "numerics": "report",
        "required_fqns": [],
        "min_steps": 20,
        "branch": 0,
        "created_at": now,
    }


def checkpoint_values(
    run: Row[Any], store_id: int, step: int, lifecycle: Lifecycle = Lifecycle.REGISTERED
) -> dict[str, Any]:
    """Return a row of `checkpoints`."""
    name = f"step-{step}-{next(_NAMES)}"
    return {
        "project_id": run.project_id,
        "run_id": run.id,
        "branch": run.branch,
        "step": step,
        "save_id": name,
        "store_id": store_id,
        "path": name,
        "location": f"file:///data/{name}",
        "created_at": LONG_AGO,
        "registered_at": LONG_AGO,
        "bytes_total": 100,
        "expected_parts": [""],
        "lifecycle": lifecycle.value,
        "is_pinned": False,
        "is_quarantined": False,
        "is_suspect": False,
    }
