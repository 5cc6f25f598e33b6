"""One module a revision; Alembic finds them by their folder."""
