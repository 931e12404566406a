"""Records as a caller holds them: immutable, each with what its own read has seen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from noosphere.consistency import CausalContext, Encoding, MergeType, Scalar, VersionClock
from noosphere.v1 import types_pb2 as pb

from ._errors import InvalidArgument, UnresolvedSiblings, ValueAbsent, ValueMismatch
from ._values import JSON, Codec, Payload
from ._wire import Dot, to_clock, to_context, to_dots, to_payload, to_scalar, to_time

if TYPE_CHECKING:
    from ._space import Space

T = TypeVar("T")


class Missing(Enum):
    """The type of an argument that was not given, where None is a value."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


class Written(NamedTuple):
    """Who wrote a live value, and until when it lives.

    Attributes:
        revision: the value's dot, where in the namespace's log it was written.
        actor: who wrote it, as ``agent#incarnation``.
        time: store time of the write, in UTC; None in the record that a write returns.
        expires_at: when it ends, None for never.
    """

    revision: int
    actor: str
    time: datetime | None
    expires_at: datetime | None


class ClaimState(NamedTuple):
    """Who works on a record of a task board.

    Attributes:
        holder: ``agent#incarnation``; empty if nobody holds it.
        expires_at: when the lease ends unless renewed, None if nobody holds it.
        fence: the claim's revision.
        attempts: how often the task was handed out.
        done: whether the task was completed.
        completed_by: who completed it, or empty.
        result: what was stored on completion (JSON value or bytes), or None.
    """

    holder: str
    expires_at: datetime | None
    fence: int
    attempts: int
    done: bool
    completed_by: str
    result: Any


class Applied(NamedTuple):
    """What an applied write did.

    Attributes:
        revision: the commit's revision; 0 if nothing had to change.
        version: the record's new version, 0 after a delete; None while other live values that the
            writer has not read remain (or if the write said nothing about one record).
        seen: the context for the writer's next write to this key.
        overwritten: what was replaced unseen (blind writes, ``LAST_WRITER_WINS``).
        concurrent_delete: under ``SIBLINGS``, an unseen delete was undone by this value.
        value: merge operations: the value after the operation if it has at most 128 bytes, else None.
        trimmed: log appends: entries dropped to make room, since the log began.
        replayed: whether an earlier, remembered execution is being reported.
    """

    revision: int
    version: int | None
    seen: CausalContext
    overwritten: tuple[Dot, ...] = ()
    concurrent_delete: bool = False
    value: Any = None
    trimmed: int = 0
    replayed: bool = False


def to_applied(applied: pb.Applied) -> Applied:
    """Returns what the server reports about a write."""
    return Applied(
        applied.revision,
        applied.version if applied.HasField("version") else None,
        to_context(applied.context),
        to_dots(applied.overwritten),
        applied.concurrent_delete,
        JSON.decode(to_payload(applied.merged)) if applied.HasField("merged") else None,
        applied.trimmed,
        applied.replayed,
    )


class Record(Generic[T]):
    """One key as one read found it.

    The causal context belongs to this object: ``replace`` and ``delete`` send what *this* read has
    seen, and no other read, watch or write ever advances it. Values are decoded at each access, so
    changing one changes no record.
    """

    __slots__ = ("_applied", "_codec", "_head", "_keys_only", "_proto", "_space")

    def __init__(
        self,
        space: Space,
        codec: Codec[T],
        proto: pb.Record,
        head: int,
        *,
        applied: Applied | None = None,
        keys_only: bool = False,
    ) -> None:
        self._space = space
        self._codec = codec
        self._proto = proto
        self._head = head
        self._applied = applied
        self._keys_only = keys_only

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        return self._space.name

    @property
    def key(self) -> str:
        """The key."""
        return self._proto.key

    @property
    def value(self) -> T:
        """The one live value, as a fresh object.

        Raises:
            UnresolvedSiblings: there are several.
            ValueMismatch: it does not fit the model; the error keeps the raw bytes.
            ValueAbsent: there is none, or the record was listed without values.
        """
        return self._decode(self._sole())

    @property
    def raw(self) -> bytes:
        """The one live value's bytes as they are stored. Raises like :attr:`value`, except ValueMismatch."""
        return self._sole().value.data

    @property
    def encoding(self) -> Encoding:
        """How :attr:`raw` is to be read. Raises like :attr:`raw`."""
        return to_payload(self._sole().value).encoding

    @property
    def values(self) -> tuple[T, ...]:
        """Every live value, as fresh objects: none, one, or several siblings.

        Raises:
            ValueMismatch: one does not fit the model.
            ValueAbsent: the record was listed without values.
        """
        self._check_values()
        return tuple(self._decode(live) for live in self._proto.values)

    @property
    def exists(self) -> bool:
        """Whether there is a live value."""
        return bool(self._proto.values)

    @property
    def version(self) -> int | None:
        """The optimistic lock: the revision that last changed the record, 0 without a live value.

        None only in the record that a write returned while other live values remain which the writer
        has not read: read again before using a version.
        """
        return self._applied.version if self._applied is not None else self._proto.version

    @property
    def seen(self) -> CausalContext:
        """What this read has seen of the key; :meth:`replace` sends it."""
        return to_context(self._proto.context)

    @property
    def head(self) -> int:
        """The namespace's newest visible revision when the record was read or written."""
        return self._head

    @property
    def clock(self) -> VersionClock:
        """Who wrote here, up to which revision. Empty in the record that a write returns."""
        return to_clock(self._proto.clock)

    @property
    def attributes(self) -> Mapping[str, Scalar]:
        """Scalars by which records are filtered."""
        return MappingProxyType({name: to_scalar(value) for name, value in self._proto.attributes.items()})

    @property
    def merge_type(self) -> MergeType:
        """The merge type, ``NONE`` for a plain value."""
        return MergeType(self._proto.merge_type)

    @property
    def writers(self) -> tuple[Written, ...]:
        """Who wrote each live value, in the order of :attr:`values`."""
        return tuple(
            Written(
                live.dot,
                live.actor,
                to_time(live.write_time) if live.HasField("write_time") else None,
                to_time(live.expire_time) if live.HasField("expire_time") else None,
            )
            for live in self._proto.values
        )

    @property
    def expires_at(self) -> datetime | None:
        """When the last live value ends; None for never, without a live value, or just written with a ``ttl``."""
        ends = [written.expires_at for written in self.writers]
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) == len(ends) else None

    @property
    def created_at(self) -> datetime | None:
        """Store time at which the present life of the key began, if the server said so."""
        return to_time(self._proto.create_time) if self._proto.HasField("create_time") else None

    @property
    def change_count(self) -> int:
        """How many commits changed the record; for display only."""
        return self._proto.change_count

    @property
    def claim(self) -> ClaimState | None:
        """The claim, None if the record was never claimed."""
        if not self._proto.HasField("claim"):
            return None
        claim = self._proto.claim
        return ClaimState(
            claim.holder,
            to_time(claim.expire_time) if claim.HasField("expire_time") else None,
            claim.fence,
            claim.attempts,
            claim.done,
            claim.completed_by,
            JSON.decode(to_payload(claim.result)) if claim.HasField("result") else None,
        )

    @property
    def applied(self) -> Applied | None:
        """What the write that returned this record did; None for a record that was read."""
        return self._applied

    async def replace(
        self,
        value: T,
        *,
        ttl: timedelta | float | None = None,
        expires_at: datetime | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Record[T]:
        """Writes a value in place of what this record has seen.

        Args:
            value: the new value.
            ttl: how long it lives, in seconds or as a span; None for ever. The old expiry is not kept.
            expires_at: until when it lives; at most one of the two.
            attributes: scalars for filters; None keeps this record's.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds; None for the client's default.

        Returns:
            The record as written, with the context for the next write.

        Raises:
            Conflict: somebody wrote since this read; ``theirs`` is the record as it is now.
            NoosphereError: anything else, see the tree.
        """
        return await self._space.put(
            self._codec,
            self.key,
            value,
            seen=self,
            expected_version=self._typed_version(),
            ttl=ttl,
            expires_at=expires_at,
            attributes=self.attributes if attributes is None else attributes,
            request_id=request_id,
            timeout=timeout,
        )

    async def delete(self, *, request_id: str | None = None, timeout: float | None = None) -> Record[T]:
        """Deletes what this record has seen; the arguments and errors are those of :meth:`replace`.

        Returns:
            The record without a value.
        """
        return await self._space.delete(self._codec, self.key, seen=self, request_id=request_id, timeout=timeout)

    async def resolve(
        self,
        value: T | Missing = MISSING,
        *,
        keep: int | None = None,
        delete: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Record[T]:
        """Puts one value, or none, in the place of the several that this record has.

        Args:
            value: the new value; attributes are kept, an expiry is not.
            keep: instead, the revision of the value to keep, one of those in :attr:`writers`.
            delete: instead, delete the key.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds; None for the client's default.

        Returns:
            The record as written.

        Raises:
            Conflict: somebody wrote since this read; ``theirs`` is the record as it is now.
            NoConflict: the record no longer has several values.
            InvalidArgument: none or several of ``value``, ``keep`` and ``delete`` are given, or no value has
                the revision to keep.
            NoosphereError: anything else, see the tree.
        """
        if (value is not MISSING) + (keep is not None) + delete != 1:
            raise InvalidArgument("resolve: give one of value, keep and delete")
        if keep is not None and keep not in {written.revision for written in self.writers}:
            raise InvalidArgument(f"keep: no value of {self.key!r} was written at revision {keep}")
        resolution: Payload | int | None = keep
        if value is not MISSING:
            resolution = self._codec.encode(value)
        return await self._space.resolve(self, resolution, request_id, timeout)

    def __repr__(self) -> str:
        live = "absent" if not self.exists else f"{len(self._proto.values)} values"
        if len(self._proto.values) == 1:
            live = f"{len(self._proto.values[0].value.data)} bytes"
        return f"Record({self.namespace!r}, {self.key!r}, version={self.version}, {live})"

    def _typed_version(self) -> int | None:
        # A plain put on a record with a merge type is refused without the version.
        return self.version if self._proto.merge_type else None

    def _check_values(self) -> None:
        if self._keys_only and self._proto.values:
            raise ValueAbsent(f"{self.key!r} was listed without values", head=self._head)

    def _sole(self) -> pb.LiveValue:
        self._check_values()
        live = self._proto.values
        if not live:
            raise ValueAbsent(f"{self.key!r} in {self.namespace} has no live value", head=self._head)
        if len(live) > 1:
            raise UnresolvedSiblings(f"{self.key!r} in {self.namespace} has {len(live)} live values", head=self._head)
        return live[0]

    def _decode(self, live: pb.LiveValue) -> T:
        try:
            return self._codec.decode(to_payload(live.value))
        except ValueMismatch as error:
            raise ValueMismatch(f"{self.key!r} in {self.namespace}: {error.message}", error.raw) from error.__cause__
