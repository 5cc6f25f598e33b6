"""A database as a service has it after years: many checkpoints in 1,000 runs, made by SQL inside of it.

Of ten runs, seven are healthy; in one the newest three are damaged; in one the newest is running and the one
before is queued; in one the newest five reach `content` only. Run `heavy` has as many checkpoints as asked
for, and the newer half of them is damaged.
"""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, insert, text

from ckptguard.model.service import Scope
from ckptguard_api.database import Database, Transaction
from ckptguard_api.domain.tokens import hash_token, new_token
from ckptguard_api.tables import (
    METADATA,
    checkpoints,
    projects,
    revisions,
    stores,
    tokens,
    validations,
    workers,
)

NUM_RUNS: Final = 1000
STEPS_APART: Final = 100

_RUNS: Final = """\
INSERT INTO runs (project_id, name, revision, min_assurance, numerics, required_fqns, min_steps, branch,
  created_at)
SELECT 1, 'run-' || i, 1, 'loaded', 'report', '[]', 20, 0, {time_of_i}
FROM ({numbers}) AS n"""

_CHECKPOINTS: Final = """\
INSERT INTO checkpoints (id, project_id, run_id, branch, step, save_id, store_id, path, location, created_at,
  registered_at, format, num_files, bytes_total, expected_parts, lifecycle, is_pinned, is_quarantined,
  is_suspect, verdict, basis, assurance, provenance, device, verdict_validation_id, validated_at,
  first_verdict_at, validation_state)
SELECT id, 1, run_id, 0, number * 100, 'c-' || id, 1, 'run-' || run_id || '/step-' || (number * 100),
  'file:///data/run-' || run_id || '/step-' || (number * 100), made_at, made_at, 'dcp', 64, 640000000000,
  '[""]',
  'registered', {false}, {false}, {false}, verdict, CASE WHEN verdict = 'INVALID' THEN 'damage' END,
  CASE WHEN verdict = 'VALID' THEN assurance END, CASE WHEN verdict IS NOT NULL THEN 'proven' END,
  CASE WHEN verdict IS NOT NULL THEN 'cuda:0 NVIDIA H200' END, CASE WHEN verdict IS NOT NULL THEN id END,
  CASE WHEN verdict IS NOT NULL THEN made_at END, CASE WHEN verdict IS NOT NULL THEN made_at END, state
FROM (
  SELECT id, run_id, number, {time} AS made_at,
    CASE WHEN kind = 7 AND age < 3 THEN 'INVALID' WHEN kind = 8 AND age < 2 THEN NULL
      ELSE 'VALID' END AS verdict,
    CASE WHEN kind = 9 AND age < 5 THEN 'content' ELSE 'loaded' END AS assurance,
    CASE WHEN kind = 8 AND age = 0 THEN 'running' WHEN kind = 8 AND age = 1 THEN 'queued' END AS state
  FROM (
    SELECT i + 1 AS id, i % {runs} + 1 AS run_id, i / {runs} AS number, i % {runs} % 10 AS kind,
      {per_run} - 1 - i / {runs} AS age
    FROM ({numbers}) AS n
  ) AS made
) AS judged"""

_HEAVY: Final = """\
INSERT INTO checkpoints (id, project_id, run_id, branch, step, save_id, store_id, path, location, created_at,
  registered_at, format, num_files, bytes_total, expected_parts, lifecycle, is_pinned, is_quarantined,
  is_suspect, verdict, basis, assurance, provenance, device, verdict_validation_id, validated_at,
  first_verdict_at)
SELECT {first} + i, 1, {run_id}, 0, i, 'h-' || i, 1, 'heavy/' || i, 'file:///data/heavy/' || i, {time_of_i},
  {time_of_i}, 'dcp', 64, 640000000000, '[""]', 'registered', {false}, {false}, {false},
  CASE WHEN i * 2 < {count} THEN 'VALID' ELSE 'INVALID' END,
  CASE WHEN i * 2 < {count} THEN NULL ELSE 'damage' END,
  CASE WHEN i * 2 < {count} THEN 'loaded' END, 'proven', 'cpu', {first} + i, {time_of_i}, {time_of_i}
FROM ({numbers}) AS n"""

_VALIDATIONS: Final = """\
INSERT INTO validations (id, project_id, run_id, checkpoint_id, store_id, branch, step, reason, depth,
  requested_by, requested_at, state, tier, attempts, counted_attempts, finished_at)
SELECT id, 1, run_id, id, 1, 0, step, 'registered', 'load', 'benchmark', created_at,
  COALESCE(validation_state, 'finished'), 1, 1, 0, validated_at
FROM checkpoints"""

_VERDICTS: Final = """\
INSERT INTO verdicts (validation_id, verdict, basis, provenance, is_retryable, is_in_force, bytes_identity,
  versions, seconds, seconds_reading, bytes_total, bytes_read, totals, given_at)
SELECT id, verdict, basis, 'proven', {false}, {true}, 'sha256:0', '{{}}', 60, 50, 1, 1, '{{}}', created_at
FROM checkpoints WHERE verdict = 'INVALID'"""

_FINDINGS: Final = """\
INSERT INTO findings (validation_id, number, code, "check", severity, is_about_checkpoint, file, message,
  value)
SELECT id, 0, 'crc_mismatch', 'content', 'error', {true}, '__0_0.distcp',
  'record data/0 has another CRC-32', '{{}}'
FROM checkpoints WHERE verdict = 'INVALID'"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A database that was filled.

    Args:
        token: Reads and registers in its only project.
        run_names: Those of which launchers ask.
    """

    token: str
    run_names: tuple[str, ...]


def fill(database: Database, num_checkpoints: int, *, num_heavy: int = 0) -> Filled:
    """Fill a database without tables with checkpoints of 1,000 runs.

    Args:
        database: Without tables.
        num_checkpoints: In all; a multiple of 1,000.
        num_heavy: In run `heavy`, besides.
    """
    METADATA.create_all(database.engine)
    later = [index for table in (checkpoints, validations) for index in table.indexes if not index.unique]
    with database.write() as tx:
        if tx.is_postgresql:  # what refers to what is known here: no look at it a row
            tx.execute(text("SET LOCAL session_replication_role = replica"))
        for index in later:  # one sort at the end takes a fraction of a million insertions
            index.drop(tx.connection)
        token = _fill_small_tables(tx)
        connection = tx.connection
        epoch_s = int(tx.now.timestamp()) - max(60 * num_checkpoints // NUM_RUNS, num_heavy)
        dialect = _Dialect(is_postgresql=tx.is_postgresql, epoch_s=epoch_s)
        names = [f"run-{number}" for number in range(NUM_RUNS)]
        _run(connection, _RUNS, dialect, count=NUM_RUNS)
        per_run = num_checkpoints // NUM_RUNS
        _run(connection, _CHECKPOINTS, dialect, count=num_checkpoints, per_run=per_run, runs=NUM_RUNS)
        if num_heavy:
            heavy = _RUNS.replace("'run-' || i", "'heavy'")
            _run(connection, heavy, dialect, count=1)
            first = num_checkpoints + 1
            _run(connection, _HEAVY, dialect, count=num_heavy, run_id=NUM_RUNS + 1, first=first)
            names.append("heavy")
        for statement in (_VALIDATIONS, _VERDICTS, _FINDINGS):
            _run(connection, statement, dialect, count=0)
        for index in later:
            index.create(connection)
    tidy(database)
    return Filled(token=token, run_names=tuple(names))


def _fill_small_tables(tx: Transaction) -> str:
    token = new_token()
    now = tx.now
    tx.execute(insert(projects).values(name="default", allowed_globals=[], created_at=now))
    tx.execute(
        insert(stores).values(
            project_id=1,
            name="demo",
            url="file:///data",
            times="original",
            settle_s=30.0,
            mtime_tolerance_s=5.0,
            created_at=now,
        )
    )
    tx.execute(
        insert(tokens).values(
            name="benchmark",
            hint=token.hint,
            hash=hash_token(token.text),
            scopes=[Scope.ADMIN.value],
            created_at=now,
        )
    )
    tx.execute(insert(revisions).values(name="tokens", value=1))
    tx.execute(
        insert(workers).values(
            name="w",
            capabilities={"stores": ["demo"], "depths": ["load"]},
            first_seen_at=now,
            seen_at=now,
            is_draining=False,
        )
    )
    return token.text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect:
    is_postgresql: bool
    epoch_s: int  # the newest checkpoints are of now: metrics show runs that save

    def numbers(self, count: int) -> str:
        if self.is_postgresql:
            return f"SELECT i FROM generate_series(0, {count - 1}) AS s (i)"  # noqa: S608 - a number
        counting = f"SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < {count - 1}"  # noqa: S608 - a number
        return f"WITH RECURSIVE s (i) AS ({counting}) SELECT i FROM s"  # noqa: S608 - numbers

    def time(self, seconds: str) -> str:
        if self.is_postgresql:
            return f"to_timestamp({self.epoch_s} + {seconds})"
        return f"strftime('%Y-%m-%d %H:%M:%f', {self.epoch_s} + {seconds}, 'unixepoch') || '000'"


def _run(connection: Connection, statement: str, dialect: _Dialect, **values: int) -> None:
    completed = statement.format(
        numbers=dialect.numbers(values["count"]),
        time=dialect.time("number * 60"),
        time_of_i=dialect.time("i"),
        false="FALSE",
        true="TRUE",
        **values,
    )
    connection.execute(text(completed))


def tidy(database: Database) -> None:
    """Let PostgreSQL have what its autovacuum does by itself within a minute, and go on counting."""
    if not database.is_postgresql:
        return  # the service never runs ANALYZE on its SQLite file either
    with database.engine.connect() as connected:
        connection = connected.execution_options(isolation_level="AUTOCOMMIT")
        for table in ("checkpoints", "validations"):
            largest = f"(SELECT max(id) FROM {table})"  # noqa: S608 - of two tables
            connection.execute(text(f"SELECT setval('{table}_id_seq', {largest})"))
        connection.execute(text("VACUUM ANALYZE"))
