"""Rows of a past, collected in Python and written table by table: thousands in a second.

Ids are counted here, so that nothing is asked of the database before all is written.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final

from sqlalchemy import Table, insert, text

from ckptguard.model.finding import CheckName, FindingCode, Severity
from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.tables import METADATA, attempts, events, findings, leases, validations

GB: Final = 10**9
_BATCH: Final = 5000


@dataclass(kw_only=True)
class Past:
    """Everything that happened, as rows.

    Args:
        now: Ages count from here.
        rows: To be written, by table.
    """

    now: datetime
    rows: dict[Table, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    _ids: dict[Table, Iterator[int]] = field(default_factory=lambda: defaultdict(lambda: count(1)))

    def add(self, table: Table, **values: Any) -> int:  # noqa: ANN401 - columns
        """Add one row of a table that counts its rows, and return its id."""
        row_id = next(self._ids[table])
        self.rows[table].append({"id": row_id, **values})
        return row_id

    def add_plain(self, table: Table, **values: Any) -> None:  # noqa: ANN401 - columns
        """Add one row of a table whose key is given."""
        self.rows[table].append(values)

    def at(self, age_s: float) -> datetime:
        """Return the moment of an age; a negative one is still to come."""
        return self.now - timedelta(seconds=age_s)

    def event(self, kind: EventKind, age_s: float, *, actor: str = "service", **values: Any) -> None:  # noqa: ANN401 - columns
        """Add what the audit is told; events are put into their order when they are written."""
        subject = {"project_id": 1, "run_id": None, "checkpoint_id": None, "validation_id": None}
        row: dict[str, Any] = {"at": self.at(age_s), "kind": kind.value, "actor": actor, "data": {}}
        self.rows[events].append(subject | row | values)

    def validation(self, checkpoint: dict[str, Any], *, age_s: float, **values: Any) -> int:  # noqa: ANN401 - columns
        """Add a request for a verdict on the checkpoint of this row, and return its id."""
        same = {name: checkpoint[name] for name in ("project_id", "run_id", "store_id", "branch", "step")}
        request: dict[str, Any] = {
            "checkpoint_id": checkpoint["id"],
            "reason": "registered",
            "depth": "load",
            "requested_by": "trainer",
            "requested_at": self.at(age_s),
            "tier": 1,
            "attempts": 1,
            "counted_attempts": 0,
            "waited_until": None,
            "not_before": None,
            "finished_at": None,
        }
        return self.add(validations, **(same | request | values))

    def attempt(self, validation_id: int, worker_id: int, *, age_s: float, **values: Any) -> int:  # noqa: ANN401 - columns
        """Add one try at a validation, and return its id."""
        row: dict[str, Any] = {
            "validation_id": validation_id,
            "number": 1,
            "worker_id": worker_id,
            "token_hash": "0" * 64,
            "started_at": self.at(age_s),
            "ended_at": None,
            "ending": None,
            "reason": None,
            "is_counted": False,
            "new_files": 0,
            "bytes_read": 0,
        }
        return self.add(attempts, **(row | values))

    def lease(self, attempt_id: int, validation_id: int, worker_id: int, progress: dict[str, Any]) -> None:
        """Let a worker hold an attempt for hours."""
        until = self.at(-12 * 3600)
        self.add_plain(
            leases,
            attempt_id=attempt_id,
            validation_id=validation_id,
            worker_id=worker_id,
            token_hash=f"{attempt_id:064x}",
            expires_at=until,
            progress_at=self.now,
            deadline_at=until,
            progress=progress,
        )

    def finding(self, validation_id: int, number: int, **values: Any) -> None:  # noqa: ANN401 - of a finding
        """Add a finding; what `values` leaves out is as of a record with wrong bytes."""
        value = {
            "code": FindingCode.CRC_MISMATCH.value,
            "check": CheckName.CONTENT.value,
            "severity": Severity.ERROR.value,
            "basis": "damage" if values.get("severity", "error") == "error" else None,
            "file": "__0_0.distcp",
            "fqn": "model.layers.0.attention.wq.weight",
            "slice": {"offsets": [0, 0], "sizes": [1024, 4096]},
            "record": "data/0",
            "offset": 4096,
            "length_bytes": 8_388_608,
            "expected": "crc-32:1b2c3d4e",
            "observed": "crc-32:9f3c02aa",
            "is_retryable": False,
            "message": "record data/0 has another CRC-32 than was written",
        }
        is_about_checkpoint = values.pop("is_about_checkpoint", True)
        value |= values
        columns = {name: value[name] for name in ("code", "check", "severity", "file", "fqn", "message")}
        keys = {"validation_id": validation_id, "number": number, "is_about_checkpoint": is_about_checkpoint}
        self.add(findings, value=value, **keys, **columns)

    def write(self, tx: Transaction) -> None:
        """Write every row, tables in the order of their references, events in the order of their time."""
        self.rows[events].sort(key=lambda row: row["at"])
        for number, row in enumerate(self.rows[events], 1):
            row["id"] = number
        if tx.is_postgresql:  # what refers to what is known here: no look at it a row
            tx.execute(text("SET LOCAL session_replication_role = replica"))
        for table in METADATA.sorted_tables:
            rows = self.rows.get(table, [])
            for start in range(0, len(rows), _BATCH):
                tx.execute(insert(table), rows[start : start + _BATCH])
            if rows and tx.is_postgresql and "id" in table.c:
                largest = f"(SELECT max(id) FROM {table.name})"  # noqa: S608 - our own tables
                tx.execute(text(f"SELECT setval('{table.name}_id_seq', {largest})"))
