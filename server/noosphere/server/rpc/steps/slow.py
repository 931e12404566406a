"""Writes a line about each call that took long, without what it was about."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from google.protobuf.message import Message

from ..gate import Rpc, nothing

log = structlog.get_logger(__name__)

LINES_PER_SECOND_MAX = 5
"""While everything is slow, more lines would tell nothing more."""


class SlowCallStep:
    """See the module. Comes after the step that notes when a call came.

    Args:
        slow_ms: from how long on, in milliseconds.
        now: the same clock as that step's, in seconds.
    """

    def __init__(self, slow_ms: int, now: Callable[[], float] = time.perf_counter) -> None:
        self._slow_seconds = slow_ms / 1000
        self._now = now
        self._second = 0
        self._lines = 0
        self._left_out = 0

    begin = nothing

    def end(self, rpc: Rpc) -> None:
        """Writes the line. Streams last as long as their callers want, and calls that wait are meant to."""
        # It ends before the step that notes when a call came, which needs the same moment.
        now = rpc.ended_seconds = self._now()
        if now - rpc.began_seconds < self._slow_seconds or rpc.streams or rpc.message is None or _waits(rpc.message):
            return
        if int(now) != self._second:
            self._second, self._lines = int(now), 0
        if self._lines >= LINES_PER_SECOND_MAX:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        more = {"others_left_out": left_out} if left_out else {}
        log.warning("slow call", took_ms=round((now - rpc.began_seconds) * 1000), code=rpc.code.name, **more)


def _waits(request: Message) -> bool:
    field = request.DESCRIPTOR.fields_by_name.get("wait")
    if field is None:
        return False
    wait = getattr(request, "wait")  # noqa: B009 # only some requests have it
    return bool(wait.ByteSize()) if isinstance(wait, Message) else bool(wait)
