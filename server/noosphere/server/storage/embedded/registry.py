"""Which namespaces there are, loaded or not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from sortedcontainers import SortedDict

from noosphere.consistency import Reason, Refusal

from ...ports.store import NamespaceRef
from .namespace import Namespace

ENDED_MAX = 4_096
"""Tombstones of volatile namespaces that are kept, for those who still watch them."""


class Registry:
    """Namespaces by storage id, and the newest synced generation of each by name."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, Namespace] = {}
        self._by_name: Any = SortedDict()
        self._ended: deque[Namespace] = deque()

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Namespace]:
        return iter(self._by_id.values())

    def get(self, storage_id: bytes) -> Namespace | None:
        """Returns a namespace by its id."""
        return self._by_id.get(storage_id)

    def find(self, ref: NamespaceRef) -> Namespace | None:
        """Returns the namespace of ``ref``, or what stands for it: a tombstone if a newer generation exists.

        Raises:
            Refusal: INVALID_FIELD, if another name has the same storage id.
        """
        found = self._by_id.get(ref.storage_id)
        if found is not None:
            if found.ref.name != ref.name:
                raise Refusal(
                    Reason.INVALID_FIELD, f"namespace: {ref.name!r} and {found.ref.name!r} share a storage id"
                )
            return found
        newest: Namespace | None = self._by_name.get(ref.name)
        if newest is None or newest.ref.generation < ref.generation:
            return None
        ghost = Namespace(ref)
        ghost.exists = ghost.deleted = True
        ghost.head = newest.ref.origin
        return ghost

    def add(self, namespace: Namespace) -> None:
        """Adds an accepted namespace; it is not listed before :meth:`publish`."""
        self._by_id[namespace.ref.storage_id] = namespace

    def publish(self, namespace: Namespace) -> Namespace | None:
        """Lists a synced namespace; returns the older generation that it replaces, which is forgotten."""
        name = namespace.ref.name
        older: Namespace | None = self._by_name.get(name)
        if older is namespace or (older is not None and older.ref.generation > namespace.ref.generation):
            return None
        self._by_name[name] = namespace
        if older is not None:
            self._by_id.pop(older.ref.storage_id, None)
        return older

    def end(self, namespace: Namespace) -> None:
        """Keeps the tombstone of a volatile namespace for a while: its name is never used again."""
        self._ended.append(namespace)
        if len(self._ended) > ENDED_MAX:
            oldest = self._ended.popleft()
            if self._by_name.get(oldest.ref.name) is oldest:
                del self._by_name[oldest.ref.name]
            self._by_id.pop(oldest.ref.storage_id, None)

    def listing(self, prefix: str, after: str, count: int) -> list[Namespace]:
        """Returns up to ``count`` listed namespaces with a name that begins with ``prefix``, after a name."""
        names = self._by_name.irange(minimum=max(prefix, after), inclusive=(not after or after < prefix, True))
        found = []
        for name in islice(names, count):
            if not name.startswith(prefix):
                break
            found.append(self._by_name[name])
        return found
