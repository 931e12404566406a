"""Everything that a server counts, at one moment, for whoever looks at it live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .latency import Latency
from .sessions import ClassHealth
from .state import State


class Overview(NamedTuple):
    """How a server is doing.

    Attributes:
        server_id: tells its lives apart.
        calls: that have ended.
        open_calls: calls and streams under way.
        refusals: calls refused.
        conflicts: writes that had not seen all that they would have replaced.
        latencies: how long things took, by what they are called.
        state: how much it holds; None while the store does not tell.
        sessions: the health of sessions, by class.
    """

    server_id: str
    calls: int
    open_calls: int
    refusals: int
    conflicts: int
    latencies: Mapping[str, Latency]
    state: State | None
    sessions: Mapping[str, ClassHealth]
