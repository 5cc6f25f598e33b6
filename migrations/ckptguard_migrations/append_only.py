"""Triggers that refuse to change or delete rows, whatever program asks."""

from typing import Final

from alembic import op

# 23000 and SQLite's ABORT are integrity errors for the drivers: the service answers with a conflict.
_POSTGRESQL_FUNCTION: Final = """
CREATE FUNCTION ckptguard_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are never changed or deleted', TG_TABLE_NAME USING ERRCODE = '23000';
END $$
"""


def protect_from_changes(table: str) -> None:
    """Let rows be added to a table, and never be changed or deleted.

    Args:
        table: Name of a table that exists.
    """
    if op.get_context().dialect.name == "postgresql":
        op.execute(_POSTGRESQL_FUNCTION)
        for name, when, each in (
            ("change", "UPDATE OR DELETE", "ROW"),
            ("truncate", "TRUNCATE", "STATEMENT"),
        ):
            op.execute(
                f"CREATE TRIGGER {table}_refuse_{name} BEFORE {when} ON {table} "
                f"FOR EACH {each} EXECUTE FUNCTION ckptguard_refuse_change()"
            )
        return
    for what in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {table}_refuse_{what.lower()} BEFORE {what} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, 'rows of {table} are never changed or deleted'); END"
        )


def drop_protection() -> None:
    """Drop what the triggers call; they themselves go with their tables."""
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP FUNCTION ckptguard_refuse_change()")
