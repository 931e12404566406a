"""A key with the model of its values: reads, writes, updates and merge operations on one record."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from noosphere.consistency import Scalar

from ._conflict import Conflict
from ._errors import Contention, DeadlineExceeded, InvalidArgument
from ._operations import Increment, KeepMax, KeepMin, LogAppend, MapUpdate, Seen, SetUpdate
from ._record import Record
from ._space import MergeResult, Space
from ._transport import Transport
from ._values import Codec

T = TypeVar("T")

Change = Callable[[T | None, Conflict[T] | None], T | Awaitable[T]]
"""Computes a new value from the current one and, from the second attempt on, the conflict."""


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

    async def get(self, *, timeout: float | None = None) -> Record[T] | None:
        """Returns the record, None if the key has no live value."""
        record = await self.read(timeout=timeout)
        return record if record.exists else None

    async def read(self, *, timeout: float | None = None) -> Record[T]:
        """Returns the record, also of an absent key: it then has no value and still a context."""
        return await self._space.read(self._codec, self.name, timeout)

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
        timeout: float | None = None,
        ttl: timedelta | float | None = None,
        expires_at: datetime | None = None,
        attributes: Mapping[str, Scalar] | None = None,
    ) -> Record[T]:
        """Reads, lets ``change`` compute the new value, and writes it in place of what was read.

        If somebody wrote meanwhile, ``change`` is asked again with what is there now and the conflict
        (its ``mine`` is the value that was refused). Nothing is written that was not computed from
        what it replaces.

        Args:
            change: called with the current value (None if absent) and the conflict (None at first);
                may be async and slow.
            attempts: how often to write at most.
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
            UnresolvedSiblings: the record has several values.
        """
        if attempts < 1:
            raise InvalidArgument(f"attempts: {attempts} is less than 1")
        budget = _Budget(self._space.transport, timeout)
        record = await self.read(timeout=budget.call())
        conflict: Conflict[T] | None = None
        for attempt in range(1, attempts + 1):
            current = record.value if record.exists else None
            value = await budget.run(change, current, conflict)
            try:
                return await record.replace(
                    value, ttl=ttl, expires_at=expires_at, attributes=attributes, timeout=budget.call()
                )
            except Conflict as refused:
                if attempt == attempts:
                    raise
                conflict = refused
            except Contention:
                if attempt == attempts:
                    raise
                conflict = None
            theirs = conflict.theirs if conflict is not None else None
            record = theirs if theirs is not None else await self.read(timeout=budget.call())
        raise AssertionError("unreachable: the last attempt returns or raises")

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


class _Budget:
    """One limit over several calls and the caller's own thinking."""

    def __init__(self, transport: Transport, timeout: float | None) -> None:
        self._clock = transport.clock
        self._default = transport.timeout
        self._limit = transport.deadline(timeout)
        self._end = None if timeout is None else self._clock() + self._limit

    def call(self) -> float | None:
        """Returns the deadline of the next call, in seconds."""
        return None if self._end is None else min(self._left(), self._default)

    async def run(self, change: Change[T], current: T | None, conflict: Conflict[T] | None) -> T:
        """Runs the caller's function within what is left."""
        scope = asyncio.timeout(None if self._end is None else self._left())
        try:
            async with scope:
                found = change(current, conflict)
                return await found if inspect.isawaitable(found) else found
        except TimeoutError:
            # The function's own TimeoutError is not ours to translate.
            if scope.expired():
                raise self._exceeded() from None
            raise

    def _left(self) -> float:
        assert self._end is not None
        if (left := self._end - self._clock()) <= 0:
            raise self._exceeded()
        return left

    def _exceeded(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"the update was not finished within {self._limit:g} s")
