"""Drivers that tell how long they take: the same port, with some of its methods timed and traced."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from ..ports.metrics import PortMetrics
from ..ports.tracing import tracing

T = TypeVar("T")

STORE = ("read", "scan", "commit", "settle", "changes", "drop", "erase", "stats", "totals")
FACT_STORE = ("write", "read", "by_keywords", "by_vector", "near", "statistics", "matching", "remove")
QUEUE = ("put", "done", "fail")
EMBEDDER = ("embed",)


class _Measured:
    """Passes everything on; see :func:`measured`."""

    def __init__(
        self, inner: Any, port: str, operations: tuple[str, ...], metrics: PortMetrics, now: Callable[[], float]
    ) -> None:
        self._inner = inner
        for name in operations:
            setattr(self, name, _timed(getattr(inner, name), port, name, metrics, now))

    def __getattr__(self, name: str) -> Any:
        """Returns what is not timed."""
        return getattr(self._inner, name)


def measured(
    driver: T,
    port: str,
    operations: tuple[str, ...],
    metrics: PortMetrics,
    now: Callable[[], float] = time.perf_counter,
) -> T:
    """Returns a driver that does the same and tells how long it takes.

    Args:
        driver: what is behind the port.
        port: its name in figures and traces.
        operations: which of its methods are timed: coroutine functions all.
        metrics: hears of it.
        now: a clock for durations, in seconds.
    """
    return cast(T, _Measured(driver, port, operations, metrics, now))


def _timed(
    operation: Callable[..., Awaitable[Any]], port: str, name: str, metrics: PortMetrics, now: Callable[[], float]
) -> Callable[..., Awaitable[Any]]:
    span_name = f"{port} {name}"

    async def timed(*args: Any, **options: Any) -> Any:
        trace = tracing.get()
        failed = True
        began = now()
        try:
            if trace is None:
                found = await operation(*args, **options)
            else:
                with trace.span(span_name):
                    found = await operation(*args, **options)
            failed = False
            return found
        finally:
            metrics.took(port, name, now() - began, failed=failed)

    return timed
