"""Around every request: how long it took, by the template of its route, never by its path."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ckptguard_api.metrics import Metrics


class MeasuredRequests:
    """Counts every answer.

    Args:
        app: What comes after.
        metrics: Where it is counted.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status: int | None = None

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began_s = time.perf_counter()
        try:
            await self._app(scope, receive, noting)
        finally:
            self._metrics.observe_request(
                method=scope["method"],
                route=getattr(scope.get("route"), "path", None),  # set by the router that took it
                status=status,
                seconds=time.perf_counter() - began_s,
            )
