"""Taking back what one agent has written: what a key was before, as the log tells it, is written again.

Nothing is undone in silence and nothing is rewritten: each key that goes back gets an ordinary commit in the name of
whoever asks for it, on the condition that it is still as it was read. What somebody else has written since is left
alone, unless it is forced; what the log does not tell any more is left alone always.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from typing import NamedTuple

from noosphere.consistency import (
    NEVER_MS,
    ChangeKind,
    MergeType,
    Precondition,
    Put,
    Record,
    Refusal,
    Sibling,
    check_agent_id,
    check_namespace,
    exhausted,
    invalid,
)

from ..ports.store import Compacted, LoggedBatch, NamespaceRef
from .admission import require_writer
from .codec import decode_entry, decode_events, decode_record
from .core import Core
from .directory import SYSTEM_PREFIX
from .internal import is_internal
from .types import Call, DeleteOp, PutOp
from .writes import Writes

KEYS_MAX = 10_000
"""Keys of one namespace that an agent has written; more take several calls with a later beginning."""

REPORTED_MAX = 1_000
_BATCHES = 256
_PAGE = 128
_FACTS = "facts/"
_WRITES = frozenset({ChangeKind.PUT, ChangeKind.DELETE, ChangeKind.MERGE, ChangeKind.COMPLETE})


class Outcome(StrEnum):
    """What becomes of a key."""

    RESTORED = "restored"
    """It gets the value that it had before."""
    DELETED = "deleted"
    """It had no value before, and gets none."""
    UNCHANGED = "unchanged"
    """It is already as it was before."""
    CONFLICT = "conflict"
    """Somebody else has written it since; it is left alone."""
    COMPACTED = "compacted"
    """The log does not tell any more what it was before; it is left alone."""
    UNSUPPORTED = "unsupported"
    """It is, or was, merged, or had several values; it is left alone."""
    RESERVED = "reserved"
    """It is kept by a service, which takes back what is in it by calls of its own."""
    REFUSED = "refused"
    """The write was refused, as when somebody was faster."""


class Reverted(NamedTuple):
    """A key, and what becomes of it.

    Attributes:
        namespace: where.
        key: which.
        outcome: what becomes of it.
        revision: the commit that put it back; 0 for none.
        last_writer: who has written it last, as ``agent#incarnation``.
    """

    namespace: str
    key: str
    outcome: Outcome
    revision: int = 0
    last_writer: str = ""


class Report(NamedTuple):
    """What was done, or would be: at most 1,000 keys, and how many of each outcome."""

    keys: tuple[Reverted, ...]
    counts: tuple[tuple[Outcome, int], ...]


class Wanted(NamedTuple):
    """What is to be taken back.

    Attributes:
        agent_id: whose writes.
        namespace: where; empty for everywhere.
        after: those after this revision, of one namespace; None goes by time.
        after_ms: those after this store time.
        force: go back to before the agent's first write, over whatever somebody else has written since.
    """

    agent_id: str
    namespace: str = ""
    after: int | None = None
    after_ms: int = 0
    force: bool = False

    def is_meant(self, batch: LoggedBatch) -> bool:
        """Tells whether a commit is late enough."""
        return batch.revision > self.after if self.after is not None else batch.time_ms > self.after_ms


class _Unknown:
    """What a key was before the log begins."""


_UNKNOWN = _Unknown()
_State = Record | _Unknown | None


class History:
    """What the log tells of one key, change by change."""

    __slots__ = ("first", "last_writer", "latest", "state", "theirs")

    def __init__(self) -> None:
        self.state: _State = _UNKNOWN
        self.first: _State = _UNKNOWN
        self.latest: _State = _UNKNOWN
        self.last_writer = ""
        self.theirs = False

    def note(self, after: Record | None, writer: str, *, meant: bool, first: bool) -> None:
        """Takes one change.

        Args:
            after: what the key is after it.
            writer: who wrote; "" for one that nobody did, as an expiry.
            meant: whether it is to be taken back.
            first: whether it is the first that is.
        """
        if meant:
            before: _State = self.state
            if before is _UNKNOWN and after is not None and after.change_count == 1:
                before = None
            if first:
                self.first = before
            if not self.theirs:
                self.latest = before
        if writer:
            self.theirs, self.last_writer = meant, writer
        self.state = after


class Reverting:
    """Takes back writes.

    Args:
        core: knows namespaces and their logs.
        writes: writes.
    """

    def __init__(self, core: Core, writes: Writes) -> None:
        self._core = core
        self._writes = writes

    async def revert(self, call: Call, wanted: Wanted, *, dry_run: bool) -> Report:
        """Puts back what keys were before an agent wrote them.

        Args:
            call: in whose name it is written.
            wanted: what is to be taken back.
            dry_run: only tell what would be.

        Raises:
            Refusal: INVALID_FIELD; LIMIT_EXCEEDED, for too many keys in one namespace, of which none is then touched;
                ENGINE_UNAVAILABLE; a reason that concerns the caller.
        """
        require_writer(call)
        self._core.require_current(call)
        check_agent_id(wanted.agent_id)
        if wanted.namespace:
            check_namespace(wanted.namespace)
        elif wanted.after is not None:
            raise invalid("namespace", "is required with a revision, which means nothing in other namespaces")
        keys: list[Reverted] = []
        counts: Counter[Outcome] = Counter()
        async for name in self._namespaces(wanted.namespace):
            for one in await self._in(call, wanted, name, dry_run=dry_run):
                counts[one.outcome] += 1
                if len(keys) < REPORTED_MAX:
                    keys.append(one)
        return Report(tuple(keys), tuple(sorted(counts.items())))

    async def _namespaces(self, namespace: str) -> AsyncIterator[str]:
        if namespace:
            yield namespace
            return
        after = ""
        while True:
            page = await self._core.store.namespaces("", after, _PAGE)
            for summary in page:
                after = summary.ref.name
                # Ledgers of facts and the server's own are nobody's to write.
                if not summary.deleted and not after.startswith((SYSTEM_PREFIX, _FACTS)):
                    yield after
            await asyncio.sleep(0)
            if len(page) < _PAGE:
                return

    async def _in(self, call: Call, wanted: Wanted, name: str, *, dry_run: bool) -> list[Reverted]:
        ref = await self._core.directory.reload(name)
        touched: set[str] = set()

        def look(batch: LoggedBatch) -> None:
            for key, _, events in batch.changes:
                if not is_internal(key) and wanted.is_meant(batch) and _author(events, wanted.agent_id)[1]:
                    touched.add(key)
            if len(touched) > KEYS_MAX:
                raise exhausted("namespace", len(touched), KEYS_MAX, f"too many keys in {name!r}; begin later")

        await self._read(ref, look)
        if not touched:
            return []
        histories = {key: History() for key in sorted(touched)}
        met: set[str] = set()

        def follow(batch: LoggedBatch) -> None:
            for key, data, events in batch.changes:
                history = histories.get(key)
                if history is None:
                    continue
                writer, theirs = _author(events, wanted.agent_id)
                meant = theirs and wanted.is_meant(batch)
                after = None if data is None else decode_record(data, batch.revision)
                history.note(after, writer, meant=meant, first=meant and key not in met)
                if meant:
                    met.add(key)

        await self._read(ref, follow)
        return [await self._back(call, wanted, name, key, history, dry_run) for key, history in histories.items()]

    async def _read(self, ref: NamespaceRef, take: Callable[[LoggedBatch], None]) -> None:
        """Reads a log from where it begins to its end."""
        after = (await self._core.store.read(ref, ())).view.floor
        while True:
            page = await self._core.store.changes(ref, after, _BATCHES)
            if isinstance(page, Compacted):
                # It was trimmed meanwhile; what has gone tells no more of what was before.
                after = page.floor
                continue
            for batch in page.batches:
                after = batch.revision
                take(batch)
            if not page.more:
                return
            await asyncio.sleep(0)

    async def _back(self, call: Call, wanted: Wanted, name: str, key: str, history: History, dry_run: bool) -> Reverted:
        def told(outcome: Outcome, revision: int = 0) -> Reverted:
            return Reverted(name, key, outcome, revision, history.last_writer)

        if self._core.extension.concerns(name) and self._core.extension.reserved(key):
            return told(Outcome.RESERVED)
        if not history.theirs and not wanted.force:
            return told(Outcome.CONFLICT)
        # Forced it goes back to the same place however often, whatever was put there meanwhile.
        before = history.first if wanted.force else history.latest
        if isinstance(before, _Unknown):
            return told(Outcome.COMPACTED)
        ref = await self._core.locate(name)
        read = await self._core.store.read(ref, (key,))
        present, now_ms = decode_entry(read.entries[0]), read.view.now_ms
        if _is_merged(before) or _is_merged(present) or len(_live(before, now_ms)) > 1:
            return told(Outcome.UNSUPPORTED)
        if _content(before, now_ms) == _content(present, now_ms):
            return told(Outcome.UNCHANGED)
        live = _live(before, now_ms)
        outcome = Outcome.RESTORED if live else Outcome.DELETED
        if dry_run:
            return told(outcome)
        version = 0 if present is None else present.version(now_ms)
        when = Precondition(expected_version=version)
        try:
            if live:
                assert before is not None, "it had a value"
                reply = await self._writes.put(call, name, PutOp(key, _put(before, live[0], when)))
            else:
                reply = await self._writes.delete(call, name, DeleteOp(key, when))
        except Refusal:
            return told(Outcome.REFUSED)
        return told(outcome, reply.revision)


def _author(events: bytes, agent_id: str) -> tuple[str, bool]:
    """Returns who has written a key last in a commit, "" for nobody, and whether that is the agent."""
    writer = ""
    for event in decode_events(events):
        if event.kind in _WRITES:
            writer = event.actor
    return writer, writer.rpartition("#")[0] == agent_id


def _live(record: Record | None, now_ms: int) -> tuple[Sibling, ...]:
    return () if record is None else record.live(now_ms)


def _is_merged(record: Record | None) -> bool:
    return record is not None and record.merge_type is not MergeType.NONE


def _content(record: Record | None, now_ms: int) -> object:
    live = _live(record, now_ms)
    if record is None or not live:
        return None
    return [(one.data, one.encoding, one.expires_at_ms) for one in live], record.attributes


def _put(record: Record, value: Sibling, when: Precondition) -> Put:
    assert value.data is not None, "it is alive"
    ends_ms = None if value.expires_at_ms == NEVER_MS else value.expires_at_ms
    return Put(value.data, value.encoding, record.attributes, expires_at_ms=ends_ms, precondition=when)
