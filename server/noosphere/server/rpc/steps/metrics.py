"""Has every call counted and timed, by its method."""

from __future__ import annotations

import time
from collections.abc import Callable

import grpc
from google.protobuf.message import Message

from ...ports.metrics import CallMetrics
from ..gate import Rpc

_OK = grpc.StatusCode.OK

# As many as there are types of messages: whether they tell of a replay, themselves or in what was applied.
_tells: dict[type[Message], str] = {}


def was_replayed(response: Message | None) -> bool:
    """Tells whether an answer is that of an earlier attempt."""
    if response is None:
        return False
    kind = type(response)
    where = _tells.get(kind)
    if where is None:
        applied = kind.DESCRIPTOR.fields_by_name.get("applied")
        inside = None if applied is None else applied.message_type
        where = ""
        if "replayed" in kind.DESCRIPTOR.fields_by_name:
            where = "replayed"
        elif inside is not None and "replayed" in inside.fields_by_name:
            where = "applied"
        _tells[kind] = where
    if not where:
        return False
    found = getattr(response, where)
    return bool(found if where == "replayed" else found.replayed)


class MetricsStep:
    """See the module. Comes before whatever may refuse a call, so that refused ones are counted too.

    Args:
        metrics: keeps the figures.
        now: a clock for durations, in seconds.
    """

    def __init__(self, metrics: CallMetrics, now: Callable[[], float] = time.perf_counter) -> None:
        self._metrics = metrics
        self._now = now

    def begin(self, rpc: Rpc) -> None:
        """Notes when it came."""
        rpc.began_seconds = self._now()
        self._metrics.begun(rpc.method, streams=_lasts(rpc))

    def end(self, rpc: Rpc) -> None:
        """Counts it."""
        refusal = rpc.refusal
        self._metrics.ended(
            rpc.method,
            # Names of an enumeration's members are slow to ask for.
            "OK" if rpc.code is _OK else rpc.code.name,
            "" if refusal is None else refusal.reason.value,
            (rpc.ended_seconds or self._now()) - rpc.began_seconds,
            streams=_lasts(rpc),
            replayed=was_replayed(rpc.response),
        )


def _lasts(rpc: Rpc) -> bool:
    return rpc.streams or rpc.message is None
