"""Structured logs to standard error: lines for people, or one JSON object a line for programs.

Libraries and drivers that use the standard library's logging come out the same way. No value of a
record and no token is ever logged: a traceback shows no variables, among which are the requests. A line that belongs
to a call says to which.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

from .rpc.steps.logged import describe_call

_SHARED: tuple[structlog.types.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    describe_call,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure_logging(level: str, log_format: Literal["console", "json"]) -> None:
    """Sends every log line from ``level`` up to standard error."""
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer: structlog.types.Processor
    if log_format == "json":
        renderer = structlog.processors.JSONRenderer()
        tracebacks = structlog.processors.ExceptionRenderer(
            structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        )
        tail: tuple[structlog.types.Processor, ...] = (tracebacks, renderer)
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        tail = (renderer,)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *tail],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
