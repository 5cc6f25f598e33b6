"""Training jobs: they announce, register, repeat themselves and tell more."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from ckptguard.model.manifest import Origin, default_save_id, identity
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.locations import AskedLocation
from ckptguard_api.domain.registration import Announcement, Described, Registration
from ckptguard_api.domain.save_ids import provisional_save_id
from ckptguard_api.use_cases.announce import announce
from ckptguard_api.use_cases.register import register
from tests.property.service_model import (
    DEFAULT_KEEP_ALIVE_S,
    Save,
    lifecycle,
    new_run,
)
from tests.property.service_stage import CONTENTS, PARTS, PLACES, PLACES_APART, RUNS, Stage, manifest_from

BY_CONTENT: Final = default_save_id(identity(manifest_from(Origin.READ_BACK)))


class TrainingJobs(Stage):
    """Whoever tells the service of saves."""

    def save(self) -> None:
        """Register a save, or its first part; often one that was announced."""
        run, place = self.chance.choice(RUNS[:1] * 3 + RUNS[1:]), self.chance.choice(PLACES)
        step = self._step_of(run)
        announced = [one for one in self._saves() if one["save_id"] is None and not one["parts"]]
        if announced and self.chance.random() < 0.5:
            one = self.chance.choice(announced)
            run, step, place = one["run"], one["step"], one["place"]
        save_id = f"save-{len(self.requests)}"
        self._register(run, step, place, save_id=save_id, parts=self.chance.choice(((), (), (), PARTS)))

    def save_apart(self) -> None:
        """Register a save of the first run where no other one stands."""
        number = len(self.requests)
        place = PLACES_APART[number % len(PLACES_APART)]
        self._register(RUNS[0], number, place, save_id=f"save-{number}", parts=())

    def save_alike(self) -> None:
        """Register bytes that are the same whenever the step is done, under a save id made from them."""
        alike = [saves[-1] for saves in self.model.alike.values()]
        run, place = self.chance.choice(RUNS[:1] * 3 + RUNS[1:]), self.chance.choice(PLACES)
        step = self._step_of(run)
        if alike and self.chance.random() < 0.8:
            last = self.chance.choice(alike)
            run, step = last["run"], last["step"]
            place = last["place"] if self.chance.random() < 0.8 else place
        self.clock.advance(self.chance.choice((0, 0, 1, 45)))
        if self.chance.random() < 0.25:
            self._announce(Announcement(run=run, step=step, location=_at(place)), place)
        created_at = self.clock.now() - timedelta(seconds=self.chance.choice((0, 0, 0.25, 30)))
        made = manifest_from(Origin.READ_BACK)
        facts: dict[str, Any] = {"run": run, "step": step, "save_id": BY_CONTENT, "created_at": created_at}
        request = Registration(
            run=run,
            step=step,
            location=_at(place),
            manifest=replace(made, **facts),
            depth=self._depth(),
            is_validated=self.chance.random() < 0.9,
        )
        self._register_alike(request, self.model.told_of(run, step, created_at, place), place)

    def _register_alike(self, request: Registration, known: Save | None, place: str) -> None:
        done = self._call(
            lambda: register(self.services, request, project_id=1, actor=SERVICE),
            is_refused=known is not None and known["place"] != place,
        )
        if done is None:
            return
        self._tell(f"alike {done.checkpoint.id}: {request.run} step {request.step} at {place}")
        assert done.is_new == (known is None)
        assert request.manifest is not None
        if known is not None:
            assert done.checkpoint.id == known["id"]
            self._note_asked(known, request)
            return
        alike = self.model.alike.setdefault((request.run, request.step), [])
        if alike:
            alike[-1]["save_id"] = f"before {done.checkpoint.id}"
        created_at = request.manifest.created_at
        self._note_saved(request, done.checkpoint.id, created_at=created_at, kind="read_back", part="")
        alike.append(self.model.saves[done.checkpoint.id])

    def next_part(self) -> None:
        """Register another part of a save; sometimes one whose bytes are gone."""
        waiting = [one for one in self._saves() if one["parts"] and not one["is_complete"]]
        if not waiting:
            return
        save = self.chance.choice(waiting)
        part = next(name for name in save["expected"] if name not in save["parts"])
        self._register(
            save["run"], save["step"], save["place"], save_id=save["save_id"], parts=PARTS, part=part
        )

    def _register(
        self,
        run: str,
        step: int,
        place: str,
        *,
        save_id: str,
        parts: tuple[str, ...],
        part: str | None = None,
    ) -> None:
        branch = self._branch_told(run)
        facts: dict[str, Any] = {"manifest": None}
        kind = "save" if parts else self.chance.choice(("save", "save", "read_back", "described"))
        created_at = self.clock.now() - timedelta(seconds=self.chance.choice((0, 0, 30)))
        if kind == "described":
            facts |= {"save_id": save_id, "described": Described(created_at=created_at)}
        else:
            made = manifest_from(Origin.SAVE if kind == "save" else Origin.READ_BACK)
            part = (part or self.chance.choice(parts)) if parts else None
            values: dict[str, Any] = {
                "save_id": save_id,
                "created_at": created_at,
                "part": part,
                "parts": parts,
            }
            facts["manifest"] = replace(made, run=run, step=step, **values)
        request = Registration(
            run=run,
            step=step,
            location=_at(place),
            branch=branch,
            depth=self._depth(),
            is_validated=self.chance.random() < 0.9,
            **facts,
        )
        found = self.model.find(run, step, save_id, place) if run in self.model.runs else None
        is_refused = found is not None and bool(found["parts"]) and found["gone"] is not None
        done = self._call(
            lambda: register(self.services, request, project_id=1, actor=SERVICE), is_refused=is_refused
        )
        if done is None:
            return
        self._tell(f"save {done.checkpoint.id}: {run} step {step} at {place}, {kind} {part or ''}")
        self._note_saved(request, done.checkpoint.id, created_at=created_at, kind=kind, part=part or "")
        assert done.is_new

    def _note_saved(
        self, request: Registration, row_id: int, *, created_at: datetime, kind: str, part: str
    ) -> None:
        self.model.runs.setdefault(request.run, new_run())
        place = f"{request.location.store}/{request.location.path}"
        before = self.model.saves.get(row_id)
        parts = {} if before is None else before["parts"]
        branch = self.model.runs[request.run]["branch"] if before is None else before["branch"]
        expected = (part,) if part == "" else PARTS
        save_id = request.save_id or request.manifest.save_id  # type: ignore[union-attr]
        parts |= {part: kind == "save"}
        is_complete = set(parts) == set(expected)
        if before is not None and before["expected"]:
            created_at = max(before["created_at"], created_at)
        save = self.model.put(
            row_id,
            run=request.run,
            step=request.step,
            place=place,
            save_id=save_id,
            branch=branch if request.branch is None else request.branch,
            created_at=created_at,
            is_complete=is_complete,
            alive_until=None if is_complete else self._in(DEFAULT_KEEP_ALIVE_S),
            parts=parts,
            expected=expected,
            content=self.chance.choice(CONTENTS),
            has_manifest=kind != "described",
        )
        self.requests.append((request, row_id))
        if is_complete and request.is_validated:
            self.model.queue(save, self._open_id(row_id), request.depth.value)

    def announce(self) -> None:
        """Say that a save is under way, anew or again."""
        run, place = self.chance.choice(RUNS[:1] * 3 + RUNS[1:]), self.chance.choice(PLACES)
        step, keep_s = self._step_of(run), self.chance.choice((30.0, 600.0))
        request = Announcement(
            run=run, step=step, location=_at(place), branch=self._branch_told(run), keep_alive_s=keep_s
        )
        self._announce(request, place)

    def sign_of_life(self) -> None:
        """Keep alive what was announced, however late."""
        announced = [one for one in self._saves() if one["save_id"] is None]
        if not announced:
            return
        save = self.chance.choice(announced)
        request = Announcement(
            run=save["run"],
            step=save["step"],
            location=_at(save["place"]),
            save_id=_provisional(save["place"]),
            keep_alive_s=120.0,
        )
        self._announce(request, save["place"], life=save)

    def _announce(self, request: Announcement, place: str, *, life: Save | None = None) -> None:
        is_refused = life is not None and life["gone"] == "rewritten"
        done = self._call(
            lambda: announce(self.services, request, project_id=1, actor=SERVICE), is_refused=is_refused
        )
        if done is None:
            return
        run = self.model.runs.setdefault(request.run, new_run())
        before = self.model.saves.get(done.checkpoint.id)
        assert life is None or before is life
        until = self._in(request.keep_alive_s)
        self._tell(f"announced {done.checkpoint.id}: {request.run} step {request.step} at {place}")
        if before is not None and lifecycle(before) == "announced":
            before["alive_until"] = until
            return
        branch = run["branch"] if request.branch is None else request.branch
        self.model.put(
            done.checkpoint.id,
            run=request.run,
            step=request.step,
            place=place,
            save_id=None,
            branch=branch if life is None else life["branch"],
            created_at=self.clock.now(),
            alive_until=until,
        )

    def repeat(self) -> None:
        """Send a registration again: nothing changes, whatever became of the save since."""
        if not self.requests:
            return
        request, row_id = self.chance.choice(self.requests)
        before, save = self._shown(), self.model.saves[row_id]
        done = self._call(lambda: register(self.services, request, project_id=1, actor=SERVICE))
        if done is None:
            return
        assert (done.checkpoint.id, done.is_new) == (row_id, False)
        if not self._note_asked(save, request):
            assert self._shown() == before, "the same again changed something"

    def _note_asked(self, save: Save, request: Registration) -> bool:
        """Take note of a verdict that is asked for by what was told before, if none ever was."""
        is_wanted = save["is_complete"] and save["gone"] is None and request.is_validated
        if not is_wanted or save["was_asked"]:
            return False
        self.model.queue(save, self._open_id(save["id"]), request.depth.value)
        return True

    def tell_more(self) -> None:
        """Send the writer's manifest of a save that was registered without it."""
        alike = [one["id"] for saves in self.model.alike.values() for one in saves]
        poor = [one for one in self._saves() if one["parts"] == {"": False} and one["id"] not in alike]
        if not poor:
            return
        save = self.chance.choice(poor)
        made = replace(
            manifest_from(Origin.SAVE), **{name: save[name] for name in ("run", "step", "save_id")}
        )
        request = Registration(
            run=save["run"],
            step=save["step"],
            location=_at(save["place"]),
            manifest=made,
            depth=self._depth(),
        )
        done = self._call(lambda: register(self.services, request, project_id=1, actor=SERVICE))
        if done is None:
            return
        self._tell(f"the writer's manifest of {save['id']}")
        if not save["has_manifest"]:  # verdicts from now on are of the files that it lists
            save |= {"content": f"listed {save['content']}", "has_manifest": True}
        save["parts"][""] = True
        if save["gone"] is None:
            self.model.queue(save, self._open_id(save["id"]), request.depth.value)


def _at(place: str) -> AskedLocation:
    store, _, path = place.partition("/")
    return AskedLocation(store=store, path=path)


def _provisional(place: str) -> str:
    return provisional_save_id(f"file:///data/{place}")
