"""What a database says that its schema is: constraints, partial indexes and triggers too."""

from typing import Final

from sqlalchemy import Engine, text

_SQLITE: Final = (
    "SELECT type, name, sql FROM sqlite_master WHERE name <> 'sqlite_sequence' AND sql IS NOT NULL"
)
_POSTGRESQL: Final = """
SELECT 'column' AS type, table_name || '.' || column_name AS name,
       concat_ws(' ', data_type, character_maximum_length, is_nullable, column_default) AS sql
FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'
UNION ALL
SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL
SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL
SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL
SELECT 'function', proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""


def schema_of(engine: Engine) -> dict[tuple[str, str], str]:
    """Return every part of the schema but Alembic's own: (kind, name) to its definition."""
    query = _POSTGRESQL if engine.dialect.name == "postgresql" else _SQLITE
    with engine.connect() as connection:
        rows = connection.execute(text(query)).all()
    return {
        (kind, name): _in_order(definition)
        for kind, name, definition in rows
        if "alembic_version" not in name
    }


def without_triggers(schema: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Leave out what tables do not declare."""
    return {key: value for key, value in schema.items() if key[0] not in {"trigger", "function"}}


def _in_order(definition: str) -> str:
    # Columns and constraints of a table may come in another order; what each says may not differ.
    lines = [" ".join(line.split()).rstrip(",") for line in definition.splitlines()]
    return "\n".join(sorted(filter(None, lines)))
