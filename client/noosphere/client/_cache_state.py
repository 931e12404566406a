"""What a near cache holds: the records of one namespace, as of one revision, in bounded memory."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterable
from typing import Any

from noosphere.consistency import epoch_of, make_revision
from noosphere.v1 import types_pb2 as pb

from ._listing import ChangeEvent
from ._record import Record
from ._space import Space
from ._values import JSON, Codec, Payload

ENTRY_BYTES = 1664
"""What an entry costs beside its key and contents: objects of ours and of protobuf. With it the charge was above
the growth of resident memory for values of 16 bytes to 1 KiB, read or not."""

_STEP_ENTRIES = 256


class Entry:
    """One live record.

    Attributes:
        record: as any JSON value. Immutable and shared by all who ask for it.
        ends_ms: store time at which its first value ends, in milliseconds; infinite for never.
        size: bytes that it is charged with.
    """

    __slots__ = ("_as_model", "_payload", "_space", "ends_ms", "record", "size")

    def __init__(self, space: Space, source: pb.Record, revision: int) -> None:
        # A record that is part of a message keeps all of it in memory.
        own = pb.Record()
        own.CopyFrom(source)
        self._space = space
        self.record: Record[Any] = Record(space, JSON, own, revision)
        self.ends_ms = min((_ends_ms(live) for live in own.values), default=math.inf)
        # The contents count twice: as protobuf keeps them, and as the bytes that are handed out.
        self.size = ENTRY_BYTES + len(own.key) + 2 * own.ByteSize()
        self._payload: Payload | None = None
        self._as_model: tuple[Codec[Any], Record[Any]] | None = None

    @property
    def payload(self) -> Payload:
        """The one live value as it is stored, always the same object. Raises like ``Record.raw``."""
        payload = self._payload
        if payload is None:
            payload = self._payload = Payload(self.record.raw, self.record.encoding)
        return payload

    def as_model(self, codec: Codec[Any]) -> Record[Any]:
        """Returns the record with values of a model; the latest model's is kept."""
        if codec is JSON:
            return self.record
        kept = self._as_model
        if kept is None or kept[0] is not codec:
            shown = Record(self._space, codec, self.record._proto, self.record.head)
            kept = self._as_model = codec, shown
        return kept[1]


class CacheState:
    """The records as of one revision, between two times at which everything was forgotten.

    A reader in another thread sees entries that are at least as new as the revision that it looked at
    before: entries change first, and what is forgotten is replaced as a whole.

    Attributes:
        entries: live records by key.
        revision: every change up to this one is in ``entries``, and some of a snapshot's may be newer.
        epoch_floor: what every revision of the same epoch is above.
        live: whether a causal read may be answered: the snapshot is whole, and the watch is connected.
        filled: whether a whole snapshot is there, connected or not.
        size: bytes charged.
    """

    __slots__ = ("_horizon", "_lock", "_space", "entries", "epoch_floor", "filled", "live", "revision", "size")

    def __init__(self, space: Space) -> None:
        self._space = space
        self.entries: dict[str, Entry] = {}
        self.revision = 0
        self.epoch_floor = 0
        self.live = False
        self.filled = False
        self.size = 0
        self._horizon = 0
        # Held while the changes of one commit are made, so that no other thread lists half of them.
        self._lock = threading.Lock()

    def below(self, collection: str) -> list[Entry]:
        """Returns the entries of a collection in key order."""
        with self._lock:
            found = [key for key in self.entries if key.startswith(collection)]
            return [self.entries[key] for key in sorted(found)]

    async def fill(self, events: Iterable[ChangeEvent[Any]], revision: int) -> None:
        """Takes a whole snapshot that began at ``revision``; others get their turn meanwhile."""
        for number, event in enumerate(events):
            if number % _STEP_ENTRIES == 0:
                await asyncio.sleep(0)
            assert event.record is not None
            self._put(event.key, event.record._proto, revision)
            # Pages are read one after the other. Until the changes meanwhile are here as well, part of
            # what one commit wrote may be missing.
            self._horizon = max(self._horizon, event.record._proto.version)
        self.advance(revision)

    def change(self, events: Iterable[ChangeEvent[Any]], revision: int) -> None:
        """Takes the changes of one revision."""
        with self._lock:
            for event in events:
                # An expiry that the same commit overwrote has no record; what overwrote it follows.
                if event.record is None:
                    continue
                if event.record.exists:
                    self._put(event.key, event.record._proto, revision)
                elif (gone := self.entries.pop(event.key, None)) is not None:
                    self.size -= gone.size
        self.advance(revision)

    def advance(self, revision: int) -> None:
        """Takes note that everything up to ``revision`` is here."""
        self.epoch_floor = make_revision(epoch_of(revision), 0)
        self.revision = revision
        self.filled = self.live = revision >= self._horizon

    def _put(self, key: str, record: pb.Record, revision: int) -> None:
        entry = Entry(self._space, record, revision)
        before = self.entries.get(key)
        self.size += entry.size - (0 if before is None else before.size)
        self.entries[key] = entry


def _ends_ms(live: pb.LiveValue) -> float:
    if not live.HasField("expire_time"):
        return math.inf
    return live.expire_time.seconds * 1000 + live.expire_time.nanos // 1_000_000
