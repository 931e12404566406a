"""Read sets: what a model saw before it decided, so that its decision is written only if that still holds.

A read-set token records, by namespace, the keys with the versions that were read and the collections with
the stamps that they had. Committing against it validates what is guarded, inside the commit for the
namespace that is written. So "the state that the model saw is still the newest when its decision is
written" survives a slow model call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from .errors import Refusal, invalid, too_large
from .limits import GUARDS_MAX, READ_SET_ENTRIES_MAX, READ_SET_NAMESPACES_MAX
from .names import check_collection, check_key, check_namespace
from .revision import NEVER_MS, REVISION_MAX
from .tokens import TOKEN_BYTES_MAX, TokenKind, seal, unseal

_NAMESPACE = struct.Struct(">HQHH")
_KEY = struct.Struct(">HQQ")
_COLLECTION = struct.Struct(">HBQQ")


class StampMode(StrEnum):
    """Which stamp of a collection a read depends on."""

    CHANGED = "changed"
    """Any change of a record in it: the reader used the values."""
    MEMBERS = "members"
    """Records that appeared or vanished: the reader used the list of keys."""


class KeySeen(NamedTuple):
    """A key as it was read: its version (0 without a live value) and when the value ends."""

    version: int
    expires_at_ms: int = NEVER_MS


class CollectionSeen(NamedTuple):
    """A collection as it was read: its stamp, and the first end of life among what was listed."""

    stamp: int
    expires_at_ms: int = NEVER_MS


class NamespaceSeen(NamedTuple):
    """What was seen of one namespace, all of it at revision ``revision`` or later.

    Attributes:
        revision: the oldest head at which something here was read.
        keys: by key.
        collections: by collection and mode.
    """

    revision: int
    keys: Mapping[str, KeySeen] = MappingProxyType({})
    collections: Mapping[tuple[str, StampMode], CollectionSeen] = MappingProxyType({})

    def revisions(self) -> Iterator[int]:
        """Yields every revision that is named; each may have been lost."""
        yield self.revision
        yield from (seen.version for seen in self.keys.values())
        yield from (seen.stamp for seen in self.collections.values())

    def is_as_seen(self, collection: str, mode: StampMode, stamp: int) -> bool:
        """Tells whether a collection that was read, and whose stamp is ``stamp`` now, has not changed since.

        A store need not keep the stamps of collections without records for ever. Then the stamp of every such
        collection rises to the newest that was forgotten, which says nothing about this one; but what lies not
        above the oldest reading had happened by then. A stamp that has fallen is that of another generation.
        """
        seen = self.collections[collection, mode].stamp
        return seen <= stamp <= max(seen, self.revision)


class Guard(NamedTuple):
    """What must not have changed: one key, or everything below a collection (``prefix`` ends in ``/``).

    The empty prefix guards everything that was read; an empty namespace means any. A list of a collection
    records no keys, so a guard also covers every list that contains what it names: the whole of it.
    """

    prefix: str
    namespace: str = ""

    def covers(self, namespace: str, name: str) -> bool:
        """Tells whether a key, or a collection that was listed, is guarded."""
        if self.namespace and self.namespace != namespace:
            return False
        prefix = self.prefix
        if not prefix or name == prefix or (prefix.endswith("/") and name.startswith(prefix)):
            return True
        return (not name or name.endswith("/")) and prefix.startswith(name)

    def check(self) -> None:
        """Checks the guard's form.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
        """
        if self.prefix.endswith("/"):
            check_collection(self.prefix, "guards.prefix")
        elif self.prefix:
            check_key(self.prefix, "guards.prefix")
        if self.namespace:
            check_namespace(self.namespace, "guards.namespace")


EVERYTHING = (Guard(""),)


class ReadSet(NamedTuple):
    """What a model saw, by namespace; at most 8 namespaces and 1,024 entries."""

    namespaces: Mapping[str, NamespaceSeen] = MappingProxyType({})

    def with_key(self, namespace: str, head: int, key: str, seen: KeySeen) -> ReadSet:
        """Returns the set with one more key. Of a key read twice the earlier version counts.

        Raises:
            Refusal: VALUE_TOO_LARGE.
        """
        part = self._part(namespace, head)
        if key in part.keys:
            return self
        return self._with(namespace, part._replace(keys={**part.keys, key: seen}))

    def with_keys(self, namespace: str, head: int, keys: Mapping[str, KeySeen]) -> ReadSet:
        """Returns the set with more keys, as :meth:`with_key`.

        Raises:
            Refusal: VALUE_TOO_LARGE.
        """
        part = self._part(namespace, head)
        return self._with(namespace, part._replace(keys={**keys, **part.keys}))

    def with_collection(
        self, namespace: str, head: int, collection: str, mode: StampMode, seen: CollectionSeen
    ) -> ReadSet:
        """Returns the set with one more collection. Of one read twice the earlier stamp counts.

        Raises:
            Refusal: VALUE_TOO_LARGE.
        """
        part = self._part(namespace, head)
        held = part.collections.get((collection, mode))
        if held is not None:
            # A later page has the same stamp if nothing happened; its values may end earlier.
            seen = CollectionSeen(held.stamp, min(held.expires_at_ms, seen.expires_at_ms))
        return self._with(namespace, part._replace(collections={**part.collections, (collection, mode): seen}))

    def guarded(self, guards: Iterable[Guard]) -> ReadSet:
        """Returns the part of the set that ``guards`` cover."""
        guards = tuple(guards)

        def covered(namespace: str, name: str) -> bool:
            return any(guard.covers(namespace, name) for guard in guards)

        parts = {
            namespace: NamespaceSeen(
                part.revision,
                {key: seen for key, seen in part.keys.items() if covered(namespace, key)},
                {name: seen for name, seen in part.collections.items() if covered(namespace, name[0])},
            )
            for namespace, part in self.namespaces.items()
        }
        return ReadSet({name: part for name, part in parts.items() if part.keys or part.collections})

    def revisions_of(self, namespace: str) -> Iterator[int]:
        """Yields every revision of ``namespace`` that the set names."""
        part = self.namespaces.get(namespace)
        if part is not None:
            yield from part.revisions()

    def advanced(
        self,
        namespace: str,
        keys: Mapping[str, KeySeen],
        collections: Mapping[tuple[str, StampMode], int],
    ) -> ReadSet:
        """Returns the set advanced over the reader's own commit.

        Only what was still as it had been seen, checked in that same commit, may be advanced: otherwise a
        change by somebody else would be hidden.

        Args:
            namespace: what was written.
            keys: what the commit left behind, by key.
            collections: the new stamps.
        """
        part = self.namespaces.get(namespace)
        if part is None:
            return self
        moved = {
            name: seen._replace(stamp=collections.get(name, seen.stamp)) for name, seen in part.collections.items()
        }
        new_keys = {key: keys.get(key, seen) for key, seen in part.keys.items()}
        return ReadSet({**self.namespaces, namespace: NamespaceSeen(part.revision, new_keys, moved)})

    def _part(self, namespace: str, head: int) -> NamespaceSeen:
        part = self.namespaces.get(namespace)
        if part is None:
            return NamespaceSeen(head)
        return part if part.revision <= head else part._replace(revision=head)

    def _with(self, namespace: str, part: NamespaceSeen) -> ReadSet:
        parts = {**self.namespaces, namespace: part}
        if len(parts) > READ_SET_NAMESPACES_MAX:
            raise too_large("read_set_token", len(parts), READ_SET_NAMESPACES_MAX, "namespaces")
        entries = sum(len(p.keys) + len(p.collections) for p in parts.values())
        if entries > READ_SET_ENTRIES_MAX:
            raise too_large("read_set_token", entries, READ_SET_ENTRIES_MAX, "entries")
        return ReadSet(parts)


NOTHING_READ = ReadSet()


def check_guards(guards: tuple[Guard, ...]) -> None:
    """Checks the guards of a commit.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    if len(guards) > GUARDS_MAX:
        raise too_large("guards", len(guards), GUARDS_MAX, "entries")
    for guard in guards:
        guard.check()


def encode_read_set(read_set: ReadSet) -> bytes:
    """Returns the token of a read set. Its size does not depend on the revisions, so advancing never breaks it.

    Raises:
        Refusal: VALUE_TOO_LARGE.
    """
    token = _sealed(read_set)
    if len(token) > TOKEN_BYTES_MAX:
        raise too_large("read_set_token", len(token), TOKEN_BYTES_MAX)
    return token


def read_set_room(read_set: ReadSet) -> int:
    """Returns by how many bytes a read set's token may still grow; below 0 it is too large already."""
    return TOKEN_BYTES_MAX - len(_sealed(read_set))


def key_seen_bytes(key: str) -> int:
    """Returns by how many bytes a key makes a read set's token larger."""
    return _KEY.size + len(key.encode())


def _sealed(read_set: ReadSet) -> bytes:
    parts: list[bytes] = []
    for namespace, part in read_set.namespaces.items():
        text = namespace.encode()
        parts.append(_NAMESPACE.pack(len(text), part.revision, len(part.keys), len(part.collections)) + text)
        for key, (version, ends_ms) in part.keys.items():
            text = key.encode()
            parts.append(_KEY.pack(len(text), version, ends_ms) + text)
        for (collection, mode), (stamp, ends_ms) in part.collections.items():
            text = collection.encode()
            parts.append(_COLLECTION.pack(len(text), mode is StampMode.MEMBERS, stamp, ends_ms) + text)
    return seal(TokenKind.READ_SET, b"".join(parts))


def decode_read_set(token: bytes, field_name: str = "read_set_token") -> ReadSet:
    """Returns the read set in a token.

    Raises:
        Refusal: INVALID_FIELD (damaged, another kind, a newer format) or VALUE_TOO_LARGE.
    """
    payload = unseal(TokenKind.READ_SET, token, field_name)
    try:
        namespaces = dict(_Reader(payload).namespaces())
    except (ValueError, struct.error, Refusal):
        raise invalid(field_name, "is damaged or not a token") from None
    if len(namespaces) > READ_SET_NAMESPACES_MAX:
        raise too_large(field_name, len(namespaces), READ_SET_NAMESPACES_MAX, "namespaces")
    entries = sum(len(part.keys) + len(part.collections) for part in namespaces.values())
    if entries > READ_SET_ENTRIES_MAX:
        raise too_large(field_name, entries, READ_SET_ENTRIES_MAX, "entries")
    return ReadSet(namespaces)


class _Reader:
    """Takes a token's payload apart; every name in it is one that a caller may use."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def namespaces(self) -> Iterator[tuple[str, NamespaceSeen]]:
        """Yields what was seen, by namespace.

        Raises:
            ValueError, struct.error, Refusal: the payload is none that was made by :func:`encode_read_set`.
        """
        names: set[str] = set()
        while self._at < len(self._payload):
            size, revision, key_count, collection_count = self._numbers(_NAMESPACE)
            namespace = self._text(size)
            check_namespace(namespace)
            if namespace in names:
                raise ValueError(namespace)
            names.add(namespace)
            keys = dict(self._key() for _ in range(key_count))
            collections = dict(self._collection() for _ in range(collection_count))
            if len(keys) < key_count or len(collections) < collection_count:
                raise ValueError(namespace)
            yield namespace, NamespaceSeen(revision, keys, collections)

    def _key(self) -> tuple[str, KeySeen]:
        size, version, ends_ms = self._numbers(_KEY)
        key = self._text(size)
        check_key(key)
        return key, KeySeen(version, ends_ms)

    def _collection(self) -> tuple[tuple[str, StampMode], CollectionSeen]:
        size, mode, stamp, ends_ms = self._numbers(_COLLECTION)
        if mode > 1:
            raise ValueError(mode)
        collection = self._text(size)
        check_collection(collection)
        return (collection, StampMode.MEMBERS if mode else StampMode.CHANGED), CollectionSeen(stamp, ends_ms)

    def _numbers(self, form: struct.Struct) -> tuple[int, ...]:
        numbers = form.unpack_from(self._payload, self._at)
        if max(numbers) > REVISION_MAX:
            raise ValueError(numbers)
        self._at += form.size
        return numbers

    def _text(self, size: int) -> str:
        end = self._at + size
        if end > len(self._payload):
            raise ValueError(size)
        text = self._payload[self._at : end].decode()
        self._at = end
        return text
