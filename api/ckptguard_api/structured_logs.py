"""Logs: one line of JSON an event, on standard error; nothing in a name can forge another line."""

import logging
import sys
from typing import Any, Final

import structlog

_SHARED: Final[list[Any]] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    structlog.processors.EventRenamer("event"),
]
# `ensure_ascii`: CR, LF, ESC and every other control character of C0 and C1 leave as `\\uXXXX`.
_JSON: Final = structlog.processors.JSONRenderer(ensure_ascii=True, default=repr)
_QUIET: Final = {
    "uvicorn.access": logging.CRITICAL,
    "uvicorn.error": logging.WARNING,
    "httpx": logging.WARNING,
}


def configure_logs(level: int = logging.INFO, *, is_for_good: bool = False) -> None:
    """Send the logs of this process, those of its libraries too, to standard error as JSON.

    Tracebacks are text without local variables: these may hold a token.

    Args:
        level: The least that is written.
        is_for_good: Loggers may remember it: a line then costs less.
    """
    structlog.configure(
        processors=[
            *_SHARED,
            structlog.processors.format_exc_info,
            _JSON,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=is_for_good,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                *_SHARED,
                structlog.stdlib.add_logger_name,
                structlog.processors.format_exc_info,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _JSON],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)
