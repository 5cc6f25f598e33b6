"""Fixtures of the save side."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptguard.integrations.registration.spool import Spool
from tests.fresh_spool import fresh_spool


@pytest.fixture
def own_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spool]:
    """Return the spool of a fresh process in which no service is known."""
    yield from fresh_spool(tmp_path, monkeypatch)
