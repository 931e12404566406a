"""Two drivers as one: every call is made on both, and what they reply has to be the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from tests.contract.lab import EmbeddedLab
from tests.contract.redislab import RedisLab

from noosphere.consistency import Refusal, RequestRef
from noosphere.server.ports.coordinator import Coordinator
from noosphere.server.ports.store import (
    Changes,
    Commit,
    CommitResult,
    Compacted,
    Dropped,
    Erased,
    Failed,
    NamespaceRef,
    NamespaceStats,
    NamespaceSummary,
    ReadResult,
    ScanResult,
    WorkingStore,
)


class TwinStore:
    """The part of the port that has replies to compare.

    Attributes:
        compared: how many replies were the same.
    """

    engine = "twin"

    def __init__(self, left: WorkingStore, right: WorkingStore) -> None:
        self._stores = left, right
        self.compared = 0

    @property
    def epoch(self) -> int:
        return cast("int", self._same([store.epoch for store in self._stores], None))

    def now_ms(self) -> int:
        return cast("int", self._same([store.now_ms() for store in self._stores], None))

    async def read(self, ref: NamespaceRef, keys: Sequence[str], **options: Any) -> ReadResult:
        request: RequestRef | None = options.get("request")
        locks: Sequence[str] = options.get("locks", ())
        counted = bool(options.get("counted"))
        return cast(
            "ReadResult",
            await self._both(lambda store: store.read(ref, keys, request=request, locks=locks, counted=counted)),
        )

    async def scan(self, ref: NamespaceRef, collection: str, **options: Any) -> ScanResult:
        bounds = {name: value for name, value in options.items() if name != "accepted"}
        return cast("ScanResult", await self._both(lambda store: store.scan(ref, collection, **bounds), _of_scan))

    async def commit(self, ref: NamespaceRef, commit: Commit) -> CommitResult:
        return cast("CommitResult", await self._both(lambda store: store.commit(ref, commit)))

    async def changes(self, ref: NamespaceRef, after: int, limit: int) -> Changes | Compacted:
        return cast("Changes | Compacted", await self._both(lambda store: store.changes(ref, after, limit)))

    async def namespaces(self, prefix: str, after: str, limit: int) -> tuple[NamespaceSummary, ...]:
        return cast(
            "tuple[NamespaceSummary, ...]",
            await self._both(lambda store: store.namespaces(prefix, after, limit), _of_listing),
        )

    async def drop(self, ref: NamespaceRef, expected_head: int | None) -> Dropped | Failed:
        return cast("Dropped | Failed", await self._both(lambda store: store.drop(ref, expected_head)))

    async def due(self, ref: NamespaceRef, now_ms: int, limit: int) -> tuple[str, ...]:
        return cast("tuple[str, ...]", await self._both(lambda store: store.due(ref, now_ms, limit)))

    async def compact(self, ref: NamespaceRef, floor: int) -> None:
        await self._both(lambda store: store.compact(ref, floor))

    async def erase(self, ref: NamespaceRef) -> Erased:
        # When a call that is too old to be told of goes, each driver decides for itself.
        return cast("Erased", await self._both(lambda store: store.erase(ref), lambda found: found[:2]))

    async def stats(self, ref: NamespaceRef) -> NamespaceStats:
        return cast(
            "NamespaceStats",
            await self._both(lambda store: store.stats(ref), lambda found: found._replace(request_count=0)),
        )

    async def _both(
        self, call: Callable[[WorkingStore], Coroutine[Any, Any, Any]], comparable: Callable[[Any], Any] | None = None
    ) -> Any:
        # Begun in one step, so that calls made at once keep their order on both.
        replies = await asyncio.gather(*(call(store) for store in self._stores), return_exceptions=True)
        return self._same(replies, comparable)

    def _same(self, replies: Sequence[Any], comparable: Callable[[Any], Any] | None) -> Any:
        shown = []
        for reply in replies:
            if isinstance(reply, Refusal):
                shown.append(reply.reason)
            elif isinstance(reply, BaseException):
                raise reply
            else:
                shown.append(comparable(reply) if comparable is not None else reply)
        assert shown[0] == shown[1], f"embedded: {shown[0]}\nredis: {shown[1]}"
        self.compared += 1
        if isinstance(replies[0], Refusal):
            raise replies[0]
        return replies[0]


def _of_scan(found: ScanResult) -> Any:
    # What the stamps of an empty collection are is the driver's business, as long as they are new.
    return found if found.entries else found._replace(stamps=None)  # type: ignore[arg-type]


def _of_listing(found: Sequence[NamespaceSummary]) -> Any:
    # Before a namespace is loaded, the embedded driver may tell too early a time.
    return [summary._replace(loaded=True, next_due_ms=0) for summary in found]


class TwinLab:
    """Both drivers under clocks that show the same."""

    def __init__(self, embedded: EmbeddedLab, redis: RedisLab) -> None:
        self.embedded = embedded
        self.redis = redis
        self._compared = 0
        self.store = TwinStore(embedded.store, redis.store)

    @property
    def coordinator(self) -> Coordinator:
        return self.redis.coordinator

    @property
    def compared(self) -> int:
        """How many replies were the same, over all restarts."""
        return self._compared + self.store.compared

    async def warm(self, ref: NamespaceRef) -> None:
        """Lets calls that are made at once keep their order on both."""
        await self.embedded.store.read(ref, ())
        await self.redis.warm(ref)

    @property
    def awake_ms(self) -> int:
        found = self.embedded.awake_ms
        assert found == self.redis.awake_ms
        return found

    def advance(self, by_ms: int) -> None:
        for lab in (self.embedded, self.redis):
            lab.advance(by_ms)

    async def reopen(self) -> None:
        await self.embedded.reopen()
        await self.redis.reopen()
        self._reopened()

    async def crash(self) -> None:
        # Or what nobody has noted counts as asleep, which Redis does not know.
        await self.embedded.keep_time()
        await self.embedded.crash()
        await self.redis.crash()
        self._reopened()

    def _reopened(self) -> None:
        self._compared = self.compared
        self.store = TwinStore(self.embedded.store, self.redis.store)
        # After a crash the embedded driver makes sure of its time by a leap, which Redis does not need.
        behind_ms = self.embedded.store.now_ms() - self.redis.store.now_ms()
        self.embedded.advance(max(0, -behind_ms))
        self.redis.advance(max(0, behind_ms))
