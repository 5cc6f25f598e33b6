"""Moments as seconds since 1970, made by the database: 10,000 of them cost Python more than the read."""

from typing import Any

from sqlalchemy import ColumnElement, Float
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class EpochS(FunctionElement[float]):
    """Seconds since 1970 of one column or expression of type `UtcDateTime`; milliseconds are kept."""

    type = Float()
    inherit_cache = True
    name = "epoch_s"

    def __init__(self, moment: ColumnElement[Any]) -> None:
        """Take the moment."""
        super().__init__(moment)


@compiles(EpochS, "sqlite")
def _for_sqlite(element: EpochS, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - SQLAlchemy's
    # Text in UTC; a Julian day begins at noon (SQLite, "Date And Time Functions").
    return f"((julianday({compiler.process(element.clauses, **options)}) - 2440587.5) * 86400.0)"


@compiles(EpochS, "postgresql")
def _for_postgresql(element: EpochS, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - as above
    return f"CAST(EXTRACT(EPOCH FROM {compiler.process(element.clauses, **options)}) AS DOUBLE PRECISION)"
