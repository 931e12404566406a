"""Task boards: records that are handed out, each to one agent at a time."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from noosphere.consistency import Encoding, Refusal, Scalar, check_collection

from ._arguments import INT64_MAX, checked_text
from ._causal import Consistency
from ._claim import ClaimScope
from ._key import Key
from ._listing import list_records
from ._operations import checked_key
from ._record import Record
from ._space import Space
from ._values import Codec, Payload
from ._wire import local_refusal

T = TypeVar("T")

ATTRIBUTES_MAX = 16
_NAME_BYTES_MAX = 64
_TEXT_BYTES_MAX = 256


@dataclass(frozen=True, slots=True)
class Board(Generic[T]):
    """A collection of tasks. A task is a record; its top-level scalar fields are what ``where`` matches.

    Attributes:
        prefix: the collection, ending in a slash.
    """

    _space: Space
    _codec: Codec[T]
    prefix: str

    def __post_init__(self) -> None:
        try:
            check_collection(self.prefix, "prefix")
        except Refusal as refusal:
            raise local_refusal(refusal) from None

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        return self._space.name

    def key(self, name: str) -> Key[T]:
        """Returns the key of the task ``name`` (without the prefix)."""
        return Key(self._space, self._codec, checked_key(self.prefix + checked_text("key", name)))

    async def add(
        self,
        value: T,
        key: str | None = None,
        *,
        attributes: Mapping[str, Scalar] | None = None,
        ttl: timedelta | float | None = None,
        expires_at: datetime | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Record[T]:
        """Creates a task.

        Args:
            value: the task.
            key: its name below the prefix; None for a new one, later than all before by this clock.
            attributes: what ``where`` matches; None for the value's top-level scalar fields (the first
                16 that are short enough).
            ttl: how long the task lives, in seconds or as a span.
            expires_at: until when it lives; at most one of the two.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            The task's record; its key has the prefix.

        Raises:
            VersionMismatch: there is a task of this name.
            NoosphereError: anything else, see the tree.
        """
        if attributes is None:
            attributes = scalar_fields(self._codec.encode(value))
        return await self._space.put(
            self._codec,
            self.prefix + (new_name() if key is None else checked_text("key", key)),
            value,
            expected_version=0,
            ttl=ttl,
            expires_at=expires_at,
            attributes=attributes,
            request_id=request_id,
            timeout=timeout,
        )

    def claim(
        self,
        where: Mapping[str, Scalar] | None = None,
        lease: timedelta | float = 30.0,
        wait: timedelta | float = 0.0,
        *,
        timeout: float | None = None,
    ) -> ClaimScope[T]:
        """Claims the first free matching task for the length of an ``async with`` block.

        ::

            async with board.claim(where={"kind": "crawl"}, wait=10) as claim:
                if claim is not None:
                    await claim.complete(await crawl(claim.value.url))

        The claim renews itself while the block runs. If that fails for so long that somebody else may
        have the task, the block's task is cancelled and the ``async with`` raises ClaimLost. Leaving
        the block without completing gives the task back.

        Args:
            where: only tasks whose attributes equal all of these.
            lease: how long the claim lasts without renewal, in seconds or as a span: 1 s to 1 h.
            wait: how long to wait for a free task, in seconds or as a span, at most 60 s.
            timeout: the deadline of each call with its retries, in seconds, beyond ``wait``.

        Returns:
            A context manager that gives a :class:`Claim`, or None if no task was free.
        """
        return ClaimScope(self._space, self._codec, self.prefix, where, lease, wait, timeout)

    def list(
        self,
        *,
        where: Mapping[str, Scalar] | None = None,
        claimed_only: bool = False,
        consistency: Consistency = "linearizable",
        timeout: float | None = None,
    ) -> AsyncIterator[Record[T]]:
        """Returns the tasks in order of their keys, done ones included; see ``Namespace.list``."""
        return list_records(
            self._space,
            self._codec,
            self.prefix,
            where=where,
            claimed_only=claimed_only,
            consistency=consistency,
            timeout=timeout,
        )

    def __repr__(self) -> str:
        return f"Board({self.namespace!r}, {self.prefix!r}, {self._codec.name})"


def new_name() -> str:
    """Returns a fresh name that sorts after those made earlier: milliseconds, then randomness."""
    return f"{time.time_ns() // 1_000_000:012x}-{secrets.token_hex(6)}"


def scalar_fields(payload: Payload) -> dict[str, Scalar]:
    """Returns a JSON object's top-level scalar fields that can be attributes, at most 16, in order.

    Fields with long names or texts are left out: they are no filters.
    """
    value: Any = json.loads(payload.data) if payload.encoding is Encoding.JSON else None
    found: dict[str, Scalar] = {}
    if isinstance(value, dict):
        for name, field in value.items():
            if len(found) == ATTRIBUTES_MAX:
                break
            if name and len(name.encode()) <= _NAME_BYTES_MAX and _is_attribute(field):
                found[name] = field
    return found


def _is_attribute(field: object) -> bool:
    if isinstance(field, bool):
        return True
    if isinstance(field, int):
        return -INT64_MAX - 1 <= field <= INT64_MAX
    if isinstance(field, float):
        return math.isfinite(field)
    return isinstance(field, str) and len(field.encode()) <= _TEXT_BYTES_MAX
