"""The queries of a claim; each is answered from an index of open validations alone.

Measured with 100,000 queued validations in 1,000 runs (docs/measurements.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, func, or_, select, text, update

from ckptguard.model.service import EVERY_STORE, ValidationState
from ckptguard_api.database import Transaction
from ckptguard_api.domain.claim_order import Tier
from ckptguard_api.repositories.validations import IS_QUEUED, newest_first
from ckptguard_api.tables import projects, runs, stores, validations

MAX_STORES: Final = 1000
"""That one worker maps."""

_IS_WAITED: Final = text("validations.state = 'queued' AND validations.waited_until IS NOT NULL")
_IDS: Final = (validations.c.id, validations.c.run_id, validations.c.checkpoint_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a worker may be given.

    Args:
        store_ids: Stores that it maps, of its projects.
        depths: How far it can go; empty: anything.
    """

    store_ids: tuple[int, ...]
    depths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A validation that could be claimed when it was looked at."""

    run_id: int
    checkpoint_id: int
    validation_id: int


def stores_of(tx: Transaction, *, names: Sequence[str], project_id: int | None) -> tuple[int, ...]:
    """Return ids of the stores of these names, or of every one, in a project, or in all."""
    s = stores.c
    statement = select(s.id).where(s.removed_at.is_(None)).order_by(s.id).limit(MAX_STORES)
    if EVERY_STORE not in names:
        statement = statement.where(s.name.in_(names))
    if project_id is not None:
        statement = statement.where(s.project_id == project_id)
    return tuple(tx.execute(statement).scalars())


def has_anything(tx: Transaction, reach: Reach) -> bool:
    """Say whether anything may be claimed now: what a poll costs while there is no work."""
    statement = select(stores.c.id).where(stores.c.id.in_(reach.store_ids))
    queued = [_of_store(tx, reach, tier).exists() for tier in Tier]
    return tx.execute(statement.where(or_(*queued)).limit(1)).first() is not None


def longest_waiting(tx: Transaction, reach: Reach) -> Candidate | None:
    """Return what was asked for first, of all tiers."""
    oldest = [
        select(func.min(_of_store(tx, reach, tier).order_by(validations.c.id).limit(1).scalar_subquery()))
        .where(stores.c.id.in_(reach.store_ids))
        .scalar_subquery()
        for tier in Tier
    ]
    ids = [found for found in tx.execute(select(*oldest)).one() if found is not None]
    if not ids:
        return None
    return _candidate(tx, select(*_IDS).where(validations.c.id == min(ids)))


def waited_for(tx: Transaction, reach: Reach) -> Candidate | None:
    """Return one that somebody waits for, of the run whose last claim is longest ago."""
    v = validations.c
    last = select(runs.c.claimed_at).where(runs.c.id == v.run_id).scalar_subquery()
    statement = (
        select(*_IDS)
        .where(_IS_WAITED, v.waited_until > tx.now, *_is_due(tx, reach))
        .where((v.store_id + 0).in_(reach.store_ids))  # `+ 0`: by no other index
        .order_by(*_turn(last), v.run_id, *newest_first())
        .limit(1)
    )
    return _candidate(tx, statement)


def project_with_turn(tx: Transaction, reach: Reach, tier: Tier) -> int | None:
    """Return the project with something in this tier whose last claim is longest ago."""
    last = select(func.max(runs.c.claimed_at)).where(runs.c.project_id == projects.c.id).scalar_subquery()
    there = select(stores.c.id).where(
        stores.c.project_id == projects.c.id,
        stores.c.id.in_(reach.store_ids),
        _of_store(tx, reach, tier).exists(),
    )
    statement = select(projects.c.id).where(there.exists()).order_by(*_turn(last), projects.c.id)
    found: int | None = tx.execute(statement.limit(1)).scalar()
    return found


def run_with_turn(
    tx: Transaction, reach: Reach, tier: Tier, *, project_id: int, is_patient: bool
) -> Row[Any] | None:
    """Return the run of a project with something in this tier whose last claim is longest ago, locked.

    Args:
        tx: The transaction.
        reach: What the worker may be given.
        tier: Where to look.
        project_id: Whose runs.
        is_patient: Wait for a run that another transaction holds; else take the next one.
    """
    v = validations.c
    there = select(v.id).where(v.run_id == runs.c.id, v.tier == tier.value, IS_QUEUED, *_claimable(tx, reach))
    statement = (
        select(runs)
        .where(runs.c.project_id == project_id, there.exists())
        .limit(1)
        .with_for_update(key_share=True, skip_locked=not is_patient)
    )
    # Two queries: the databases differ about where an index has NULL, and each stops at the first row.
    never = statement.where(runs.c.claimed_at.is_(None)).order_by(runs.c.id)
    row = tx.execute(never).one_or_none()
    if row is not None:
        return row
    before = statement.where(runs.c.claimed_at.is_not(None)).order_by(runs.c.claimed_at, runs.c.id)
    return tx.execute(before).one_or_none()


def newest_of_run(tx: Transaction, reach: Reach, tier: Tier, *, run_id: int) -> Candidate | None:
    """Return the newest checkpoint's validation of a locked run in this tier."""
    v = validations.c
    statement = (
        select(*_IDS)
        .where(v.run_id == run_id, v.tier == tier.value, IS_QUEUED)
        .where(*_claimable(tx, reach))
        .order_by(*newest_first())
        .limit(1)
    )
    return _candidate(tx, statement)


def is_claimable(tx: Transaction, reach: Reach, row: Row[Any]) -> bool:
    """Say whether a locked validation may still be claimed."""
    return bool(
        row.state == ValidationState.QUEUED.value
        and row.store_id in reach.store_ids
        and (not reach.depths or row.depth in reach.depths)
        and (row.not_before is None or row.not_before <= tx.now)
    )


def note_turn(tx: Transaction, run_id: int, at: datetime) -> None:
    """Let every other run have its turn before this one."""
    tx.execute(update(runs).where(runs.c.id == run_id).values(claimed_at=at))


def store_of(tx: Transaction, store_id: int) -> Row[Any]:
    """Return the store of a validation; there is always one."""
    return tx.execute(select(stores).where(stores.c.id == store_id)).one()


def allowed_globals(tx: Transaction, project_id: int) -> Sequence[str]:
    """Return what the project vouches for."""
    names: Sequence[str] = tx.execute(
        select(projects.c.allowed_globals).where(projects.c.id == project_id)
    ).scalar_one()
    return names


def _candidate(tx: Transaction, statement: Select[Any]) -> Candidate | None:
    row = tx.execute(statement).first()
    if row is None:
        return None
    return Candidate(run_id=row.run_id, checkpoint_id=row.checkpoint_id, validation_id=row.id)


def _of_store(tx: Transaction, reach: Reach, tier: Tier) -> Select[Any]:
    v = validations.c
    return select(v.id).where(
        v.store_id == stores.c.id,
        v.tier == tier.value,
        IS_QUEUED,
        *_is_due(tx, reach),
    )


def _claimable(tx: Transaction, reach: Reach) -> list[ColumnElement[bool]]:
    return [validations.c.store_id.in_(reach.store_ids), *_is_due(tx, reach)]


def _is_due(tx: Transaction, reach: Reach) -> list[ColumnElement[bool]]:
    v = validations.c
    conditions: list[ColumnElement[bool]] = [or_(v.not_before.is_(None), v.not_before <= tx.now)]
    if reach.depths:
        conditions.append(v.depth.in_(reach.depths))
    return conditions


def _turn(claimed_at: ColumnElement[Any]) -> tuple[ColumnElement[Any], ...]:
    """Order by the last claim, those without one first: the two databases differ about NULL."""
    return claimed_at.is_not(None), claimed_at
