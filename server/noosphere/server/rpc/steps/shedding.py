"""Sheds load early: above what the server can do, calls are refused before anything else is done about them.

Two things tell that there is too much to do. Calls wait long before they are begun: gRPC hands them over one by one, in
the order in which they came, so a call of our own measures that wait for all of them. If it is long for a while without
a break, an ever larger share of calls is refused, and a smaller one again once the wait is well below the threshold.
And calls under way, their requests' bytes or open streams reach what they may: then all are refused until a fifth has
ended.

A call by itself is refused before its request is read. Most of the time after which its caller may ask again passes
before it is told so, and more if the same connection has many of those. That slows down those who ask again at once:
to refuse a call costs gRPC half of what it costs to answer it, and one that is held costs next to nothing.

What keeps or ends what is under way (leases, claims, locks) is refused last, since that makes room. AdminService is
never refused, and health does not come here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import NamedTuple

from google.protobuf import descriptor_pool

from noosphere.consistency import Reason, Refusal

from ...config.limits import LimitSettings
from ...ports.runtime import Clock
from ..faces import SERVICES
from ..gate import Rpc

PROBE_SECONDS = 0.2
WATCH_SECONDS = 0.1
STANDING_MS = 500
"""So long calls have to wait without a break before others are refused: a single stall is over by then."""
SHARE_MAX = 0.98
"""Some calls always go through, whatever it is that makes the server late."""
SHARE_MIN = 0.01
RISE = 0.5
FALL = 0.2
"""Of the share, with each call of ours that does not wait at all."""
RELIEF = 0.8
RETRY_MS_MIN = 100
RETRY_MS_MAX = 2_000
HELD_MAX = 8_192
"""Refused calls that are kept waiting at a time; further ones are told at once."""
PATIENT_CALLS = 8
"""A connection that has so many refused calls waiting has the next one wait twice as long, and so on."""
HOLD_MS_MAX = 10_000
_NOTE = "shedding"

_KEEPING = frozenset(
    {
        "CancelReservation",
        "CloseAgent",
        "Complete",
        "EndTurn",
        "FinishToolCall",
        "KeepAgent",
        "KeepMember",
        "LeaveGroup",
        "Release",
        "ReleaseLock",
        "Renew",
        "RenewLock",
    }
)
_WAITING = frozenset({"ClaimNext", "AcquireLock"})


class _Kind(IntEnum):
    """How a method is treated."""

    ORDINARY = 0
    KEEPING = 1
    WAITING = 2


class Thresholds(NamedTuple):
    """What is too much; 0 for no limit.

    Attributes:
        lag_ms: how long calls may wait before they are begun.
        calls: under way, without those that wait for somebody else.
        request_bytes: of the requests of those calls.
        streams: watches and pipelines.
    """

    lag_ms: int
    calls: int
    request_bytes: int
    streams: int


class Load:
    """How much there is to do, and whether that is too much. Pure; time and chance are arguments.

    Attributes:
        calls: under way.
        request_bytes: of their requests.
        streams: under way.
        share: of calls that are refused because others wait long, 0 to 1.
        lag_ms: how long a call has waited last.
        refused_count: calls that were refused, since the start.
    """

    __slots__ = (
        "_crowded",
        "_punctual_ms",
        "calls",
        "lag_ms",
        "refused_count",
        "request_bytes",
        "share",
        "streams",
        "thresholds",
    )

    def __init__(self, thresholds: Thresholds, now_ms: int) -> None:
        self.thresholds = thresholds
        self.calls = 0
        self.request_bytes = 0
        self.streams = 0
        self.share = 0.0
        self.lag_ms = 0
        self.refused_count = 0
        self._crowded = False
        self._punctual_ms = now_ms

    def observe(self, lag_ms: int, now_ms: int) -> None:
        """Notes how long a call has waited."""
        threshold = self.thresholds.lag_ms
        self.lag_ms = lag_ms
        if not threshold:
            return
        if lag_ms < threshold:
            self._punctual_ms = now_ms
            if lag_ms < threshold / 2:
                self.share *= 1 - FALL * (1 - 2 * lag_ms / threshold)
                if self.share < SHARE_MIN:
                    self.share = 0.0
        elif now_ms - self._punctual_ms >= STANDING_MS:
            # As much as there is too much.
            wanted = min(SHARE_MAX, 1 - threshold / (2 * lag_ms))
            if wanted > self.share:
                self.share += (wanted - self.share) * RISE

    def crowded(self) -> bool:
        """Tells whether there is no room for a call; once there is none, not before a fifth of it is free."""
        _, calls, request_bytes, _ = self.thresholds
        if self._crowded:
            self._crowded = bool(
                (calls and self.calls > calls * RELIEF)
                or (request_bytes and self.request_bytes > request_bytes * RELIEF)
            )
        else:
            self._crowded = bool(
                (calls and self.calls >= calls) or (request_bytes and self.request_bytes >= request_bytes)
            )
        return self._crowded

    def overrun(self) -> bool:
        """Tells whether there is twice what is too much, so that even what makes room is refused."""
        _, calls, request_bytes, _ = self.thresholds
        return bool((calls and self.calls >= 2 * calls) or (request_bytes and self.request_bytes >= 2 * request_bytes))

    def retry_ms(self, chance: float) -> int:
        """Returns when to ask again: later the more is refused, and not all at the same time."""
        share = max(self.share, 0.5 if self._crowded else 0.0)
        return int((RETRY_MS_MIN + (RETRY_MS_MAX - RETRY_MS_MIN) * share * share) * (0.5 + chance / 2))


def shedding_step(settings: LimitSettings, clock: Clock, rng: random.Random) -> SheddingStep:
    """Returns the step that a server's settings ask for."""
    thresholds = Thresholds(
        settings.limits_server_lag_ms_max,
        settings.limits_server_calls_in_flight_max,
        settings.limits_server_bytes_in_flight_max,
        settings.limits_server_streams_max,
    )
    return SheddingStep(Load(thresholds, clock.monotonic_ms()), clock, rng)


class SheddingStep:
    """See the module.

    Args:
        load: what there is to do.
        clock: the source of time.
        rng: decides who is refused.

    Attributes:
        load: what there is to do.
    """

    def __init__(self, load: Load, clock: Clock, rng: random.Random) -> None:
        self.load = load
        self._clock = clock
        self._chance = rng.random
        self._held = 0
        self._held_of: dict[str, int] = {}
        self._kinds = _kinds()

    def refusal(self, method: str) -> Refusal | None:
        """Returns why a call that comes by itself is not even read; None if it is."""
        kind = self._kinds.get(method)
        if kind is None or kind is _Kind.KEEPING:
            return None
        load = self.load
        if load.crowded() or (load.share and self._chance() < load.share):
            return self._overloaded()
        return None

    async def hold(self, refusal: Refusal, peer: str) -> None:
        """Lets most of the time pass after which the caller of a refused call may ask again."""
        if self._held >= HELD_MAX:
            return
        told_ms = refusal.retry_after_ms or 0
        held = self._held_of.get(peer, 0)
        self._held += 1
        self._held_of[peer] = held + 1
        try:
            wait_ms = min(HOLD_MS_MAX, (told_ms - RETRY_MS_MIN) * (1 + held / PATIENT_CALLS))
            await self._clock.sleep(wait_ms / 1000)
        finally:
            self._held -= 1
            self._held_of[peer] -= 1
            if not self._held_of[peer]:
                del self._held_of[peer]
        refusal.retry_after_ms = RETRY_MS_MIN

    def begin(self, rpc: Rpc) -> None:
        """Lets a call pass if there is room for it.

        Raises:
            Refusal: OVERLOADED.
        """
        kind = self._kinds.get(rpc.method)
        if kind is None:
            return
        load = self.load
        if kind is _Kind.KEEPING:
            if load.overrun():
                raise self._overloaded()
        elif load.crowded() or (rpc.parent is not None and load.share and self._chance() < load.share):
            # One by itself has been let in by its share before it was read.
            raise self._overloaded()
        if rpc.streams:
            streams_max = load.thresholds.streams
            if streams_max and load.streams >= streams_max:
                raise self._overloaded()
            load.streams += 1
            rpc.notes[_NOTE] = -1
        elif kind is not _Kind.WAITING:
            size = rpc.request_bytes
            load.calls += 1
            load.request_bytes += size
            rpc.notes[_NOTE] = size

    def end(self, rpc: Rpc) -> None:
        """Notes that a call has ended."""
        size = rpc.notes.get(_NOTE)
        if size is None:
            return
        if size < 0:
            self.load.streams -= 1
        else:
            self.load.calls -= 1
            self.load.request_bytes -= size

    async def run(self, probe: Callable[[], Awaitable[None]]) -> None:
        """Watches for ever how long calls wait.

        Args:
            probe: makes a call that does nothing, and waits its turn like all others.
        """
        clock, load = self._clock, self.load
        while True:
            began_ms = clock.monotonic_ms()
            call = asyncio.ensure_future(probe())
            try:
                while not call.done():
                    await clock.wait(call, WATCH_SECONDS)
                    now_ms = clock.monotonic_ms()
                    # One that is not answered yet has waited already.
                    if call.done() or now_ms - began_ms > load.lag_ms:
                        load.observe(now_ms - began_ms, now_ms)
            finally:
                call.cancel()
            await clock.sleep(PROBE_SECONDS)

    def _overloaded(self) -> Refusal:
        self.load.refused_count += 1
        retry_ms = self.load.retry_ms(self._chance())
        return Refusal(
            Reason.OVERLOADED,
            "the server has more to do than it can; ask again later",
            retry_after_ms=retry_ms,
        )


def _kinds() -> dict[str, _Kind]:
    found: dict[str, _Kind] = {}
    for full_name in SERVICES:
        service = descriptor_pool.Default().FindServiceByName(full_name)
        if service.name == "AdminService":
            continue
        for method in service.methods:
            kind = _Kind.KEEPING if method.name in _KEEPING else _Kind.ORDINARY
            found[f"/{full_name}/{method.name}"] = _Kind.WAITING if method.name in _WAITING else kind
    return found
