"""The names of all namespaces. A name is noted before its namespace is first written, so none is ever missing here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from itertools import groupby

from noosphere.consistency import to_hex

from ...ports.store import NamespaceRef
from .engine import Engine
from .fence import NAMES
from .scripts import Script

PAGE = 256
KNOWN_MAX = 65_536
"""Namespaces that this process knows to be noted; others cost one more round trip at their next commit."""

_LAST = b"\xff"
"""No UTF-8 text has this byte."""


class Catalogue:
    """See the module. An entry is name, generation and origin; text sorts them by name, then by generation."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: OrderedDict[bytes, int] = OrderedDict()

    async def note(self, ref: NamespaceRef) -> None:
        """Notes a namespace, once in each epoch: a failover may have lost it."""
        if self._known.get(ref.storage_id) == self._engine.epoch:
            return
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
        self._known[ref.storage_id] = epoch
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    async def pages(self, prefix: str = "", after: str = "") -> AsyncIterator[list[list[NamespaceRef]]]:
        """Goes over all noted namespaces in the order of their names, after ``after``.

        Yields:
            Pages of at most 256 entries: for each name its generations, the newest first.
        """
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
