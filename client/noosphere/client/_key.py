"""A key with the model of its values: reads, writes, updates and merge operations on one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from noosphere.consistency import Scalar

from ._budget import Budget
from ._causal import Consistency
from ._operations import Increment, KeepMax, KeepMin, LogAppend, MapUpdate, Seen, SetUpdate
from ._record import Record
from ._reserve import ReservePolicy, ReserveScope
from ._space import MergeResult, Space
from ._update import Change, Put, Update
from ._values import Codec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """One key of a namespace. A handle: it holds no value, no version and no context.

    Attributes:
        name: the key.
    """

    _space: Space
    _codec: Codec[T]
    name: str

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        return self._space.name

    async def get(self, *, consistency: Consistency = "linearizable", timeout: float | None = None) -> Record[T] | None:
        """Returns the record, None if the key has no live value; see ``Namespace.get``."""
        record = await self.read(consistency=consistency, timeout=timeout)
        return record if record.exists else None

    async def read(self, *, consistency: Consistency = "linearizable", timeout: float | None = None) -> Record[T]:
        """Returns the record, also of an absent key: it then has no value and still a context."""
        return await self._space.read(self._codec, self.name, timeout, consistency)

    async def put(
        self,
        value: T,
        *,
        expected_version: int | None = None,
        seen: Seen | None = None,
        blind: bool = False,
        ttl: timedelta | float | None = None,
        expires_at: datetime | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Record[T]:
        """Writes the key; the arguments, result and errors are those of ``Namespace.put``.

        Without ``expected_version``, ``seen`` or ``blind`` nothing about earlier reads is sent: a
        shared key is then created if it has no live value, and left alone otherwise.
        """
        return await self._space.put(
            self._codec,
            self.name,
            value,
            expected_version=expected_version,
            seen=seen,
            blind=blind,
            ttl=ttl,
            expires_at=expires_at,
            attributes=attributes,
            request_id=request_id,
            timeout=timeout,
        )

    async def delete(
        self,
        *,
        expected_version: int | None = None,
        seen: Seen | None = None,
        blind: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Record[T]:
        """Deletes the key; the arguments, result and errors are those of ``Namespace.delete``."""
        return await self._space.delete(
            self._codec,
            self.name,
            expected_version=expected_version,
            seen=seen,
            blind=blind,
            request_id=request_id,
            timeout=timeout,
        )

    async def update(
        self,
        change: Change[T],
        *,
        attempts: int = 4,
        reserve: ReservePolicy = "never",
        timeout: float | None = None,
        ttl: timedelta | float | None = None,
        expires_at: datetime | None = None,
        attributes: Mapping[str, Scalar] | None = None,
    ) -> Record[T]:
        """Reads, lets ``change`` compute the new value, and writes it in place of what was read.

        If somebody wrote meanwhile, ``change`` is asked again with what is there now and the conflict
        (its ``mine`` is the value that was refused). Nothing is written that was not computed from
        what it replaces.

        A record with several live values is handed out with a :class:`SiblingConflict`: its ``theirs.values``
        are all of them, the current value is the one written last, and the new value replaces them all.

        Args:
            change: called with the current value (None if absent) and the conflict (None at first, unless
                there are several values); may be async and slow.
            attempts: how often to write at most.
            reserve: when to reserve the key, so that others who ask wait instead of thinking in vain:
                ``never``; ``on_conflict``, after two refused writes; ``first``, before reading. At most 60 s
                are waited for another's reservation. Advisory: without one the update goes on all the same.
            timeout: a limit for all of it, ``change`` included, in seconds; None sets no limit beyond
                the default deadline of each call.
            ttl: how long the new value lives, in seconds or as a span.
            expires_at: until when it lives; at most one of the two.
            attributes: scalars for filters; None keeps those that were read.

        Returns:
            The record as written.

        Raises:
            Conflict: the last attempt met one too.
            Contention: the server could not decide the last attempt.
            DeadlineExceeded: ``timeout`` passed; ``outcome`` says whether a write was under way.
            NoosphereError: anything else, see the tree.
        """
        update = Update(self._space, self._codec, self.name, attempts, reserve)
        budget = Budget(self._space.transport, timeout, "update")
        return await update.run(change, Put(ttl, expires_at, attributes), budget)

    def reserve(
        self, lease: timedelta | float = 30.0, wait: timedelta | float = 0.0, *, timeout: float | None = None
    ) -> ReserveScope:
        """Says for the length of an ``async with`` block that this task thinks about the key.

        ::

            async with key.reserve(wait=30) as reservation:
                if not reservation.held:
                    print(reservation.holder, "is at it")

        It keeps nobody from writing: it is for those who ask. It renews itself while the block runs; losing
        it stops nobody. The key need not exist.

        Args:
            lease: how long it lasts without renewal, in seconds or as a span: 1 s to 1 h.
            wait: how long to wait for another's to end, in seconds or as a span, at most 60 s.
            timeout: the deadline of each call with its retries, in seconds, beyond ``wait``.

        Returns:
            A context manager that gives a :class:`Reservation`.
        """
        return ReserveScope(self._space, self.name, lease, wait, timeout)

    async def increment(
        self, by: int = 1, *, request_id: str | None = None, timeout: float | None = None
    ) -> MergeResult:
        """Counter: adds ``by``, which may be negative."""
        return await self._space.merge(Increment(self.name, by), request_id, timeout)

    async def set_add(self, *members: Any, request_id: str | None = None, timeout: float | None = None) -> MergeResult:
        """Set: adds JSON values."""
        return await self._space.merge(SetUpdate(self.name, add=members), request_id, timeout)

    async def set_remove(
        self, *members: Any, seen: Seen | None = None, request_id: str | None = None, timeout: float | None = None
    ) -> MergeResult:
        """Set: removes JSON values; with ``seen`` only those that this read has seen added."""
        return await self._space.merge(SetUpdate(self.name, remove=members, seen=seen), request_id, timeout)

    async def keep_max(
        self, value: float | str, *, request_id: str | None = None, timeout: float | None = None
    ) -> MergeResult:
        """Maximum: keeps the larger of what is there and ``value``."""
        return await self._space.merge(KeepMax(self.name, value), request_id, timeout)

    async def keep_min(
        self, value: float | str, *, request_id: str | None = None, timeout: float | None = None
    ) -> MergeResult:
        """Minimum: keeps the smaller of what is there and ``value``."""
        return await self._space.merge(KeepMin(self.name, value), request_id, timeout)

    async def map_set(
        self, fields: Mapping[str, Any], *, request_id: str | None = None, timeout: float | None = None
    ) -> MergeResult:
        """Map: sets fields to JSON values, leaving the others alone."""
        return await self._space.merge(MapUpdate(self.name, set=fields), request_id, timeout)

    async def map_remove(
        self, *fields: str, request_id: str | None = None, timeout: float | None = None
    ) -> MergeResult:
        """Map: removes fields."""
        return await self._space.merge(MapUpdate(self.name, remove=fields), request_id, timeout)

    async def log_append(
        self, *entries: Any, keep: int = 0, request_id: str | None = None, timeout: float | None = None
    ) -> MergeResult:
        """Log: appends JSON values and keeps the newest that fit, at most ``keep`` if it is not 0."""
        return await self._space.merge(LogAppend(self.name, entries, keep), request_id, timeout)

    def __repr__(self) -> str:
        return f"Key({self.namespace!r}, {self.name!r}, {self._codec.name})"
