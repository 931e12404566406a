"""What else has to happen in the same commit when an item or the control state changes, whoever changes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from noosphere.consistency import Record

from ..memory.types import Call
from ..ports.store import Mutation, StoredEntry


class ItemChange(NamedTuple):
    """The part of one item, or of the control state, in a commit that is being decided.

    Attributes:
        key: the item's key.
        before: what is stored, a tombstone too; None if nothing is.
        record: the same, decoded.
        after: what the commit leaves behind; revision 0 in it is the commit's own.
        now_ms: store time of the decision.
    """

    key: str
    before: StoredEntry | None
    record: Record | None
    after: Record
    now_ms: int

    @property
    def version(self) -> int:
        """The version that is overwritten; 0 if the item had no live value."""
        return 0 if self.record is None else self.record.version(self.now_ms)


class ItemHook(Protocol):
    """Adds to every commit that changes an item, or the control state, of an open session."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the namespace that the hook decides on. They are read before, and checked in the commit."""
        ...

    def changed(self, entries: Mapping[str, StoredEntry | None], change: ItemChange) -> Iterable[Mutation]:
        """Returns what to write besides, to internal keys that no other part of the commit writes.

        Args:
            entries: what lies at :attr:`keys`.
            change: the item's change.
        """
        ...


class AccessObserver(Protocol):
    """Hears of explicit reads and writes of items; being packed into a prompt is none."""

    def accessed(self, call: Call, session_id: str, key: str) -> None:
        """Notes an access. Never waits and never fails; what it has heard may be lost with the process."""
        ...
