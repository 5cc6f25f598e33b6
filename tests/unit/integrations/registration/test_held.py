"""What is held is registered at the trainer's word, and not before."""

from pathlib import Path

import pytest

from ckptguard.integrations import incidents
from ckptguard.integrations.registration import discard, hold, release
from ckptguard.integrations.registration.held import MAX_HELD
from ckptguard.integrations.registration.spool import Spool
from tests.fresh_spool import spooled
from tests.unit.integrations.registration.entries import entry


def test_nothing_is_registered_before_the_word(own_spool: Spool, tmp_path: Path) -> None:
    hold(entry(tmp_path, 1))
    hold(entry(tmp_path, 2))
    assert own_spool.names() == []
    assert release() == 2
    assert [each.step for each in spooled(own_spool)] == [1, 2]
    assert release() == 0


def test_what_is_discarded_is_never_registered(own_spool: Spool, tmp_path: Path) -> None:
    hold(entry(tmp_path, 1))
    assert discard() == 1
    assert release() == 0
    assert own_spool.names() == []


def test_a_later_save_at_the_same_place_counts(own_spool: Spool, tmp_path: Path) -> None:
    hold(entry(tmp_path, 1, save_id="first"))
    hold(entry(tmp_path, 1, save_id="second"))
    assert release() == 1
    assert [each.save_id for each in spooled(own_spool)] == ["second"]


@pytest.mark.usefixtures("own_spool")
def test_what_nobody_releases_is_bounded_and_told(tmp_path: Path) -> None:
    for step in range(MAX_HELD + 2):
        hold(entry(tmp_path, step))
    assert incidents.counters()["registrations_unreleased"] == 2
    assert discard() == MAX_HELD
