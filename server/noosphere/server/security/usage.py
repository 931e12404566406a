"""Who uses a server, and how much: counts by principal, by agent and by namespace, in bounded memory.

A server knows more names than it should keep counts of, and whoever calls may make names up. So only the busiest are
kept (the space-saving algorithm of Metwally, Agrawal and El Abbadi): a new name takes the place of the least busy one,
and of its calls, as it may have been there before. Nothing here is ever a value, a token or a key.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from enum import Enum

from noosphere.consistency import Reason

NAMES_MAX = 4_096
"""Names of which counts are kept, of each kind."""

NAME_CHARS_MAX = 256
"""Longer ones are nobody's name; they are not counted."""


class By(Enum):
    """What calls are counted by."""

    PRINCIPAL = "principal"
    AGENT = "agent"
    NAMESPACE = "namespace"


class Order(Enum):
    """Which names come first."""

    CALLS = "calls"
    REFUSALS = "refusals"
    CONFLICTS = "conflicts"
    BYTES = "bytes"
    RECENT = "recent"


class Tally:
    """What one name has done since it was kept.

    Attributes:
        name: of the principal, agent or namespace; "" stands for calls without one.
        calls: how many; at most ``calls_over`` of them may be another's.
        calls_over: calls of names that were given up for this one.
        conflicts: calls refused, or not applied, because somebody else was faster.
        bytes_in: of requests.
        bytes_out: of answers.
        since_ms: since when it is counted, in milliseconds since 1970.
        last_ms: when its last call ended, in the same way.
        refusals: calls refused, by reason.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "calls",
        "calls_over",
        "conflicts",
        "last_ms",
        "name",
        "refusals",
        "since_ms",
    )

    def __init__(self, name: str, calls_over: int, since_ms: int) -> None:
        self.name = name
        self.calls = calls_over
        self.calls_over = calls_over
        self.conflicts = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.since_ms = since_ms
        self.last_ms = since_ms
        self.refusals: dict[Reason, int] = {}

    @property
    def refused(self) -> int:
        """Calls refused, for whatever reason."""
        return sum(self.refusals.values())


_KEY_OF: dict[Order, Callable[[Tally], int]] = {
    Order.CALLS: lambda tally: tally.calls,
    Order.REFUSALS: lambda tally: tally.refused,
    Order.CONFLICTS: lambda tally: tally.conflicts,
    Order.BYTES: lambda tally: tally.bytes_in + tally.bytes_out,
    Order.RECENT: lambda tally: tally.last_ms,
}


class Tallies:
    """The busiest names of one kind. A name that has made more than ``calls / names_max`` of all calls is among them.

    Args:
        names_max: how many are kept.
    """

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._known: dict[str, Tally] = {}
        # By the calls at the time of the last look; there may have been more since, never fewer.
        self._least: list[tuple[int, int, Tally]] = []
        self._ties = itertools.count()

    def __len__(self) -> int:
        return len(self._known)

    def count(
        self,
        name: str,
        now_ms: int,
        bytes_in: int = 0,
        bytes_out: int = 0,
        reason: Reason | None = None,
        conflict: bool = False,
    ) -> None:
        """Counts one call of a name, which takes the place of the least busy one if it has none; see :class:`Usage`."""
        tally = self._known.get(name) or self._admit(name, now_ms)
        tally.calls += 1
        tally.bytes_in += bytes_in
        tally.bytes_out += bytes_out
        tally.last_ms = now_ms
        if reason is not None:
            tally.refusals[reason] = tally.refusals.get(reason, 0) + 1
        if conflict:
            tally.conflicts += 1

    def get(self, name: str) -> Tally | None:
        """Returns the counts of a name if they are kept."""
        return self._known.get(name)

    def top(self, count: int, order: Order = Order.CALLS) -> list[Tally]:
        """Returns the first names in an order; those that are equal in it by name."""
        key = _KEY_OF[order]
        return heapq.nsmallest(count, self._known.values(), key=lambda tally: (-key(tally), tally.name))

    def _admit(self, name: str, now_ms: int) -> Tally:
        over = 0
        if len(self._known) >= self._names_max:
            over = self._give_up_least()
        tally = self._known[name] = Tally(name, over, now_ms)
        heapq.heappush(self._least, (over, next(self._ties), tally))
        return tally

    def _give_up_least(self) -> int:
        """Forgets the least busy name; returns its calls."""
        while True:
            noted, tie, tally = self._least[0]
            if noted == tally.calls:
                heapq.heappop(self._least)
                del self._known[tally.name]
                return noted
            heapq.heapreplace(self._least, (tally.calls, tie, tally))


class Usage:
    """What the callers of one process do.

    Attributes:
        started_ms: when counting began, in milliseconds since 1970.

    Args:
        now_ms: tells the time, in milliseconds since 1970.
        names_max: names that are kept of each kind.
    """

    def __init__(self, now_ms: Callable[[], int], names_max: int = NAMES_MAX) -> None:
        self.started_ms = now_ms()
        self._now_ms = now_ms
        self._principals = Tallies(names_max)
        self._agents = Tallies(names_max)
        self._namespaces = Tallies(names_max)
        self._tallies = {
            By.PRINCIPAL: self._principals,
            By.AGENT: self._agents,
            By.NAMESPACE: self._namespaces,
        }

    def by(self, kind: By) -> Tallies:
        """Returns the counts of one kind of names."""
        return self._tallies[kind]

    def count(
        self,
        principal: str,
        agent: str,
        namespace: str,
        bytes_in: int = 0,
        bytes_out: int = 0,
        reason: Reason | None = None,
        conflict: bool = False,
    ) -> None:
        """Counts one call.

        Args:
            principal: whose call; "" if nobody was asked.
            agent: in whose name; "" if in none, or if that is not to be believed.
            namespace: of what; likewise.
            bytes_in: of the request.
            bytes_out: of the answer.
            reason: why it was refused; None if it was not.
            conflict: whether somebody else was faster.
        """
        now_ms = self._now_ms()
        if len(principal) > NAME_CHARS_MAX:
            principal = principal[:NAME_CHARS_MAX]
        self._principals.count(principal, now_ms, bytes_in, bytes_out, reason, conflict)
        if agent and len(agent) <= NAME_CHARS_MAX:
            self._agents.count(agent, now_ms, bytes_in, bytes_out, reason, conflict)
        if namespace and len(namespace) <= NAME_CHARS_MAX:
            self._namespaces.count(namespace, now_ms, bytes_in, bytes_out, reason, conflict)
