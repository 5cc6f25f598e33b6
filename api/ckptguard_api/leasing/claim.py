"""A worker claims one attempt (the order: `domain.claim_order`; the queries: `repositories.claims`)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ckptguard.model.policy import Depth
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import SERVICE, Actor
from ckptguard_api.domain.claim_order import Tier, is_turn_of_longest
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.expiry import end_expired
from ckptguard_api.leasing.granting import Picked, grant
from ckptguard_api.leasing.joining import is_known, join
from ckptguard_api.leasing.lease import Lease
from ckptguard_api.leasing.queue import cancel_open, is_wanted
from ckptguard_api.repositories import claims
from ckptguard_api.repositories.claims import Candidate, Reach
from ckptguard_api.repositories.leases import find_expired
from ckptguard_api.repositories.runs import lock_run
from ckptguard_api.repositories.validations import lock_checkpoint, lock_validation
from ckptguard_api.repositories.workers import WorkerRow, find_worker
from ckptguard_api.services import Services

_TRIES: Final = 4
"""Looks for a run of one tier that nobody else emptied between finding and locking it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one read shows to a worker that asks: most often, that there is nothing to do."""

    worker: WorkerRow | None
    is_known: bool
    has_expired: bool
    reach: Reach
    has_work: bool


def claim(services: Services, *, worker: str, capabilities: Capabilities, actor: Actor) -> Lease | None:
    """Give a worker the next attempt, or None where there is no work for it.

    Guarantees: nobody else is given the same validation while this lease lives; a lease row is unique
    per validation whatever the code does.

    Cost: one read transaction while there is nothing to do; docs/measurements.md says what a claim costs.

    Raises:
        ForbiddenError: The name belongs to a worker of another project.
    """
    look = _look(services, worker, capabilities, actor)
    row = look.worker
    if row is None or not look.is_known:
        with services.database.write() as tx:
            row = join(tx, name=worker, capabilities=capabilities, actor=actor)
    if look.has_expired:
        with services.database.write() as tx:
            end_expired(tx, services.settings)
    if not look.reach.store_ids or not (look.has_work or look.has_expired):
        return None
    return _granted(services, look.reach, row, actor=actor)


def _look(services: Services, name: str, capabilities: Capabilities, actor: Actor) -> _Look:
    with services.database.read() as tx:
        row = find_worker(tx, name)
        reach = _reach(tx, capabilities, actor)
        return _Look(
            worker=row,
            is_known=is_known(tx, row, capabilities=capabilities, actor=actor),
            has_expired=bool(find_expired(tx, limit=1)),
            reach=reach,
            has_work=bool(reach.store_ids) and claims.has_anything(tx, reach),
        )


def _granted(services: Services, reach: Reach, row: WorkerRow, *, actor: Actor) -> Lease | None:
    for _ in range(_TRIES):
        with services.database.write() as tx:
            picked = _pick(tx, reach, row)
            if picked is None:
                return None
            if is_wanted(picked.checkpoint):
                return grant(tx, picked, row, actor=actor, settings=services.settings)
            why = f"the checkpoint is {picked.checkpoint.lifecycle}"
            cancel_open(tx, picked.checkpoint.id, why=why, actor=SERVICE)
    return None


def _reach(tx: Transaction, capabilities: Capabilities, actor: Actor) -> Reach:
    ids = claims.stores_of(tx, names=capabilities.stores, project_id=actor.project_id)
    can_all = set(Depth) <= set(capabilities.depths)
    return Reach(store_ids=ids, depths=() if can_all else capabilities.depths)


def _pick(tx: Transaction, reach: Reach, worker: WorkerRow) -> Picked | None:
    # What a lost candidate locked is let go before the next: two claims would lock runs in two orders.
    candidates = _candidates(tx, reach, worker)
    while True:
        with tx.connection.begin_nested() as attempt:
            try:
                candidate = next(candidates)
            except StopIteration:
                return None
            picked = None if candidate is None else _locked(tx, reach, candidate)
            if picked is not None:
                return picked
            attempt.rollback()


def _locked(tx: Transaction, reach: Reach, candidate: Candidate) -> Picked | None:
    run = lock_run(tx, candidate.run_id)
    checkpoint = lock_checkpoint(tx, candidate.checkpoint_id)
    validation = lock_validation(tx, candidate.validation_id)
    if not claims.is_claimable(tx, reach, validation):
        return None
    return Picked(run=run, checkpoint=checkpoint, validation=validation)


def _candidates(tx: Transaction, reach: Reach, worker: WorkerRow) -> Iterator[Candidate | None]:
    """Yield what may be claimed, first choice first, each looked for when the one before was lost."""
    if is_turn_of_longest(worker_id=worker.id, claims=worker.claims):
        yield claims.longest_waiting(tx, reach)
    yield claims.waited_for(tx, reach)
    # First runs that nobody holds; where all are held, the one whose turn it is: there is work.
    for is_patient in (False, True) if tx.is_postgresql else (True,):
        for tier in Tier:
            for _ in range(_TRIES):
                candidate = _of_tier(tx, reach, tier, is_patient=is_patient)
                yield candidate
                if candidate is None:
                    break


def _of_tier(tx: Transaction, reach: Reach, tier: Tier, *, is_patient: bool) -> Candidate | None:
    project_id = claims.project_with_turn(tx, reach, tier)
    if project_id is None:
        return None
    run = claims.run_with_turn(tx, reach, tier, project_id=project_id, is_patient=is_patient)
    return claims.newest_of_run(tx, reach, tier, run_id=run.id) if run is not None else None
