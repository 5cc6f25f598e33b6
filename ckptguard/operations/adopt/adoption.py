"""One pass: list, see what is new and at rest, read its metadata, tell the service."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ckptguard.clock import Clock
from ckptguard.formats.protocol import FormatAdapter
from ckptguard.formats.registry import adapters as installed_adapters
from ckptguard.model.policy import Depth
from ckptguard.operations.adopt.departures import Departures
from ckptguard.operations.adopt.found import Found
from ckptguard.operations.adopt.news import Advance, News, NewsKind, Tell
from ckptguard.operations.adopt.plan import Plan, newest_of_each_run, plan
from ckptguard.operations.adopt.prepare import Prepared, Reader, location, mapped_ahead
from ckptguard.operations.adopt.registrar import Registrar, Service
from ckptguard.operations.adopt.settling import Settling
from ckptguard.operations.adopt.sweep import Naming, Sweep, sweep
from ckptguard.storage.open_url import open_location
from ckptguard.storage.protocol import Store

REMOTE_THREADS: Final = 8
"""Read metadata of an object store, two round trips each; of a folder one thread does, while the service
is told of the checkpoints before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user said.

    Args:
        target: Root, as a path or URL.
        naming: How folders tell run and step.
        settle_s: How long nothing may change before it is registered.
        newest: Of each run, how many of those that are there already are validated; None: all.
        depth: Of validations.
        stores: Store name to its root on this machine.
    """

    target: str
    naming: Naming
    settle_s: float = 30.0
    newest: int | None = 3
    depth: Depth = Depth.LOAD
    stores: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """How a pass ended.

    Args:
        wait_s: Until something that is not registered yet may be; None: nothing is waited for.
        standing: What is so now, besides what was registered.
    """

    wait_s: float | None
    standing: tuple[News, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A checkpoint that may be registered later: why not now, and in how many seconds."""

    found: Found
    reason: str
    left_s: float


def _no_news(done: int, total: int) -> None:
    """Take progress, and leave it."""


class Adoption:
    """Passes over one root. What was told is remembered for this process only: told again, it is the same.

    Args:
        wish: What the user said.
        service: Told of everything; None: only `tell` is.
        clock: Tells time.
        tell: Takes what happens.
        advance: Takes how far a pass is.
        opened: The root's store and folder; None: opened at the first pass.
        adapters: Formats to know; None: all that are installed.
    """

    def __init__(
        self,
        wish: Wish,
        service: Service | None,
        *,
        clock: Clock,
        tell: Tell,
        advance: Advance = _no_news,
        opened: tuple[Store, str] | None = None,
        adapters: Sequence[FormatAdapter] | None = None,
    ) -> None:
        self._wish = wish
        self._advance = advance
        self._opened = opened
        self._adapters = installed_adapters() if adapters is None else tuple(adapters)
        self._settling = Settling(wish.settle_s, clock)
        self._departures = Departures(wish.settle_s, clock)
        self._registrar = Registrar(service, depth=wish.depth, clock=clock, tell=tell)
        self._is_first = True

    def run_pass(self, *, is_watching: bool = False) -> Passed:
        """List everything once, and register what is new and at rest.

        Args:
            is_watching: What came since the first pass is validated; what is gone is reported.

        Raises:
            LocationRefusedError: The root is in no store that the operator allows.
            CkptGuardError: The root could not be listed, or the service gave no answer. What was
                registered until then is, and the next pass goes on from there.
        """
        seen = self._look()
        todo = plan(seen.found, self._settling, self._registrar.dealt_with(seen.found))
        is_new_validated = is_watching and not self._is_first and self._wish.newest != 0
        late = self._register(seen, todo, is_each_validated=is_new_validated)
        if any(found.doubt is None for found in seen.found):
            self._is_first = False
        if is_watching:
            self._report_departures(seen)
        waiting = [
            _Waiting(found=each, reason=why, left_s=self._settling.left_s(each)) for each, why in todo.waiting
        ]
        waiting += late
        return Passed(
            wait_s=max((each.left_s for each in waiting), default=None),
            standing=(*map(_waits, waiting), *_standing(seen, todo), *self._vanished(seen)),
        )

    def _look(self) -> Sweep:
        if self._opened is None:
            self._opened = open_location(self._wish.target)
        store, prefix = self._opened
        seen = sweep(store, prefix, self._wish.naming, self._adapters)
        self._settling.look(seen.found)
        return seen

    def _register(self, seen: Sweep, todo: Plan, *, is_each_validated: bool) -> list[_Waiting]:
        """Register what is to be; return what turned out not to be whole."""
        chosen = todo.to_register if is_each_validated else seen.found
        validated = newest_of_each_run(chosen, None if is_each_validated else self._wish.newest)
        late: list[_Waiting] = []
        for done, prepared in enumerate(self._prepared(seen, todo, validated), start=1):
            waits = self._why_not_yet(prepared)
            if waits is None:
                self._registrar.register(prepared, location(seen, prepared.found, self._wish.stores))
            else:
                late.append(waits)
            self._advance(done, len(todo.to_register))
        return late

    def _prepared(self, seen: Sweep, todo: Plan, validated: frozenset[str]) -> Iterator[Prepared]:
        reader = Reader(sweep=seen)

        def prepare(found: Found) -> Prepared:
            is_validated = found.folder in validated
            if self._registrar.is_dry:
                return Prepared(found=found, is_validated=is_validated)
            return reader.prepare(found, is_validated=is_validated)

        threads = REMOTE_THREADS if "://" in seen.store.url else 1
        return mapped_ahead(prepare, iter(todo.to_register), threads=threads)

    def _why_not_yet(self, prepared: Prepared) -> _Waiting | None:
        """Say what a copy that arrives with old times looks like: metadata first, at rest, and not whole."""
        found, error = prepared.found, prepared.error
        if error is not None and error.is_retryable:
            return _Waiting(found=found, reason=str(error), left_s=self._wish.settle_s)
        if prepared.absent and not self._settling.is_watched(found):
            reason = f"files that its metadata names are missing or short: {prepared.absent}"
            return _Waiting(found=found, reason=reason, left_s=self._settling.watched_left_s(found))
        return None

    def _report_departures(self, seen: Sweep) -> None:
        told = self._registrar.told
        present = {folder for folder in told if folder in seen.tree.files or folder in seen.tree.children}
        runs = {found.run for found in seen.found}
        self._registrar.departed(self._departures.look(told, present=present, runs=runs))

    def _vanished(self, seen: Sweep) -> Iterator[News]:
        """Yield the runs of which nothing is left: nobody is told that these are deleted."""
        runs = {found.run for found in seen.found}
        for run in sorted({told.run for told in self._registrar.told.values()} - runs):
            reason = "nothing of this run is there any more; it is not reported as deleted"
            yield News(kind=NewsKind.GONE, run=run, reason=reason)


def _waits(waiting: _Waiting) -> News:
    found = waiting.found
    return News(
        kind=NewsKind.WAITING, run=found.run, step=found.step, path=found.folder, reason=waiting.reason
    )


def _standing(seen: Sweep, todo: Plan) -> Iterator[News]:
    for found, reason in todo.skipped:
        yield News(kind=NewsKind.SKIPPED, run=found.run, step=found.step, path=found.folder, reason=reason)
    for path in seen.unfinished:
        yield News(kind=NewsKind.SKIPPED, path=path, reason="named like a save in progress")
    for fault in seen.faults:
        yield News(
            kind=NewsKind.POINTER, run=fault.run, path=fault.path, fault=fault.fault, reason=fault.message
        )
