"""How much a caller may do at a time: a token bucket, calls under way, open streams. Pure; time is an argument.

The bucket is kept as one number, the time at which it will be full again (the generic cell rate algorithm): a call
moves it on by what one call costs, and is refused where that would lead further ahead than a whole bucket.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from noosphere.consistency import Reason, Refusal
from noosphere.consistency.errors import LimitInfo

METERS_MAX = 65_536
"""Callers that are remembered at a time. Whoever has called longest ago is forgotten first, and begins with a full
bucket: a caller that can have itself forgotten by names of its own is bounded by what its principal may do."""
CROWDED_RETRY_MS = 100
"""When to ask again where calls under way are in the way: nobody knows when they will end."""
_LOOKED_AT_MAX = 8

Caller = tuple[str, str]
"""A principal, "" for whoever is not asked who they are, and an agent, "" for all of them together."""


class Subject(StrEnum):
    """Of whom a limit is."""

    AGENT = "agent"
    PRINCIPAL = "principal"
    NAMESPACE = "namespace"


class Allowance(NamedTuple):
    """What one caller may do at a time; 0 for no limit.

    Attributes:
        calls_per_second: how fast the bucket fills.
        calls_burst: calls in a full bucket, at least 1.
        calls_in_flight_max: calls under way.
        streams_max: watches and pipelines under way.
    """

    calls_per_second: int = 0
    calls_burst: int = 1
    calls_in_flight_max: int = 0
    streams_max: int = 0


class Meter:
    """What one caller has done lately, and does now.

    Attributes:
        allowance: what it may do.
        version: of the rules that the allowance comes from.
        calls: under way now.
        streams: under way now.
        full_ms: when its bucket will be full, in milliseconds of the caller's clock.
    """

    __slots__ = ("allowance", "calls", "full_ms", "streams", "version")

    def __init__(self, allowance: Allowance, version: object) -> None:
        self.allowance = allowance
        self.version = version
        self.calls = 0
        self.streams = 0
        self.full_ms = 0.0

    def begin(self, subject: Subject, name: str, now_ms: int, *, stream: bool) -> None:
        """Takes a call from the bucket and counts it as under way.

        Raises:
            Refusal: LIMIT_EXCEEDED; nothing is counted.
        """
        rate, burst, calls_max, streams_max = self.allowance
        if stream:
            if streams_max and self.streams >= streams_max:
                raise _too_many(subject, name, "streams_max", "streams at a time are allowed", streams_max, None)
        elif calls_max and self.calls >= calls_max:
            raise _too_many(
                subject, name, "calls_in_flight_max", "calls at a time are allowed", calls_max, CROWDED_RETRY_MS
            )
        if rate:
            cost_ms = 1000 / rate
            full_ms = self.full_ms if self.full_ms > now_ms else now_ms
            wait_ms = full_ms + cost_ms - now_ms - burst * cost_ms
            # What rounding leaves over is less than a call of the highest rate.
            if wait_ms > 0.0005:
                raise _too_many(subject, name, "calls_per_second", "calls a second are allowed", rate, int(wait_ms) + 1)
            self.full_ms = full_ms + cost_ms
        if stream:
            self.streams += 1
        else:
            self.calls += 1

    def end(self, *, stream: bool) -> None:
        """Counts a call as ended."""
        if stream:
            self.streams -= 1
        else:
            self.calls -= 1

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not (self.calls or self.streams)


class Meters:
    """The meters of the callers that have called last.

    Args:
        allowance: tells what a caller may do, by its key.
        version: tells of which version the rules are; others are asked for again.
        size: how many are remembered.
    """

    def __init__(
        self, allowance: Callable[[Caller], Allowance], version: Callable[[], object], size: int = METERS_MAX
    ) -> None:
        self._allowance = allowance
        self._version = version
        self._size = size
        self._meters: OrderedDict[Caller, Meter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._meters)

    def get(self, key: Caller) -> Meter | None:
        """Returns a caller's meter if it is remembered."""
        return self._meters.get(key)

    def of(self, key: Caller) -> Meter:
        """Returns a caller's meter, with its present allowance."""
        meters, version = self._meters, self._version()
        meter = meters.get(key)
        if meter is None:
            meter = meters[key] = Meter(self._allowance(key), version)
            if len(meters) > self._size:
                self._forget_one()
        else:
            meters.move_to_end(key)
            if meter.version != version:
                allowance = self._allowance(key)
                if allowance != meter.allowance:
                    # What is owed under other rules says nothing under these.
                    meter.allowance, meter.full_ms = allowance, 0.0
                meter.version = version
        return meter

    def _forget_one(self) -> None:
        """Forgets the caller that has called longest ago; one with calls under way only if there are many of those."""
        meters = self._meters
        for _ in range(_LOOKED_AT_MAX):
            key, meter = next(iter(meters.items()))
            if meter.idle:
                break
            meters.move_to_end(key)
        meters.popitem(last=False)


def _too_many(subject: Subject, name: str, limit: str, what: str, allowed: int, retry_after_ms: int | None) -> Refusal:
    # Calls without an agent are counted under the name of their connection, which begins with NUL.
    where = f"{subject} {name!r}" if name and not name.startswith("\0") else f"calls without an {subject}"
    later = "" if retry_after_ms is None else f"; ask again in {retry_after_ms} ms"
    return Refusal(
        Reason.LIMIT_EXCEEDED,
        f"{limit}: {allowed} {what} for {where}{later}",
        LimitInfo(limit, allowed + 1, allowed),
        retry_after_ms=retry_after_ms,
    )
