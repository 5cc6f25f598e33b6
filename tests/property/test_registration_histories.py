"""Whatever training jobs register, announce, repeat and forget: places have one save, keys one content."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import select

from ckptguard.errors import ConflictError
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.locations import ancestors_of
from ckptguard_api.tables import checkpoints, parts, validations
from ckptguard_api.use_cases.announce import mark_incomplete
from ckptguard_api.use_cases.deletions import mark_deleted
from tests.databases import fresh_database
from tests.registrations import Trainer, saved

NUM_SEEDS: Final = 8
NUM_ACTIONS: Final = 60
PLACES: Final = ("a", "a/b", "a/b/c", "a/bc", "d", "d/e", "d_e", "d%")
ALIKE: Final = "c-of-the-same-bytes"
LIVE: Final = ("announced", "registered", "incomplete")


class _Jobs:
    """Several jobs of one project, acting at random."""

    def __init__(self, trainer: Trainer, clock: FakeClock, chance: random.Random) -> None:
        self.trainer, self.clock, self.chance = trainer, clock, chance
        self.actions: list[str] = []

    def act(self) -> None:
        action = self.chance.choice(
            [self.save, self.save, self.save_alike, self.part, self.expect, self.wait, self.delete]
        )
        try:
            action()
        except ConflictError:
            self.actions.append("conflict")

    def save(self) -> None:
        run, step, place, save = self._key()
        self.actions.append(f"save {run} {step} {place} {save}")
        self.trainer.register(step, place, run=run, save=save, content=self.chance.choice([b"x", b"y"]))

    def save_alike(self) -> None:
        """Save bytes whose save id is made from them; told twice, they are one checkpoint."""
        run, step, place, _ = self._key()
        self.actions.append(f"save alike {run} {step} {place}")
        made = replace(saved(run, step, save=ALIKE), created_at=self.clock.now())
        first = self.trainer.register(step, place, run=run, manifest=made)
        again = self.trainer.register(step, place, run=run, manifest=made)
        assert (again.checkpoint.id, again.is_new, again.superseded) == (first.checkpoint.id, False, ())

    def delete(self) -> None:
        """Tell that bytes are gone."""
        rows = self.trainer.rows(checkpoints)
        if not rows:
            return
        row = self.chance.choice(rows)
        self.actions.append(f"delete {row.id}")
        mark_deleted(
            self.trainer.services,
            project_id=self.trainer.project_id,
            checkpoint_id=row.id,
            reason="x",
            actor=SERVICE,
        )

    def part(self) -> None:
        run, step, place, save = self._key()
        name = self.chance.choice(["m", "o"])
        self.actions.append(f"part {run} {step} {place} {save} {name}")
        manifest = saved(run, step, save=f"p{save}", part=name, parts=("m", "o"))
        self.trainer.register(step, place, run=run, manifest=manifest)

    def expect(self) -> None:
        run, step, place, save = self._key()
        save_id = self.chance.choice([None, save])
        self.actions.append(f"expect {run} {step} {place} {save_id}")
        self.trainer.announce(
            step, place, run=run, save_id=save_id, keep_alive_s=self.chance.choice([10.0, 99.0])
        )

    def wait(self) -> None:
        self.clock.advance(self.chance.uniform(0, 60))
        self.actions.append("wait")
        with self.trainer.database.write() as tx:
            mark_incomplete(tx, limit=2)

    def _key(self) -> tuple[str, int, str, str]:
        pick = self.chance.choice
        return pick(["r", "s"]), pick([1, 2, 3]), pick(PLACES), pick(["u", "v", "w"])


def _require_laws(trainer: Trainer) -> None:
    with trainer.database.read() as tx:
        rows = tx.execute(select(checkpoints)).all()
        open_of = select(validations.c.checkpoint_id).where(validations.c.state.in_(["queued", "running"]))
        judged = tx.execute(open_of).scalars().all()
        there = {tuple(row) for row in tx.execute(select(parts.c.checkpoint_id, parts.c.name))}
    live = {row.location: row for row in rows if row.lifecycle in LIVE}
    assert len(live) == sum(row.lifecycle in LIVE for row in rows), "two saves stand at one place"
    for place in live:
        assert not live.keys() & set(ancestors_of(place)), "a save stands above another"
    for row in rows:
        assert (row.id in judged) == (row.lifecycle == "registered"), "registered, and nobody judges it"
        assert (row.validation_state is not None) == (row.id in judged)
        assert (row.keep_alive_until is not None) == (row.lifecycle == "announced")
        assert (row.superseded_by is not None) == (row.lifecycle == "superseded")
        assert (row.gone_at is not None) == (row.lifecycle not in LIVE), "since when it is gone is known"
        has_all = bool(row.expected_parts) and {(row.id, name) for name in row.expected_parts} <= there
        assert (row.registered_at is not None) == has_all, "complete exactly with all parts"


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_places_have_one_save_and_every_save_is_judged_or_gone(seed: int, tmp_path: Path) -> None:
    clock = FakeClock()
    with fresh_database("memory", folder=tmp_path, clock=clock) as database:
        jobs = _Jobs(Trainer(database=database), clock, random.Random(seed))  # noqa: S311 - a seed of a test
        for _ in range(NUM_ACTIONS):
            jobs.act()
            try:
                _require_laws(jobs.trainer)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error} after\n" + "\n".join(jobs.actions)) from error
