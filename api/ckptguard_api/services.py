"""What the routes of one process share."""

from dataclasses import dataclass

from ckptguard_api.database import Database
from ckptguard_api.settings import Settings


@dataclass(kw_only=True)
class Services:
    """Made once, when the app starts.

    Args:
        database: Where everything durable is.
        settings: What the operator set.
    """

    database: Database
    settings: Settings
