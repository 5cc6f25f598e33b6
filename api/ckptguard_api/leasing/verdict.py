"""A worker's verdict: read, derived anew, and recorded with everything that belongs to it."""

from collections.abc import Mapping
from typing import Any, Final

from ckptguard.errors import FormatError, InvalidRequestError, TooLargeError
from ckptguard.model.report import Report
from ckptguard.model.report_json import report_from_json
from ckptguard.model.service import AttemptEnding
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.leasing.binding import bind
from ckptguard_api.leasing.fence import Held, find_own_attempt, require_held
from ckptguard_api.leasing.lease import LeaseKey
from ckptguard_api.leasing.recording import Given, Giver, record_verdict
from ckptguard_api.leasing.tiers import set_tiers
from ckptguard_api.repositories.judged_checkpoints import learn_rate
from ckptguard_api.repositories.leases import end_attempt_row
from ckptguard_api.repositories.runs import touch_run
from ckptguard_api.repositories.verdicts import find_verdict
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings

MAX_FINDINGS: Final = 100_000
"""Of one report, all severities: the checks bound theirs far below."""


def give_verdict(services: Services, key: LeaseKey, *, report: Mapping[str, Any], actor: Actor) -> Given:
    """Finish a validation: one transaction for the verdict, its evidence, and what it changes.

    Args:
        services: Of this process.
        key: The lease's.
        report: `report_to_json`, schema 1; its own members `verdict`, `basis`, … are not looked at.
        actor: Whose token it is.

    Returns:
        The answer; the same again where the same lease had it recorded before.

    Raises:
        InvalidRequestError: No report, or one that contradicts the manifest or what was asked for;
            `problems` says all that is wrong, and the lease goes on.
        ConflictError: Another manifest was registered meanwhile.
        LeaseLostError: The lease is over, or is not the caller's.
    """
    parsed = _parse(report)
    with services.database.read() as tx:
        told = _told_before(tx, key, actor=actor)
        if told is not None:
            return told
        bound = bind(tx, find_own_attempt(tx, key, actor=actor)[1], parsed)
    with services.database.write() as tx:
        told = _told_before(tx, key, actor=actor)
        if told is not None:
            return told
        held = require_held(tx, key, actor=actor)
        bound.require_same(tx, held.checkpoint.id)
        return _give(tx, held, parsed, services.settings)


def _parse(report: Mapping[str, Any]) -> Report:
    try:
        parsed = report_from_json(report)
    except FormatError as error:
        msg = "the verdict carries no report"
        raise InvalidRequestError(msg, problems=error.problems) from error
    count = len(parsed.findings) + len(parsed.other_findings)
    if count > MAX_FINDINGS:
        msg = f"{count} findings; at most {MAX_FINDINGS}"
        raise TooLargeError(msg)
    return parsed


def _told_before(tx: Transaction, key: LeaseKey, *, actor: Actor) -> Given | None:
    attempt, validation = find_own_attempt(tx, key, actor=actor)
    if attempt.ending != AttemptEnding.FINISHED.value:
        return None
    given = find_verdict(tx, validation.id)
    assert given is not None  # noqa: S101 - an attempt finishes with its verdict
    return Given(verdict=given.verdict, is_in_force=given.is_in_force)


def _give(tx: Transaction, held: Held, report: Report, settings: Settings) -> Given:
    lease = held.lease
    end_attempt_row(
        tx,
        lease,
        ending=AttemptEnding.FINISHED,
        reason="",
        is_counted=False,
        bytes_read=report.bytes_read,
    )
    giver = Giver(attempt_id=lease.attempt_id, worker_id=lease.worker_id)
    given = record_verdict(
        tx, held.checkpoint, held.validation, report=report, giver=giver, settings=settings
    )
    set_tiers(tx, held.run.id)
    touch_run(tx, held.run.id)
    learn_rate(
        tx,
        held.validation.store_id,
        bytes_read=report.bytes_read,
        seconds_reading=report.seconds_reading,
    )
    return given
