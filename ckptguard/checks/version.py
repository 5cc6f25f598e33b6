"""Which checks these are."""

from typing import Final

CHECKS_VERSION: Final = "1"
"""Raised whenever the same bytes may get another verdict; part of every report."""
