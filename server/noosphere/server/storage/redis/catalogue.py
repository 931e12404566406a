"""The names of all namespaces. A name is noted before its namespace is first written, so none is ever missing here.

In a cluster a node may fail over that has the names but not the namespaces. So the first look in each epoch there goes
over what the nodes hold, and notes what is missing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from itertools import groupby

from noosphere.consistency import to_hex

from ...ports.store import STORAGE_ID_BYTES, NamespaceRef
from .engine import Engine
from .fence import META, NAMES
from .scripts import Script
from .survey import Node

PAGE = 256
KNOWN_MAX = 65_536
"""Namespaces that this process knows to be noted; others cost one more round trip at their next commit."""

SCAN_KEYS = 1_000
"""Keys that a node looks at in one step while names are looked for."""

_HEADERS = b"noosphere:{%b}:h" % (b"[0-9a-f]" * (2 * STORAGE_ID_BYTES))

_LAST = b"\xff"
"""No UTF-8 text has this byte."""


class Catalogue:
    """See the module. An entry is name, generation and origin; text sorts them by name, then by generation."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: OrderedDict[bytes, int] = OrderedDict()
        self._whole_in = 0
        self._making_whole = asyncio.Lock()

    async def note(self, ref: NamespaceRef) -> None:
        """Notes a namespace, once in each epoch: a failover may have lost it."""
        if self._known.get(ref.storage_id) != self._engine.epoch:
            self._known[ref.storage_id] = await self._register(ref)
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)

    async def _register(self, ref: NamespaceRef) -> int:
        """Notes a namespace; returns the epoch in which that was done."""
        name = ref.name.encode()
        generation = to_hex(ref.generation).encode()
        # The generation before this one stays until this one exists.
        earlier = to_hex(max(0, ref.generation - 1)).encode()
        epoch, _ = await self._engine.call(
            Script.REGISTER,
            NAMES,
            b"%b\0%b\0%b" % (name, generation, to_hex(ref.origin).encode()),
            b"[%b\0" % name,
            b"(%b\0%b" % (name, earlier),
        )
        return epoch

    async def _make_whole(self) -> None:
        """Notes what is missing, unless somebody has done so in this epoch."""
        async with self._making_whole:
            epoch = self._engine.epoch
            if self._whole_in == epoch:
                return
            if int(await self._engine.ask(META, "HGET", META, "named") or 0) < epoch:
                for node in await self._engine.nodes():
                    await self._note_all_of(node)
                await self._engine.ask(META, "HSET", META, "named", epoch)
            self._whole_in = epoch

    async def _note_all_of(self, node: Node) -> None:
        cursor = b"0"
        while True:
            cursor, keys = await self._engine.ask_node(
                node, "SCAN", cursor, "MATCH", _HEADERS, "COUNT", SCAN_KEYS, "TYPE", "hash"
            )
            asked = (self._engine.ask_node(node, "HMGET", key, "n", "g", "o") for key in keys)
            for name, generation, origin in await asyncio.gather(*asked):
                if name is not None:
                    await self._register(NamespaceRef(name.decode(), int(generation, 16), int(origin, 16)))
            if cursor == b"0":
                return

    async def pages(self, prefix: str = "", after: str = "") -> AsyncIterator[list[list[NamespaceRef]]]:
        """Goes over all noted namespaces in the order of their names, after ``after``.

        Yields:
            Pages of at most 256 entries: for each name its generations, the newest first.
        """
        if self._engine.clustered:
            await self._make_whole()
        first, bound = prefix.encode(), after.encode()
        low = b"(%b\0%b" % (bound, _LAST) if after and bound >= first else b"[%b" % first if first else b"-"
        high = b"(%b%b" % (first, _LAST) if first else b"+"
        while True:
            _, entries = await self._engine.call(Script.NAMES, NAMES, low, high, PAGE)
            refs = [_ref_of(entry) for entry in entries]
            # Generations of one name are few and never parted: the page's last name is read with the next page.
            more = len(entries) == PAGE
            named = [list(group)[::-1] for _, group in groupby(refs, key=lambda ref: ref.name)]
            if more and len(named) > 1:
                named.pop()
            if named:
                yield named
                low = b"(%b\0%b" % (named[-1][0].name.encode(), _LAST)
            if not more:
                return


def _ref_of(entry: bytes) -> NamespaceRef:
    name, generation, origin = entry.rsplit(b"\0", 2)
    return NamespaceRef(name.decode(), int(generation, 16), int(origin, 16))
