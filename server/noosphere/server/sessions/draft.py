"""What one commit does to a session, collected while it is being decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from noosphere.consistency import (
    NEVER_MS,
    Circumstances,
    Decision,
    Encoding,
    KeySeen,
    NamespacePolicy,
    Precondition,
    Put,
    Record,
    Scalar,
    decide_delete,
    decide_put,
)

from ..memory.codec import decode_entry
from ..memory.expiry import mutations_of
from ..memory.quotas import Growth
from ..memory.types import Call
from ..ports.store import Check, CollectionCheck, KeyCheck, Mutation, NamespaceView, ScanResult, StoredEntry
from .codec import encode_places
from .hooks import ItemChange, ItemHook
from .keys import id_key, is_item, is_saved
from .types import SessionInfo

_ANY_SLOT = "0"
"""Stands for the slot of a record that is being appended, whose collections matter and whose name is not known yet."""


class Look(NamedTuple):
    """A session as a call sees it: for a write what has been accepted, for a read what is synced.

    Attributes:
        session_id: whose.
        view: the namespace.
        info: what every write depends on; None if the session was never opened.
        entries: what lies at the keys that were asked for; None where nothing is.
        scans: what was found in the ranges that were asked for, in their order.
        items: all items that are live, if they were asked for; ``entries`` holds them too.
    """

    session_id: str
    view: NamespaceView
    info: SessionInfo | None
    entries: Mapping[str, StoredEntry | None]
    scans: tuple[ScanResult, ...] = ()
    items: tuple[StoredEntry, ...] = ()

    @property
    def now_ms(self) -> int:
        """Store time at which it was read."""
        return self.view.now_ms

    @property
    def session(self) -> SessionInfo:
        """What every write depends on, of a session that is known to be there."""
        assert self.info is not None, "asked of a session that was never opened"
        return self.info

    def record(self, key: str) -> Record | None:
        """Returns a visible record with a live value, None if there is none."""
        record = decode_entry(self.entries[key])
        return record if record is not None and record.version(self.now_ms) else None

    def internal(self, key: str) -> StoredEntry | None:
        """Returns an internal record that has not ended, None if there is none."""
        entry = self.entries[key]
        return entry if entry is not None and entry.live_until_ms > self.now_ms else None


class Draft:
    """Collects changes of visible and internal records. Visible ones get clock, time and event as any write does.

    Each key is changed at most once, and only keys that were read can be put or removed. ``offset`` is how many
    mutations the commit has before those of the draft.
    """

    def __init__(
        self, call: Call, look: Look, policy: NamespacePolicy, hooks: Sequence[ItemHook], *, offset: int = 0
    ) -> None:
        self.reply = b""
        """What to remember for a retry, at most 256 bytes."""
        self.not_after_ms = NEVER_MS
        """From then on the commit must not be made."""
        self.items_made = 0
        """How many more items there are after the commit; negative if there are fewer."""
        self.changes_items = False
        """Whether any item is changed, so that hooks had their say."""
        self._call = call
        self._look = look
        self._policy = policy
        self._hooks = hooks
        self._offset = offset
        self._visible: list[tuple[str, Decision]] = []
        self._slots: set[int] = set()
        self._internal: list[Mutation] = []
        self._checks: list[Check] = []

    def append(
        self,
        collection: str,
        data: bytes,
        attributes: tuple[tuple[str, Scalar], ...] = (),
        *,
        entry_id: tuple[str, str] | None = None,
    ) -> int:
        """Appends a record to a collection that is ordered by revision; appends never contend.

        Args:
            collection: ends in ``/``.
            data: the JSON value.
            attributes: what a list can be filtered by.
            entry_id: kind and id under which the record is found again, see ``keys.id_key``. The id's key must have
                been read.

        Returns:
            The index for ``keys.slot``, which names the record once the commit's revision is known.
        """
        self._slots.add(len(self._visible))
        index = self._offset + len(self._visible)
        put = Put(data, Encoding.JSON, attributes)
        self._visible.append((collection, decide_put(None, collection, put, self.at(collection))))
        if entry_id is not None:
            name = id_key(*entry_id)
            self.keep(name, encode_places(index, self._look.entries[name]))
        return index

    def put(
        self,
        key: str,
        data: bytes,
        attributes: tuple[tuple[str, Scalar], ...] = (),
        *,
        encoding: Encoding = Encoding.JSON,
        expires_at_ms: int | None = None,
    ) -> None:
        """Creates or replaces a visible record, whatever siblings it has."""
        record = decode_entry(self._look.entries[key])
        when = Precondition(expected_version=0 if record is None else record.version(self._look.now_ms))
        put = Put(data, encoding, attributes, expires_at_ms=expires_at_ms, precondition=when)
        self._change(key, record, decide_put(record, key, put, self.at(key)))

    def remove(self, key: str) -> None:
        """Leaves a tombstone in a visible record's place; nothing happens if it has no live value."""
        record = decode_entry(self._look.entries[key])
        version = 0 if record is None else record.version(self._look.now_ms)
        decision = decide_delete(record, key, Precondition(expected_version=version), self.at(key))
        if not decision.noop:
            self._change(key, record, decision)

    def change(self, key: str, decision: Decision) -> None:
        """Carries out a decision about a visible record that was read."""
        if not decision.noop:
            self._change(key, decode_entry(self._look.entries[key]), decision)

    def at(self, key: str) -> Circumstances:
        """Returns what a decision about ``key`` depends on besides the record."""
        view = self._look.view
        return Circumstances(
            now_ms=view.now_ms,
            actor=self._call.actor,
            policy=self._policy.for_key(key),
            private=False,
            floor_context=view.floor_context,
            item_bytes_max=self._policy.item_bytes_max,
        )

    def keep(self, key: str, data: bytes, *, live_until_ms: int = NEVER_MS) -> None:
        """Writes an internal record; it goes by itself when its time has come."""
        self._internal.append(Mutation(key, data, live_until_ms, live_until_ms, False, b""))

    def forget(self, key: str) -> None:
        """Removes an internal record; nothing happens if there is none."""
        if self._look.entries[key] is not None:
            self._internal.append(Mutation(key, None, 0, 0, False, b""))

    def note(self, change: ItemChange) -> None:
        """Adds what else has to happen when an item or the control state changes, in a commit that changes it."""
        self.changes_items = True
        if is_item(change.key):
            self.items_made += bool(change.after.live(change.now_ms)) - bool(change.version)
        for hook in self._hooks:
            self._internal.extend(hook.changed(self._look.entries, change))

    def require(self, *checks: KeyCheck | CollectionCheck) -> None:
        """Adds what must still hold in the commit, beside the keys that the call depends on anyway."""
        self._checks.extend(checks)

    @property
    def empty(self) -> bool:
        """Whether nothing is changed."""
        return not self._visible and not self._internal

    @property
    def fresh_count(self) -> int:
        """How many visible records are new."""
        return sum(
            index in self._slots or self._look.entries[key] is None for index, (key, _) in enumerate(self._visible)
        )

    @property
    def checks(self) -> tuple[Check, ...]:
        """What was required beside the keys."""
        return tuple(self._checks)

    @property
    def written(self) -> tuple[str, ...]:
        """The visible keys that are written; of an appended record only the collections above it are true."""
        return tuple(self._name(index, key) for index, (key, _) in enumerate(self._visible))

    def left_behind(self, revision: int) -> dict[str, tuple[int, KeySeen]]:
        """Returns by key the version before the commit at ``revision`` and what it left, to advance a read set."""
        now_ms = self._look.now_ms
        left: dict[str, tuple[int, KeySeen]] = {}
        for index, (key, decision) in enumerate(self._visible):
            after = decision.record
            assert after is not None, "only the sweeper removes records for good"
            before = None if index in self._slots else self._look.record(key)
            version = 0 if before is None else before.version(now_ms)
            seen = KeySeen(revision if after.live(now_ms) else 0, after.ends_ms(now_ms))
            left[self._name(index, key)] = version, seen
        return left

    def mutations(self) -> tuple[Mutation, ...]:
        """Returns everything for the store; the visible records come first, in the order of the calls."""
        made = mutations_of(self._visible, self._look.now_ms, self._policy.tombstone_retention_ms)
        visible = tuple(
            mutation._replace(rev_slot=True) if index in self._slots else mutation
            for index, mutation in enumerate(made)
        )
        return (*visible, *self._internal)

    def growth(self) -> Growth:
        """Returns by how much the commit makes the namespace larger."""
        entries = self._look.entries
        before = (entries.get(mutation.key) for mutation in self.mutations())
        size = sum(len(mutation.data or b"") for mutation in self.mutations())
        return Growth(self.fresh_count, size - sum(len(entry.data) for entry in before if entry is not None))

    def _change(self, key: str, record: Record | None, decision: Decision) -> None:
        self._visible.append((key, decision))
        if not is_saved(key):
            return
        assert decision.record is not None, "only the sweeper removes records for good"
        self.note(ItemChange(key, self._look.entries[key], record, decision.record, self._look.now_ms))

    def _name(self, index: int, key: str) -> str:
        return key + _ANY_SLOT if index in self._slots else key
