"""What a kind of namespace adds to the writes of shared memory, without shared memory knowing of it.

Sessions keep records of their own beside what agents write, some of which must be written in the same commit.
An extension says which keys it has to read for that, may refuse a write, and adds checks and mutations to its
commit. It is asked on every path: put, delete, merge, resolve, transactions, commits, claims and reservations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from noosphere.consistency import Decision, NamespacePolicy, Record, invalid

from ..ports.store import Check, Mutation, NamespaceRef, NamespaceView, StoredEntry, WorkingStore
from .types import AppendOp, Call


class Change(NamedTuple):
    """One key's part of a commit that is being decided; ``before`` and ``record`` are what is stored."""

    key: str
    before: StoredEntry | None
    record: Record | None
    decision: Decision


class ExtendedWrite(NamedTuple):
    """A write that an extension may add to.

    Attributes:
        call: who writes.
        ref: where.
        view: the namespace as it was read.
        policy: its rules.
        entries: what lies at the keys that the extension has asked for.
        appends: what is to be appended, in order.
        awaited: calls of tools that must have finished.
    """

    call: Call
    ref: NamespaceRef
    view: NamespaceView
    policy: NamespacePolicy
    entries: Mapping[str, StoredEntry | None]
    appends: tuple[AppendOp, ...] = ()
    awaited: tuple[str, ...] = ()


class Additions(NamedTuple):
    """What an extension adds to a commit.

    Attributes:
        checks: what must hold in it.
        mutations: what it writes besides, after the write's own mutations.
        appended: by append, the revision of what was known already; 0 for what this commit appends.
        fresh_count: how many records are new that count towards the namespace's limit.
    """

    checks: tuple[Check, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    appended: tuple[int, ...] = ()
    fresh_count: int = 0


NO_ADDITIONS = Additions()


class WriteExtension(Protocol):
    """Adds to the writes of some namespaces."""

    def concerns(self, namespace: str) -> bool:
        """Tells whether anything below is to be asked about a namespace."""
        ...

    def reserved(self, key: str) -> bool:
        """Tells whether a key is not the callers' to write."""
        ...

    def check(
        self, namespace: str, keys: Iterable[str], appends: tuple[AppendOp, ...], awaited: tuple[str, ...]
    ) -> None:
        """Checks the form of a write before anything is read.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
        """
        ...

    def keys(self, appends: tuple[AppendOp, ...], awaited: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the keys that the extension decides on. They are read with the write's own."""
        ...

    def written(self, appends: tuple[AppendOp, ...]) -> tuple[str, ...]:
        """Returns the keys that appends write; of each only the collections above it need be true."""
        ...

    def admit(self, write: ExtendedWrite) -> None:
        """Refuses a write before it is decided.

        Raises:
            Refusal: what keeps the namespace from being written.
        """
        ...

    async def extend(
        self, store: WorkingStore, write: ExtendedWrite, changes: tuple[Change, ...], offset: int
    ) -> Additions:
        """Returns what to add to a commit.

        Args:
            store: for reads that depend on the changes.
            write: the write.
            changes: what it does, without what changes nothing.
            offset: how many mutations the commit has already; the first added one has this index.

        Raises:
            Refusal: what cannot be done.
        """
        ...

    def trailing(self, key: str) -> str:
        """Returns the collection of internal records that go with the internal record at ``key`` when that has ended.

        They are removed in the same commit, so there must never be more than one commit holds; empty for none.
        """
        ...

    def accessed(self, call: Call, namespace: str, keys: Iterable[str]) -> None:
        """Hears of an explicit read or write by a caller. Never waits and never fails."""
        ...


class NoExtension:
    """Concerns no namespace."""

    def concerns(self, namespace: str) -> bool:
        """Returns False."""
        return False

    def reserved(self, key: str) -> bool:
        """Returns False."""
        return False

    def check(
        self, namespace: str, keys: Iterable[str], appends: tuple[AppendOp, ...], awaited: tuple[str, ...]
    ) -> None:
        """Refuses what only sessions understand."""
        check_plain(namespace, appends, awaited)

    def keys(self, appends: tuple[AppendOp, ...], awaited: tuple[str, ...]) -> tuple[str, ...]:
        """Returns none."""
        return ()

    def written(self, appends: tuple[AppendOp, ...]) -> tuple[str, ...]:
        """Returns none."""
        return ()

    def admit(self, write: ExtendedWrite) -> None:
        """Admits everything."""

    async def extend(
        self, store: WorkingStore, write: ExtendedWrite, changes: tuple[Change, ...], offset: int
    ) -> Additions:
        """Adds nothing."""
        return NO_ADDITIONS

    def trailing(self, key: str) -> str:
        """Returns none."""
        return ""

    def accessed(self, call: Call, namespace: str, keys: Iterable[str]) -> None:
        """Does nothing."""


def check_plain(namespace: str, appends: tuple[AppendOp, ...], awaited: tuple[str, ...]) -> None:
    """Refuses in a namespace that is no session's what only sessions understand.

    Raises:
        Refusal: INVALID_FIELD.
    """
    if appends:
        raise invalid("operations.append", f"needs the namespace of a session, not {namespace!r}")
    if awaited:
        raise invalid("awaited_calls", f"needs the namespace of a session, not {namespace!r}")
