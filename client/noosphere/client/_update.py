"""Read, think, write; and again with what others wrote meanwhile, until it fits or the attempts are used up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import Generic, NamedTuple, TypeVar, get_args

from noosphere.consistency import Scalar

from ._budget import Budget
from ._conflict import Conflict, sibling_conflict
from ._errors import Contention, InvalidArgument, NoosphereError
from ._record import Record
from ._reserve import Reservation, ReservePolicy, ReserveScope
from ._space import Space
from ._transport import LOG
from ._values import Codec

T = TypeVar("T")

Change = Callable[[T | None, Conflict[T] | None], T | Awaitable[T]]
"""Computes a new value from the current one and what is to be known about it: see ``Key.update``."""

RESERVE_LEASE = 30.0
RESERVE_WAIT = 60.0
_FAILURES_BEFORE_RESERVE = 2


class Put(NamedTuple):
    """How the new value is to be put; the fields are the arguments of ``Record.replace``."""

    ttl: timedelta | float | None
    expires_at: datetime | None
    attributes: Mapping[str, Scalar] | None


class Update(Generic[T]):
    """One ``update`` of one key; for one use."""

    def __init__(self, space: Space, codec: Codec[T], key: str, attempts: int, reserve: ReservePolicy) -> None:
        if attempts < 1:
            raise InvalidArgument(f"attempts: {attempts} is less than 1")
        if reserve not in get_args(ReservePolicy):
            raise InvalidArgument(f"reserve: {reserve!r} is not one of {', '.join(get_args(ReservePolicy))}")
        self._space = space
        self._codec = codec
        self._key = key
        self._attempts = attempts
        self._reserve = reserve

    async def run(self, change: Change[T], put: Put, budget: Budget) -> Record[T]:
        """Updates the key; see ``Key.update``."""
        record: Record[T] | None = None
        conflict: Conflict[T] | None = None
        async with _Turn(self._space, self._key, self._reserve, budget) as turn:
            for attempt in range(1, self._attempts + 1):
                waited = await turn.reserve(failures=attempt - 1)
                if record is None or waited:
                    record = await self._space.read(self._codec, self._key, budget.call())
                    conflict = conflict._renewed(record) if conflict is not None else None
                value = await budget.run(change, *_shown(record, conflict))
                try:
                    return await record.replace(value, timeout=budget.call(), **put._asdict())
                except Conflict as refused:
                    if attempt == self._attempts:
                        raise
                    conflict, record = refused, refused.theirs
                except Contention:
                    if attempt == self._attempts:
                        raise
                    conflict, record = None, None
        raise AssertionError("unreachable: the last attempt returns or raises")


def _shown(record: Record[T], conflict: Conflict[T] | None) -> tuple[T | None, Conflict[T] | None]:
    if len(record.writers) < 2:
        return (record.value if record.exists else None), conflict
    return record.values[-1], conflict if conflict is not None else sibling_conflict(record)


class _Turn:
    """The reservation of an update's key, as far as its policy asks for one. Advisory: nothing here fails it."""

    def __init__(self, space: Space, key: str, policy: ReservePolicy, budget: Budget) -> None:
        self._space = space
        self._key = key
        self._policy = policy
        self._budget = budget
        self._stack = AsyncExitStack()
        self._reservation: Reservation | None = None

    async def __aenter__(self) -> _Turn:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def reserve(self, failures: int) -> bool:
        """Reserves the key if it is time to; returns whether time has passed in which it may have changed."""
        due = self._policy == "first" or (self._policy == "on_conflict" and failures >= _FAILURES_BEFORE_RESERVE)
        if not due or (self._reservation is not None and self._reservation.held):
            return False
        scope = ReserveScope(
            self._space, self._key, RESERVE_LEASE, self._budget.within(RESERVE_WAIT), self._budget.call()
        )
        try:
            self._reservation = await self._stack.enter_async_context(scope)
        except NoosphereError as error:
            LOG.debug("could not reserve %r: %s", self._key, error)
        return True
