"""What is told before a hold or a release is what launchers get after it."""

import random
from collections.abc import Callable
from typing import Final

import pytest

from ckptguard.model.service import Hold, ResumeState
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.resume import Question
from ckptguard_api.use_cases.effects import Effect, effect_of_hiding, effect_of_release
from ckptguard_api.use_cases.holds import Releasable, hold_checkpoint, release_checkpoint
from ckptguard_api.use_cases.resume_target import answer_resume_target
from tests.started_run import Training

SEED: Final = 20261130


def target(training: Training) -> tuple[ResumeState, int | None]:
    answer = answer_resume_target(
        training.database, project_id=training.project_id, run="run-7", question=Question()
    )
    return answer.choice.state, None if answer.choice.target is None else answer.choice.target.id


def ends(effect: Effect) -> list[tuple[ResumeState, int | None]]:
    return [(one.state, one.target.id if one.target else None) for one in (effect.before, effect.after)]


def quarantine(training: Training, checkpoint_id: int) -> Effect:
    about = {"project_id": training.project_id, "checkpoint_id": checkpoint_id}
    effect = effect_of_hiding(training.services, **about)
    hold_checkpoint(training.services, **about, hold=Hold.QUARANTINED, reason="drill", actor=SERVICE)
    return effect


def release(training: Training, checkpoint_id: int) -> Effect:
    about = {"project_id": training.project_id, "checkpoint_id": checkpoint_id}
    what = Releasable.QUARANTINED
    effect = effect_of_release(training.services, **about, what=what)
    release_checkpoint(training.services, **about, what=what, reason="drill", actor=SERVICE)
    return effect


@pytest.mark.parametrize("act", [quarantine, release])
def test_what_is_told_is_what_happens(database: Database, act: Callable[[Training, int], Effect]) -> None:
    chance = random.Random(SEED)  # noqa: S311 - repeatable, not secret
    training = Training(database=database)
    saved = [
        training.save(
            chance.randrange(6),
            verdict=chance.choice([None, Verdict.VALID, Verdict.VALID, Verdict.INVALID]),
            assurance=chance.choice([Assurance.LOADED, Assurance.CONTENT]),
            is_quarantined=chance.random() < 0.4,
            is_suspect=chance.random() < 0.1,
        )
        for _ in range(12)
    ]
    for checkpoint_id in chance.sample(saved, len(saved)):
        before = target(training)
        effect = act(training, checkpoint_id)
        assert ends(effect) == [before, target(training)], f"checkpoint {checkpoint_id}, seed {SEED}"


def test_a_pin_changes_nothing_for_launchers(database: Database) -> None:
    training = Training(database=database)
    saved = training.save(1, is_pinned=True)
    effect = effect_of_release(
        training.services, project_id=training.project_id, checkpoint_id=saved, what=Releasable.PINNED
    )
    assert ends(effect) == [target(training)] * 2


def test_another_answer_has_another_digest(database: Database) -> None:
    training = Training(database=database)
    older, newer = training.save(1), training.save(2)
    first = quarantine(training, older).digest
    about = {"project_id": training.project_id, "checkpoint_id": newer}
    assert effect_of_hiding(training.services, **about).digest != first
