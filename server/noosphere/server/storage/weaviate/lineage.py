"""Which collection is the fleet's: noted with the coordinator, so that another one in its place is noticed.

A Weaviate that lost its disk, another one at the same address, or a replica that names another collection answers as
ever, and finds nothing. So each collection has an id, which an index made anew takes over, and the fleet notes the id
of the one that it uses. What has another one is not used, and one that is missing is not made again, once it held
facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from noosphere.consistency import Reason, Refusal

from ...ports.tables import TRIES_MAX, Expected, Table
from .access import WeaviateAccess

TABLE = "fact_collection"
KEY = "weaviate"

ADVICE = (
    "correct weaviate_url and weaviate_collection if they lead to the wrong one; if words are lost, stop the servers "
    "and restore a dump, or give the words up by `noosphere facts adopt`"
)


class Noted(msgspec.Struct, frozen=True):
    """What a fleet notes of its collection.

    Attributes:
        id: of the collection; empty of one from before there were ids.
        name: ``weaviate_collection``.
        holds: whether it has ever held a fact. Nothing is lost with one that has not.
    """

    id: str
    name: str
    holds: bool


class OtherCollection(Refusal):
    """What Weaviate has is not the collection that the fleet uses."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.ENGINE_UNAVAILABLE, message)


class Tables(Protocol):
    """What is used of a coordinator."""

    def table(self, name: str) -> Table:
        """Returns a table."""
        ...

    async def put_entry(self, table: str, key: str, value: bytes | None, *, expected: Expected = ...) -> None:
        """Writes an entry."""
        ...


def decode(data: bytes | None) -> Noted | None:
    """Returns what is noted in an entry.

    Raises:
        Refusal: ENGINE_UNAVAILABLE, it is damaged.
    """
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Noted)
    except msgspec.MsgspecError as error:
        raise Refusal(
            Reason.ENGINE_UNAVAILABLE, f"what the coordinator notes of the collection of facts is damaged: {error}"
        ) from error


def difference(noted: Noted, name: str, found: str | None) -> str:
    """Returns in words how what was found differs from what is noted; empty if it does not, or nothing is lost.

    Args:
        noted: what is noted.
        name: the ``weaviate_collection`` of this server.
        found: id of the collection that is there; None if there is none.
    """
    if noted.name != name:
        return f"this server names the collection {name}, and the fleet's facts are in {noted.name}"
    if found is None:
        return f"the collection {name}, which held the fleet's facts, is gone" if noted.holds else ""
    if noted.id != found:
        return (
            f"{name} is another collection ({found or 'no id'}) than the fleet's, which is {noted.id or 'without id'}"
        )
    return ""


async def note(tables: Tables, noted: Noted | None) -> None:
    """Notes a collection, whatever was noted before; None forgets it.

    Raises:
        Refusal: ENGINE_UNAVAILABLE or CONTENTION.
    """
    if noted is not None or KEY in tables.table(TABLE):
        await tables.put_entry(TABLE, KEY, None if noted is None else msgspec.json.encode(noted))


class Lineage:
    """See the module.

    Args:
        tables: the coordinator.
        access: names the collection.
    """

    def __init__(self, tables: Tables, access: WeaviateAccess) -> None:
        self._tables = tables
        self._where = f"Weaviate at {access.url}"
        self._name = access.collection

    @property
    def noted(self) -> Noted | None:
        """What is noted, as this process knows it."""
        return decode(self._entry)

    def check(self, found: str | None) -> None:
        """Checks what is there before anything of it is used or changed.

        Args:
            found: id of the collection; None if there is none.

        Raises:
            OtherCollection: it is not the fleet's.
        """
        noted = self.noted
        if noted is not None and (why := difference(noted, self._name, found)):
            raise OtherCollection(f"{self._where}: {why}; {ADVICE}")

    def fits(self, found: str) -> bool:
        """Returns whether a collection is the one that is noted."""
        noted = self.noted
        return noted is not None and (noted.id, noted.name) == (found, self._name)

    @property
    def holds(self) -> bool:
        """Whether the noted collection has ever held a fact."""
        noted = self.noted
        return noted is not None and noted.holds

    async def take(self, found: str, *, holds: bool, made: bool) -> None:
        """Notes a collection as the fleet's, where none is noted.

        Args:
            found: its id.
            holds: whether there are facts in it.
            made: whether there was none before: then it may take the place of one that has never held a fact.

        Raises:
            OtherCollection: another one is noted.
            Refusal: ENGINE_UNAVAILABLE.
        """

        def settled(noted: Noted | None) -> bool:
            if noted is None or (made and not noted.holds and noted.id != found and noted.name == self._name):
                return False
            self.check(found)
            return True

        await self._note(Noted(found, self._name, holds), settled)

    async def hold(self, found: str) -> None:
        """Notes that facts are about to be written to a collection.

        Raises:
            OtherCollection: another one is noted.
            Refusal: ENGINE_UNAVAILABLE.
        """

        def settled(noted: Noted | None) -> bool:
            if noted is None:
                return False
            self.check(found)
            return noted.holds

        await self._note(Noted(found, self._name, holds=True), settled)

    @property
    def _entry(self) -> bytes | None:
        return self._tables.table(TABLE).get(KEY)

    async def _note(self, wanted: Noted, settled: Callable[[Noted | None], bool]) -> None:
        """Notes a collection unless what is noted settles the matter, whatever others note meanwhile."""
        for _ in range(TRIES_MAX):
            entry = self._entry
            if settled(decode(entry)):
                return
            try:
                await self._tables.put_entry(TABLE, KEY, msgspec.json.encode(wanted), expected=entry)
            except Refusal as refusal:
                if refusal.reason is not Reason.CONTENTION:
                    raise
            else:
                return
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "which collection of facts is the fleet's changes all the time")
