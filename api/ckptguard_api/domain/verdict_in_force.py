"""Which verdict is in force: the one rule (design §3 and §7, "three independent facts")."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ckptguard.model.finding import Basis, FindingCode
from ckptguard.model.policy import Depth
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.domain.bytes_seen import BytesSeen
from ckptguard_api.domain.reach import REACH

ABOUT_THE_BYTES: Final = frozenset(
    {
        FindingCode.CHANGED_DURING_CHECK,
        FindingCode.UNSTABLE_READ,
        FindingCode.REWRITTEN_AFTER_COMMIT,
    }
)
"""Doubts that speak about the checkpoint itself; all others are about whoever looked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A verdict, as far as the rule looks at it.

    Args:
        validation_id: Whose it is.
        verdict: The answer.
        basis: For INVALID.
        assurance: For VALID.
        depth: How far it was asked to go.
        seen: The bytes that it binds to.
        is_about_bytes: For UNKNOWN: one of its doubts is about the bytes.
        checks_version: Of the checks that gave it; a newer one may know better.
    """

    validation_id: int
    verdict: Verdict
    basis: Basis | None = None
    assurance: Assurance | None = None
    depth: Depth = Depth.LOAD
    seen: BytesSeen
    is_about_bytes: bool = False
    checks_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of a new verdict.

    Args:
        is_in_force: It replaces the one in force.
        why: Where it does not: why, for a person.
        reinstates: An earlier validation whose damage speaks of these bytes, and comes into force again.
    """

    is_in_force: bool
    why: str = ""
    reinstates: int | None = None


def replaces(in_force: Standing | None, new: Standing, *, damage: Sequence[Standing] = ()) -> Decision:
    """Decide whether a new verdict replaces the one in force.

    VALID, INVALID, and UNKNOWN about the bytes replace it. UNKNOWN for other reasons says that we could not
    find out: it never takes the place of a VALID or INVALID. Damage sticks to its bytes, whatever was in
    force meanwhile. A VALID that was asked for less never lowers a stronger one of the same bytes.

    Args:
        in_force: The one in force; None: none yet.
        new: The one just given.
        damage: Every INVALID for damage on record for this checkpoint that no operator lifted.
    """
    if new.verdict is Verdict.INVALID or in_force is None:
        return _unless_damaged(in_force, new, damage)
    if new.verdict is Verdict.UNKNOWN and not new.is_about_bytes and in_force.verdict is not Verdict.UNKNOWN:
        return Decision(is_in_force=False, why="it could not find out, and an earlier one did")
    if _is_weaker(in_force, new):
        return Decision(is_in_force=False, why="a stronger VALID of the same bytes is in force")
    return _unless_damaged(in_force, new, damage)


def _unless_damaged(in_force: Standing | None, new: Standing, damage: Sequence[Standing]) -> Decision:
    says_nothing_of_bytes = new.verdict is Verdict.UNKNOWN and not new.is_about_bytes
    if new.verdict is Verdict.INVALID or says_nothing_of_bytes:
        return Decision(is_in_force=True)
    for earlier in damage:
        if new.seen.is_same_as(earlier.seen) and new.checks_version <= earlier.checks_version:
            is_there = in_force is not None and in_force.validation_id == earlier.validation_id
            why = f"validation {earlier.validation_id} found these bytes damaged"
            return Decision(
                is_in_force=False, why=why, reinstates=None if is_there else earlier.validation_id
            )
    return Decision(is_in_force=True)


def _is_weaker(in_force: Standing, new: Standing) -> bool:
    if in_force.assurance is None or new.assurance is None:
        return False
    is_asked_for_less = REACH[new.depth].rank < in_force.assurance.rank
    return (
        is_asked_for_less
        and new.assurance.rank < in_force.assurance.rank
        and new.seen.is_same_as(in_force.seen)
    )
