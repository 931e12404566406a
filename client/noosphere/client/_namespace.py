"""A namespace: what an agent, a session or a team keeps together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar, overload

from noosphere.consistency import Scalar

from ._board import Board
from ._cache import BYTES_MAX, NearCache
from ._causal import Consistency, unpack
from ._decide import Think, decide
from ._key import Key
from ._listing import PAGE_SIZE, HistoryEntry, list_history, list_records
from ._operations import Compare, Operation, Seen, checked_key
from ._pending import PendingConflict, list_conflicts
from ._readset import Readings, decode
from ._record import Record
from ._space import Space, TransactResult
from ._stream import PATIENCE
from ._values import Model, codec_for
from ._view import Decision, GuardMode, Guards, Terms, View
from ._watch import SNAPSHOT_RECORDS_MAX, Watch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace as seen through one client. A handle: it holds no data and no context.

    Wherever a ``model`` can be given, values are validated and serialized by it: a pydantic model, a
    dataclass or anything else that pydantic knows (``list[int]``, a ``TypeAdapter``), or ``bytes``.
    Without one a value is any JSON value.
    """

    _space: Space

    @property
    def name(self) -> str:
        """The full name, e.g. ``shared/launch``."""
        return self._space.name

    @overload
    def key(self, key: str) -> Key[Any]: ...
    @overload
    def key(self, key: str, model: Model[T]) -> Key[T]: ...
    def key(self, key: str, model: Model[Any] | None = None) -> Key[Any]:
        """Returns a handle on one key, with the model of its values."""
        return Key(self._space, codec_for(model), checked_key(key))

    @overload
    def board(self, prefix: str) -> Board[Any]: ...
    @overload
    def board(self, prefix: str, model: Model[T]) -> Board[T]: ...
    def board(self, prefix: str, model: Model[Any] | None = None) -> Board[Any]:
        """Returns the task board on a collection (``prefix`` ends in a slash)."""
        return Board(self._space, codec_for(model), prefix)

    @overload
    async def get(
        self, key: str, *, consistency: Consistency = "linearizable", timeout: float | None = None
    ) -> Record[Any] | None: ...
    @overload
    async def get(
        self, key: str, model: Model[T], *, consistency: Consistency = "linearizable", timeout: float | None = None
    ) -> Record[T] | None: ...
    async def get(
        self,
        key: str,
        model: Model[Any] | None = None,
        *,
        consistency: Consistency = "linearizable",
        timeout: float | None = None,
    ) -> Record[Any] | None:
        """Returns a key's record, None if it has no live value.

        Args:
            key: the key.
            model: how to read the value.
            consistency: ``linearizable`` sees every write acknowledged before; ``causal`` at least what this
                client has seen or was told of (:meth:`Client.observe`); ``stale`` whatever is near.
            timeout: the deadline with all retries, in seconds; None for the client's default.

        Raises:
            AckedWritesLost: a causal read, and something that this client has seen did not survive.
            NoosphereError: anything else, see the tree.
        """
        record: Record[Any] = await self._space.read(codec_for(model), key, timeout, consistency)
        return record if record.exists else None

    @overload
    async def get_many(
        self, keys: Sequence[str], *, consistency: Consistency = "linearizable", timeout: float | None = None
    ) -> tuple[Record[Any], ...]: ...
    @overload
    async def get_many(
        self,
        keys: Sequence[str],
        model: Model[T],
        *,
        consistency: Consistency = "linearizable",
        timeout: float | None = None,
    ) -> tuple[Record[T], ...]: ...
    async def get_many(
        self,
        keys: Sequence[str],
        model: Model[Any] | None = None,
        *,
        consistency: Consistency = "linearizable",
        timeout: float | None = None,
    ) -> tuple[Record[Any], ...]:
        """Returns the records of up to 256 keys, all at one head, in the order given.

        Absent keys have a record too, without a value (``exists`` is False). The arguments and errors are
        those of :meth:`get`.
        """
        return await self._space.read_many(codec_for(model), keys, timeout, consistency)

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
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Record[Any]:
        """Writes a key.

        With none of ``expected_version``, ``seen`` and ``blind``: a shared key is created if it has no
        live value and otherwise left alone (PreconditionRequired); in the agent's own private
        namespace the last write wins. To replace what was read, use ``record.replace``.

        Args:
            key: the key.
            value: the new value: JSON, bytes, or what ``model`` serializes.
            model: how to serialize the value; None takes a pydantic model as what it is.
            expected_version: write only if the version is this; 0 asks for a key without a live value.
            seen: the record that was read, or its context: write unless somebody else wrote since.
            blind: overwrite whatever is there; the record's ``applied.overwritten`` says whose it was.
            ttl: how long the value lives, in seconds or as a span; None for ever.
            expires_at: until which store time it lives (an aware datetime); at most one of the two.
            attributes: scalars for filters, at most 16; they replace the earlier ones.
            request_id: a UUID of your own, so that a repetition of the same put is answered and not
                executed for two minutes; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds; None for the client's default.

        Returns:
            The record as written, with the context for the next write.

        Raises:
            Conflict: something stood in the way; ``theirs`` is the record as it is now.
            InvalidArgument: the request is malformed, or the value is no JSON or too large.
            NoosphereError: anything else, see the tree.
        """
        return await self._space.put(
            codec_for(model),
            key,
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
        key: str,
        *,
        expected_version: int | None = None,
        seen: Seen | None = None,
        blind: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Record[Any]:
        """Deletes a key; a key without a live value is left as it is (``applied.revision`` is 0).

        The arguments and errors are those of :meth:`put`.

        Returns:
            The record without a value.
        """
        return await self._space.delete(
            codec_for(None),
            key,
            expected_version=expected_version,
            seen=seen,
            blind=blind,
            request_id=request_id,
            timeout=timeout,
        )

    @overload
    def list(
        self,
        collection: str = "",
        *,
        where: Mapping[str, Scalar] | None = None,
        reverse: bool = False,
        keys_only: bool = False,
        claimed_only: bool = False,
        page_size: int = PAGE_SIZE,
        consistency: Consistency = "linearizable",
        timeout: float | None = None,
    ) -> AsyncIterator[Record[Any]]: ...
    @overload
    def list(
        self,
        collection: str = "",
        *,
        model: Model[T],
        where: Mapping[str, Scalar] | None = None,
        reverse: bool = False,
        keys_only: bool = False,
        claimed_only: bool = False,
        page_size: int = PAGE_SIZE,
        consistency: Consistency = "linearizable",
        timeout: float | None = None,
    ) -> AsyncIterator[Record[T]]: ...
    def list(
        self,
        collection: str = "",
        *,
        model: Model[Any] | None = None,
        where: Mapping[str, Scalar] | None = None,
        reverse: bool = False,
        keys_only: bool = False,
        claimed_only: bool = False,
        page_size: int = PAGE_SIZE,
        consistency: Consistency = "linearizable",
        timeout: float | None = None,
    ) -> AsyncIterator[Record[Any]]:
        """Lists live records in key order, page by page; a page is consistent, the whole list is not.

        Args:
            collection: a key prefix that ends in a slash; empty for the whole namespace.
            model: how to read the values.
            where: only records whose attributes equal all of these.
            reverse: descending key order.
            keys_only: leave the values out.
            claimed_only: only records under a live claim.
            page_size: records per call, 1 to 1,000.
            consistency: how fresh each page must be, as in :meth:`get`.
            timeout: the deadline of each page with its retries, in seconds.
        """
        return list_records(
            self._space,
            codec_for(model),
            collection,
            where=where,
            reverse=reverse,
            keys_only=keys_only,
            claimed_only=claimed_only,
            page_size=page_size,
            consistency=consistency,
            timeout=timeout,
        )

    def history(
        self, key: str | None = None, *, page_size: int = PAGE_SIZE, timeout: float | None = None
    ) -> AsyncIterator[HistoryEntry]:
        """Lists what the log still holds, oldest first, of one key or of all.

        Raises:
            Compacted: the log moved on while it was listed.
        """
        return list_history(self._space, codec_for(None), key, page_size=page_size, timeout=timeout)

    async def transact(
        self,
        compares: Sequence[Compare | Record[Any]] = (),
        operations: Sequence[Operation] = (),
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> TransactResult:
        """Applies all operations at one revision, or none of them.

        Args:
            compares: what must hold: a key and its version, or a record that was read (unchanged since).
            operations: at most one per key; with the compares at most 64, and 256 KiB.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            TransactionFailed: a compare or a condition did not hold; ``failures`` says which.
            NoosphereError: anything else, see the tree.
        """
        return await self._space.transact(compares, operations, request_id, timeout)

    async def decide(
        self,
        think: Think,
        *,
        guard: Guards = (),
        attempts: int = 3,
        mode: GuardMode = "strict",
        allow_checked: bool = False,
        timeout: float | None = None,
    ) -> Decision:
        """Lets ``think`` read and decide, and writes the decision only if what it read still holds.

        ::

            async def think(view: View) -> Sequence[Operation]:
                plan = await view.get("plan", Plan)
                reply = await chat([*prompt(plan), *([view.notes.as_message()] if view.notes else [])])
                return [Put("next", reply)]

            await namespace.decide(think, guard=("plan", "goals/"))

        If something guarded changed meanwhile, or a write met a conflict, ``think`` is asked again with a
        fresh view, whose ``notes`` explain that. A put or delete that says nothing about what it expects of
        its key replaces what the view has read of it.

        Args:
            think: called with a :class:`View`; returns the writes, none to write nothing.
            guard: what of all that is read must not change: keys, collections (ending in a slash), or a
                :class:`Guard` for one namespace. Empty for everything.
            attempts: how often to think at most.
            mode: ``warn`` writes although something guarded changed, and reports it in ``stale``.
            allow_checked: accept that what was read in other namespaces is only checked just before.
            timeout: a limit for all of it, ``think`` included, in seconds; None sets no limit beyond the
                default deadline of each call.

        Returns:
            The decision as written; without writes its revision is 0.

        Raises:
            StaleRead: what was read in the last attempt changed too.
            UncheckableGuard: something guarded lies in another namespace.
            TransactionFailed: the last attempt met a conflict, or a write can never succeed.
            Contention: the server could not decide the last attempt.
            DeadlineExceeded: ``timeout`` passed; ``outcome`` says whether a write was under way.
            NoosphereError: anything else, see the tree.
        """
        return await decide(self._space, think, Terms(guard, mode, allow_checked), attempts, timeout)

    def reading(self, *, guard: Guards = (), mode: GuardMode = "strict", allow_checked: bool = False) -> View:
        """Returns a view for an ``async with`` block: its reads are recorded, and its writes need them to hold.

        Args:
            guard: what of all that is read must not change, unless a write says otherwise; empty for
                everything.
            mode: ``warn`` writes although something guarded changed, and reports it.
            allow_checked: accept that what was read in other namespaces is only checked just before.
        """
        return View(self._space, Readings(), Terms(guard, mode, allow_checked))

    def resume_view(
        self, token: str, *, guard: Guards = (), mode: GuardMode = "strict", allow_checked: bool = False
    ) -> View:
        """Returns a view that goes on where another left off, perhaps in another process, days ago.

        Args:
            token: what ``View.token`` returned.
            guard: as for :meth:`reading`.
            mode: as for :meth:`reading`.
            allow_checked: as for :meth:`reading`.

        Raises:
            InvalidArgument: the token is damaged, or of a newer format.
        """
        readings = Readings(decode(unpack("token", token)))
        return View(self._space, readings, Terms(guard, mode, allow_checked))

    @overload
    def conflicts(
        self, collection: str = "", *, page_size: int = PAGE_SIZE, timeout: float | None = None
    ) -> AsyncIterator[PendingConflict[Any]]: ...
    @overload
    def conflicts(
        self, collection: str = "", *, model: Model[T], page_size: int = PAGE_SIZE, timeout: float | None = None
    ) -> AsyncIterator[PendingConflict[T]]: ...
    def conflicts(
        self,
        collection: str = "",
        *,
        model: Model[Any] | None = None,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> AsyncIterator[PendingConflict[Any]]:
        """Lists the records with several live values, the longest waiting first.

        ::

            async for pending in namespace.conflicts():
                await pending.record.resolve(join(pending.record.values))

        Args:
            collection: a key prefix that ends in a slash; empty for the whole namespace.
            model: how to read the values.
            page_size: records per call, 1 to 1,000.
            timeout: the deadline of each page with its retries, in seconds.
        """
        return list_conflicts(self._space, codec_for(model), collection, page_size=page_size, timeout=timeout)

    @overload
    def watch(
        self,
        collection: str = "",
        *,
        resume: bytes | None = None,
        after: int | None = None,
        snapshot: bool = False,
        patience: float = PATIENCE,
        snapshot_records_max: int = SNAPSHOT_RECORDS_MAX,
    ) -> Watch[Any]: ...
    @overload
    def watch(
        self,
        collection: str = "",
        *,
        model: Model[T],
        resume: bytes | None = None,
        after: int | None = None,
        snapshot: bool = False,
        patience: float = PATIENCE,
        snapshot_records_max: int = SNAPSHOT_RECORDS_MAX,
    ) -> Watch[T]: ...
    def watch(
        self,
        collection: str = "",
        *,
        model: Model[Any] | None = None,
        resume: bytes | None = None,
        after: int | None = None,
        snapshot: bool = False,
        patience: float = PATIENCE,
        snapshot_records_max: int = SNAPSHOT_RECORDS_MAX,
    ) -> Watch[Any]:
        """Watches a collection, from now on unless told otherwise.

        ::

            async with namespace.watch("plan/", resume=load()) as batches:
                async for batch in batches:
                    if batch.kind in ("snapshot", "reset"):
                        ...  # rebuild local state from batch.events
                    save(batch.resume)

        Args:
            collection: a key prefix that ends in a slash; empty for the whole namespace.
            model: how to read the values.
            resume: continue after the batch that carried this; None or empty begins anew.
            after: changes after this revision (exclusive).
            snapshot: everything that is there first, then every change.
            patience: give up after so many seconds without a connection.
            snapshot_records_max: the most records of a snapshot, which is delivered as one batch.
        """
        return Watch(
            self._space,
            codec_for(model),
            collection,
            resume=resume or None,
            after=after,
            snapshot=snapshot,
            patience=patience,
            snapshot_records_max=snapshot_records_max,
            on_revision=self._space.saw,
        )

    def cached(self, *, bytes_max: int = BYTES_MAX) -> NearCache:
        """Keeps a copy of the whole namespace in this process for the length of an ``async with`` block.

        ::

            async with namespace.cached() as fast:
                plan = fast.get("plan", Plan)

        Args:
            bytes_max: how much memory the copy may take. A namespace that needs more is not cached: the
                cache says so (``fits``), and reads go to the server.
        """
        return NearCache(self._space, bytes_max)

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"
