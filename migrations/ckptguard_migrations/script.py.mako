"""${message}."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = ${repr(up_revision)}
down_revision: Final = ${repr(down_revision)}
branch_labels: Final = ${repr(branch_labels)}
depends_on: Final = ${repr(depends_on)}


def upgrade() -> None:
    """Say what it leads to."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Say what is lost."""
    ${downgrades if downgrades else "pass"}
