"""A running service for attacks: the fixtures of the unit tests of the API."""

from tests.unit.api.conftest import door, served

__all__ = ["door", "served"]
