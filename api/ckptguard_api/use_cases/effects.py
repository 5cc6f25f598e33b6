"""What launchers will get once a checkpoint is held or released: told before somebody confirms it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ckptguard.model.verdict import Assurance, Provenance, Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.domain.resume import Asked, Candidate, Choice, Question
from ckptguard_api.domain.resume_choice import choose
from ckptguard_api.repositories.checkpoint_list import CheckpointRow, find_checkpoint
from ckptguard_api.repositories.resume import narrow, read_candidate, to_candidate
from ckptguard_api.repositories.runs import RunRow, find_run
from ckptguard_api.services import Services
from ckptguard_api.use_cases.holds import Releasable


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a change of one checkpoint changes for its run.

    Args:
        checkpoint: Which one, as it is.
        before: What launchers that ask for nothing special get now.
        after: What they get then.
    """

    checkpoint: CheckpointRow
    before: Choice
    after: Choice

    @property
    def digest(self) -> str:
        """Tells whether somebody who confirms saw what holds now."""
        ends = (self.before, self.after)
        return ",".join(f"{one.state}:{one.target.id if one.target else 0}" for one in ends)


def effect_of_hiding(services: Services, *, project_id: int, checkpoint_id: int) -> Effect:
    """Say what a quarantine changes.

    Raises:
        NotFoundError: There is no such checkpoint.
    """
    with services.database.read() as tx:
        row = find_checkpoint(tx, project_id, checkpoint_id)
        run = _run_of(tx, row)
        return Effect(
            checkpoint=row,
            before=_choice(tx, run, Question()),
            after=_choice(tx, run, Question(exclude=(checkpoint_id,))),
        )


def effect_of_release(services: Services, *, project_id: int, checkpoint_id: int, what: Releasable) -> Effect:
    """Say what a release changes, if it is not refused.

    Raises:
        NotFoundError: There is no such checkpoint.
    """
    with services.database.read() as tx:
        row = find_checkpoint(tx, project_id, checkpoint_id)
        run = _run_of(tx, row)
        released = _released(read_candidate(tx, checkpoint_id), what, run)
        return Effect(
            checkpoint=row,
            before=_choice(tx, run, Question()),
            after=_choice(tx, run, Question(), instead=[released]),
        )


def _run_of(tx: Transaction, row: CheckpointRow) -> RunRow:
    run = find_run(tx, row.project_id, row.run)
    assert run is not None  # noqa: S101 - a foreign key
    return run


def _choice(tx: Transaction, run: RunRow, question: Question, *, instead: Iterable[Candidate] = ()) -> Choice:
    asked = _asked(run, question)
    known = {row.id: asked.as_seen(to_candidate(row)) for row in narrow(tx, run, asked).rows}
    known |= {candidate.id: candidate for candidate in instead}
    return choose(known.values(), asked, now=tx.now)


def _asked(run: RunRow, question: Question) -> Asked:
    provenance = None if run.min_provenance is None else Provenance(run.min_provenance)
    return Asked.of(question, min_assurance=Assurance(run.min_assurance), min_provenance=provenance)


def _released(candidate: Candidate, what: Releasable, run: RunRow) -> Candidate:
    if what is Releasable.QUARANTINED:
        return replace(candidate, is_quarantined=False)
    if what is Releasable.SUSPECT:
        return replace(candidate, is_suspect=False)
    if what is Releasable.DAMAGE:
        # Another worker's VALID comes into force; how far it went is seen then.
        return replace(candidate, verdict=Verdict.VALID, assurance=Assurance(run.min_assurance))
    return candidate
