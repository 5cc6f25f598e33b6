"""The lease loop: ask for work, do it, hand it in, for ever; the service may come and go."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog

from ckptguard.cli.log_lines import ANSWERS_AGAIN, VERDICT
from ckptguard.clock import Clock
from ckptguard.errors import LeaseLostError, ServiceError, ServiceUnavailableError
from ckptguard.model.finding import Severity
from ckptguard.model.report import Report
from ckptguard.model.service import AttemptEnding
from ckptguard.model.verdict import Verdict
from ckptguard.operations.isolated import CanaryServer, IsolatedOutcome
from ckptguard_workers.backoff import Backoff
from ckptguard_workers.drain import Drain
from ckptguard_workers.lease import Lease
from ckptguard_workers.lease_keeper import LeaseKeeper
from ckptguard_workers.service_calls import ServiceCalls
from ckptguard_workers.showing import Showing, showing_nobody
from ckptguard_workers.validation import Machine, job_of, validate_lease

POLL_S: Final = 5.0
"""A lease call waits so long for work: a stop that is asked meanwhile waits as long."""
LAST_CALL_TIMEOUT_S: Final = 5.0
MAX_REASON_CHARS: Final = 4000
_DECIDING: Final = {Verdict.INVALID: Severity.ERROR, Verdict.UNKNOWN: Severity.UNKNOWN}
_LOG: Final = structlog.get_logger()
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Who asks for leases.

    Args:
        name: Unique.
        capabilities: As docs/service.md says.
        machine: Stores and devices here.
        canary_of: Returns who runs the loads of a lease.
        showing: Shows a person how the checkpoint of this label fares.
    """

    name: str
    capabilities: Mapping[str, Any]
    machine: Machine
    canary_of: Callable[[Lease], CanaryServer]
    showing: Showing = showing_nobody


class LeaseLoop:
    """Works through leases, one at a time, until it is asked to stop.

    Args:
        worker: Who.
        calls: To the service.
        drain: Whether to go on.
        clock: Time.
        chance: Draws the jitter of waits.
        poll_s: How long one call waits for work.
    """

    def __init__(
        self,
        worker: Worker,
        calls: ServiceCalls,
        *,
        drain: Drain,
        clock: Clock,
        chance: random.Random,
        poll_s: float = POLL_S,
    ) -> None:
        self._worker = worker
        self._calls = calls
        self._drain = drain
        self._clock = clock
        self._chance = chance
        self._poll_s = poll_s
        self._trouble = ""

    def run(self) -> None:
        """Work until a stop is asked for. Trouble of the service is waited out, never raised."""
        backoff = Backoff(self._chance)
        while not self._drain.is_asked:
            try:
                lease = self._take()
                self._note_trouble("")
                backoff.reset()
            except ServiceError as error:
                self._note_trouble(str(error))
                self._drain.wait(backoff.next_s())
                continue
            if lease is not None:
                self._work(lease)

    def _take(self) -> Lease | None:
        with self._drain.idle():
            return self._calls.take_lease(
                worker=self._worker.name, capabilities=self._worker.capabilities, wait_s=self._poll_s
            )

    def _note_trouble(self, trouble: str) -> None:
        """Log a change of the service's state, once."""
        if trouble and not self._trouble:
            _LOG.warning("the service gives no work; trying again", why=trouble)
        elif self._trouble and not trouble:
            _LOG.info(ANSWERS_AGAIN)
        self._trouble = trouble

    def _work(self, lease: Lease) -> None:
        _LOG.info("lease", lease=lease.id, validation=lease.validation_id, checkpoint=lease.label)
        keeper = LeaseKeeper(self._calls, lease, drain=self._drain, chance=self._chance)
        try:
            with keeper.keeping():
                outcome = self._validate(lease, keeper)
                if outcome.report is not None:
                    self._hand_in(lease, outcome.report, keeper)
                    return
        except LeaseLostError as error:
            _LOG.warning("lease lost", lease=lease.id, why=str(error))
            return
        if not keeper.is_lost:
            self._give_back(lease, outcome, keeper)

    def _validate(self, lease: Lease, keeper: LeaseKeeper) -> IsolatedOutcome:
        if self._drain.is_asked:  # the lease came while the stop was asked for
            return IsolatedOutcome(reason="the worker is stopping", is_unwanted=True)
        try:
            job = self._insist(lambda: job_of(lease, self._worker.machine, self._calls), keeper)
        except LeaseLostError:
            raise
        except ServiceError as error:
            if not keeper.is_wanted:
                return IsolatedOutcome(reason=str(error), is_unwanted=True)
            return IsolatedOutcome(reason=f"what the validation needs was not to be had: {error}")
        canary = self._worker.canary_of(lease)
        with self._worker.showing(lease.label) as show:
            return validate_lease(lease, job, canary=canary, keeper=keeper, clock=self._clock, show=show)

    def _hand_in(self, lease: Lease, report: Report, keeper: LeaseKeeper) -> None:
        def give() -> None:
            with keeper.expecting_end():
                self._calls.verdict(lease, report)

        try:
            self._insist(give, keeper)
        except LeaseLostError:
            raise
        except ServiceUnavailableError as error:
            if not keeper.is_lost:
                self._release(lease, AttemptEnding.DRAINED, f"the verdict could not be handed in: {error}")
            return
        except ServiceError as error:
            _LOG.exception("the service refuses the verdict", lease=lease.id)
            self._release(lease, AttemptEnding.FAILED, f"the service refused the report: {error}")
            return
        _LOG.info(VERDICT, lease=lease.id, checkpoint=lease.label, **_told_of(report))

    def _give_back(self, lease: Lease, outcome: IsolatedOutcome, keeper: LeaseKeeper) -> None:
        ending = AttemptEnding.DRAINED if outcome.is_unwanted else AttemptEnding.FAILED
        reason = "nobody wants the verdict any more" if keeper.is_unwanted else outcome.reason
        _LOG.warning("no verdict", lease=lease.id, ending=ending.value, why=reason)
        self._release(lease, ending, reason)

    def _release(self, lease: Lease, ending: AttemptEnding, reason: str) -> None:
        try:
            self._calls.release(
                lease,
                ending=ending.value,
                reason=reason[-MAX_REASON_CHARS:],
                timeout_s=LAST_CALL_TIMEOUT_S,
            )
        except ServiceError as error:  # it runs out by itself
            _LOG.warning("the lease could not be given back", lease=lease.id, why=str(error))

    def _insist(self, call: Callable[[], _Answer], keeper: LeaseKeeper) -> _Answer:
        """Call until somebody answers, or nobody waits for it any more.

        Raises:
            ServiceError: The service refused for good; or it gave no answer and the time is up.
        """
        backoff = Backoff(self._chance)
        while True:
            try:
                return call()
            except ServiceUnavailableError as error:
                self._note_trouble(str(error))
                if not keeper.is_wanted:
                    raise
                self._drain.wait(backoff.next_s())


def _told_of(report: Report) -> dict[str, Any]:
    judgement = report.judgement
    decides = _DECIDING.get(judgement.verdict)
    codes = (finding.code.value for finding in report.findings if finding.severity is decides)
    return {
        "verdict": judgement.verdict.value,
        "basis": judgement.basis,
        "assurance": judgement.assurance,
        "code": next(codes, None),
        "bytes_read": report.bytes_read,
        "seconds": round(report.seconds, 3),
    }
