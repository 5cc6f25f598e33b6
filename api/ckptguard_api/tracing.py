"""OpenTelemetry: spans of requests and of validations, where OTEL_* variables ask for them; else nothing.

The extra `otel` brings the libraries. Without it, or without an endpoint, nothing is imported and
requests pass as if this module were not here. The names of attributes are OpenTelemetry's (HTTP semantic
conventions 1.x).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from typing import Any, Final

from pydantic_settings import BaseSettings, SettingsConfigDict
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ckptguard import __version__
from ckptguard.errors import ConfigError

_SDK: Final = "opentelemetry.sdk"
_EXPORTER: Final = "opentelemetry.exporter.otlp.proto.http"
_SERVER_FAULT: Final = 500


class TracingSettings(BaseSettings):
    """The variables of OpenTelemetry that say whether to trace; its SDK reads all others itself.

    Args:
        exporter_otlp_endpoint: Where spans go.
        exporter_otlp_traces_endpoint: The same, for spans alone.
        sdk_disabled: Off, whatever else is set.
    """

    model_config = SettingsConfigDict(env_prefix="OTEL_", extra="ignore", frozen=True)

    exporter_otlp_endpoint: str = ""
    exporter_otlp_traces_endpoint: str = ""
    sdk_disabled: bool = False

    @property
    def is_asked_for(self) -> bool:
        """Whether spans have somewhere to go."""
        return not self.sdk_disabled and bool(
            self.exporter_otlp_endpoint or self.exporter_otlp_traces_endpoint
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """A tracer that is set up.

    Args:
        provider: Of OpenTelemetry's SDK; exports in a thread of its own.
    """

    provider: Any

    def add_span(
        self, name: str, *, began_at: datetime, ended_at: datetime, attributes: Mapping[str, Any]
    ) -> None:
        """Add a span of something that is over."""
        span = self._tracer().start_span(name, start_time=_ns(began_at), attributes=dict(attributes))
        span.end(_ns(ended_at))

    def request_span(self, name: str, headers: Headers) -> Any:  # noqa: ANN401 - OpenTelemetry's
        """Return an open span of a request, below the caller's where its headers name one."""
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 - of the extra
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - of the extra
            TraceContextTextMapPropagator,
        )

        parent = TraceContextTextMapPropagator().extract(dict(headers))
        return self._tracer().start_span(name, context=parent, kind=SpanKind.SERVER)

    def close(self) -> None:
        """Export what waits, and end."""
        self.provider.shutdown()

    def _tracer(self) -> Any:  # noqa: ANN401 - OpenTelemetry's
        return self.provider.get_tracer("ckptguard", __version__)


def tracing_of_environment(settings: TracingSettings | None = None) -> Tracing | None:
    """Return what OTEL_* variables ask for; None: nothing.

    Raises:
        ConfigError: They ask for it, and the extra `otel` is not installed.
    """
    settings = settings or TracingSettings()
    if not settings.is_asked_for:
        return None
    if not (_is_installed(_SDK) and _is_installed(_EXPORTER)):
        msg = "OTEL_* variables ask for traces; install the extra: pip install 'ckptguard[otel]'"
        raise ConfigError(msg)
    return _exporting()


def _exporting() -> Tracing:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - of the extra
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - of the extra
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - of the extra
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - of the extra

    named = Resource.create({"service.name": "ckptguard", "service.version": __version__})
    provider = TracerProvider(resource=named)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider=provider)


class TracedRequests:
    """A span around every request.

    Args:
        app: What comes after.
        tracing: Where spans go.
    """

    def __init__(self, app: ASGIApp, *, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        span = self._tracing.request_span(scope["method"], Headers(scope=scope))

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                _note_status(span, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            _note_request(span, scope)
            span.end()


def _note_request(span: Any, scope: Scope) -> None:  # noqa: ANN401 - OpenTelemetry's
    route = getattr(scope.get("route"), "path", None)
    span.set_attribute("http.request.method", scope["method"])
    if route is not None:  # the template: paths hold names of runs
        span.set_attribute("http.route", route)
        span.update_name(f"{scope['method']} {route}")
    request_id = scope.get("state", {}).get("request_id")
    if request_id is not None:
        span.set_attribute("ckptguard.request_id", request_id)


def _note_status(span: Any, status: int) -> None:  # noqa: ANN401 - OpenTelemetry's
    span.set_attribute("http.response.status_code", status)
    if status >= _SERVER_FAULT:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - of the extra

        span.set_status(StatusCode.ERROR)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _ns(moment: datetime) -> int:
    return int(moment.timestamp() * 1e9)
