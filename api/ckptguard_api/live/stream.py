"""The answer that does not end by itself."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ckptguard.errors import ServiceError
from ckptguard_api.live.frames import HEARTBEAT, RETRY, Frame
from ckptguard_api.live.hub import Listener
from ckptguard_api.services import Services
from ckptguard_api.use_cases.access import Access, access_of

HEARTBEAT_EVERY_S: Final = 15.0
_SEND_TIMEOUT_S: Final = 20.0


class EventStream(Response):
    """Sends frames until the reader goes away or does not keep up, its token ends, or the service stops.

    Holds no thread and no connection of the database while nothing happens.

    Args:
        services: Of this process.
        listener: What to send; left at the end.
        access: Whose token.
        token: The token, to be looked at again whenever one was written.
        project_name: As the request named it.
        after_id: The last event that the reader saw; None: from now on.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        services: Services,
        listener: Listener,
        *,
        access: Access,
        token: str,
        project_name: str | None,
        after_id: int | None,
        heartbeat_every_s: float = HEARTBEAT_EVERY_S,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._services = services
        self._listener = listener
        self._access = access
        self._token = token
        self._project_name = project_name
        self._after_id = after_id
        self._heartbeat_every_s = heartbeat_every_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until one of the reasons to end."""
        del scope
        tasks = (asyncio.create_task(self._write(send)), asyncio.create_task(_until_gone(receive)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._services.events.leave(self._listener)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for chunk in self._chunks():
                # A reader that takes nothing for so long would keep the task, and its socket, for ever.
                async with asyncio.timeout(_SEND_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield RETRY
        async for missed in self._missed():
            yield missed.body
        loop = asyncio.get_running_loop()
        good_for_s = self._access.holder.good_for_s
        ends_at = None if good_for_s is None else loop.time() + good_for_s
        while not self._listener.is_cut_off and not self._services.stopping.is_set:
            wait_s = self._heartbeat_every_s
            if ends_at is not None:
                wait_s = min(wait_s, ends_at - loop.time())
            frame = await self._services.stopping.first_of(self._listener.next(max(wait_s, 0.0)))
            if frame is None and not await self._is_still_let_in():
                return
            yield HEARTBEAT if frame is None else frame.body

    async def _missed(self) -> AsyncIterator[Frame]:
        position = self._after_id
        while position is not None and position < self._listener.from_id:
            frames = await self._services.events.backlog(self._listener, position)
            for frame in frames:
                yield frame
            position = frames[-1].event_id if frames else None

    async def _is_still_let_in(self) -> bool:
        try:
            await access_of(self._services, self._token, self._project_name)
        except ServiceError as error:
            return error.is_retryable  # no answer: the token was good, and nothing is sent meanwhile
        return True


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
