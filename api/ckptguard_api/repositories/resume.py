"""What a resume target is chosen from: the few checkpoints that decide, out of any number.

The newest usable one, the newest 100 above it, one that may still become VALID and one that is VALID below:
the choice from these is the choice from all (tests/property/test_resume_histories.py). Each is read in the
order of an index, and none of the reads grows with the checkpoints that were damaged, held or left behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, and_, case, func, literal_column, or_, select, tuple_

from ckptguard.model.policy import Depth
from ckptguard.model.service import Lifecycle, SupersededBy, ValidationState
from ckptguard.model.verdict import Assurance, Provenance, Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.domain.resume import Asked, Candidate, Order, WaitedFor
from ckptguard_api.domain.resume_choice import is_listed
from ckptguard_api.repositories.runs import RunRow
from ckptguard_api.repositories.validations import LAST_DEPTH
from ckptguard_api.tables import OPEN, USABLE, checkpoints, stores, validations

MAX_PASSED_OVER: Final = 100
"""Newer ones that an answer names."""

MAX_COUNTED: Final = 10_000
"""Newer ones that an answer counts: every change of a run makes its answer anew, and must not cost more."""

MAX_QUEUE_SEEN: Final = 200
"""Newer validations, queued or running, that an answer knows of: a launcher waits for the newest ones."""

_ORDER: Final = (checkpoints.c.branch, checkpoints.c.step, checkpoints.c.created_at, checkpoints.c.id)
_NEWEST_FIRST: Final = tuple(column.desc() for column in _ORDER)
# Texts, not expressions: a partial index is used only where its own condition stands in the query. And
# without a type: of a boolean column SQLAlchemy writes `= 1` for SQLite, and then it stands there no more.
_IS_OPEN: Final[ColumnElement[Any]] = literal_column("validations.state IN ('queued','running')")
_MAY_BE_TARGET: Final[ColumnElement[Any]] = literal_column(f"({USABLE})")
_MAY_BECOME_TARGET: Final[ColumnElement[Any]] = literal_column(f"({OPEN})")
_OPEN_VALIDATION: Final = and_(validations.c.checkpoint_id == checkpoints.c.id, _IS_OPEN)
_LISTED: Final = (Lifecycle.ANNOUNCED.value, Lifecycle.INCOMPLETE.value, Lifecycle.REGISTERED.value)
_UNREAD: Final = {"project_id", "expected_parts", "gone_at"}
_RETRY_DEPTH: Final = case((checkpoints.c.retry_at.is_not(None), LAST_DEPTH))
"""Read only of those that are asked again."""
_READ: Final = (
    select(*(column for column in checkpoints.c if column.name not in _UNREAD))
    .add_columns(
        validations.c.depth.label("open_depth"),
        validations.c.id.label("open_id"),
        _RETRY_DEPTH.label("retry_depth"),
    )
    .select_from(checkpoints.outerjoin(validations, _OPEN_VALIDATION))
    .order_by(*_NEWEST_FIRST)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """Enough to choose from.

    Args:
        rows: Columns of `checkpoints` and `open_depth`, `open_id`, `retry_depth`; newest first, none twice.
        newer_total: Those of the newest `MAX_COUNTED` above the newest usable one that are neither superseded
            nor deleted.
        left_total: Those of them that are.
        waited_for: Newest first; `MAX_QUEUE_SEEN` at most.
    """

    rows: tuple[Row[Any], ...]
    newer_total: int
    left_total: int
    waited_for: tuple[WaitedFor, ...]


def narrow(tx: Transaction, run: RunRow, asked: Asked, *, max_passed_over: int = MAX_PASSED_OVER) -> Narrowed:
    """Read what the choice depends on, and the newest `max_passed_over` that are passed over."""
    target = _first(tx, _usable(run.id, asked, asked.assurances, now=tx.now))
    above = and_(*_scope(run.id, asked), *_above(target))
    newer = tx.execute(_READ.where(above).limit(max_passed_over + 1)).all()
    listed = [row for row in newer if is_listed(asked.as_seen(to_candidate(row)), asked)]
    found = [target, *newer]
    totals = (len(listed), len(newer) - len(listed))
    if len(newer) > max_passed_over:
        totals = _count(tx, above, asked)
        if len(listed) < max_passed_over:
            listed = list(tx.execute(_READ.where(above, _is_listed(asked)).limit(max_passed_over)))
        found = [target, *listed, *_far_away(tx, run, asked, above=above, target=target)]
    elif not newer and target is None:
        found = [_first(tx, _READ.where(checkpoints.c.run_id == run.id))]
    rows = {row.id: row for row in found if row is not None}
    has_queue = any(row.open_id is not None for row in rows.values()) or len(newer) > max_passed_over
    return Narrowed(
        rows=tuple(sorted(rows.values(), key=_order_of, reverse=True)),
        newer_total=totals[0],
        left_total=totals[1],
        waited_for=_waited_for(tx, and_(above, _is_of(run)), asked) if has_queue else (),
    )


def _far_away(
    tx: Transaction,
    run: RunRow,
    asked: Asked,
    *,
    above: ColumnElement[bool],
    target: Row[Any] | None,
) -> list[Row[Any] | None]:
    """Read what decides and may lie below all the newer ones that are named."""
    found: list[Row[Any] | None] = []
    if target is None or asked.require_newest:
        found.append(_first(tx, _READ.where(above, _is_of(run), _can_become_valid(asked, now=tx.now))))
    if target is None:
        found.append(_best_below(tx, run.id, asked))
        found.append(_first(tx, _READ.where(checkpoints.c.run_id == run.id)))
    return found


def to_candidate(row: Row[Any]) -> Candidate:
    """Return what the choice depends on of a row of `narrow`."""
    return Candidate(
        id=row.id,
        branch=row.branch,
        step=row.step,
        created_at=row.created_at,
        lifecycle=Lifecycle(row.lifecycle),
        superseded_by=None if row.superseded_by is None else SupersededBy(row.superseded_by),
        is_complete=row.registered_at is not None,
        keep_alive_until=row.keep_alive_until,
        verdict=None if row.verdict is None else Verdict(row.verdict),
        assurance=None if row.assurance is None else Assurance(row.assurance),
        provenance=None if row.provenance is None else Provenance(row.provenance),
        device=row.device,
        validated_at=row.validated_at,
        is_quarantined=row.is_quarantined,
        is_suspect=row.is_suspect,
        validation_state=None if row.validation_state is None else ValidationState(row.validation_state),
        open_depth=None if row.open_depth is None else Depth(row.open_depth),
        retry_at=row.retry_at,
        retry_depth=None if row.retry_depth is None else Depth(row.retry_depth),
    )


def read_candidate(tx: Transaction, checkpoint_id: int) -> Candidate:
    """Return what the choice depends on of one checkpoint; there is one."""
    return to_candidate(tx.execute(_READ.where(checkpoints.c.id == checkpoint_id)).one())


def _first(tx: Transaction, statement: Select[Any]) -> Row[Any] | None:
    return tx.execute(statement.limit(1)).one_or_none()


def _order_of(row: Row[Any]) -> Order:
    return (row.branch, row.step, row.created_at, row.id)


def _scope(run_id: int, asked: Asked) -> list[ColumnElement[bool]]:
    conditions = [checkpoints.c.run_id == run_id]
    if asked.step is not None:
        conditions.append(checkpoints.c.step == asked.step)
    if asked.before_step is not None:
        # `+ 0`: else SQLite finds all earlier steps by another index, and sorts them.
        conditions.append(checkpoints.c.step + 0 < asked.before_step)
    return conditions


def _above(row: Row[Any] | None) -> list[ColumnElement[bool]]:
    if row is None:
        return []
    types = [column.type for column in _ORDER]
    return [tuple_(*_ORDER) > tuple_(*_order_of(row), types=types)]


def _usable(run_id: int, asked: Asked, levels: Sequence[Assurance], *, now: datetime) -> Select[Any]:
    conditions = [*_scope(run_id, asked), *_seen(asked)]
    conditions.append(checkpoints.c.assurance.in_([level.value for level in levels]))
    if asked.step is None:
        conditions.append(_MAY_BE_TARGET)
    else:
        conditions += [checkpoints.c.verdict == Verdict.VALID.value, _has_its_bytes(asked), _is_free()]
    if asked.min_provenance is not None:
        conditions.append(checkpoints.c.provenance.in_([one.value for one in asked.provenances]))
    if asked.device is not None:
        conditions.append(_is_on(asked.device))
    too_old_before = asked.too_old_before(now)
    if too_old_before is not None:
        conditions.append(checkpoints.c.validated_at >= too_old_before)
    return _READ.where(*conditions)


def _best_below(tx: Transaction, run_id: int, asked: Asked) -> Row[Any] | None:
    for level in reversed([level for level in Assurance if level not in asked.assurances]):
        found = _first(tx, _usable(run_id, asked, [level], now=tx.now))
        if found is not None:
            return found
    return None


def _count(tx: Transaction, above: ColumnElement[bool], asked: Asked) -> tuple[int, int]:
    is_listed = _is_listed(asked).label("is_listed")
    counted = select(is_listed).where(above).order_by(*_NEWEST_FIRST).limit(MAX_COUNTED).subquery()
    statement = select(func.count(), func.count().filter(counted.c.is_listed))
    total, listed_total = tuple(tx.execute(statement.select_from(counted)).one())
    return listed_total, total - listed_total


def _waited_for(tx: Transaction, above: ColumnElement[bool], asked: Asked) -> tuple[WaitedFor, ...]:
    queue = checkpoints.join(validations, _OPEN_VALIDATION).join(
        stores, stores.c.id == checkpoints.c.store_id
    )
    statement = (
        select(validations.c.id, validations.c.depth, stores.c.name)
        .select_from(queue)
        .where(
            above,
            _MAY_BECOME_TARGET,
            _is_free(),
            *_seen(asked),
            _has_its_bytes(asked),
            checkpoints.c.validation_state.is_not(None),
            validations.c.depth.in_([depth.value for depth in asked.depths]),
        )
        .order_by(*_NEWEST_FIRST)
        .limit(MAX_QUEUE_SEEN)
    )
    return tuple(
        WaitedFor(validation_id=row.id, store=row.name, depth=Depth(row.depth))
        for row in tx.execute(statement)
    )


def _is_of(run: RunRow) -> ColumnElement[bool]:
    project_id: int = run.project_id
    return checkpoints.c.project_id == project_id


def _can_become_valid(asked: Asked, *, now: datetime) -> ColumnElement[bool]:
    is_alive = and_(
        checkpoints.c.lifecycle == Lifecycle.ANNOUNCED.value, checkpoints.c.keep_alive_until > now
    )
    depths = [depth.value for depth in asked.depths]
    is_unjudged = and_(checkpoints.c.validation_state.is_(None), checkpoints.c.verdict.is_(None))
    is_coming = and_(
        checkpoints.c.validation_state.is_not(None),
        or_(validations.c.depth.is_(None), validations.c.depth.in_(depths)),
    )
    may_come = and_(_has_its_bytes(asked), or_(is_unjudged, is_coming, _is_tried_again(depths)))
    return and_(_MAY_BECOME_TARGET, _is_free(), *_seen(asked), or_(is_alive, may_come))


def _is_tried_again(depths: Sequence[str]) -> ColumnElement[bool]:
    return and_(
        checkpoints.c.lifecycle == Lifecycle.REGISTERED.value,
        checkpoints.c.validation_state.is_(None),
        checkpoints.c.retry_at.is_not(None),
        LAST_DEPTH.in_(depths),
    )


def _seen(asked: Asked) -> list[ColumnElement[bool]]:
    return [checkpoints.c.id.not_in(asked.exclude)] if asked.exclude else []


def _is_free() -> ColumnElement[bool]:
    return and_(checkpoints.c.is_quarantined.is_(False), checkpoints.c.is_suspect.is_(False))


def _has_its_bytes(asked: Asked) -> ColumnElement[bool]:
    is_registered = checkpoints.c.lifecycle == Lifecycle.REGISTERED.value
    return is_registered if asked.step is None else or_(is_registered, _is_rolled_back())


def _is_listed(asked: Asked) -> ColumnElement[bool]:
    is_listed: ColumnElement[bool] = checkpoints.c.lifecycle.in_(_LISTED)
    if asked.step is not None:
        is_listed = or_(is_listed, _is_rolled_back())
    return and_(is_listed, *_seen(asked))


def _is_rolled_back() -> ColumnElement[bool]:
    return and_(
        checkpoints.c.lifecycle == Lifecycle.SUPERSEDED.value,
        checkpoints.c.superseded_by == SupersededBy.ROLLED_BACK.value,
        checkpoints.c.registered_at.is_not(None),
    )


def _is_on(device: str) -> ColumnElement[bool]:
    beginning = func.substr(checkpoints.c.device, 1, len(device) + 1)
    return or_(checkpoints.c.device == device, beginning.in_([f"{device}:", f"{device} "]))
