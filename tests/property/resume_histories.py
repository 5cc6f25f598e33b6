"""Random histories of a run over plain dicts, and what a launcher may be told of them.

The rows are dicts with the names of the columns, so that the same history can be chosen from purely and
through a database. `Expected` says the law of design §7 once more, in other words than the code.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ckptguard.model.policy import Depth
from ckptguard.model.verdict import Assurance, Provenance
from ckptguard_api.domain.resume import Asked, Candidate
from ckptguard_api.repositories.resume import to_candidate

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
LEVELS: Final = ("structure", "content", "loaded", "resumable")
ORIGINS: Final = ("unproven", "unchanged", "proven")
DEVICES: Final = ("cpu", "cuda:0 NVIDIA H200", "cuda:1 NVIDIA H200")
KEEP_ALIVE_S: Final = 600
RETRY_S: Final = 60
REACH: Final = {"structure": 0, "content": 1, "load": 3}

Row = dict[str, Any]


@dataclass(frozen=True)
class _Columns:
    values: Row

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any column
        return self.values[name]


class History:
    """One run from its start, changed by chance; a seed gives the same one again."""

    def __init__(self, seed: int, *, first_id: int = 1) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - replayed, guards nothing
        self.now = START
        self.rows: dict[int, Row] = {}
        self.changed: set[int] = set()
        self.branch = 0
        self.step = 0
        self._first_id = first_id

    def go_on(self, num_events: int) -> None:
        """Let so many things happen."""
        kinds: list[tuple[int, Callable[[], None]]] = [
            (6, self.save),
            (2, self.announce),
            (8, self.judge),
            (2, self.outage),
            (1, self.save_again),
            (1, self.roll_back),
            (2, self.hold),
            (1, self.delete),
            (2, self.ask_again),
            (3, self.start_work),
            (2, self.let_time_pass),
            (1, self.give_up_announced),
        ]
        weights, actions = zip(*kinds, strict=True)
        for _ in range(num_events):
            self.chance.choices(actions, weights)[0]()

    def save(self) -> None:
        """Register a checkpoint, most often with a validation."""
        self.step += self.chance.randint(0, 2)
        row = self._new_row(lifecycle="registered")
        if self.chance.random() < 0.9:
            self._queue(row)

    def announce(self) -> None:
        """Begin a save."""
        self.step += 1
        self._new_row(lifecycle="announced", keep_alive_until=self.now + timedelta(seconds=KEEP_ALIVE_S))

    def judge(self) -> None:
        """Give a verdict on something that waits for one."""
        row = self._pick(lambda row: row["validation_state"] is not None)
        if row is None:
            return
        verdict = self.chance.choices(["VALID", "INVALID", "UNKNOWN"], [6, 2, 1])[0]
        is_valid = verdict == "VALID"
        reached = LEVELS[: {"structure": 1, "content": 2, "load": 4}[row["open_depth"]]]
        row |= {
            "verdict": verdict,
            "basis": "damage" if verdict == "INVALID" else None,
            "assurance": self.chance.choice(reached) if is_valid else None,
            "provenance": self.chance.choice(ORIGINS),
            "device": self.chance.choice(DEVICES),
            "verdict_validation_id": row["id"],
            "validated_at": self.now,
        }
        if verdict == "UNKNOWN":
            self._ask_later(row)
        self._close(row)

    def outage(self) -> None:
        """End a validation without a verdict about the bytes: nothing in force changes."""
        row = self._pick(lambda row: row["validation_state"] is not None)
        if row is not None:
            if row["verdict"] in ("VALID", "UNKNOWN"):
                self._ask_later(row)
            self._close(row)

    def save_again(self) -> None:
        """Write another save over an earlier one."""
        row = self._pick(lambda row: row["lifecycle"] in ("announced", "registered", "superseded"))
        if row is None:
            return
        row |= {"lifecycle": "superseded", "superseded_by": "rewritten", "keep_alive_until": None}
        self._close(row)
        again = self._new_row(lifecycle="registered", step=row["step"])
        self._queue(again)

    def roll_back(self) -> None:
        """Resume from an earlier step: what came later is left behind, with its bytes."""
        row = self._pick(lambda row: row["lifecycle"] == "registered")
        if row is None:
            return
        self.branch += 1
        self.step = row["step"]
        for later in self.rows.values():
            if later["step"] > row["step"] and later["lifecycle"] in ("registered", "announced"):
                later |= {"lifecycle": "superseded", "superseded_by": "rolled_back", "keep_alive_until": None}
                if self.chance.random() < 0.5:
                    self._close(later)
                self.changed.add(later["id"])

    def hold(self) -> None:
        """Quarantine, suspect, pin, or take it back."""
        row = self._pick(lambda _: True)
        if row is not None:
            name = self.chance.choice(["is_quarantined", "is_suspect", "is_pinned"])
            row[name] = not row[name]

    def delete(self) -> None:
        """Lose the bytes of one."""
        row = self._pick(lambda row: not row["is_pinned"])
        if row is not None:
            row |= {"lifecycle": "deleted", "superseded_by": None, "keep_alive_until": None}
            self._close(row)

    def ask_again(self) -> None:
        """Ask for another verdict."""
        row = self._pick(lambda row: row["lifecycle"] == "registered" and row["validation_state"] is None)
        if row is not None:
            self._queue(row)

    def start_work(self) -> None:
        """Let a worker begin, or lose its lease."""
        row = self._pick(lambda row: row["validation_state"] is not None)
        if row is not None:
            row["validation_state"] = self.chance.choice(["queued", "running"])

    def let_time_pass(self) -> None:
        """Wait; nobody is told."""
        self.now += timedelta(seconds=self.chance.choice([0.5, 60, KEEP_ALIVE_S, 5000]))

    def give_up_announced(self) -> None:
        """Call a save incomplete that was not kept alive."""
        row = self._pick(lambda row: row["lifecycle"] == "announced" and row["keep_alive_until"] <= self.now)
        if row is not None:
            row |= {"lifecycle": "incomplete", "keep_alive_until": None}

    def ask(self) -> Asked:
        """Return what some launcher may ask."""
        chance = self.chance
        steps = [row["step"] for row in self.rows.values()] or [0]
        return Asked(
            min_assurance=Assurance(chance.choices(LEVELS, [1, 2, 6, 1])[0]),
            min_provenance=chance.choice([None, None, *map(Provenance, ORIGINS)]),
            device=chance.choice([None, None, None, "cpu", "cuda", "cuda:1", "tpu"]),
            step=chance.choice([None, None, None, chance.choice(steps)]),
            before_step=chance.choice([None, None, None, chance.choice(steps)]),
            max_age_s=chance.choice([None, None, None, 60.0, 5000.0]),
            require_newest=chance.random() < 0.2,
            exclude=self._not_found_whole(),
        )

    def _not_found_whole(self) -> tuple[int, ...]:
        """Return what some launcher was offered before, and did not take."""
        if self.chance.random() < 0.7:
            return ()
        newest = sorted(self.rows.values(), key=_order)[-8:]
        return tuple(sorted(row["id"] for row in newest if self.chance.random() < 0.4))

    def candidates(self, asked: Asked) -> list[Candidate]:
        """Return all rows as values, as they are for who asks, in any order."""
        values = (to_candidate(_Columns(row)) for row in self.rows.values())  # type: ignore[arg-type]
        found = [asked.as_seen(value) for value in values]
        self.chance.shuffle(found)
        return found

    def _new_row(self, **given: Any) -> Row:  # noqa: ANN401 - of any column
        row_id = self._first_id + len(self.rows)
        row: Row = {
            "id": row_id,
            "branch": self.branch,
            "step": self.step,
            "save_id": f"c-{row_id}",
            "created_at": self.now - timedelta(seconds=self.chance.choice([0, 0, 0, 10])),
            "registered_at": None if given["lifecycle"] == "announced" else self.now,
            "superseded_by": None,
            "keep_alive_until": None,
            "verdict": None,
            "basis": None,
            "assurance": None,
            "provenance": None,
            "device": None,
            "verdict_validation_id": None,
            "validated_at": None,
            "is_pinned": False,
            "is_quarantined": False,
            "is_suspect": False,
            "validation_state": None,
            "open_depth": None,
            "open_id": None,
            "retry_at": None,
            "retry_depth": None,
            **given,
        }
        self.rows[row_id] = row
        self.changed.add(row_id)
        return row

    def _pick(self, fits: Callable[[Row], bool]) -> Row | None:
        fitting = [row for row in self.rows.values() if fits(row)]
        if not fitting:
            return None
        row = self.chance.choice(fitting[-6:] if self.chance.random() < 0.7 else fitting)
        self.changed.add(row["id"])
        return row

    def _queue(self, row: Row) -> None:
        depth = self.chance.choices([Depth.LOAD, Depth.CONTENT, Depth.STRUCTURE], [6, 1, 1])[0]
        row |= {"validation_state": "queued", "open_depth": depth.value, "open_id": None}
        row |= {"retry_at": None, "retry_depth": None}
        self.changed.add(row["id"])

    def _ask_later(self, row: Row) -> None:
        if self.chance.random() < 0.6:  # else time does not help, or it was asked often enough
            row |= {"retry_at": self.now + timedelta(seconds=RETRY_S), "retry_depth": row["open_depth"]}

    @staticmethod
    def _close(row: Row) -> None:
        row |= {"validation_state": None, "open_depth": None, "open_id": None}


class Expected:
    """What a launcher must be told, by the words of design §7."""

    def __init__(self, history: History, asked: Asked) -> None:
        self._now = history.now
        self._asked = asked
        self._rows = sorted(history.rows.values(), key=_order)

    @property
    def target_id(self) -> int | None:
        """The newest that is VALID as asked; None: there is none, or a newer one may become so."""
        good = [row for row in self._rows if self.is_good(row)]
        if not good:
            return None
        newest = good[-1]
        newer = [row for row in self._rows if _order(row) > _order(newest)]
        is_waiting = self._asked.require_newest and any(map(self.may_become_good, newer))
        return None if is_waiting else int(newest["id"])

    @property
    def state(self) -> str:
        """The word for it."""
        if not self._rows:
            return "none_exist"
        if self.target_id is not None:
            return "valid"
        if any(map(self.is_good, self._rows)) or any(map(self.may_become_good, self._rows)):
            return "pending"
        weaker = [row for row in self._rows if self.is_good(row, min_level="structure")]
        return "valid_below" if weaker else "none_valid"

    def is_good(self, row: Row, *, min_level: str | None = None) -> bool:
        """Say whether it may be handed out."""
        asked = self._asked
        level = asked.min_assurance.value if min_level is None else min_level
        return (
            row["verdict"] == "VALID"
            and self._is_in_place(row)
            and not row["is_quarantined"]
            and not row["is_suspect"]
            and LEVELS.index(row["assurance"]) >= LEVELS.index(level)
            and (
                asked.min_provenance is None
                or ORIGINS.index(row["provenance"]) >= ORIGINS.index(asked.min_provenance.value)
            )
            and (asked.device is None or asked.device in _names(row["device"]))
            and (
                asked.max_age_s is None
                or (self._now - row["validated_at"]).total_seconds() <= asked.max_age_s
            )
        )

    def may_become_good(self, row: Row) -> bool:
        """Say whether a verdict that is to come could make it so."""
        if row["is_quarantined"] or row["is_suspect"] or not self._is_asked_about(row):
            return False
        if row["lifecycle"] == "announced":
            return bool(row["keep_alive_until"] > self._now)
        if not self._is_in_place(row):
            return False
        if row["validation_state"] is not None:
            return REACH[row["open_depth"]] >= LEVELS.index(self._asked.min_assurance.value)
        return row["verdict"] is None or self._is_asked_again(row)

    def _is_asked_again(self, row: Row) -> bool:
        if row["retry_at"] is None or row["lifecycle"] != "registered":
            return False
        return REACH[row["retry_depth"]] >= LEVELS.index(self._asked.min_assurance.value)

    def _age_s(self, row: Row) -> float:
        age: timedelta = self._now - row["validated_at"]
        return age.total_seconds()

    def _is_in_place(self, row: Row) -> bool:
        is_whole = row["registered_at"] is not None
        is_left_behind = is_whole and row["superseded_by"] == "rolled_back"
        is_named = self._asked.step is not None
        return self._is_asked_about(row) and (
            row["lifecycle"] == "registered" or (is_named and is_left_behind)
        )

    def _is_asked_about(self, row: Row) -> bool:
        asked = self._asked
        is_step = asked.step is None or row["step"] == asked.step
        is_earlier = asked.before_step is None or row["step"] < asked.before_step
        return is_step and is_earlier and row["id"] not in asked.exclude


def _order(row: Row) -> tuple[Any, ...]:
    return (row["branch"], row["step"], row["created_at"], row["id"])


def _names(device: str) -> set[str]:
    place = device.split(" ", maxsplit=1)[0]
    return {device, place, place.split(":")[0]}
