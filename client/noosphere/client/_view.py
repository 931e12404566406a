"""Views: reads that are recorded, so that what was decided on them is written only if they still hold."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeVar, overload

from noosphere.consistency import Guard, ReadSet, Scalar, StaleEntry
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

from ._arguments import checked_text
from ._errors import InvalidArgument
from ._listing import PAGE_SIZE, list_records
from ._operations import Append, Compare, Delete, MergeOperation, Operation, Put, Seen, lower
from ._readset import Readings, checked_guards, to_guards
from ._record import Applied, Record, to_applied
from ._space import MergeResult, Space
from ._stale import NO_NOTES, Notes, to_stale
from ._values import Model, codec_for

T = TypeVar("T")

GuardMode = Literal["strict", "warn"]
"""What happens if something guarded has changed: ``strict`` refuses, ``warn`` writes and tells."""

Guards = str | Guard | Iterable[str | Guard]
"""What must not have changed: keys, collections (ending in a slash), or a :class:`Guard` for one namespace."""

_MODES: dict[GuardMode, pb.GuardMode.ValueType] = {"strict": pb.GUARD_MODE_STRICT, "warn": pb.GUARD_MODE_WARN}


class Decision(NamedTuple):
    """A decision that was written.

    Attributes:
        revision: the one revision of the commit; 0 if nothing had to change.
        results: one per write, in order.
        attempts: how often was thought about it.
        stale: in ``warn`` mode, what had changed and was overruled.
        replayed: whether an earlier, remembered execution is being reported.
        head: the namespace's newest visible revision.
    """

    revision: int
    results: tuple[Applied, ...]
    attempts: int
    stale: tuple[StaleEntry, ...]
    replayed: bool
    head: int


class Terms(NamedTuple):
    """On which terms a view is written through."""

    guard: Guards
    mode: GuardMode
    allow_checked: bool


class NamespaceView:
    """The reads of one namespace in a view. Each is linearizable, and recorded; they may run side by side."""

    def __init__(self, space: Space, seen: Readings) -> None:
        self._space = space
        self._seen = seen
        self._closed = False

    @property
    def name(self) -> str:
        """The namespace's full name."""
        return self._space.name

    @overload
    async def get(self, key: str, *, timeout: float | None = None) -> Record[Any] | None: ...
    @overload
    async def get(self, key: str, model: Model[T], *, timeout: float | None = None) -> Record[T] | None: ...
    async def get(
        self, key: str, model: Model[Any] | None = None, *, timeout: float | None = None
    ) -> Record[Any] | None:
        """Returns a key's record, None if it has no live value; that it has none is recorded too."""
        record: Record[Any] = await self._space.read(codec_for(model), key, timeout, carrier=self._open())
        return record if record.exists else None

    @overload
    async def get_many(self, keys: Sequence[str], *, timeout: float | None = None) -> tuple[Record[Any], ...]: ...
    @overload
    async def get_many(
        self, keys: Sequence[str], model: Model[T], *, timeout: float | None = None
    ) -> tuple[Record[T], ...]: ...
    async def get_many(
        self, keys: Sequence[str], model: Model[Any] | None = None, *, timeout: float | None = None
    ) -> tuple[Record[Any], ...]:
        """Returns the records of up to 256 keys, all at one head; see ``Namespace.get_many``."""
        return await self._space.read_many(codec_for(model), keys, timeout, carrier=self._open())

    @overload
    def list(
        self,
        collection: str = "",
        *,
        where: Mapping[str, Scalar] | None = None,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> AsyncIterator[Record[Any]]: ...
    @overload
    def list(
        self,
        collection: str = "",
        *,
        model: Model[T],
        where: Mapping[str, Scalar] | None = None,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> AsyncIterator[Record[T]]: ...
    def list(
        self,
        collection: str = "",
        *,
        model: Model[Any] | None = None,
        where: Mapping[str, Scalar] | None = None,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> AsyncIterator[Record[Any]]:
        """Lists live records in key order, and records the collection as a whole.

        Whatever changes, appears or vanishes in the collection, also beyond ``where`` or what was taken from
        the iterator, then counts as changed. The arguments are those of ``Namespace.list``.
        """
        seen = self._open()
        records: AsyncIterator[Record[Any]] = list_records(
            self._space,
            codec_for(model),
            collection,
            where=where,
            page_size=page_size,
            timeout=timeout,
            carrier=seen,
        )
        return self._listed(records)

    async def _listed(self, records: AsyncIterator[Record[T]]) -> AsyncIterator[Record[T]]:
        async for record in records:
            self._seen.knows(record.namespace, record.key, record.version)
            yield record

    def _open(self) -> Readings:
        if self._closed:
            raise RuntimeError("the view is closed: its block was left")
        return self._seen


class View(NamespaceView):
    """What somebody reads before deciding, and the way to write the decision; made by ``Namespace.reading``.

    ::

        async with namespace.reading() as view:
            plan = await view.get("plan", Plan)
            ...  # think, for as long as it takes
            await view.commit(Put("plan", better))  # StaleRead if the plan is another by now

    A put or delete that says nothing about what it expects of its key replaces what the view has read of it.
    Own writes through the view make it no staler: it advances over them.

    Attributes:
        notes: what made earlier attempts of ``decide`` fail; empty (and false) at first.
    """

    def __init__(
        self,
        space: Space,
        seen: Readings,
        terms: Terms,
        notes: Notes = NO_NOTES,
    ) -> None:
        super().__init__(space, seen)
        if terms.mode not in _MODES:
            raise InvalidArgument(f"mode: {terms.mode!r} is not one of {', '.join(_MODES)}")
        self.notes = notes
        # At once: whoever thinks for long is not to learn at the end that a guard is malformed, or was used up.
        self._terms = terms._replace(guard=checked_guards(terms.guard))
        self._others: dict[str, NamespaceView] = {}
        # A write sends what was read and takes back what it has become: one at a time.
        self._writing = asyncio.Lock()

    async def __aenter__(self) -> View:
        """Returns the view."""
        self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the view; its :meth:`token` can still be taken."""
        self._closed = True
        for other in self._others.values():
            other._closed = True

    def namespace(self, full_name: str) -> NamespaceView:
        """Returns the reads of another namespace in this view, of which at most 8 can be read.

        What was read there can only be checked just before the commit, not in it: ``allow_checked`` accepts
        that, or ``guard`` leaves it out. Otherwise writing raises UncheckableGuard.
        """
        self._open()
        if full_name == self.name:
            return self
        other = self._others.get(full_name)
        if other is None:
            other = self._others[full_name] = NamespaceView(Space(self._space.transport, full_name), self._seen)
        return other

    async def commit(
        self,
        *writes: Operation,
        compares: Sequence[Compare | Record[Any]] = (),
        awaited: Sequence[str] = (),
        guard: Guards | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Decision:
        """Writes a decision at one revision, if what was read still holds.

        Args:
            writes: at most one per key; with the compares at most 64, and 256 KiB.
            compares: what else must hold: a key and its version, or a record.
            awaited: in a session's namespace, ids of tool calls that must have ended.
            guard: what of all that was read must not have changed; None for the view's own guard.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            StaleRead: something guarded changed, appeared or vanished; nothing was written.
            CallsPending: a call in ``awaited`` has not ended.
            UncheckableGuard: something guarded lies in another namespace, and ``allow_checked`` is not set.
            TransactionFailed: a compare or a condition did not hold; nothing was written.
            InvalidArgument: a guard covers nothing that was read, or anything is malformed.
            NoosphereError: anything else, see the tree.
        """
        self._open()
        space = self._space
        async with self._writing:
            through = self._through(guard)
            request = ms.CommitRequest(
                namespace=space.name,
                compares=[space.compare(compare) for compare in compares],
                operations=[lower(space.name, self._on_what_was_seen(write))[0] for write in writes],
                awaited_calls=[checked_text(f"awaited[{index}]", name) for index, name in enumerate(awaited)],
            )
            reply: ms.CommitResponse
            reply, call_id = await space.tell(space.transport.stub.Commit, request, request_id, timeout, through)
        applied = reply.applied
        space.acked(request, applied.revision, call_id, applied.replayed)
        results = tuple(map(to_applied, applied.results))
        for write, result in zip(writes, results, strict=True):
            if not isinstance(write, Append):
                self._seen.knows(space.name, write.key, result.version)
        return Decision(applied.revision, results, 1, through.stale, applied.replayed, reply.head)

    async def put(
        self,
        key: str,
        value: Any,
        *,
        model: Model[Any] | None = None,
        expected_version: int | None = None,
        seen: Seen | None = None,
        blind: bool = False,
        ttl: timedelta | float | None = None,
        expires_at: datetime | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        guard: Guards | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Record[Any]:
        """Writes a key if what was read still holds, and advances the view over it.

        The arguments are those of ``Namespace.put`` and :meth:`commit`.

        Raises:
            StaleRead: something guarded changed, appeared or vanished; nothing was written.
            Conflict: something stood in the way; ``theirs`` is the record as it is now.
            NoosphereError: anything else, see the tree.
        """
        self._open()
        async with self._writing:
            put = self._on_what_was_seen(
                Put(key, value, model, expected_version, seen, blind, ttl, expires_at, attributes)
            )
            assert isinstance(put, Put)
            record: Record[Any] = await self._space.put(
                codec_for(model),
                key,
                value,
                expected_version=put.expected_version,
                seen=put.seen,
                blind=put.blind,
                ttl=ttl,
                expires_at=expires_at,
                attributes=attributes,
                request_id=request_id,
                timeout=timeout,
                carrier=self._through(guard),
            )
            self._seen.knows(self.name, key, record.version)
            return record

    async def delete(
        self,
        key: str,
        *,
        expected_version: int | None = None,
        seen: Seen | None = None,
        blind: bool = False,
        guard: Guards | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Record[Any]:
        """Deletes a key if what was read still holds; the arguments and errors are those of :meth:`put`."""
        self._open()
        async with self._writing:
            delete = self._on_what_was_seen(Delete(key, expected_version, seen, blind))
            assert isinstance(delete, Delete)
            record: Record[Any] = await self._space.delete(
                codec_for(None),
                key,
                expected_version=delete.expected_version,
                seen=delete.seen,
                blind=delete.blind,
                request_id=request_id,
                timeout=timeout,
                carrier=self._through(guard),
            )
            self._seen.knows(self.name, key, record.version)
            return record

    async def apply(
        self,
        operation: MergeOperation,
        *,
        guard: Guards | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> MergeResult:
        """Applies a merge operation if what was read still holds; the errors are those of :meth:`put`."""
        self._open()
        async with self._writing:
            return await self._space.merge(operation, request_id, timeout, carrier=self._through(guard))

    async def refresh(self, *, guard: Guards | None = None, timeout: float | None = None) -> Notes:
        """Compares what was read with the present, and takes the present as read from here on.

        For those who decide on what the notes say, e.g. after an approval that took days. It reads no
        values: whoever needs the new ones reads them again, and so does who replaces a key that was only
        listed and has changed.

        Args:
            guard: what is compared; None for the view's own guard, which by default is everything.
            timeout: the deadline with all retries, in seconds.

        Returns:
            What has changed; false if nothing has.
        """
        self._open()
        async with self._writing:
            through = self._through(guard)
            request = ms.RefreshReadSetRequest()
            through.attach(request.call)
            # A comparison is neither strict nor lenient.
            request.call.guard_mode = pb.GUARD_MODE_UNSPECIFIED
            transport = self._space.transport
            reply: ms.RefreshReadSetResponse = await transport.read(
                transport.stub.RefreshReadSet, request, timeout=timeout, namespace=self.name
            )
            through.accept(reply.call)
        return Notes(to_stale(reply.stale), namespace=self.name)

    def token(self) -> str:
        """Returns what was read as text, for ``Namespace.resume_view`` in this or another process.

        Raises:
            InvalidArgument: more was read than a token holds (64 KiB).
        """
        return base64.urlsafe_b64encode(self._seen.token()).decode().rstrip("=")

    def __repr__(self) -> str:
        parts = self._seen.read_set.namespaces.values()
        return f"View({self.name!r}, {sum(len(p.keys) + len(p.collections) for p in parts)} entries)"

    def _through(self, guard: Guards | None) -> _Through:
        return _Through(self._seen, self._terms if guard is None else self._terms._replace(guard=guard))

    def _on_what_was_seen(self, write: Operation) -> Operation:
        """Returns a write with the condition that goes without saying."""
        if not isinstance(write, (Put, Delete)) or write.blind:
            return write
        if write.expected_version is not None or write.seen is not None:
            return write
        version = self._seen.version(self.name, write.key)
        if version is None:
            return write
        when: dict[str, Any] = {"blind": True} if self._terms.mode == "warn" else {"expected_version": version}
        return replace(write, **when)


class _Through:
    """Carries a view through one write, or one refresh.

    Attributes:
        stale: what had changed and was overruled.
    """

    def __init__(self, seen: Readings, terms: Terms) -> None:
        self._seen = seen
        self._terms = terms
        self._sent: ReadSet = seen.read_set
        self.stale: tuple[StaleEntry, ...] = ()

    def attach(self, call: pb.CallContext) -> None:
        """Presents what was read, with what of it must still hold."""
        self._sent = self._seen.read_set
        call.read_set_token = self._seen.token()
        call.guards.extend(to_guards(self._terms.guard, self._sent))
        call.guard_mode = _MODES[self._terms.mode]
        call.allow_checked = self._terms.allow_checked

    def accept(self, reply: pb.CallReply) -> None:
        """Takes what it has become; the answer to a write that was not applied has nothing to tell of it."""
        if reply.read_set_token:
            self._seen.advance(self._sent, reply.read_set_token)
        self.stale = to_stale(reply.stale)
