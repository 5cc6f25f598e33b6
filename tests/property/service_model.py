"""Runs and their saves as design §7 and docs/service.md tell of them: plain dicts, nothing of the code.

A save stands where it was written until its bytes are `rewritten` or `deleted`. It is `rolled` while it
is not on the way to where its run is.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from tests.property.leasing_model import ModelLift, ModelVerdict, in_force

LEVELS: Final = ("structure", "content", "loaded", "resumable")
ORIGINS: Final = ("unproven", "unchanged", "proven")
REACH: Final = {"structure": 0, "content": 1, "load": 3}
DEFAULT_KEEP_ALIVE_S: Final = 600.0
MAX_FAILED_ATTEMPTS: Final = 3
RETRY_FIRST_S: Final = 60.0
MAX_RETRIES: Final = 2

Save = dict[str, Any]
Run = dict[str, Any]
Place = tuple[int, int]


class ServiceModel:
    """What the service knows of two runs that save into the same folders.

    Args:
        now: Tells the time.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.saves: dict[int, Save] = {}
        self.alike: dict[tuple[str, int], list[Save]] = {}
        self.runs: dict[str, Run] = {}
        self.given: dict[int, dict[str, Any]] = {}

    # Saves.

    def find(self, run: str, step: int, save_id: str | None, place: str) -> Save | None:
        """Return the save of a key, or what was announced without a save id at its place."""
        mine = [save for save in self.saves.values() if save["run"] == run and save["step"] == step]
        named = [save for save in mine if save["save_id"] == save_id]
        unnamed = [save for save in mine if save["save_id"] is None and save["place"] == place]
        return next(iter(named + unnamed), None)

    def told_of(self, run: str, step: int, created_at: datetime, place: str) -> Save | None:
        """Return the save that a registration by content is about; None: one that nobody told of before.

        The bytes are those of all other such saves of the step. One that was told of with this time is told
        again. Else it is the last of them, unless that one lost its place and this one was made since.
        """
        alike = self.alike.get((run, step), [])
        again = [save for save in alike if save["created_at"] == created_at]
        if again or not alike:
            return again[0] if again else None
        last = alike[-1]
        key = (run, step, None, place)
        is_expected = any(
            lifecycle(one) == "announced" and (one["run"], one["step"], one["save_id"], one["place"]) == key
            for one in self.saves.values()
        )
        is_lost = last["gone"] is not None or last["is_rolled"]
        return None if is_lost and (is_expected or created_at > last["gone_at"]) else last

    def put(self, row_id: int, /, **facts: Any) -> Save:  # noqa: ANN401 - facts of a save
        """Add a save, or tell more of it; whatever else stands at its place loses its bytes."""
        save = self.saves.setdefault(row_id, _new_save(row_id))
        save |= facts
        run = self.runs[save["run"]]
        save |= {"gone": None, "is_rolled": False}
        self._roll(save, is_rolled=not self.leads(save, (run["branch"], None)))
        for other in self.saves.values():
            if other is not save and other["gone"] is None and overlap(other["place"], save["place"]):
                self.lose(other, "rewritten")
        if save["is_complete"] and save["branch"] == run["branch"] and not self._has_complete(save):
            self.rewind(save["run"], (run["branch"], None))
        return save

    def _has_complete(self, save: Save) -> bool:
        """Say whether anything else was ever saved in the branch of a save."""
        return any(
            other["is_complete"] and (other["run"], other["branch"]) == (save["run"], save["branch"])
            for other in self.saves.values()
            if other is not save
        )

    def lose(self, save: Save, why: str) -> None:
        """Take note that its bytes are gone: nobody wants it judged any more."""
        if save["gone"] != why:
            save["gone_at"] = self.now()
        save |= {"gone": why, "is_rolled": False, "alive_until": None, "validation": None}

    def queue(self, save: Save, validation_id: int, depth: str, *, is_retry: bool = False) -> None:
        """Ask for a verdict; the service itself asks again only so often in a row."""
        save["was_asked"] = True
        save["retry"] = None
        save["retries"] = save["retries"] + 1 if is_retry else 0
        save["validation"] = {"id": validation_id, "state": "queued", "depth": depth, "failed": 0}

    def judge(self, save: Save, verdict: ModelVerdict, **facts: Any) -> None:  # noqa: ANN401 - of the verdict
        """Finish its validation; what time may change is asked for again."""
        self.given[verdict.validation_id] = facts
        save["history"].append(verdict)
        save["validation"] = None
        current = in_force(save["history"])
        is_in_doubt = verdict.verdict == "UNKNOWN" and current is not None and current.verdict != "INVALID"
        if is_in_doubt and save["retries"] < MAX_RETRIES:
            pause = timedelta(seconds=RETRY_FIRST_S * 2 ** save["retries"])
            save["retry"] = {"at": facts["at"] + pause, "depth": verdict.depth}

    def due(self, now: datetime) -> list[Save]:
        """Return the saves whose verdict the service asks for again now."""
        return [
            save
            for save in self.saves.values()
            if save["retry"] is not None and save["retry"]["at"] <= now and lifecycle(save) == "registered"
        ]

    def lift(self, save: Save) -> bool:
        """Let an operator lift damage; say whether he may: a second worker found the same bytes sound."""
        current = in_force(save["history"])
        if current is None or current.basis != "damage":
            return False
        damage = self._damage_like(save, current)
        newest = max(one.validation_id for one in damage)
        sound = [
            one
            for one in save["history"]
            if isinstance(one, ModelVerdict)
            and (one.verdict, one.content) == ("VALID", current.content)
            and one.validation_id > newest
            and one.worker not in {accuser.worker for accuser in damage}
        ]
        if not sound:
            return False
        save["history"].append(ModelLift(valid=max(sound, key=lambda one: one.validation_id)))
        return True

    def _damage_like(self, save: Save, current: ModelVerdict) -> list[ModelVerdict]:
        """Return the verdicts of damage on these bytes that were not lifted."""
        standing: list[ModelVerdict] = []
        for one in save["history"]:
            if isinstance(one, ModelLift):
                standing = [earlier for earlier in standing if earlier.content != one.valid.content]
            elif one.basis == "damage":
                standing.append(one)
        return [one for one in standing if one.content == current.content]

    # Branches.

    def leads(self, save: Save, to: tuple[int, int | None]) -> bool:
        """Say whether a run that is at branch and step (None: any) came along this save."""
        branch, step = to
        if save["branch"] == branch:
            return step is None or save["step"] <= step
        origin: Place | None = self.runs[save["run"]]["origins"].get(branch)
        return origin is not None and self.leads(save, origin)

    def go_on_from(self, run_name: str, save: Save | None) -> None:
        """Resume a run from a save, or start it from nothing: what leads there is live, all else is not."""
        run = self.runs[run_name]
        place = None if save is None else (save["branch"], save["step"])
        is_empty = not any(
            other["branch"] == run["branch"] for other in self.saves.values() if other["run"] == run_name
        )
        if not (is_empty and run["from"] == (None if save is None else save["id"])):
            run["branch"] += 1
            run["origins"][run["branch"]] = place
            run["from"] = None if save is None else save["id"]
        self.rewind(run_name, place)

    def rewind(self, run_name: str, place: tuple[int, int | None] | None) -> None:
        """Make exactly the saves live that lead to this place."""
        for save in self.saves.values():
            if save["run"] == run_name and save["gone"] is None:
                self._roll(save, is_rolled=place is None or not self.leads(save, place))

    def _roll(self, save: Save, *, is_rolled: bool) -> None:
        if is_rolled and not save["is_rolled"]:
            save |= {"gone_at": self.now(), "alive_until": None}
        save["is_rolled"] = is_rolled

    # Restarts.

    def fail(self, run_name: str, save: Save, nodes: frozenset[str]) -> None:
        """Let a start from a save fail, and judge what that says of it."""
        run = self.runs[run_name]
        told = run["failures"].setdefault(save["id"], [])
        told.append(nodes)
        known = [names for names in told if names]
        is_apart = not known or any(not one & other for one in known for other in known)
        if run["is_failing"] or save["is_suspect"] or len(told) < 3 or not is_apart:
            return
        failed = [self.saves[one] for one in run["failures"]]
        cleared = [one for one in failed if one["is_suspect"] and order(one) > order(save)]
        older = (one for one in self.saves.values() if order(one) < order(save))
        if not cleared and any(one["run"] == run_name and self._could_start(run, one) for one in older):
            save["is_suspect"] = True
            return
        run["is_failing"] = True
        for one in cleared:
            one["is_suspect"] = False
        in_branch = (o for o in self.saves.values() if o["run"] == run_name and o["branch"] == run["branch"])
        if cleared and not any(True for _ in in_branch):
            newest = max(cleared, key=order)
            self.rewind(run_name, (newest["branch"], newest["step"]))

    def progress(self, run_name: str, save: Save | None) -> None:
        """Let a start go on well: nothing counts any more."""
        self.runs[run_name] |= {"failures": {}, "is_failing": False}
        if save is not None:
            save["is_suspect"] = False

    def _could_start(self, run: Run, save: Save) -> bool:
        current = in_force(save["history"])
        return (
            lifecycle(save) == "registered"
            and current is not None
            and current.verdict == "VALID"
            and LEVELS.index(str(current.assurance)) >= LEVELS.index(run["min_level"])
            and not save["is_quarantined"]
            and not save["is_suspect"]
        )


class ExpectedAnswer:
    """What a launcher must be told, by the words of design §7 and docs/service.md.

    Args:
        model: Everything that is known.
        run: Name of the run.
        asked: `min_assurance` and the rest of the question, policy filled in.
        now: The time.
    """

    def __init__(self, model: ServiceModel, run: str, asked: dict[str, Any], now: datetime) -> None:
        self._model, self._asked, self._now = model, asked, now
        self._all = sorted((save for save in model.saves.values() if save["run"] == run), key=order)
        self._is_known = run in model.runs
        about = [save for save in self._all if self._is_asked_about(save)]
        good = [save for save in about if self.is_good(save)]
        self._newest = good[-1] if good else None
        newer = [save for save in about if self._newest is None or order(save) > order(self._newest)]
        self._newer = newer[::-1]
        self._is_open = any(map(self._may_become_good, newer))
        weaker = [save for save in about if not good and self.is_good(save, min_level="structure")]
        self._below = max(
            weaker, key=lambda save: (LEVELS.index(_assurance(save)), order(save)), default=None
        )

    @property
    def target(self) -> int | None:
        """The newest VALID as asked; none under `require_newest` while a newer one may become so."""
        is_waiting = self._asked["require_newest"] and self._is_open
        return None if self._newest is None or is_waiting else self._newest["id"]

    @property
    def below(self) -> int | None:
        """The best that lacks assurance alone, where none is VALID as asked."""
        return None if self._below is None else self._below["id"]

    @property
    def state(self) -> str:
        """The word for it."""
        if not self._is_known:
            return "unknown_run"
        if not self._all:
            return "none_exist"
        if self.target is not None:
            return "valid"
        if self._is_open:
            return "pending"
        return "none_valid" if self._below is None else "valid_below"

    @property
    def passed_over(self) -> list[tuple[int, str]]:
        """Every newer one, newest first, and why; but those that are superseded or deleted."""
        return [(save["id"], self._reason(save)) for save in self._newer if self._is_told(save)]

    @property
    def num_superseded(self) -> int:
        """How many newer ones are not named."""
        return sum(not self._is_told(save) for save in self._newer)

    def is_good(self, save: Save, *, min_level: str | None = None) -> bool:
        """Say whether it may be handed out."""
        current = in_force(save["history"])
        if current is None or current.verdict != "VALID" or not self._is_there(save):
            return False
        level = LEVELS.index(min_level or self._asked["min_assurance"])
        is_held = save["is_quarantined"] or save["is_suspect"]
        return not is_held and LEVELS.index(str(current.assurance)) >= level and not any(self._lacks(current))

    def _lacks(self, current: ModelVerdict) -> Iterator[str]:
        given, asked = self._model.given[current.validation_id], self._asked
        wanted = asked["min_provenance"]
        if wanted is not None and ORIGINS.index(given["provenance"]) < ORIGINS.index(wanted):
            yield "below_provenance"
        if asked["device"] is not None and asked["device"] not in _names_of(given["device"]):
            yield "other_device"
        max_age_s = asked["max_age_s"]
        if max_age_s is not None and self._now - given["at"] > timedelta(seconds=max_age_s):
            yield "too_old"

    def _may_become_good(self, save: Save) -> bool:
        if save["is_quarantined"] or save["is_suspect"] or save["id"] in self._asked["exclude"]:
            return False
        if lifecycle(save) == "announced":
            return bool(save["alive_until"] > self._now)
        if not self._is_there(save):
            return False
        coming = save["validation"] or (save["retry"] if lifecycle(save) == "registered" else None)
        if coming is not None:
            return REACH[coming["depth"]] >= LEVELS.index(self._asked["min_assurance"])
        return in_force(save["history"]) is None

    def _reason(self, save: Save) -> str:
        current = in_force(save["history"])
        verdict = None if current is None else current.verdict
        for reason, is_so in (
            ("incomplete", lifecycle(save) == "incomplete"),
            ("quarantined", save["is_quarantined"]),
            ("suspect", save["is_suspect"]),
            ("announced", lifecycle(save) == "announced"),
            ("invalid", verdict == "INVALID"),
        ):
            if is_so:
                return reason
        if save["validation"] is not None:
            return str(save["validation"]["state"])
        if current is None or verdict == "UNKNOWN":
            return "not_validated" if current is None else "unknown"
        if LEVELS.index(str(current.assurance)) < LEVELS.index(self._asked["min_assurance"]):
            return "below_assurance"
        return next(self._lacks(current))

    def _is_there(self, save: Save) -> bool:
        """Say whether its bytes are complete and its own, and on the way or asked for by step."""
        is_whole = save["is_complete"] and save["gone"] is None and save["id"] not in self._asked["exclude"]
        return is_whole and (not save["is_rolled"] or self._asked["step"] is not None)

    def _is_told(self, save: Save) -> bool:
        is_live = lifecycle(save) in {"announced", "incomplete", "registered"}
        return (is_live and save["id"] not in self._asked["exclude"]) or self._is_there(save)

    def _is_asked_about(self, save: Save) -> bool:
        step, before = self._asked["step"], self._asked["before_step"]
        return (step is None or save["step"] == step) and (before is None or save["step"] < before)


def new_run() -> Run:
    """Return a run at branch 0, opened from nothing."""
    return {
        "branch": 0, "origins": {0: None}, "from": None,
        "failures": {}, "is_failing": False, "min_level": "loaded",
    }  # fmt: skip


def lifecycle(save: Save) -> str:
    """Return where a save stands."""
    if save["gone"] is not None:
        return "deleted" if save["gone"] == "deleted" else "superseded"
    if save["is_rolled"]:
        return "superseded"
    if save["is_complete"]:
        return "registered"
    return "announced" if save["alive_until"] is not None else "incomplete"


def order(save: Save) -> tuple[Any, ...]:
    """Return its place in its run."""
    return (save["branch"], save["step"], save["created_at"], save["id"])


def overlap(one: str, other: str) -> bool:
    """Say whether two places are one, or one lies in the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _new_save(save_id: int) -> Save:
    holds = {"is_pinned": False, "is_quarantined": False, "is_suspect": False}
    return {
        "id": save_id, "gone": None, "gone_at": None, "is_rolled": False, "is_complete": False,
        "alive_until": None,
        "parts": {}, "expected": (), "history": [], "validation": None, "was_asked": False, **holds,
        "retry": None, "retries": 0,
    }  # fmt: skip


def _assurance(save: Save) -> str:
    current = in_force(save["history"])
    assert current is not None
    return str(current.assurance)


def _names_of(device: str) -> set[str]:
    place = device.split(" ", maxsplit=1)[0]
    return {device, place, place.split(":")[0]}
