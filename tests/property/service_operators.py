"""Operators, and launchers that start runs."""

from typing import Any

from ckptguard.model.service import Hold, RestartOutcome
from ckptguard.model.verdict import Assurance
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.restart_report import RestartReport
from ckptguard_api.domain.run_policy import RunPolicy
from ckptguard_api.use_cases.deletions import mark_deleted
from ckptguard_api.use_cases.holds import Releasable, hold_checkpoint, release_checkpoint
from ckptguard_api.use_cases.restarts import report_restart
from ckptguard_api.use_cases.revalidate import request_validation
from ckptguard_api.use_cases.runs import change_run, create_run
from tests.property.leasing_model import in_force
from tests.property.service_model import (
    LEVELS,
    Save,
    lifecycle,
    new_run,
)
from tests.property.service_stage import (
    PRICE,
    RUNS,
    Stage,
)


class Operators(Stage):
    """Whoever decides about saves and starts."""

    def ask_again(self) -> None:
        """Ask for another verdict."""
        save = self._any_save()
        if save is None:
            return
        depth = self._depth()
        done = self._call(
            lambda: request_validation(
                self.services, project_id=1, checkpoint_id=save["id"], depth=depth, reason=None, actor=SERVICE
            ),
            is_refused=not save["is_complete"] or save["gone"] is not None,
        )
        if done is None:
            return
        there, (row, is_new) = save["validation"], done
        assert is_new == (there is None)
        if there is None:
            self.model.queue(save, row.id, depth.value)
        elif there["state"] == "queued":
            save["retries"] = 0
            there["depth"] = max(there["depth"], depth.value, key=["structure", "content", "load"].index)

    def hold(self) -> None:
        """Pin or quarantine."""
        save, hold = self._any_save(), self.chance.choice((Hold.PINNED, Hold.QUARANTINED))
        if save is None:
            return
        done = self._call(
            lambda: hold_checkpoint(
                self.services, project_id=1, checkpoint_id=save["id"], hold=hold, reason="x", actor=SERVICE
            ),
            is_refused=save["gone"] == "deleted",
        )
        if done is not None:
            save[f"is_{hold.value}"] = True

    def let_go(self) -> None:
        """Release one hold, or all."""
        held = [
            one for one in self._saves() if one["is_pinned"] or one["is_quarantined"] or one["is_suspect"]
        ]
        if not held:
            return
        save = self.chance.choice(held)
        what = self.chance.choice((None, Releasable.PINNED, Releasable.QUARANTINED, Releasable.SUSPECT))
        if self._call(lambda: self._release(save, what)) is None:
            return
        for name in ("pinned", "quarantined", "suspect") if what is None else (what.value,):
            if name == "suspect" and save["is_suspect"]:
                self.model.runs[save["run"]]["failures"].pop(save["id"], None)
            save[f"is_{name}"] = False

    def lift(self) -> None:
        """Lift damage, where a second worker found the same bytes sound."""
        found = [(one, in_force(one["history"])) for one in self._saves()]
        damaged = [save for save, current in found if current is not None and current.basis == "damage"]
        save = self.chance.choice(damaged) if damaged else self._any_save()
        if save is None:
            return
        history = list(save["history"])
        may = self.model.lift(save)
        after, save["history"] = save["history"], history
        if self._call(lambda: self._release(save, Releasable.DAMAGE), is_refused=not may) is not None:
            save["history"] = after

    def _release(self, save: Save, what: Releasable | None) -> object:
        return release_checkpoint(
            self.services, project_id=1, checkpoint_id=save["id"], what=what, reason="x", actor=SERVICE
        )

    def delete(self) -> None:
        """Tell that the bytes of a save are gone."""
        save = self._any_save()
        if save is not None:
            self._delete(save)

    def _delete(self, save: Save) -> None:
        done = self._call(
            lambda: mark_deleted(
                self.services, project_id=1, checkpoint_id=save["id"], reason="x", actor=SERVICE
            ),
            is_refused=save["is_pinned"] and save["gone"] != "deleted",
        )
        if done is not None:
            self._tell(f"deleted {save['id']}")
            self.model.lose(save, "deleted")

    def resume(self) -> None:
        """Start a run from some save, however old; sometimes from one whose bytes are not there."""
        save = self._any_start()
        if save is not None:
            self._resumed(save, f"start-{self.num_starts}")

    def _resumed(self, save: Save, attempt: str) -> bool:
        self.num_starts += 1
        report = RestartReport(attempt=attempt, outcome=RestartOutcome.RESUMED, checkpoint_id=save["id"])
        done = self._call(
            lambda: self._report_start(save["run"], report),
            is_refused=not save["is_complete"] or save["gone"] is not None,
        )
        if done is None:
            return False
        self._tell(f"{save['run']} resumes from {save['id']}")
        self.model.go_on_from(save["run"], save)
        assert done.branch == self.model.runs[save["run"]]["branch"]
        return True

    def fail_start(self) -> None:
        """Start a run from a save some times, and fail; or go on well."""
        save = self._any_start()
        if save is None:
            return
        for _ in range(self.chance.choice((1, 4, 5))):
            attempt = f"start-{self.num_starts}"
            if not self._resumed(save, attempt):
                return
            nodes = tuple(self.chance.choice(("a", "b", "c", "a b", "")).split())
            is_well = self.chance.random() < 0.1
            outcome = RestartOutcome.PROGRESSED if is_well else RestartOutcome.FAILED_LOADING
            report = RestartReport(attempt=attempt, outcome=outcome, nodes=nodes)
            if self._call(lambda: self._report_start(save["run"], report)) is None:  # noqa: B023 - called at once
                return
            self._tell(f"{attempt}: {outcome.value}")
            if is_well:
                self.model.progress(save["run"], save)
            else:
                self.model.fail(save["run"], save, frozenset(nodes))

    def start_fresh(self) -> None:
        """Start a run from nothing, though it has checkpoints, or because it has none."""
        run = self.chance.choice(RUNS)
        if run not in self.model.runs:
            return
        is_despite = self.chance.random() < 0.7
        report = RestartReport(
            attempt=f"start-{self.num_starts}",
            outcome=RestartOutcome.RESUMED,
            is_fresh_despite=is_despite,
            repeated_run=run if is_despite else None,
        )
        self.num_starts += 1
        live = {"announced", "registered", "incomplete"}
        has_live = any(lifecycle(one) in live for one in self._saves() if one["run"] == run)
        if (
            self._call(lambda: self._report_start(run, report), is_refused=has_live and not is_despite)
            is None
        ):
            return
        self._tell(f"{run} starts from nothing")
        self.model.go_on_from(run, None)
        if is_despite:
            self.model.runs[run]["failures"] = {}

    def _report_start(self, run: str, report: RestartReport) -> Any:  # noqa: ANN401 - RestartAnswer
        return report_restart(self.services, project_id=1, run_name=run, report=report, actor=SERVICE)

    def change_policy(self) -> None:
        """Ask more of a run, or less; it may be made by this."""
        run, level = self.chance.choice(RUNS), self.chance.choice(LEVELS[:3])
        changes: dict[str, Any] = {"min_assurance": Assurance(level), **PRICE}
        made: object
        if run not in self.model.runs:
            policy = RunPolicy(**changes)
            made = self._call(
                lambda: create_run(self.services, project_id=1, name=run, policy=policy, actor=SERVICE)
            )
        else:
            made = self._call(
                lambda: change_run(self.services, project_id=1, name=run, changes=changes, actor=SERVICE)
            )
        if made is not None:
            self.model.runs.setdefault(run, new_run())["min_level"] = level

    def pass_time(self) -> None:
        """Time passes, and nobody is told."""
        self.clock.advance(self.chance.choice((0.5, 20, 61, 130, 601, 5000)))
