"""The database's schema, one revision after the other; runs from the installed wheel.

It imports no table of the service: a revision says what the schema was then, not what it is now.
"""

from ckptguard_migrations.steps import current, downgrade, head, upgrade

__all__ = ["current", "downgrade", "head", "upgrade"]
