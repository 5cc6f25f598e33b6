"""`resume`: ask for the last checkpoint proven good, and look at it here before it is given out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ckptguard.client.answers import FileSeen, PassedOver, ResumeAnswer, Target
from ckptguard.client.client import Client
from ckptguard.client.decode import decode, encode
from ckptguard.clock import Clock
from ckptguard.errors import (
    CkptGuardError,
    ObjectNotFoundError,
    ServiceError,
    ServiceUnavailableError,
)
from ckptguard.model.resume import Ending, OnUnavailable
from ckptguard.model.verdict import Assurance, Provenance
from ckptguard.operations.last_known import LastKnown, Remembered
from ckptguard.operations.newest_committed import newest_committed
from ckptguard.operations.recheck import Difference, differences, total_differences
from ckptguard.operations.resume_decision import Decision, Flags, decide
from ckptguard.operations.store_view import Spot, StoreView

MAX_DROPPED: Final = 8
"""Checkpoints that are looked at and not found whole, before no further one is asked for."""
SLICE_S: Final = 15.0
"""A long wait is made of requests of this length: proxies end silent connections, and a person wants news."""
_EARLY: Final = 0.9
"""An answer before this share of its slice is final: the service had nothing more to wait for."""
_MAX_TOLD: Final = 3

Tell = Callable[[str], None]
"""Takes one sentence for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of the service; see `calls.resume_target`.

    Args:
        wait_s: In all, however many requests that takes.
    """

    run: str
    min_assurance: Assurance | None = None
    min_provenance: Provenance | None = None
    device: str | None = None
    step: int | None = None
    max_age_s: float | None = None
    require_newest: bool = False
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How it ended.

    Args:
        ending: What the exit code says.
        path: To resume from; None: nothing is given out.
        step: Of that checkpoint.
        target: What the service knows of it; None for `newest_committed`.
        answer: The last one of the service; None: there was none.
        why: The error behind `try_again`, where there is one.
    """

    ending: Ending
    path: str | None = None
    step: int | None = None
    target: Target | None = None
    answer: ResumeAnswer | None = None
    why: CkptGuardError | None = None
    must_be_audited: bool = False


@dataclass(slots=True, kw_only=True)
class Resume:
    """One run of `resume`.

    Args:
        client: Of the service.
        question: What is asked.
        flags: What is accepted.
        view: The stores of this machine.
        last_known: Where good answers are kept.
        clock: Tells time.
        tell: Gets every sentence for a person.
    """

    client: Client
    question: Question
    flags: Flags
    view: StoreView
    last_known: LastKnown
    clock: Clock
    tell: Tell
    _dropped: list[Target] = field(default_factory=list)
    _told: set[int] = field(default_factory=set)
    _is_validation_open: bool = False

    def find(self) -> Found:
        """Ask, look, and ask for the next one while what is offered is not whole here.

        Raises:
            CkptGuardError: The service refuses, or the store's content cannot be seen.
        """
        try:
            return self._search()
        except ServiceUnavailableError as error:
            return self._without_service(error)

    def _search(self) -> Found:
        answer: ResumeAnswer | None = None
        while len(self._dropped) <= MAX_DROPPED:
            answer = self._answer()
            self._tell_passed_over(answer)
            decision = decide(answer, self.flags, has_dropped=bool(self._dropped))
            if decision.target is None:
                return self._nothing(decision, answer)
            found = self._look(decision, answer)
            if found is not None:
                return found
        return self._nothing(Decision(ending=Ending.NONE_USABLE), answer)

    def _nothing(self, decision: Decision, answer: ResumeAnswer | None) -> Found:
        """End without a path; a validation that was asked for here may still change that."""
        ending = decision.ending
        if ending is Ending.NONE_USABLE and self._is_validation_open:
            ending = Ending.TRY_AGAIN
        return Found(ending=ending, answer=answer, must_be_audited=decision.must_be_audited)

    def _answer(self) -> ResumeAnswer:
        """Ask until the service has nothing to wait for, or the time is up.

        Raises:
            ServiceUnavailableError: No answer of now until the end.
        """
        ends_s = self.clock.monotonic_s() + self.question.wait_s
        while True:
            left_s = max(0.0, ends_s - self.clock.monotonic_s())
            slice_s = min(left_s, SLICE_S)
            started_s = self.clock.monotonic_s()
            try:
                answer = self._ask(wait_s=slice_s)
            except ServiceUnavailableError as error:
                if self.clock.monotonic_s() >= ends_s:
                    raise
                self.tell(f"{error}; asking again")
                self.clock.sleep(min(1.0, max(0.0, ends_s - self.clock.monotonic_s())))
                continue
            is_early = self.clock.monotonic_s() - started_s < _EARLY * slice_s
            if is_early or slice_s >= left_s:
                return answer
            self.tell(_waiting_text(answer, left_s=ends_s - self.clock.monotonic_s()))

    def _ask(self, *, wait_s: float) -> ResumeAnswer:
        asked = self.question
        answer = self.client.resume_target(
            asked.run,
            min_assurance=asked.min_assurance,
            min_provenance=asked.min_provenance,
            device=asked.device,
            step=asked.step,
            max_age_s=asked.max_age_s,
            require_newest=asked.require_newest,
            exclude=[target.id for target in self._dropped],
            wait_s=wait_s,
        )
        if answer.is_cached:
            msg = "the service could not look: its database gives no answer"
            raise ServiceUnavailableError(msg, last_known=encode(answer))
        return answer

    def _look(self, decision: Decision, answer: ResumeAnswer) -> Found | None:
        """Look at a checkpoint here; None: it is not the one that was validated, and was dropped.

        Raises:
            CkptGuardError: It cannot be seen; whether it is whole is not known.
        """
        target = decision.target
        assert target is not None  # noqa: S101 - the caller has seen it
        spot = self.view.spot(target.store, target.path, target.url)
        evidence = tuple(self.client.evidence(target.validation_id))
        if not evidence:
            msg = f"the service has no evidence of validation {target.validation_id}: nothing to compare with"
            raise ServiceError(msg)
        changed = self._differences(spot, evidence)
        if changed:
            self._drop(target, changed)
            return None
        if decision.ending is Ending.PROVEN:
            self.last_known.keep(self._key(), Remembered(answer=answer, evidence=evidence))
        return Found(ending=decision.ending, path=spot.text, step=target.step, target=target, answer=answer)

    def _differences(self, spot: Spot, evidence: tuple[FileSeen, ...]) -> tuple[Difference, ...]:
        try:
            return differences(evidence, spot.list())
        except ObjectNotFoundError:
            return (Difference(path="", what="is gone"),)

    def _drop(self, target: Target, changed: tuple[Difference, ...]) -> None:
        """Say what is wrong, and ask for a new verdict where the token may."""
        self._dropped.append(target)
        told = "; ".join(f"{entry.path or 'the folder'} {entry.what}" for entry in changed[:_MAX_TOLD])
        self.tell(f"step {target.step} is not as it was validated: {told}")
        try:
            self.client.request_validation(target.id, reason=f"changed as seen by resume: {told}"[:500])
        except ServiceError as error:
            self.tell(f"a new validation of step {target.step} could not be asked for: {error}")
            return
        self._is_validation_open = True
        self.tell(f"a new validation of step {target.step} was asked for")

    def _tell_passed_over(self, answer: ResumeAnswer) -> None:
        new = [entry for entry in answer.passed_over if entry.id not in self._told]
        for entry in new:
            self.tell(passed_over_text(entry))
        self._told.update(entry.id for entry in new)
        more = answer.passed_over_total - len(answer.passed_over)
        if more > 0 and not self._dropped:
            self.tell(f"and {more} more were passed over")

    def _without_service(self, error: ServiceUnavailableError) -> Found:
        """End as `on_unavailable` says."""
        self.tell(str(error))
        nothing = Found(ending=Ending.TRY_AGAIN, why=error)
        if self.flags.on_unavailable is OnUnavailable.FAIL:
            return nothing
        if self.flags.on_unavailable is OnUnavailable.LAST_KNOWN:
            seen_whole = (self._look_back(remembered) for remembered in self._remembered(error))
            return next((found for found in seen_whole if found is not None), nothing)
        kept = self.last_known.recall(self._key())
        known = None if kept is None else kept.answer.target
        newest = newest_committed(self.question.run, self.view, known, step=self.question.step)
        if newest is None:
            self.tell("no committed checkpoint was found: name the store, --store NAME=PATH")
            return nothing
        path, step = newest
        return Found(ending=Ending.NEWEST_COMMITTED, path=path, step=step, why=error)

    def _remembered(self, error: ServiceUnavailableError) -> Iterator[Remembered]:
        """Yield answers from before, the service's own memory first."""
        kept = self.last_known.recall(self._key())
        if error.last_known is not None:
            try:
                answer = decode(ResumeAnswer, error.last_known, at="last_known")
            except ServiceError as problem:
                self.tell(str(problem))
            else:
                yield _with_evidence_of(Remembered(answer=answer), kept)
        if kept is not None:
            yield kept

    def _look_back(self, remembered: Remembered) -> Found | None:
        target = remembered.answer.target
        if target is None or remembered.answer.run != self.question.run:
            return None
        if target.id in {dropped.id for dropped in self._dropped}:
            return None
        spot = self.view.spot(target.store, target.path, target.url)
        if remembered.evidence:
            changed = self._differences(spot, remembered.evidence)
        else:
            self.tell("of the last known answer only totals are known: files are not compared one by one")
            changed = tuple(
                total_differences(
                    num_files=target.num_files, bytes_total=target.bytes_total, listing=spot.list()
                )
            )
        if changed:
            self.tell(f"the last known answer, step {target.step}, is no longer as it was validated")
            return None
        answer = remembered.answer
        return Found(ending=Ending.LAST_KNOWN, path=spot.text, step=target.step, target=target, answer=answer)

    def _key(self) -> Mapping[str, Any]:
        address = self.client.address
        asked = encode(replace(self.question, wait_s=0.0))
        return {"url": address.url, "project": address.project, "asked": asked}


def _with_evidence_of(remembered: Remembered, kept: Remembered | None) -> Remembered:
    target = remembered.answer.target
    kept_target = None if kept is None else kept.answer.target
    if kept is None or target is None or kept_target is None:
        return remembered
    is_same = (target.id, target.validation_id) == (kept_target.id, kept_target.validation_id)
    return replace(remembered, evidence=kept.evidence) if is_same else remembered


def passed_over_text(entry: PassedOver) -> str:
    """Return one line: which, why, and the first finding or how far its validation is."""
    detail = f": {entry.detail}" if entry.detail else ""
    progress = ""
    if entry.validation is not None and entry.validation.bytes_total and entry.validation.bytes_done:
        progress = f", {100 * entry.validation.bytes_done / entry.validation.bytes_total:.0f} % validated"
        if entry.validation.eta_s is not None:
            progress += f", {entry.validation.eta_s:.0f} s left"
    return f"passed over step {entry.step}: {entry.reason}{detail}{progress}"


def _waiting_text(answer: ResumeAnswer, *, left_s: float) -> str:
    is_open = [entry.step for entry in answer.passed_over if entry.reason in {"queued", "running"}]
    what = f"step {is_open[0]}" if is_open else "a verdict"
    return f"waiting for {what}, {max(0.0, left_s):.0f} s at most"
