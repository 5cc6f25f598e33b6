"""What the service was told, and what it answered; remembered for this process only."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from ckptguard.client.answers import Registered
from ckptguard.client.call import Call
from ckptguard.client.operator_calls import mark_deleted
from ckptguard.clock import Clock
from ckptguard.errors import (
    CkptGuardError,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    LocationRefusedError,
    NotFoundError,
)
from ckptguard.model.policy import Depth
from ckptguard.operations.adopt.departures import Told
from ckptguard.operations.adopt.found import Found
from ckptguard.operations.adopt.news import News, NewsKind, Tell
from ckptguard.operations.adopt.prepare import Prepared

T = TypeVar("T")

RETRY_REFUSED_S: Final = 300.0
"""After this, a watcher tries again what was refused or could not be read: somebody may have helped."""
_GREW: Final = "it was registered before, with other files beside the same metadata"
_DELETED: Final = "adopt: its files are not there any more"


class Service(Protocol):
    """Whom registrations are sent to."""

    def send(self, call: Call[T]) -> T:
        """Make a call."""
        ...


class Registrar:
    """Tells the service of checkpoints, and `tell` of what came of it.

    Args:
        service: None: nothing is sent, and `tell` takes what would be.
        depth: Of validations.
        clock: Tells time.
        tell: Takes what happens.
    """

    def __init__(self, service: Service | None, *, depth: Depth, clock: Clock, tell: Tell) -> None:
        self._service = service
        self._depth = depth
        self._clock = clock
        self._tell = tell
        self._told: dict[str, Told] = {}
        self._failed: dict[str, _Failure] = {}

    @property
    def is_dry(self) -> bool:
        """Whether nothing is sent."""
        return self._service is None

    @property
    def told(self) -> Mapping[str, Told]:
        """Checkpoints that the service knows, by folder."""
        return self._told

    def dealt_with(self, found: Sequence[Found]) -> dict[str, str]:
        """Return, by folder, the `save_version` that needs nothing now; forget failures of other folders."""
        kept = {each.folder for each in found}
        now_s = self._clock.monotonic_s()
        self._failed = {folder: each for folder, each in self._failed.items() if folder in kept}
        resting = {
            folder: each.save_version
            for folder, each in self._failed.items()
            if now_s - each.at_s < RETRY_REFUSED_S
        }
        return {folder: each.save_version for folder, each in self._told.items()} | resting

    def register(self, prepared: Prepared, where: Mapping[str, str]) -> None:
        """Tell of one checkpoint.

        Raises:
            LocationRefusedError: Its root is in no store that the operator allows.
            ServiceError: The service gave no answer, or refuses whoever asks.
        """
        if self._service is None:
            self._tell(_news(NewsKind.WOULD_REGISTER, prepared))
        elif prepared.error is not None:
            self._fail(NewsKind.UNREADABLE, prepared, prepared.error)
        else:
            self._send(self._service, prepared, where)

    def _send(self, service: Service, prepared: Prepared, where: Mapping[str, str]) -> None:
        try:
            answers, notes = self._answers(service, prepared, where)
        except LocationRefusedError:
            raise
        except (ConflictError, InvalidRequestError) as error:
            self._fail(NewsKind.REFUSED, prepared, error)
            return
        found = prepared.found
        self._failed.pop(found.folder, None)
        self._told[found.folder] = Told(
            run=found.run,
            step=found.step,
            checkpoint_id=answers[-1].checkpoint.id,
            save_version=found.save_version,
        )
        kind = NewsKind.REGISTERED if any(answer.is_new for answer in answers) else NewsKind.KNOWN
        self._tell(_news(kind, prepared, answers=answers, notes=notes))

    def _answers(
        self, service: Service, prepared: Prepared, where: Mapping[str, str]
    ) -> tuple[list[Registered], tuple[str, ...]]:
        """Send everything; where sidecars came or went since, tell the same save without counting them."""
        try:
            return [service.send(call) for call in prepared.calls(where, self._depth)], prepared.notes
        except ConflictError:
            if prepared.manifests:
                raise
        bare = prepared.calls(where, self._depth, is_bare=True)
        return [service.send(call) for call in bare], (*prepared.notes, _GREW)

    def _fail(self, kind: NewsKind, prepared: Prepared, error: CkptGuardError) -> None:
        found, reason = prepared.found, str(error)
        before = self._failed.get(found.folder)
        self._failed[found.folder] = _Failure(found.save_version, self._clock.monotonic_s(), reason)
        if before is None or (before.save_version, before.reason) != (found.save_version, reason):
            self._tell(_news(kind, prepared, reason=reason))

    def departed(self, folders: Collection[str]) -> None:
        """Tell the service of checkpoints that are gone; a token that may not say so leaves them.

        Raises:
            ServiceError: The service gave no answer.
        """
        for folder in folders:
            told = self._told[folder]
            reason = self._mark_deleted(told)
            del self._told[folder]
            kind = NewsKind.DELETED if reason is None else NewsKind.GONE
            self._tell(
                News(
                    kind=kind,
                    run=told.run,
                    step=told.step,
                    path=folder,
                    checkpoint_id=told.checkpoint_id,
                    reason=reason,
                )
            )

    def _mark_deleted(self, told: Told) -> str | None:
        """Return why the service does not take it; None: it does."""
        assert self._service is not None  # noqa: S101 - of a dry run nothing is told
        try:
            self._service.send(mark_deleted(told.checkpoint_id, reason=_DELETED))
        except (ForbiddenError, ConflictError, NotFoundError) as error:
            return str(error)
        return None


class _Failure:
    """A checkpoint that could not be told, until it changes or some time has passed."""

    __slots__ = ("at_s", "reason", "save_version")

    def __init__(self, save_version: str, at_s: float, reason: str) -> None:
        self.save_version = save_version
        self.at_s = at_s
        self.reason = reason


def _news(
    kind: NewsKind,
    prepared: Prepared,
    *,
    answers: Sequence[Registered] = (),
    notes: Sequence[str] = (),
    reason: str | None = None,
) -> News:
    found = prepared.found
    said = [note for answer in answers for note in answer.notes]
    return News(
        kind=kind,
        run=found.run,
        step=found.step,
        path=found.folder,
        checkpoint_id=answers[-1].checkpoint.id if answers else None,
        is_validated=prepared.is_validated,
        reason=reason,
        superseded=tuple(each for answer in answers for each in answer.superseded),
        notes=tuple(dict.fromkeys([*notes, *said])),
    )
