"""Where this machine has the stores of the service."""

from collections.abc import Mapping, Sequence
from typing import Final

from ckptguard.operations.store_view import parse_stores

STORES_VARIABLE: Final = "CKPTGUARD_STORES"


def stores_of(environment: Mapping[str, str], given: Sequence[str] | None) -> dict[str, str]:
    """Return the roots by name: `CKPTGUARD_STORES`, and over it each `--store NAME=PATH`.

    Raises:
        ConfigError: One is not of that form.
    """
    return parse_stores(environment.get(STORES_VARIABLE, "")) | parse_stores(",".join(given or ()))
