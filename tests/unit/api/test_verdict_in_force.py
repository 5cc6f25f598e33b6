"""Which verdict is in force: the rule, case by case (design §3, §7)."""

from typing import Any

import pytest

from ckptguard.model.finding import Basis
from ckptguard.model.policy import Depth
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.domain.bytes_seen import BytesSeen
from ckptguard_api.domain.verdict_in_force import Standing, replaces

SAME = BytesSeen(identity="sha256:a", content="sha256:c")
OTHER = BytesSeen(identity="sha256:b", content="sha256:d")


def _valid(number: int, assurance: Assurance = Assurance.LOADED, **changes: Any) -> Standing:  # noqa: ANN401 - fields
    values: dict[str, Any] = {"seen": SAME, "checks_version": 1} | changes
    return Standing(validation_id=number, verdict=Verdict.VALID, assurance=assurance, **values)


def _invalid(number: int, basis: Basis = Basis.DAMAGE, **changes: Any) -> Standing:  # noqa: ANN401 - fields
    values: dict[str, Any] = {"seen": SAME, "checks_version": 1} | changes
    return Standing(validation_id=number, verdict=Verdict.INVALID, basis=basis, **values)


def _unknown(number: int, **changes: Any) -> Standing:  # noqa: ANN401 - fields
    values: dict[str, Any] = {"seen": SAME, "checks_version": 1} | changes
    return Standing(validation_id=number, verdict=Verdict.UNKNOWN, **values)


@pytest.mark.parametrize("new", [_valid(1), _invalid(1), _unknown(1), _unknown(1, is_about_bytes=True)])
def test_the_first_verdict_is_in_force_whatever_it_says(new: Standing) -> None:
    assert replaces(None, new).is_in_force


@pytest.mark.parametrize("there", [_valid(1), _invalid(1)])
def test_not_finding_out_never_replaces_what_was_found_out(there: Standing) -> None:
    decision = replaces(there, _unknown(2))
    assert not decision.is_in_force
    assert decision.why


@pytest.mark.parametrize("there", [_valid(1), _invalid(1, Basis.POLICY), _unknown(1)])
def test_a_doubt_about_the_bytes_replaces_everything_but_damage(there: Standing) -> None:
    assert replaces(there, _unknown(2, is_about_bytes=True)).is_in_force


def test_damage_sticks_to_its_bytes() -> None:
    damage = _invalid(1)
    for new in (_valid(2), _unknown(2, is_about_bytes=True)):
        decision = replaces(damage, new, damage=[damage])
        assert (decision.is_in_force, decision.reinstates) == (False, None)


def test_damage_sticks_to_a_copy_and_to_a_medium_that_reads_otherwise() -> None:
    damage = _invalid(1)
    copied = BytesSeen(identity="sha256:elsewhere", content=SAME.content)
    reread = BytesSeen(identity=SAME.identity, content="sha256:else")
    assert not replaces(damage, _valid(2, seen=copied), damage=[damage]).is_in_force
    assert not replaces(damage, _valid(2, seen=reread), damage=[damage]).is_in_force


def test_other_bytes_and_newer_checks_lift_damage() -> None:
    damage = _invalid(1)
    assert replaces(damage, _valid(2, seen=OTHER), damage=[damage]).is_in_force
    assert replaces(damage, _valid(2, checks_version=2), damage=[damage]).is_in_force


def test_damage_comes_back_with_its_bytes() -> None:
    damage, since = _invalid(1), _valid(2, seen=OTHER)
    decision = replaces(since, _valid(3), damage=[damage])
    assert (decision.is_in_force, decision.reinstates) == (False, 1)


def test_a_valid_that_was_asked_for_less_never_lowers_a_stronger_one_of_the_same_bytes() -> None:
    strong, weak = _valid(1), _valid(2, Assurance.STRUCTURE, depth=Depth.STRUCTURE)
    assert not replaces(strong, weak).is_in_force
    assert replaces(strong, _valid(2, Assurance.STRUCTURE, depth=Depth.STRUCTURE, seen=OTHER)).is_in_force


def test_a_valid_that_was_asked_for_as_much_and_reached_less_is_the_newer_truth() -> None:
    assert replaces(_valid(1), _valid(2, Assurance.CONTENT, depth=Depth.LOAD)).is_in_force


def test_policy_and_unsafe_do_not_stick() -> None:
    for basis in (Basis.POLICY, Basis.UNSAFE):
        assert replaces(_invalid(1, basis), _valid(2)).is_in_force
