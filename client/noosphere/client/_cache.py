"""A near cache: a namespace's records in this process, kept up to date by a watch.

Reading from it takes about a microsecond and no ``await``. It never shows less than the reader has seen or
was told of (its causal token), never a value that may have expired, and nothing from before a rollback once
the server has told of it. Whatever it cannot show within these rules is read from the server.

Records that it hands out are immutable, and the cache never changes them: each keeps the context of the
version that was read, so a write in its place is refused if somebody else wrote since.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TypeVar, overload

from noosphere.v1 import types_pb2 as pb

from ._arguments import checked_revision, shown
from ._cache_feed import Feed
from ._cache_state import CacheState, Entry
from ._causal import Consistency
from ._errors import DeadlineExceeded, InvalidArgument, LimitExceeded, NoosphereError, NotCached
from ._listing import checked_collection
from ._operations import checked_key
from ._record import Record
from ._space import Space
from ._values import JSON, Codec, Model, codec_for

T = TypeVar("T")

BYTES_MAX = 64 * 1024 * 1024
_BYTES_MIN = 64 * 1024
_ANY_KEY = "any"
"""Read where only the namespace's state matters; it need not be there."""


class NearCache:
    """The near cache of one namespace; made by ``Namespace.cached``, for one use.

    ::

        async with client.shared("launch").cached() as fast:
            plan = fast.get("plan", Plan)       # at once, or NotCached
            plan = await fast.read("plan", Plan)  # at once if it can, else from the server

    While the block runs, every read of the namespace by this client with ``consistency="causal"`` or
    ``"stale"`` is answered from here if it can be. ``linearizable`` reads always go to the server.

    The methods without ``async`` may be called from any thread.
    """

    def __init__(self, space: Space, bytes_max: int) -> None:
        if isinstance(bytes_max, bool) or not isinstance(bytes_max, int) or bytes_max < _BYTES_MIN:
            raise InvalidArgument(f"bytes_max: {shown(bytes_max)} is not a number of bytes, at least {_BYTES_MIN}")
        self._space = space
        self._causal = space.transport.progress.causal
        self._bytes_max = bytes_max
        self._feed = Feed(space, bytes_max)
        self._seen = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._left = False

    async def __aenter__(self) -> NearCache:
        """Fills the cache; returns as soon as it can answer, or when the namespace does not fit.

        Raises:
            NoosphereError: the namespace cannot be watched, or not within the client's default deadline.
        """
        if self._loop is not None:
            raise RuntimeError("a near cache is for one use; call cached again")
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        transport = self._space.transport
        self._feed.start()
        try:
            async with asyncio.timeout(transport.timeout):
                await self._feed.until(lambda: self._feed.state.live and self._feed.time.known)
        except TimeoutError:
            await self._feed.stop()
            raise DeadlineExceeded(
                f"the near cache of {self._space.name} was not filled within {transport.timeout:g} s"
            ) from None
        except BaseException:
            await self._feed.stop()
            raise
        failure = self._feed.failure
        if failure is not None and not isinstance(failure, LimitExceeded):
            await self._feed.stop()
            raise failure
        transport.caches[self._space.name] = self
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the watch and forgets everything; records that were handed out stay as they are."""
        transport = self._space.transport
        if transport.caches.get(self._space.name) is self:
            del transport.caches[self._space.name]
        self._left = True
        await self._feed.stop()

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        return self._space.name

    @property
    def revision(self) -> int:
        """Every change up to this revision is in the cache; 0 if it holds nothing."""
        return self._feed.state.revision

    @property
    def age(self) -> float:
        """Seconds since the server last told that nothing was missing; at least every 5 s it does."""
        return self._space.transport.clock() - self._feed.told_at

    @property
    def is_live(self) -> bool:
        """Whether it follows the server now, so that causal reads can be answered."""
        return self._feed.state.live

    @property
    def fits(self) -> bool:
        """Whether the namespace fits in ``bytes_max``. Once it has not, every read goes to the server."""
        return not isinstance(self._feed.failure, LimitExceeded)

    @property
    def failure(self) -> NoosphereError | None:
        """Why the cache has ended for good, None as long as it has not."""
        return self._feed.failure

    @property
    def size_bytes(self) -> int:
        """About how much memory the entries take."""
        return self._feed.state.size

    def __len__(self) -> int:
        return len(self._feed.state.entries)

    @overload
    def get(self, key: str, *, consistency: Consistency = "causal") -> Record[Any] | None: ...
    @overload
    def get(self, key: str, model: Model[T], *, consistency: Consistency = "causal") -> Record[T] | None: ...
    def get(
        self, key: str, model: Model[Any] | None = None, *, consistency: Consistency = "causal"
    ) -> Record[Any] | None:
        """Returns a key's record at once, None if it has no live value.

        The record is shared by all who ask while it is the newest; ``record.value`` is a fresh object at
        each access, ``record.raw`` are its bytes.

        Args:
            key: the key.
            model: how to read the value.
            consistency: ``causal`` or ``stale``.

        Raises:
            NotCached: the cache cannot tell; :meth:`read` asks the server.
        """
        entry = self._entry(key, consistency)
        if entry is None:
            return None
        return entry.record if model is None else entry.as_model(codec_for(model))

    def raw(self, key: str, *, consistency: Consistency = "causal") -> bytes | None:
        """Returns the bytes of a key's one live value, None if it has none: the fastest read there is.

        Raises:
            NotCached: the cache cannot tell.
            UnresolvedSiblings: there are several.
        """
        entry = self._entry(key, consistency)
        return None if entry is None else entry.payload.data

    @overload
    def value(self, key: str, *, consistency: Consistency = "causal") -> Any: ...
    @overload
    def value(self, key: str, model: Model[T], *, consistency: Consistency = "causal") -> T | None: ...
    def value(self, key: str, model: Model[Any] | None = None, *, consistency: Consistency = "causal") -> Any:
        """Returns a key's one live value as a fresh object, which is the caller's own; None if it has none.

        Raises:
            NotCached: the cache cannot tell.
            UnresolvedSiblings: there are several.
            ValueMismatch: it does not fit the model.
        """
        entry = self._entry(key, consistency)
        if entry is None:
            return None
        return (JSON if model is None else codec_for(model)).decode(entry.payload)

    @overload
    def list(self, collection: str = "", *, consistency: Consistency = "causal") -> Iterator[Record[Any]]: ...
    @overload
    def list(
        self, collection: str = "", *, model: Model[T], consistency: Consistency = "causal"
    ) -> Iterator[Record[T]]: ...
    def list(
        self, collection: str = "", *, model: Model[Any] | None = None, consistency: Consistency = "causal"
    ) -> Iterator[Record[Any]]:
        """Returns the live records of a collection in key order, all as of one revision.

        Args:
            collection: a key prefix that ends in a slash; empty for the whole namespace.
            model: how to read the values.
            consistency: ``causal`` or ``stale``.

        Raises:
            NotCached: the cache cannot tell.
        """
        checked_collection(collection)
        state = self._feed.state
        self._check(state, state.revision, consistency)
        codec, entries = codec_for(model), state.below(collection)
        return iter([self._unexpired(entry).as_model(codec) for entry in entries])

    @overload
    async def read(
        self, key: str, *, consistency: Consistency = "causal", timeout: float | None = None
    ) -> Record[Any]: ...
    @overload
    async def read(
        self, key: str, model: Model[T], *, consistency: Consistency = "causal", timeout: float | None = None
    ) -> Record[T]: ...
    async def read(
        self,
        key: str,
        model: Model[Any] | None = None,
        *,
        consistency: Consistency = "causal",
        timeout: float | None = None,
    ) -> Record[Any]:
        """Returns a key's record, also of an absent key; from the cache if it can tell, else from the server."""
        return await self._space.read(codec_for(model), checked_key(key), timeout, consistency)

    async def caught_up(self, revision: int | None = None, *, timeout: float | None = None) -> None:
        """Waits until the cache has applied a revision.

        Args:
            revision: which; None for what this client has seen, so that causal reads can be answered.
            timeout: how long to wait at most, in seconds; None for the client's default.

        Raises:
            DeadlineExceeded: it has not got so far in time.
            AckedWritesLost: something that this client has seen there was lost.
            NotCached: it has ended.
        """
        seconds = self._space.transport.deadline(timeout)
        if revision is not None:
            checked_revision("revision", revision)

        def wanted() -> int | None:
            return self._causal.needed(self._space.name) if revision is None else revision

        def reached() -> bool:
            state, target = self._feed.state, wanted()
            return target is not None and state.live and state.revision >= target

        try:
            async with asyncio.timeout(seconds):
                while not reached() and self._feed.runs:
                    if wanted() is None:
                        # Of what was seen before an epoch ended only the server can tell whether it is left.
                        await self._space.read(JSON, _ANY_KEY, seconds, "causal")
                    await self._feed.until(lambda: reached() or wanted() is None)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the near cache of {self._space.name} is at revision {self.revision} after {seconds:g} s"
            ) from None
        if not reached():
            raise self._cannot("has ended")

    def _find(self, codec: Codec[T], key: str, consistency: Consistency) -> Record[T] | None:
        """Returns a record, also of an absent key; None if the server has to be asked."""
        try:
            revision = self._feed.state.revision
            entry = self._entry(key, consistency)
        except NotCached:
            return None
        if entry is not None:
            return entry.as_model(codec)
        absent = pb.Record(key=key, context=pb.CausalContext(prefix=revision))
        return Record(self._space, codec, absent, revision)

    def __repr__(self) -> str:
        state = "live" if self.is_live else "ended" if self._feed.failure is not None else "not connected"
        return f"NearCache({self._space.name!r}, {len(self)} records, revision={self.revision}, {state})"

    def _entry(self, key: str, consistency: Consistency) -> Entry | None:
        state = self._feed.state
        # Looked at before the entry, which may then be newer than this, never older.
        revision = state.revision
        if consistency == "causal":
            needed = self._causal.needed(self._space.name)
            if needed is None or revision < needed or needed < state.epoch_floor or not state.live:
                self._check(state, revision, consistency)
        else:
            self._check(state, revision, consistency)
        entry = state.entries.get(key)
        if revision != self._seen:
            self._saw(revision)
        if entry is None:
            checked_key(key)
            return None
        if entry.ends_ms != math.inf:
            self._unexpired(entry)
        return entry

    def _check(self, state: CacheState, revision: int, consistency: Consistency) -> None:
        """Checks that reads of this kind can be answered by ``state`` as of ``revision``.

        Raises:
            NotCached: they cannot.
            RuntimeError: its block was never entered, so they never could be.
        """
        if self._loop is None:
            raise RuntimeError("the near cache has not begun: enter its block first")
        if consistency == "stale":
            if not state.filled:
                raise self._cannot("holds nothing")
        elif consistency == "causal":
            needed = self._causal.needed(self._space.name)
            if not state.live:
                raise self._cannot("does not follow the server at the moment")
            if needed is None or revision < needed:
                raise self._cannot(f"is at revision {revision}, this client has seen {needed or 'more'}")
            if 0 < needed < state.epoch_floor:
                # It may be among the revisions that the change of epoch has lost: only the server knows.
                raise self._cannot(f"is in a later epoch than revision {needed}, which this client has seen")
        elif consistency == "linearizable":
            raise self._cannot("never answers linearizable reads")
        else:
            raise InvalidArgument(f"consistency: {consistency!r} is not causal, stale or linearizable")

    def _unexpired(self, entry: Entry) -> Entry:
        if entry.ends_ms != math.inf and self._feed.time.may_have_passed(entry.ends_ms):
            raise self._cannot(f"cannot tell whether {entry.record.key!r} has expired")
        return entry

    def _saw(self, revision: int) -> None:
        self._seen = revision
        if threading.get_ident() == self._thread:
            self._note(revision)
        else:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._note, revision)

    def _note(self, revision: int) -> None:
        self._causal.saw(self._space.name, revision, linearizable=False)

    def _cannot(self, why: str) -> NotCached:
        failure = self._feed.failure
        if failure is not None:
            why = failure.message
        elif self._left:
            why = "has ended: its block was left"
        return NotCached(f"the near cache of {self._space.name} {why}")
