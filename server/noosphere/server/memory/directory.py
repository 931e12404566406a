"""Which generation of a namespace is the living one.

Generation 1 needs no entry. Opening a deleted namespace again writes an entry into a system namespace,
through the same store port as everything else. A cached answer may be old; the store then says that
the generation was dropped, and the entry is read anew.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from noosphere.consistency import NEVER_MS, Reason, Refusal, next_revision

from ..ports.store import Commit, Committed, Failed, KeyCheck, Mutation, NamespaceRef, WorkingStore

SYSTEM_PREFIX = "system/"
_DIRECTORY = NamespaceRef("system/namespaces")
_CACHE_MAX = 65_536


class _Entry(NamedTuple):
    generation: int
    origin: int


_decoder = msgspec.msgpack.Decoder(_Entry)


class Directory:
    """Resolves names to generations."""

    def __init__(self, store: WorkingStore) -> None:
        self._store = store
        self._cache: OrderedDict[str, NamespaceRef] = OrderedDict()

    def cached(self, name: str) -> NamespaceRef | None:
        """Returns the generation as last known, without waiting."""
        return self._cache.get(name)

    async def resolve(self, name: str) -> NamespaceRef:
        """Returns the living generation as last known."""
        return self._cache.get(name) or await self.reload(name)

    async def reload(self, name: str) -> NamespaceRef:
        """Returns the living generation as stored."""
        read = await self._store.read(_DIRECTORY, (name,))
        entry = read.entries[0]
        if entry is None:
            ref = NamespaceRef(name)
        else:
            generation, origin = _decoder.decode(entry.data)
            ref = NamespaceRef(name, generation, origin)
        self._remember(ref)
        return ref

    async def reopen(self, deleted: NamespaceRef, head: int) -> NamespaceRef:
        """Opens the generation after a deleted one, above its head; concurrent calls agree on one."""
        read = await self._store.read(_DIRECTORY, (deleted.name,), accepted=True)
        entry = read.entries[0]
        if entry is not None and _decoder.decode(entry.data).generation > deleted.generation:
            await self._store.settle(_DIRECTORY)
            return await self.reload(deleted.name)
        result = await self._store.commit(
            _DIRECTORY,
            Commit(
                epoch=read.view.epoch,
                config_version=0,
                checks=(KeyCheck(deleted.name, 0 if entry is None else entry.revision, entry is not None),),
                mutations=(
                    Mutation(
                        key=deleted.name,
                        # Not the old head itself: whoever read at that has not seen the deletion after it.
                        data=msgspec.msgpack.encode(
                            _Entry(deleted.generation + 1, next_revision(head, read.view.epoch))
                        ),
                        live_until_ms=NEVER_MS,
                        due_ms=NEVER_MS,
                        members=entry is None,
                        event=b"\x00",
                    ),
                ),
            ),
        )
        if not isinstance(result, (Committed, Failed)):
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the namespace directory answered a request that was never sent")
        # A failed check means that somebody else opened it in the meantime: then theirs is the one.
        return await self.reload(deleted.name)

    def _remember(self, ref: NamespaceRef) -> None:
        self._cache[ref.name] = ref
        if len(self._cache) > _CACHE_MAX:
            self._cache.popitem(last=False)
