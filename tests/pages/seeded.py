"""A database such as operators look at: 1,000 runs in every state, among them three of special size.

`heavy` has 10,000 checkpoints. `large` has checkpoints of 100,000 files: a VALID one, a damaged one with
hundreds of findings, and one that is being validated. A dozen runs have hostile names. The same each time,
but for the moment to which ages count.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from ckptguard.model.finding import FindingCode
from ckptguard.model.service import EventKind, Lifecycle, RestartOutcome, SupersededBy, ValidationState
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.database import Database
from ckptguard_api.tables import attempts, projects, stores, workers
from tests.pages import hostile_names, seeded_large
from tests.pages.seeded_checkpoint import Left, Place, Saved, add_checkpoint
from tests.pages.seeded_large import large_manifest
from tests.pages.seeded_rows import GB, Past
from tests.pages.seeded_stories import HOUR_S, STORIES, TellingRun, nothing_saved, tell_run
from tests.served_app import ServedApp

NUM_RUNS: Final = 1000
NUM_HEAVY: Final = 10_000
HEAVY: Final = "heavy"
LARGE: Final = "large"
EMPTY: Final = "empty"
PROJECT: Final = "default"
NUM_WORKERS: Final = 66

_BUSY: Final = 61  # a prime: the fifty runs that are validated have each a worker of its own
_LARGE_WORKER: Final = _BUSY + 1
_BRANCH_SAVES: Final = 2_500
_ROLLED_BACK: Final = 30
_DRAINING: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """Where to find what in the database.

    Args:
        run_names: All runs by story; hostile ones are among them.
        heavy_checkpoint_id: The newest of run `heavy`; VALID.
        small_large_id: Of run `large`: step 1000, 65 files, VALID.
        valid_large_id: Of run `large`: step 2000, 100,000 files, VALID.
        damaged_large_id: Of run `large`: step 3000, 100,000 files, INVALID, with findings of all kinds.
        damaged_validation_id: Of that verdict.
        running_large_id: Of run `large`: step 4000, 100,000 files, being validated.
        running_validation_id: Of that one.
    """

    run_names: tuple[str, ...]
    heavy_checkpoint_id: int
    small_large_id: int
    valid_large_id: int
    damaged_large_id: int
    damaged_validation_id: int
    running_large_id: int
    running_validation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededApp:
    """A service over a seeded database, and where to find what in it."""

    served: ServedApp
    where: Seeded


def seed(database: Database) -> Seeded:
    """Fill an empty database at head; it must have no project yet."""
    with database.write() as tx:
        past = Past(now=tx.now)
        _add_small_tables(past)
        names = tuple(_run_names())
        for number, name in enumerate(names):
            story = nothing_saved if name == EMPTY else STORIES[number % len(STORIES)]
            if name not in (HEAVY, LARGE):
                tell_run(past, _place(number), name=name, number=number, story=story)
        heavy_id = _add_heavy(past, _place(names.index(HEAVY)))
        large = _add_large(past, _place(names.index(LARGE)))
        past.write(tx)
    small, valid, damaged, running = large
    return Seeded(
        run_names=names,
        heavy_checkpoint_id=heavy_id,
        small_large_id=small.id,
        valid_large_id=valid.id,
        damaged_large_id=damaged.id,
        damaged_validation_id=damaged.validation_id,
        running_large_id=running.id,
        running_validation_id=running.validation_id,
    )


def _run_names() -> Iterator[str]:
    yield from hostile_names.RUN_NAMES
    yield from (HEAVY, LARGE, EMPTY)
    for number in range(len(hostile_names.RUN_NAMES) + 3, NUM_RUNS):
        yield f"{('llama', 'moe', 'vit', 'rlhf')[number % 4]}-{7 + number % 64}b-{number:04d}"


def _place(number: int) -> Place:
    return Place(
        project_id=1,
        run_id=number + 1,
        store_id=1 + number % 2,
        worker_id=1 + number % _BUSY,
        bytes_total=(40 + 60 * (number % 17)) * GB,
    )


def _add_small_tables(past: Past) -> None:
    past.add(projects, name=PROJECT, allowed_globals=[], created_at=past.at(60 * 24 * HOUR_S))
    for name, url, bytes_per_s in (
        ("lustre", "file:///data/ckpts", 2.1e9),
        ("archive", "s3://checkpoints/archive", 0.7e9),
        ("unmeasured", "gs://checkpoints-eu/new", None),
    ):
        past.add(stores, project_id=1, name=name, url=url, times="original", settle_s=30.0,
                 mtime_tolerance_s=5.0, bytes_per_s=bytes_per_s, scrub_every_s=None,
                 created_at=past.at(60 * 24 * HOUR_S), removed_at=None)  # fmt: skip
    for number in range(1, NUM_WORKERS + 1):
        past.add(workers, **_worker(past, number))


def _worker(past: Past, number: int) -> dict[str, Any]:
    is_silent = number > _LARGE_WORKER
    name = hostile_names.RUN_NAMES[0] if number == NUM_WORKERS else f"canary-{number:02d}"
    seen_s = 3 * HOUR_S if is_silent else 2.0
    if is_silent:
        data = {"worker": name, "worker_id": number, "seen_at": past.at(seen_s).isoformat()}
        past.event(EventKind.WORKER_SILENT, seen_s - 120, data=data)
    return {
        "project_id": None,
        "name": name,
        "capabilities": {
            "stores": ["lustre", "archive"],
            "depths": ["structure", "content", "load"],
            "devices": ["cuda:0 NVIDIA H200"],
            "formats": ["dcp", "safetensors"],
            "torch": "2.13.0",
            "python": "3.13.1",
            "ckptguard": "0.1.0",
            "world_size": 1 if number % 4 else 8,
        },
        "first_seen_at": past.at(30 * 24 * HOUR_S),
        "seen_at": past.at(seen_s),
        "is_draining": number <= _DRAINING,
        "claims": 100 + number,
        "silent_told_at": past.at(seen_s - 120) if is_silent else None,
    }


def _add_heavy(past: Past, place: Place) -> int:
    def story(run: TellingRun) -> None:
        for number in range(NUM_HEAVY):
            run.left.append(add_checkpoint(past, place, _heavy_save(number)))
        for number in range(_BRANCH_SAVES, NUM_HEAVY, _BRANCH_SAVES):
            origin, age_s = run.left[number - _ROLLED_BACK - 1], _heavy_age_s(number) + 300
            run.open_branch(number // _BRANCH_SAVES, origin, age_s=age_s)
            run.restart(RestartOutcome.RESUMED, origin, age_s=age_s, attempt=f"heavy-{number}")

    run = tell_run(past, place, name=HEAVY, number=9, story=story)
    return run.left[-1].id


def _heavy_age_s(number: int) -> float:
    return 600.0 * (NUM_HEAVY - number)


def _heavy_save(number: int) -> Saved:
    branch, place = divmod(number, _BRANCH_SAVES)
    lag_s = 60.0 + number % 97 * 4
    saved = Saved(step=100 * (number + 1), age_s=_heavy_age_s(number), lag_s=lag_s, branch=branch)
    if place >= _BRANCH_SAVES - _ROLLED_BACK and number < NUM_HEAVY - _ROLLED_BACK:
        return replace(saved, lifecycle=Lifecycle.SUPERSEDED, superseded_by=SupersededBy.ROLLED_BACK)
    if number % 400 == 390:
        return replace(saved, verdict=Verdict.INVALID)
    if number % 250 == 60:
        return replace(saved, verdict=Verdict.UNKNOWN, code=FindingCode.STORE_UNAVAILABLE)
    if number % 500 == 123:
        return replace(saved, verdict=None, lifecycle=Lifecycle.INCOMPLETE)
    return replace(saved, assurance=Assurance.CONTENT) if number % 50 == 7 else saved


def _add_large(past: Past, place: Place) -> list[Left]:
    place = replace(place, worker_id=_LARGE_WORKER)
    full = replace(place, num_files=seeded_large.NUM_FILES, bytes_total=large_manifest().bytes_total)
    left: list[Left] = []

    def story(run: TellingRun) -> None:
        run.columns |= {"gpus": 12_500, "usd_per_gpu_hour": 3.0}
        left.append(add_checkpoint(past, place, Saved(step=1000, age_s=4 * HOUR_S)))
        left.append(add_checkpoint(past, full, Saved(step=2000, age_s=3 * HOUR_S, lag_s=1500)))
        damaged = Saved(step=3000, age_s=2 * HOUR_S, lag_s=1500, verdict=Verdict.INVALID)
        left.append(add_checkpoint(past, full, damaged))
        running = Saved(step=4000, age_s=0.5 * HOUR_S, verdict=None, state=ValidationState.RUNNING)
        left.append(add_checkpoint(past, full, running))
        manifest_id = seeded_large.add_manifest(past)
        for one in left[1:]:
            seeded_large.give_manifest(past, one, manifest_id)
        seeded_large.add_evidence(past, left[1], is_damaged=False)
        seeded_large.add_evidence(past, left[2], is_damaged=True)
        for one, is_damaged in ((left[1], False), (left[2], True)):
            seeded_large.add_tensor_list(past, one, is_damaged=is_damaged)
        seeded_large.add_file_results(past, left[3], attempt_id=past.rows[attempts][-1]["id"])

    tell_run(past, place, name=LARGE, number=10, story=story)
    return left
