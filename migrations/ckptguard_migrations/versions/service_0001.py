"""Every table of the first release.

Frozen: what `ckptguard_api.tables` says now may differ, and later revisions lead from here to there.
"""

from typing import Final

import sqlalchemy as sa
from alembic import op

from ckptguard_migrations.append_only import drop_protection, protect_from_changes

revision: Final = "0001_service"
down_revision: Final = None
branch_labels: Final = None
depends_on: Final = None

_ID: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_AT: Final = sa.DateTime(timezone=True)

_USABLE: Final = (
    "lifecycle = 'registered' AND verdict = 'VALID' AND is_quarantined IS FALSE AND is_suspect IS FALSE"
)
_OPEN: Final = (
    "validation_state IS NOT NULL "
    "OR lifecycle = 'announced' "
    "OR (lifecycle = 'registered' "
    "AND (verdict IS NULL OR retry_at IS NOT NULL))"
)
_RETRIED: Final = "lifecycle = 'registered' AND retry_at IS NOT NULL"
_TABLES: Final = (
    "manifests",
    "projects",
    "revisions",
    "schedule",
    "runs",
    "stores",
    "tokens",
    "webhooks",
    "workers",
    "checkpoints",
    "branches",
    "parts",
    "restarts",
    "validations",
    "attempts",
    "check_results",
    "events",
    "evidence",
    "tensor_lists",
    "findings",
    "deliveries",
    "file_results",
    "leases",
    "verdicts",
    "delivery_tries",
)


def upgrade() -> None:
    """Create every table, and the triggers that keep `events` as it was written."""
    _create_manifests()
    _create_projects()
    _create_revisions()
    _create_schedule()
    _create_runs()
    _create_stores()
    _create_tokens()
    _create_webhooks()
    _create_workers()
    _create_checkpoints()
    _create_branches()
    _create_parts()
    _create_restarts()
    _create_validations()
    _create_attempts()
    _create_check_results()
    _create_events()
    _create_evidence()
    _create_tensor_lists()
    _create_findings()
    _create_deliveries()
    _create_file_results()
    _create_leases()
    _create_verdicts()
    _create_delivery_tries()
    protect_from_changes("events")


def downgrade() -> None:
    """Drop every table, with all that is in it."""
    for table in reversed(_TABLES):
        op.drop_table(table)
    drop_protection()


def _create_manifests() -> None:
    op.create_table(
        "manifests",
        sa.Column("id", _ID, nullable=False),
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("identity", sa.String(length=80), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("num_files", sa.Integer(), nullable=False),
        sa.Column("bytes_total", _ID, nullable=False),
        sa.Column("created_at", _AT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_manifests")),
        sa.UniqueConstraint("digest", name=op.f("uq_manifests_digest")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_manifests_identity"), "manifests", ["identity"], unique=False)


def _create_projects() -> None:
    op.create_table(
        "projects",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("allowed_globals", sa.JSON(), nullable=False),
        sa.Column("created_at", _AT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
        sqlite_autoincrement=True,
    )


def _create_revisions() -> None:
    op.create_table(
        "revisions",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", _ID, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_revisions")),
    )


def _create_schedule() -> None:
    op.create_table(
        "schedule",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("next_at", _AT, nullable=False),
        sa.Column("claimed_until", _AT, nullable=True),
        sa.Column("claim", _ID, nullable=False),
        sa.Column("cursor", _ID, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_schedule")),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("revision", _ID, nullable=False),
        sa.Column("min_assurance", sa.String(length=16), nullable=False),
        sa.Column("min_provenance", sa.String(length=16), nullable=True),
        sa.Column("numerics", sa.String(length=16), nullable=False),
        sa.Column("required_fqns", sa.JSON(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=True),
        sa.Column("usd_per_gpu_hour", sa.Float(), nullable=True),
        sa.Column("unprotected_after_s", sa.Float(), nullable=True),
        sa.Column("unprotected_told_at", _AT, nullable=True),
        sa.Column("min_steps", sa.Integer(), nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("step_went_back_at", _AT, nullable=True),
        sa.Column("restarts_failing_at", _AT, nullable=True),
        sa.Column("created_at", _AT, nullable=False),
        sa.Column("claimed_at", _AT, nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_runs_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_runs_project_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_runs_project_claimed", "runs", ["project_id", "claimed_at"], unique=False)


def _create_stores() -> None:
    op.create_table(
        "stores",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("times", sa.String(length=16), nullable=False),
        sa.Column("settle_s", sa.Float(), nullable=False),
        sa.Column("mtime_tolerance_s", sa.Float(), nullable=False),
        sa.Column("bytes_per_s", sa.Float(), nullable=True),
        sa.Column("scrub_every_s", sa.Float(), nullable=True),
        sa.Column("created_at", _AT, nullable=False),
        sa.Column("removed_at", _AT, nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_stores_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stores")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_stores_project_id_name")),
        sqlite_autoincrement=True,
    )


def _create_tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=True),
        sa.Column("parent_id", _ID, nullable=True),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("hint", sa.String(length=16), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", _AT, nullable=False),
        sa.Column("expires_at", _AT, nullable=True),
        sa.Column("revoked_at", _AT, nullable=True),
        sa.ForeignKeyConstraint(["parent_id"], ["tokens.id"], name=op.f("fk_tokens_parent_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_tokens_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
        sqlite_autoincrement=True,
    )


def _create_webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secrets", sa.JSON(), nullable=False),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("is_enabled", sa.Boolean(), nullable=False),
        sa.Column("after_event_id", _ID, nullable=False),
        sa.Column("created_at", _AT, nullable=False),
        sa.Column("removed_at", _AT, nullable=True),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_webhooks_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
        sqlite_autoincrement=True,
    )


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=True),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("capabilities", sa.JSON(), nullable=False),
        sa.Column("first_seen_at", _AT, nullable=False),
        sa.Column("seen_at", _AT, nullable=False),
        sa.Column("is_draining", sa.Boolean(), nullable=False),
        sa.Column("claims", sa.Integer(), nullable=False),
        sa.Column("silent_told_at", _AT, nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_workers_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
        sa.UniqueConstraint("name", name=op.f("uq_workers_name")),
        sqlite_autoincrement=True,
    )


def _create_checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("step", _ID, nullable=False),
        sa.Column("save_id", sa.String(length=256), nullable=False),
        sa.Column("store_id", _ID, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("location", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.Column("created_at", _AT, nullable=False),
        sa.Column("registered_at", _AT, nullable=True),
        sa.Column("format", sa.String(length=256), nullable=True),
        sa.Column("num_files", sa.Integer(), nullable=True),
        sa.Column("bytes_total", _ID, nullable=True),
        sa.Column("expected_parts", sa.JSON(), nullable=False),
        sa.Column("lifecycle", sa.String(length=16), nullable=False),
        sa.Column("superseded_by", sa.String(length=16), nullable=True),
        sa.Column("gone_at", _AT, nullable=True),
        sa.Column("keep_alive_until", _AT, nullable=True),
        sa.Column("verdict", sa.String(length=8), nullable=True),
        sa.Column("basis", sa.String(length=8), nullable=True),
        sa.Column("assurance", sa.String(length=16), nullable=True),
        sa.Column("provenance", sa.String(length=16), nullable=True),
        sa.Column("device", sa.String(length=64), nullable=True),
        sa.Column("verdict_validation_id", _ID, nullable=True),
        sa.Column("validated_at", _AT, nullable=True),
        sa.Column("first_verdict_at", _AT, nullable=True),
        sa.Column("is_pinned", sa.Boolean(), nullable=False),
        sa.Column("is_quarantined", sa.Boolean(), nullable=False),
        sa.Column("is_suspect", sa.Boolean(), nullable=False),
        sa.Column("validation_state", sa.String(length=16), nullable=True),
        sa.Column("retry_at", _AT, nullable=True),
        sa.CheckConstraint(
            "(verdict IS NOT NULL AND verdict = 'INVALID') = (basis IS NOT NULL)",
            name=op.f("ck_checkpoints_basis"),
        ),
        sa.CheckConstraint(
            "(verdict IS NOT NULL AND verdict = 'VALID') = (assurance IS NOT NULL)",
            name=op.f("ck_checkpoints_assurance"),
        ),
        sa.CheckConstraint(
            "lifecycle IN ('announced','registered','superseded','incomplete','deleted')",
            name=op.f("ck_checkpoints_lifecycle"),
        ),
        sa.CheckConstraint(
            "verdict IS NULL OR verdict IN ('VALID','INVALID','UNKNOWN')", name=op.f("ck_checkpoints_verdict")
        ),
        sa.CheckConstraint(
            "(verdict IS NULL) = (verdict_validation_id IS NULL)",
            name=op.f("ck_checkpoints_verdict_has_validation"),
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_checkpoints_project_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_checkpoints_run_id")),
        sa.ForeignKeyConstraint(["store_id"], ["stores.id"], name=op.f("fk_checkpoints_store_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoints")),
        sa.UniqueConstraint("run_id", "step", "save_id", name=op.f("uq_checkpoints_run_id_step_save_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_checkpoints_keep_alive",
        "checkpoints",
        ["keep_alive_until"],
        unique=False,
        sqlite_where=sa.text("keep_alive_until IS NOT NULL"),
        postgresql_where=sa.text("keep_alive_until IS NOT NULL"),
    )
    op.create_index(
        "ix_checkpoints_open",
        "checkpoints",
        ["run_id", "project_id", "branch", "step", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text(_OPEN),
        postgresql_where=sa.text(_OPEN),
    )
    op.create_index(
        "ix_checkpoints_project_assurance",
        "checkpoints",
        ["project_id", "assurance", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        "ix_checkpoints_project_created", "checkpoints", ["project_id", "created_at", "id"], unique=False
    )
    op.create_index(
        "ix_checkpoints_project_lifecycle",
        "checkpoints",
        ["project_id", "lifecycle", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        "ix_checkpoints_project_location",
        "checkpoints",
        ["project_id", "location"],
        unique=False,
        sqlite_where=sa.text(
            "lifecycle IN ('announced','registered','incomplete') OR superseded_by = 'rolled_back'"
        ),
        postgresql_where=sa.text(
            "lifecycle IN ('announced','registered','incomplete') OR superseded_by = 'rolled_back'"
        ),
    )
    op.create_index(
        "ix_checkpoints_project_pinned",
        "checkpoints",
        ["project_id", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("is_pinned"),
        postgresql_where=sa.text("is_pinned"),
    )
    op.create_index(
        "ix_checkpoints_project_quarantined",
        "checkpoints",
        ["project_id", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("is_quarantined"),
        postgresql_where=sa.text("is_quarantined"),
    )
    op.create_index("ix_checkpoints_project_recent", "checkpoints", ["project_id", "id"], unique=False)
    op.create_index(
        "ix_checkpoints_project_state",
        "checkpoints",
        ["project_id", "validation_state", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("validation_state IS NOT NULL"),
        postgresql_where=sa.text("validation_state IS NOT NULL"),
    )
    op.create_index(
        "ix_checkpoints_project_suspect",
        "checkpoints",
        ["project_id", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("is_suspect"),
        postgresql_where=sa.text("is_suspect"),
    )
    op.create_index(
        "ix_checkpoints_project_verdict",
        "checkpoints",
        ["project_id", "verdict", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        "ix_checkpoints_run_counts", "checkpoints", ["run_id", "lifecycle", "verdict"], unique=False
    )
    op.create_index(
        "ix_checkpoints_retry",
        "checkpoints",
        ["run_id", "retry_at"],
        unique=False,
        sqlite_where=sa.text(_RETRIED),
        postgresql_where=sa.text(_RETRIED),
    )
    op.create_index(
        "ix_checkpoints_run_order",
        "checkpoints",
        ["run_id", "branch", "step", "created_at", "id", "lifecycle"],
        unique=False,
    )
    op.create_index(
        "ix_checkpoints_run_verdict",
        "checkpoints",
        ["run_id", "verdict", "branch", "step", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        "ix_checkpoints_scrub",
        "checkpoints",
        ["store_id", "validated_at"],
        unique=False,
        sqlite_where=sa.text(_USABLE),
        postgresql_where=sa.text(_USABLE),
    )
    op.create_index(
        "ix_checkpoints_usable",
        "checkpoints",
        [
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
        ],
        unique=False,
        sqlite_where=sa.text(_USABLE),
        postgresql_where=sa.text(_USABLE),
    )


def _create_branches() -> None:
    op.create_table(
        "branches",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("from_checkpoint_id", _ID, nullable=True),
        sa.Column("from_step", _ID, nullable=True),
        sa.Column("opened_at", _AT, nullable=False),
        sa.Column("opened_by", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(
            ["from_checkpoint_id"], ["checkpoints.id"], name=op.f("fk_branches_from_checkpoint_id")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_branches_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_branches")),
        sa.UniqueConstraint("run_id", "number", name=op.f("uq_branches_run_id_number")),
        sqlite_autoincrement=True,
    )


def _create_parts() -> None:
    op.create_table(
        "parts",
        sa.Column("id", _ID, nullable=False),
        sa.Column("checkpoint_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=1024), nullable=False),
        sa.Column("manifest_id", _ID, nullable=True),
        sa.Column("identity", sa.String(length=80), nullable=True),
        sa.Column("header", sa.JSON(), nullable=True),
        sa.Column("registered_by", sa.String(length=200), nullable=False),
        sa.Column("is_from_writer", sa.Boolean(), nullable=False),
        sa.Column("registered_at", _AT, nullable=False),
        sa.ForeignKeyConstraint(["checkpoint_id"], ["checkpoints.id"], name=op.f("fk_parts_checkpoint_id")),
        sa.ForeignKeyConstraint(["manifest_id"], ["manifests.id"], name=op.f("fk_parts_manifest_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_parts")),
        sa.UniqueConstraint("checkpoint_id", "name", name=op.f("uq_parts_checkpoint_id_name")),
        sqlite_autoincrement=True,
    )


def _create_restarts() -> None:
    op.create_table(
        "restarts",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("checkpoint_id", _ID, nullable=True),
        sa.Column("attempt_key", sa.String(length=200), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("steps_done", _ID, nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("reported_at", _AT, nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("is_branch_opened", sa.Boolean(), nullable=False),
        sa.Column("is_settled", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"], ["checkpoints.id"], name=op.f("fk_restarts_checkpoint_id")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_restarts_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_restarts")),
        sa.UniqueConstraint(
            "run_id", "attempt_key", "outcome", name=op.f("uq_restarts_run_id_attempt_key_outcome")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_restarts_checkpoint", "restarts", ["checkpoint_id", "id"], unique=False)
    op.create_index(
        "ix_restarts_open",
        "restarts",
        ["run_id", "id"],
        unique=False,
        sqlite_where=sa.text("NOT is_settled"),
        postgresql_where=sa.text("NOT is_settled"),
    )


def _create_validations() -> None:
    op.create_table(
        "validations",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("checkpoint_id", _ID, nullable=False),
        sa.Column("store_id", _ID, nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("step", _ID, nullable=False),
        sa.Column("reason", sa.String(length=16), nullable=False),
        sa.Column("depth", sa.String(length=16), nullable=False),
        sa.Column("requested_by", sa.String(length=200), nullable=False),
        sa.Column("requested_at", _AT, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("tier", sa.Integer(), nullable=False),
        sa.Column("waited_until", _AT, nullable=True),
        sa.Column("not_before", _AT, nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("counted_attempts", sa.Integer(), nullable=False),
        sa.Column("finished_at", _AT, nullable=True),
        sa.CheckConstraint(
            "state IN ('queued','running','finished','cancelled')", name=op.f("ck_validations_state")
        ),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"], ["checkpoints.id"], name=op.f("fk_validations_checkpoint_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_validations_project_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_validations_run_id")),
        sa.ForeignKeyConstraint(["store_id"], ["stores.id"], name=op.f("fk_validations_store_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_validations")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_validations_checkpoint", "validations", ["checkpoint_id", "id"], unique=False)
    op.create_index(
        "ix_validations_run_queue",
        "validations",
        ["run_id", "tier", "branch", "step", "checkpoint_id"],
        unique=False,
        sqlite_where=sa.text("state IN ('queued','running')"),
        postgresql_where=sa.text("state IN ('queued','running')"),
    )
    op.create_index(
        "ix_validations_store_finished",
        "validations",
        ["store_id", "finished_at", "id"],
        unique=False,
        sqlite_where=sa.text("state = 'finished'"),
        postgresql_where=sa.text("state = 'finished'"),
    )
    op.create_index(
        "ix_validations_store_queue",
        "validations",
        ["store_id", "tier", "id"],
        unique=False,
        sqlite_where=sa.text("state = 'queued'"),
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_index(
        "ix_validations_waited",
        "validations",
        ["waited_until"],
        unique=False,
        sqlite_where=sa.text("state = 'queued' AND waited_until IS NOT NULL"),
        postgresql_where=sa.text("state = 'queued' AND waited_until IS NOT NULL"),
    )
    op.create_index(
        "uq_validations_open_checkpoint",
        "validations",
        ["checkpoint_id"],
        unique=True,
        sqlite_where=sa.text("state IN ('queued','running')"),
        postgresql_where=sa.text("state IN ('queued','running')"),
    )


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("id", _ID, nullable=False),
        sa.Column("validation_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("worker_id", _ID, nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("started_at", _AT, nullable=False),
        sa.Column("ended_at", _AT, nullable=True),
        sa.Column("ending", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("is_counted", sa.Boolean(), nullable=False),
        sa.Column("new_files", sa.Integer(), nullable=False),
        sa.Column("bytes_read", _ID, nullable=False),
        sa.ForeignKeyConstraint(
            ["validation_id"], ["validations.id"], name=op.f("fk_attempts_validation_id")
        ),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_attempts_worker_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("validation_id", "number", name=op.f("uq_attempts_validation_id_number")),
        sqlite_autoincrement=True,
    )


def _create_check_results() -> None:
    op.create_table(
        "check_results",
        sa.Column("id", _ID, nullable=False),
        sa.Column("validation_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("bytes_read", _ID, nullable=False),
        sa.ForeignKeyConstraint(
            ["validation_id"], ["validations.id"], name=op.f("fk_check_results_validation_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_check_results")),
        sa.UniqueConstraint("validation_id", "name", name=op.f("uq_check_results_validation_id_name")),
        sqlite_autoincrement=True,
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", _ID, nullable=False),
        sa.Column("at", _AT, nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("project_id", _ID, nullable=True),
        sa.Column("run_id", _ID, nullable=True),
        sa.Column("checkpoint_id", _ID, nullable=True),
        sa.Column("validation_id", _ID, nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["checkpoint_id"], ["checkpoints.id"], name=op.f("fk_events_checkpoint_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_events_project_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_events_run_id")),
        sa.ForeignKeyConstraint(["validation_id"], ["validations.id"], name=op.f("fk_events_validation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_checkpoint", "events", ["checkpoint_id", "id"], unique=False)
    op.create_index("ix_events_project", "events", ["project_id", "id"], unique=False)
    op.create_index("ix_events_run", "events", ["run_id", "id"], unique=False)


def _create_evidence() -> None:
    op.create_table(
        "evidence",
        sa.Column("validation_id", _ID, autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("num_files", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["validation_id"], ["validations.id"], name=op.f("fk_evidence_validation_id")
        ),
        sa.PrimaryKeyConstraint("validation_id", name=op.f("pk_evidence")),
    )


def _create_tensor_lists() -> None:
    op.create_table(
        "tensor_lists",
        sa.Column("validation_id", _ID, autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("num_tensors", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["validation_id"], ["validations.id"], name=op.f("fk_tensor_lists_validation_id")
        ),
        sa.PrimaryKeyConstraint("validation_id", name=op.f("pk_tensor_lists")),
    )


def _create_findings() -> None:
    op.create_table(
        "findings",
        sa.Column("id", _ID, nullable=False),
        sa.Column("validation_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("code", sa.String(length=40), nullable=False),
        sa.Column("check", sa.String(length=16), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("is_about_checkpoint", sa.Boolean(), nullable=False),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("fqn", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["validation_id"], ["validations.id"], name=op.f("fk_findings_validation_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_findings")),
        sa.UniqueConstraint("validation_id", "number", name=op.f("uq_findings_validation_id_number")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_findings_code", "findings", ["code", "validation_id"], unique=False)


def _create_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", _ID, nullable=False),
        sa.Column("webhook_id", _ID, nullable=False),
        sa.Column("event_id", _ID, nullable=False),
        sa.Column("message_id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_at", _AT, nullable=True),
        sa.Column("claimed_until", _AT, nullable=True),
        sa.Column("claim", sa.Integer(), nullable=False),
        sa.Column("created_at", _AT, nullable=False),
        sa.Column("delivered_at", _AT, nullable=True),
        sa.ForeignKeyConstraint(["event_id"], ["events.id"], name=op.f("fk_deliveries_event_id")),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], name=op.f("fk_deliveries_webhook_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint("message_id", name=op.f("uq_deliveries_message_id")),
        sa.UniqueConstraint("webhook_id", "event_id", name=op.f("uq_deliveries_webhook_id_event_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_deliveries_due",
        "deliveries",
        ["next_at"],
        unique=False,
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index(
        "ix_deliveries_given_up",
        "deliveries",
        ["webhook_id"],
        unique=False,
        sqlite_where=sa.text("state = 'given_up'"),
        postgresql_where=sa.text("state = 'given_up'"),
    )
    op.create_index("ix_deliveries_webhook", "deliveries", ["webhook_id", "id"], unique=False)


def _create_file_results() -> None:
    op.create_table(
        "file_results",
        sa.Column("validation_id", _ID, autoincrement=False, nullable=False),
        sa.Column("path_digest", sa.String(length=64), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("attempt_id", _ID, nullable=False),
        sa.Column("result", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.String(length=1), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_file_results_attempt_id")),
        sa.ForeignKeyConstraint(
            ["validation_id"], ["validations.id"], name=op.f("fk_file_results_validation_id")
        ),
        sa.PrimaryKeyConstraint("validation_id", "path_digest", name=op.f("pk_file_results")),
    )


def _create_leases() -> None:
    op.create_table(
        "leases",
        sa.Column("attempt_id", _ID, autoincrement=False, nullable=False),
        sa.Column("validation_id", _ID, nullable=False),
        sa.Column("worker_id", _ID, nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("expires_at", _AT, nullable=False),
        sa.Column("progress_at", _AT, nullable=False),
        sa.Column("deadline_at", _AT, nullable=False),
        sa.Column("progress", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_leases_attempt_id")),
        sa.ForeignKeyConstraint(["validation_id"], ["validations.id"], name=op.f("fk_leases_validation_id")),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_leases_worker_id")),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_leases")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_leases_token_hash")),
        sa.UniqueConstraint("validation_id", name=op.f("uq_leases_validation_id")),
    )
    op.create_index("ix_leases_expires_at", "leases", ["expires_at"], unique=False)


def _create_verdicts() -> None:
    op.create_table(
        "verdicts",
        sa.Column("validation_id", _ID, autoincrement=False, nullable=False),
        sa.Column("attempt_id", _ID, nullable=True),
        sa.Column("worker_id", _ID, nullable=True),
        sa.Column("verdict", sa.String(length=8), nullable=False),
        sa.Column("basis", sa.String(length=8), nullable=True),
        sa.Column("assurance", sa.String(length=16), nullable=True),
        sa.Column("provenance", sa.String(length=16), nullable=False),
        sa.Column("is_retryable", sa.Boolean(), nullable=False),
        sa.Column("is_in_force", sa.Boolean(), nullable=False),
        sa.Column("why_not_in_force", sa.Text(), nullable=True),
        sa.Column("bytes_identity", sa.String(length=80), nullable=False),
        sa.Column("content_identity", sa.String(length=80), nullable=True),
        sa.Column("device", sa.String(length=64), nullable=True),
        sa.Column("format", sa.String(length=256), nullable=True),
        sa.Column("versions", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("seconds_reading", sa.Float(), nullable=False),
        sa.Column("bytes_total", _ID, nullable=False),
        sa.Column("bytes_read", _ID, nullable=False),
        sa.Column("totals", sa.JSON(), nullable=False),
        sa.Column("given_at", _AT, nullable=False),
        sa.CheckConstraint("(verdict = 'INVALID') = (basis IS NOT NULL)", name=op.f("ck_verdicts_basis")),
        sa.CheckConstraint(
            "(verdict = 'VALID') = (assurance IS NOT NULL)", name=op.f("ck_verdicts_assurance")
        ),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_verdicts_attempt_id")),
        sa.ForeignKeyConstraint(
            ["validation_id"], ["validations.id"], name=op.f("fk_verdicts_validation_id")
        ),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_verdicts_worker_id")),
        sa.PrimaryKeyConstraint("validation_id", name=op.f("pk_verdicts")),
        sa.UniqueConstraint("attempt_id", name=op.f("uq_verdicts_attempt_id")),
    )


def _create_delivery_tries() -> None:
    op.create_table(
        "delivery_tries",
        sa.Column("id", _ID, nullable=False),
        sa.Column("delivery_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", _AT, nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["delivery_id"], ["deliveries.id"], name=op.f("fk_delivery_tries_delivery_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delivery_tries")),
        sa.UniqueConstraint("delivery_id", "number", name=op.f("uq_delivery_tries_delivery_id_number")),
        sqlite_autoincrement=True,
    )
