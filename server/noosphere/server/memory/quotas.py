"""How much room namespaces and principals may take, checked before a write makes more of it.

What a principal takes is what the private namespaces of its agents hold: that of the agent of its own name and of those
below it. Others are limited by namespace. The sum is known from a look at most ``FRESH_MS`` ago and what was written
here since, so writers at several servers may pass a limit by what they write in that time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from noosphere.consistency import Refusal, exhausted

from ..ports.runtime import Clock
from ..ports.store import NamespaceRef, WorkingStore
from ..security.allowances import Subject
from ..security.principal import Principal

FRESH_MS = 1_000
PRINCIPALS_MAX = 4_096
NAMESPACES_MAX = 10_000
"""Namespaces that are looked at for one principal; what further ones hold does not count."""
_PAGE = 1_000
_AGENTS = "agents/"

LimitsOf = Callable[[Subject, str], Mapping[str, int]]
"""Tells the limits of a name: ``records_max`` and ``bytes_max``, 0 for none."""


class Growth(NamedTuple):
    """By how much a write makes a namespace larger.

    Attributes:
        records: more than before.
        size: more bytes of records than before.
    """

    records: int
    size: int


class _Taken:
    __slots__ = ("looked_ms", "records", "size")

    def __init__(self) -> None:
        self.records = 0
        self.size = 0
        self.looked_ms = -FRESH_MS


class Quotas:
    """See the module.

    Args:
        store: holds the records.
        clock: the source of time.
        limits_of: tells the limits.
    """

    def __init__(self, store: WorkingStore, clock: Clock, limits_of: LimitsOf) -> None:
        self._store = store
        self._clock = clock
        self._limits_of = limits_of
        self._taken: OrderedDict[str, _Taken] = OrderedDict()

    def concern(self, principal: Principal, ref: NamespaceRef) -> bool:
        """Tells whether there is any limit to what a principal writes to a namespace."""
        limits = self._limits_of(Subject.NAMESPACE, ref.name)
        if limits["records_max"] or limits["bytes_max"]:
            return True
        if principal.open or not _own(principal.name, ref.name):
            return False
        limits = self._limits_of(Subject.PRINCIPAL, principal.name)
        return bool(limits["records_max"] or limits["bytes_max"])

    async def check(self, principal: Principal, ref: NamespaceRef, growth: Growth) -> None:
        """Checks that there is room for a write.

        Raises:
            Refusal: LIMIT_EXCEEDED.
        """
        if growth.records <= 0 and growth.size <= 0:
            return
        limits = self._limits_of(Subject.NAMESPACE, ref.name)
        if limits["records_max"] or limits["bytes_max"]:
            stats = await self._store.stats(ref)
            _check("namespace", stats.record_count, stats.record_bytes, growth, limits)
        if principal.open or not _own(principal.name, ref.name):
            return
        limits = self._limits_of(Subject.PRINCIPAL, principal.name)
        if limits["records_max"] or limits["bytes_max"]:
            taken = await self._of(principal.name)
            _check("principal", taken.records, taken.size, growth, limits)
            taken.records += max(0, growth.records)
            taken.size += max(0, growth.size)

    async def _of(self, name: str) -> _Taken:
        taken = self._taken.get(name)
        if taken is None:
            taken = self._taken[name] = _Taken()
            if len(self._taken) > PRINCIPALS_MAX:
                self._taken.popitem(last=False)
        self._taken.move_to_end(name)
        now_ms = self._clock.monotonic_ms()
        if now_ms - taken.looked_ms >= FRESH_MS:
            taken.looked_ms = now_ms
            taken.records, taken.size = await self._look(name)
        return taken

    async def _look(self, name: str) -> tuple[int, int]:
        records = size = looked = 0
        after = ""
        while looked < NAMESPACES_MAX:
            page = await self._store.namespaces(_AGENTS + name, after, _PAGE)
            for summary in page:
                after = summary.ref.name
                looked += 1
                if not summary.deleted and _own(name, after):
                    stats = await self._store.stats(summary.ref)
                    records += stats.record_count
                    size += stats.record_bytes
            if len(page) < _PAGE:
                break
        return records, size


def _own(principal: str, namespace: str) -> bool:
    own = _AGENTS + principal
    return namespace == own or namespace.startswith(own + "/")


def _check(what: str, records: int, size: int, growth: Growth, limits: Mapping[str, int]) -> None:
    if (found := _broken(f"{what}.records", records, growth.records, limits["records_max"])) is not None:
        raise found
    if (found := _broken(f"{what}.bytes", size, growth.size, limits["bytes_max"])) is not None:
        raise found


def _broken(field: str, held: int, more: int, limit: int) -> Refusal | None:
    # Whoever is above a limit that was lowered may still make less of it.
    if not limit or more <= 0 or held + more <= limit:
        return None
    return exhausted(field, held + more, limit, "no room for more")
