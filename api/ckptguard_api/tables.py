"""Every table of the service.

What must hold whatever the code does is a constraint here: one checkpoint per (run, step, save id),
one manifest per part, one live lease and one verdict per validation, one delivery per webhook and event.
Rows of `events`, `attempts`, `verdicts` and `findings` are never changed or deleted; triggers in the
migrations hold it for `events`.
"""

from typing import Any, Final

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from ckptguard_api.columns import ByteOrderedText, Id, UtcDateTime

METADATA: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


USABLE: Final = (
    "lifecycle = 'registered' AND verdict = 'VALID' AND is_quarantined IS FALSE AND is_suspect IS FALSE"
)
"""Of a checkpoint that may be a resume target; literals, because a partial index needs them in the query."""

OPEN: Final = (
    "validation_state IS NOT NULL OR lifecycle = 'announced'"
    " OR (lifecycle = 'registered' AND (verdict IS NULL OR retry_at IS NOT NULL))"
)
"""Of a checkpoint whose verdict may still come."""

RETRIED: Final = "lifecycle = 'registered' AND retry_at IS NOT NULL"
"""Of a checkpoint for whose verdict the service asks again by itself."""

STANDING: Final = "lifecycle IN ('announced','registered','incomplete') OR superseded_by = 'rolled_back'"
"""Of a checkpoint whose bytes are taken to stand at its location; whatever is saved there rewrites it."""


def _table(name: str, *items: Any) -> Table:  # noqa: ANN401 - columns and constraints
    # SQLite must never give an id again: fences and event ids are compared by size.
    return Table(name, METADATA, Column("id", Id, primary_key=True), *items, sqlite_autoincrement=True)


def _ref(name: str, target: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, Id, ForeignKey(target), nullable=nullable)


def _at(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, UtcDateTime, nullable=nullable)


def _partial(name: str, where: str, *columns: str) -> Index:
    """An order, newest first, of the few checkpoints of a project for which `where` holds."""
    condition = text(where)
    return Index(
        name,
        "project_id",
        *columns,
        "created_at",
        "id",
        sqlite_where=condition,
        postgresql_where=condition,
    )


def _queue_index(name: str, where: str, *columns: str) -> Index:
    """An order of the few rows that wait for something, among all that ever were."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


projects = _table(
    "projects",
    Column("name", String(200), nullable=False, unique=True),
    Column("allowed_globals", JSON, nullable=False),  # list of `module.name` (design §3)
    _at("created_at"),
)

runs = _table(
    "runs",
    _ref("project_id", "projects.id"),
    Column("name", String(256), nullable=False),
    Column("revision", Id, nullable=False),  # +1 with every change that a resume target may show
    Column("min_assurance", String(16), nullable=False),
    Column("min_provenance", String(16)),
    Column("numerics", String(16), nullable=False),
    Column("required_fqns", JSON, nullable=False),  # `--profile`
    Column("gpus", Integer),
    Column("usd_per_gpu_hour", Float),
    Column("unprotected_after_s", Float),  # tell when the newest VALID is older; None: never
    _at("unprotected_told_at", nullable=True),
    Column("min_steps", Integer, nullable=False),  # a restart that fails earlier counts
    Column("branch", Integer, nullable=False),  # the current one
    _at("step_went_back_at", nullable=True),
    _at("restarts_failing_at", nullable=True),
    _at("created_at"),
    _at("claimed_at", nullable=True),  # round robin of claims, over runs; over projects by the latest
    UniqueConstraint("project_id", "name"),
    Index("ix_runs_project_claimed", "project_id", "claimed_at"),
)

branches = _table(
    "branches",
    _ref("run_id", "runs.id"),
    Column("number", Integer, nullable=False),
    _ref("from_checkpoint_id", "checkpoints.id", nullable=True),
    Column("from_step", Id),
    _at("opened_at"),
    Column("opened_by", String(200), nullable=False),
    UniqueConstraint("run_id", "number"),
)

checkpoints = _table(
    "checkpoints",
    _ref("project_id", "projects.id"),
    _ref("run_id", "runs.id"),
    Column("branch", Integer, nullable=False),
    Column("step", Id, nullable=False),
    Column("save_id", String(256), nullable=False),
    _ref("store_id", "stores.id"),
    Column("path", Text, nullable=False),  # relative to the store
    # Canonical URL, no trailing slash: overlaps are found by it, as ranges.
    Column("location", ByteOrderedText, nullable=False),
    _at("created_at"),  # of the save, as its writer says; else when it was registered
    _at("registered_at", nullable=True),
    Column("format", String(256)),
    Column("num_files", Integer),
    Column("bytes_total", Id),
    Column("expected_parts", JSON, nullable=False),  # [""] for a save of one part
    # Three facts that do not depend on each other: lifecycle, verdict in force, holds (design §7).
    Column("lifecycle", String(16), nullable=False),
    Column("superseded_by", String(16)),
    _at("gone_at", nullable=True),  # since when it is superseded or deleted
    _at("keep_alive_until", nullable=True),  # only while announced
    Column("verdict", String(8)),
    Column("basis", String(8)),
    Column("assurance", String(16)),
    Column("provenance", String(16)),
    Column("device", String(64)),
    Column("verdict_validation_id", Id),  # no foreign key: validations refer to checkpoints already
    _at("validated_at", nullable=True),
    _at("first_verdict_at", nullable=True),  # whatever it was, and in force or not
    Column("is_pinned", Boolean, nullable=False),
    Column("is_quarantined", Boolean, nullable=False),
    Column("is_suspect", Boolean, nullable=False),
    # And whether a validation is queued or running; None: neither.
    Column("validation_state", String(16)),
    # When the service asks again by itself: the last verdict is one that time may change. A column, because
    # resume targets are read from partial indexes. None while a validation is open.
    _at("retry_at", nullable=True),
    UniqueConstraint("run_id", "step", "save_id"),
    CheckConstraint(
        "lifecycle IN ('announced','registered','superseded','incomplete','deleted')", "lifecycle"
    ),
    CheckConstraint("verdict IS NULL OR verdict IN ('VALID','INVALID','UNKNOWN')", "verdict"),
    CheckConstraint("(verdict IS NOT NULL AND verdict = 'VALID') = (assurance IS NOT NULL)", "assurance"),
    CheckConstraint("(verdict IS NOT NULL AND verdict = 'INVALID') = (basis IS NOT NULL)", "basis"),
    CheckConstraint("(verdict IS NULL) = (verdict_validation_id IS NULL)", "verdict_has_validation"),
    Index("ix_checkpoints_run_order", "run_id", "branch", "step", "created_at", "id", "lifecycle"),
    Index("ix_checkpoints_run_verdict", "run_id", "verdict", "branch", "step", "created_at", "id"),
    # The resume target is read from these two alone, however many others lie above it (repositories/resume).
    # They have columns whose values are given anyway: without statistics SQLite takes the index with most.
    Index(
        "ix_checkpoints_usable",
        "run_id",
        "verdict",
        "lifecycle",
        "branch",
        "step",
        "created_at",
        "id",
        "assurance",
        "provenance",
        "device",
        "validated_at",
        sqlite_where=text(USABLE),
        postgresql_where=text(USABLE),
    ),
    Index(
        "ix_checkpoints_open",
        "run_id",
        "project_id",
        "branch",
        "step",
        "created_at",
        "id",
        sqlite_where=text(OPEN),
        postgresql_where=text(OPEN),
    ),
    # A place that is rewritten at each save has as many checkpoints as saves, and one that stands there.
    Index(
        "ix_checkpoints_project_location",
        "project_id",
        "location",
        sqlite_where=text(STANDING),
        postgresql_where=text(STANDING),
    ),
    Index("ix_checkpoints_project_recent", "project_id", "id"),
    # Lists are newest first; each filter that may pick few of many rows has an order of its own.
    Index("ix_checkpoints_project_created", "project_id", "created_at", "id"),
    Index("ix_checkpoints_project_verdict", "project_id", "verdict", "created_at", "id"),
    Index("ix_checkpoints_project_assurance", "project_id", "assurance", "created_at", "id"),
    Index("ix_checkpoints_project_lifecycle", "project_id", "lifecycle", "created_at", "id"),
    _partial("ix_checkpoints_project_state", "validation_state IS NOT NULL", "validation_state"),
    _partial("ix_checkpoints_project_pinned", "is_pinned"),
    _partial("ix_checkpoints_project_quarantined", "is_quarantined"),
    _partial("ix_checkpoints_project_suspect", "is_suspect"),
    Index("ix_checkpoints_run_counts", "run_id", "lifecycle", "verdict"),
    _queue_index("ix_checkpoints_scrub", USABLE, "store_id", "validated_at"),  # longest ago first
    _queue_index("ix_checkpoints_retry", RETRIED, "run_id", "retry_at"),
    Index(
        "ix_checkpoints_keep_alive",
        "keep_alive_until",
        sqlite_where=text("keep_alive_until IS NOT NULL"),
        postgresql_where=text("keep_alive_until IS NOT NULL"),
    ),
)

parts = _table(
    "parts",
    _ref("checkpoint_id", "checkpoints.id"),
    Column("name", String(1024), nullable=False),  # folder in the checkpoint; "" where there is one part
    _ref("manifest_id", "manifests.id", nullable=True),  # None: registered without a manifest
    Column("identity", String(80)),  # of that manifest, `sha256:…`
    Column("header", JSON),  # the manifest without files and items
    Column("registered_by", String(200), nullable=False),
    Column("is_from_writer", Boolean, nullable=False),  # POSTed with origin `save`: provenance may be proven
    _at("registered_at"),
    UniqueConstraint("checkpoint_id", "name"),
)

manifests = _table(
    "manifests",
    Column("digest", String(80), nullable=False, unique=True),  # SHA-256 of the text before compression
    Column("identity", String(80), nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),  # zstd of the JSON of `files` and `items`
    Column("num_files", Integer, nullable=False),
    Column("bytes_total", Id, nullable=False),
    _at("created_at"),
)

validations = _table(
    "validations",
    _ref("project_id", "projects.id"),
    _ref("run_id", "runs.id"),
    _ref("checkpoint_id", "checkpoints.id"),
    _ref("store_id", "stores.id"),
    Column("branch", Integer, nullable=False),
    Column("step", Id, nullable=False),
    Column("reason", String(16), nullable=False),
    Column("depth", String(16), nullable=False),
    Column("requested_by", String(200), nullable=False),
    _at("requested_at"),
    Column("state", String(16), nullable=False),
    Column("tier", Integer, nullable=False),  # 1 newest unvalidated of its run, 2 older, 3 retry, 4 scrub
    _at("waited_until", nullable=True),  # somebody waits for it until then: tier 0
    _at("not_before", nullable=True),  # of the next attempt
    Column("attempts", Integer, nullable=False),  # all
    Column("counted_attempts", Integer, nullable=False),  # those that stored no new file result
    _at("finished_at", nullable=True),
    CheckConstraint("state IN ('queued','running','finished','cancelled')", "state"),
    Index("ix_validations_checkpoint", "checkpoint_id", "id"),
    # The claim asks, in this order: has this store anything, has this run, which is its newest.
    _queue_index("ix_validations_store_queue", "state = 'queued'", "store_id", "tier", "id"),
    _queue_index(
        "ix_validations_run_queue",
        "state IN ('queued','running')",
        "run_id",
        "tier",
        "branch",
        "step",
        "checkpoint_id",
    ),
    _queue_index("ix_validations_waited", "state = 'queued' AND waited_until IS NOT NULL", "waited_until"),
    # How a store does: its last verdicts.
    _queue_index("ix_validations_store_finished", "state = 'finished'", "store_id", "finished_at", "id"),
    # Asking again gives the same validation: at most one is open per checkpoint.
    Index(
        "uq_validations_open_checkpoint",
        "checkpoint_id",
        unique=True,
        sqlite_where=text("state IN ('queued','running')"),
        postgresql_where=text("state IN ('queued','running')"),
    ),
)

attempts = _table(  # its id is the fence: a later attempt has a higher one
    "attempts",
    _ref("validation_id", "validations.id"),
    Column("number", Integer, nullable=False),
    _ref("worker_id", "workers.id"),
    Column("token_hash", String(64), nullable=False),
    _at("started_at"),
    _at("ended_at", nullable=True),
    Column("ending", String(16)),
    Column("reason", Text),
    Column("is_counted", Boolean, nullable=False),
    Column("new_files", Integer, nullable=False),
    Column("bytes_read", Id, nullable=False),
    UniqueConstraint("validation_id", "number"),
)

leases = Table(  # only live ones
    "leases",
    METADATA,
    Column("attempt_id", Id, ForeignKey("attempts.id"), primary_key=True, autoincrement=False),
    Column("validation_id", Id, ForeignKey("validations.id"), nullable=False, unique=True),
    _ref("worker_id", "workers.id"),
    Column("token_hash", String(64), nullable=False, unique=True),
    _at("expires_at"),
    _at("progress_at"),  # when bytes or files last advanced
    _at("deadline_at"),
    Column("progress", JSON, nullable=False),
    Index("ix_leases_expires_at", "expires_at"),
)

verdicts = Table(
    "verdicts",
    METADATA,
    Column("validation_id", Id, ForeignKey("validations.id"), primary_key=True, autoincrement=False),
    Column("attempt_id", Id, ForeignKey("attempts.id"), unique=True),  # None: the service gave up
    _ref("worker_id", "workers.id", nullable=True),
    Column("verdict", String(8), nullable=False),
    Column("basis", String(8)),
    Column("assurance", String(16)),
    Column("provenance", String(16), nullable=False),
    Column("is_retryable", Boolean, nullable=False),
    Column("is_in_force", Boolean, nullable=False),  # it replaced the one in force when it was given
    Column("why_not_in_force", Text),
    # The same bytes: one of the two is the same (domain/bytes_seen.py).
    Column("bytes_identity", String(80), nullable=False),  # digest of paths, lengths, versions or times
    Column("content_identity", String(80)),  # digest of paths, lengths, checksums; None: not all were read
    Column("device", String(64)),
    Column("format", String(256)),
    Column("versions", JSON, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("seconds_reading", Float, nullable=False),
    Column("bytes_total", Id, nullable=False),
    Column("bytes_read", Id, nullable=False),
    Column("totals", JSON, nullable=False),  # shards, items, tensors
    _at("given_at"),
    CheckConstraint("(verdict = 'VALID') = (assurance IS NOT NULL)", "assurance"),
    CheckConstraint("(verdict = 'INVALID') = (basis IS NOT NULL)", "basis"),
)

check_results = _table(
    "check_results",
    _ref("validation_id", "validations.id"),
    Column("name", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("counts", JSON, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("bytes_read", Id, nullable=False),
    UniqueConstraint("validation_id", "name"),
)

findings = _table(
    "findings",
    _ref("validation_id", "validations.id"),
    Column("number", Integer, nullable=False),
    Column("code", String(40), nullable=False),
    Column("check", String(16), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("is_about_checkpoint", Boolean, nullable=False),  # False: `other_findings` of the report
    Column("file", Text),
    Column("fqn", Text),
    Column("message", Text, nullable=False),
    Column("value", JSON, nullable=False),  # all fields (`finding_to_json`)
    UniqueConstraint("validation_id", "number"),
    Index("ix_findings_code", "code", "validation_id"),
)

file_results = Table(  # of the open validation only; folded into `evidence` with the verdict
    "file_results",
    METADATA,
    Column("validation_id", Id, ForeignKey("validations.id"), primary_key=True, autoincrement=False),
    Column("path_digest", String(64), primary_key=True),  # SHA-256 of the path: paths may be long
    Column("path", Text, nullable=False),
    Column("attempt_id", Id, ForeignKey("attempts.id"), nullable=False),
    Column("result", LargeBinary, nullable=False),  # zstd of JSON: scan, device, versions
    Column("state", String(1)),  # `FileState`, so that nobody unpacks a hundred thousand results to show them
)

evidence = Table(
    "evidence",
    METADATA,
    Column("validation_id", Id, ForeignKey("validations.id"), primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),  # zstd of the JSON of the report's `files`
    Column("num_files", Integer, nullable=False),
)

tensor_lists = Table(  # what a verdict saw of tensors; none where nothing was understood
    "tensor_lists",
    METADATA,
    Column("validation_id", Id, ForeignKey("validations.id"), primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),  # zstd of the lines of `ckptguard.model.tensor_list`
    Column("num_tensors", Integer, nullable=False),  # listed
)

workers = _table(
    "workers",
    _ref("project_id", "projects.id", nullable=True),  # None: works for all
    Column("name", String(200), nullable=False, unique=True),
    Column("capabilities", JSON, nullable=False),
    _at("first_seen_at"),
    _at("seen_at"),
    Column("is_draining", Boolean, nullable=False),
    Column("claims", Integer, nullable=False, default=0),  # every eighth takes what has waited longest
    _at("silent_told_at", nullable=True),
)

stores = _table(
    "stores",
    _ref("project_id", "projects.id"),
    Column("name", String(64), nullable=False),
    Column("url", Text, nullable=False),
    Column("times", String(16), nullable=False),  # original | copied
    Column("settle_s", Float, nullable=False),
    Column("mtime_tolerance_s", Float, nullable=False),
    Column("bytes_per_s", Float),  # measured; None: not yet
    Column("scrub_every_s", Float),
    _at("created_at"),
    _at("removed_at", nullable=True),
    UniqueConstraint("project_id", "name"),
)

tokens = _table(
    "tokens",
    _ref("project_id", "projects.id", nullable=True),  # None: all projects
    _ref("parent_id", "tokens.id", nullable=True),  # of a browser's: the one that it was made from
    Column("name", String(200), nullable=False),
    Column("hint", String(16), nullable=False),  # first characters, to tell tokens apart
    Column("hash", String(64), nullable=False, unique=True),  # SHA-256; a token has 256 bits of chance
    Column("scopes", JSON, nullable=False),
    _at("created_at"),
    _at("expires_at", nullable=True),
    _at("revoked_at", nullable=True),
)

restarts = _table(
    "restarts",
    _ref("run_id", "runs.id"),
    _ref("checkpoint_id", "checkpoints.id", nullable=True),  # None: a start from nothing
    Column("attempt_key", String(200), nullable=False),  # the launcher's name of this start
    Column("outcome", String(16), nullable=False),
    Column("nodes", JSON, nullable=False),
    Column("steps_done", Id),
    Column("detail", Text),
    _at("reported_at"),
    Column("branch", Integer, nullable=False),  # the run's, after this report
    Column("is_branch_opened", Boolean, nullable=False),
    Column("is_settled", Boolean, nullable=False),  # says nothing against a checkpoint any more
    UniqueConstraint("run_id", "attempt_key", "outcome"),
    Index("ix_restarts_checkpoint", "checkpoint_id", "id"),
    Index(
        "ix_restarts_open",
        "run_id",
        "id",
        sqlite_where=text("NOT is_settled"),
        postgresql_where=text("NOT is_settled"),
    ),
)

events = _table(
    "events",
    _at("at"),
    Column("kind", String(40), nullable=False),
    Column("actor", String(200), nullable=False),
    _ref("project_id", "projects.id", nullable=True),
    _ref("run_id", "runs.id", nullable=True),
    _ref("checkpoint_id", "checkpoints.id", nullable=True),
    _ref("validation_id", "validations.id", nullable=True),
    Column("data", JSON, nullable=False),
    Index("ix_events_run", "run_id", "id"),
    Index("ix_events_checkpoint", "checkpoint_id", "id"),
    Index("ix_events_project", "project_id", "id"),
)

webhooks = _table(
    "webhooks",
    _ref("project_id", "projects.id"),
    Column("url", Text, nullable=False),
    Column("secrets", JSON, nullable=False),  # newest first, for rotation
    Column("kinds", JSON, nullable=False),
    Column("is_enabled", Boolean, nullable=False),
    Column("after_event_id", Id, nullable=False),  # what happened before it was made is none of its business
    _at("created_at"),
    _at("removed_at", nullable=True),  # kept for its delivery log, without secrets
    Column("created_by", String(200), nullable=False),
)

deliveries = _table(
    "deliveries",
    _ref("webhook_id", "webhooks.id"),
    _ref("event_id", "events.id"),
    Column("message_id", String(64), nullable=False, unique=True),
    Column("state", String(16), nullable=False),  # pending | delivered | given_up
    Column("tries", Integer, nullable=False),
    _at("next_at", nullable=True),
    _at("claimed_until", nullable=True),
    Column("claim", Integer, nullable=False),  # fence of the one that sends
    _at("created_at"),
    _at("delivered_at", nullable=True),
    UniqueConstraint("webhook_id", "event_id"),
    Index(
        "ix_deliveries_due",
        "next_at",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
    Index("ix_deliveries_webhook", "webhook_id", "id"),
    _queue_index("ix_deliveries_given_up", "state = 'given_up'", "webhook_id"),
)

delivery_tries = _table(  # the delivery log
    "delivery_tries",
    _ref("delivery_id", "deliveries.id"),
    Column("number", Integer, nullable=False),
    _at("at"),
    Column("status", Integer),
    Column("error", Text),
    Column("seconds", Float, nullable=False),
    UniqueConstraint("delivery_id", "number"),
)

schedule = Table(  # work that comes again; one row a task
    "schedule",
    METADATA,
    Column("name", String(64), primary_key=True),
    _at("next_at"),
    _at("claimed_until", nullable=True),
    Column("claim", Id, nullable=False),  # fence
    Column("cursor", Id, nullable=False),  # e.g. the last event that was turned into deliveries
)

revisions = Table(  # what caches are held against; `tokens` is one
    "revisions",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("value", Id, nullable=False),
)
