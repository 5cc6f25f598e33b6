"""One reader of new events, many listeners; a listener that does not keep up is cut off.

Nothing is lost by that: events are rows, and a client comes again with `Last-Event-ID`.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog

from ckptguard.errors import ServiceUnavailableError, TooManyRequestsError
from ckptguard_api.database import Database
from ckptguard_api.domain.stopping import Stopping
from ckptguard_api.live.frames import Frame, frame_of_event, frame_of_progress
from ckptguard_api.repositories.event_feed import events_after, newest_event_id, running_progress
from ckptguard_api.repositories.tokens import token_revision

MAX_LISTENERS: Final = 256
MAX_WAITING_FRAMES: Final = 1000
_LOOK_EVERY_S: Final = 0.5
_LOOK_ROWS: Final = 500
_LOG: Final = structlog.get_logger("ckptguard.live")


class Listener:
    """One stream's end of the hub; belongs to the event loop.

    Args:
        project_id: Whose events it hears.
        run_id: Only this run's; None: all.
        from_id: It hears of every event above this id.
    """

    def __init__(self, *, project_id: int, run_id: int | None, from_id: int, max_frames: int) -> None:
        self.project_id = project_id
        self.run_id = run_id
        self.from_id = from_id
        self.is_cut_off = False
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue(max_frames)

    def tell(self, frame: Frame) -> None:
        """Queue a frame that concerns it."""
        if frame.concerns(project_id=self.project_id, run_id=self.run_id):
            self._put(frame)

    def wake(self) -> None:
        """Let it look at its token again."""
        self._put(None)

    async def next(self, timeout_s: float) -> Frame | None:
        """Return the next frame; None: the time is up, or it was woken."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._frames.get()
        except TimeoutError:
            return None

    def _put(self, frame: Frame | None) -> None:
        try:
            self._frames.put_nowait(frame)
        except asyncio.QueueFull:
            self.is_cut_off = True


class _Look(NamedTuple):
    frames: Sequence[Frame]
    progress: Sequence[Frame]
    position: int
    token_revision: int
    is_more: bool


class EventHub:
    """Reads the database while anybody listens.

    Args:
        database: Read every half second, by one thread, over one connection that is not kept.
        stopping: Ends the reader.
    """

    def __init__(
        self,
        database: Database,
        stopping: Stopping,
        *,
        max_listeners: int = MAX_LISTENERS,
        max_frames: int = MAX_WAITING_FRAMES,
    ) -> None:
        self._database = database
        self._stopping = stopping
        self._max_listeners = max_listeners
        self._max_frames = max_frames
        self._listeners: set[Listener] = set()
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._position = 0
        self._token_revision = -1
        self._progress: Sequence[Frame] = ()

    @property
    def num_listeners(self) -> int:
        """How many listen now."""
        return len(self._listeners)

    async def listen(self, *, project_id: int, run_id: int | None) -> Listener:
        """Hear of every event from now on, until `leave`.

        Raises:
            TooManyRequestsError: As many listen as may.
            ServiceUnavailableError: The database gave no answer.
        """
        async with self._starting:
            if len(self._listeners) >= self._max_listeners:
                msg = f"{self._max_listeners} streams are open, the most there may be"
                raise TooManyRequestsError(msg)
            if self._reader is None or self._reader.done():
                self._position, self._progress = await asyncio.to_thread(self._newest), ()
                self._reader = asyncio.create_task(self._read_on())
            listener = Listener(
                project_id=project_id, run_id=run_id, from_id=self._position, max_frames=self._max_frames
            )
            self._listeners.add(listener)
            for frame in self._progress:
                listener.tell(frame)
            return listener

    def leave(self, listener: Listener) -> None:
        """Hear no more."""
        self._listeners.discard(listener)

    async def backlog(self, listener: Listener, after_id: int, *, limit: int = _LOOK_ROWS) -> Sequence[Frame]:
        """Return events that a listener missed, oldest first, up to where it listens from."""
        return await asyncio.to_thread(self._missed, listener, after_id, limit)

    async def _read_on(self) -> None:
        is_more = False
        while self._listeners and (is_more or not await self._stopping.wait(_LOOK_EVERY_S)):
            try:
                look = await asyncio.to_thread(self._look)
            except ServiceUnavailableError as error:
                _LOG.warning("events not read", error=str(error))
                is_more = False
                continue
            self._tell(look)
            is_more = look.is_more

    def _tell(self, look: _Look) -> None:
        self._position = look.position
        said = {frame.body for frame in self._progress}
        news = [frame for frame in look.progress if frame.body not in said]
        self._progress = look.progress
        is_token_written = look.token_revision != self._token_revision
        self._token_revision = look.token_revision
        for listener in self._listeners:
            for frame in (*look.frames, *news):
                listener.tell(frame)
            if is_token_written:
                listener.wake()

    def _look(self) -> _Look:
        projects = {listener.project_id for listener in tuple(self._listeners)}
        with self._database.read() as tx:
            rows = events_after(tx, self._position, limit=_LOOK_ROWS)
            progress = [frame_of_progress(row) for row in running_progress(tx, projects) if row.progress]
            revision = token_revision(tx)
        position = rows[-1].id if rows else self._position
        frames = [frame_of_event(row) for row in rows]
        return _Look(frames, progress, position, revision, is_more=len(rows) == _LOOK_ROWS)

    def _newest(self) -> int:
        with self._database.read() as tx:
            return newest_event_id(tx)

    def _missed(self, listener: Listener, after_id: int, limit: int) -> Sequence[Frame]:
        with self._database.read() as tx:
            rows = events_after(
                tx,
                after_id,
                until_id=listener.from_id,
                project_id=listener.project_id,
                run_id=listener.run_id,
                limit=limit,
            )
        return [frame_of_event(row) for row in rows]
