"""The collection that holds facts: found behind its alias, made where there is none, completed where it is older.

Facts are kept in a collection of a numbered name, and found by an alias, so that an index that was made anew takes the
place of the old one in one step. What never changes of a collection, and which model its vectors are of, stands in its
description, which is made together with it.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import msgspec

from noosphere.consistency import Refusal

from ...ports.factstore import StoreModel
from ..facts import bm25
from .access import BUCKETS_MAX, WeaviateAccess
from .calls import Calls, refused, unavailable
from .lineage import Lineage
from .naming import bucket_name
from .records import KEY, LENGTH, NAMES, PAYLOAD, SLICE, TERMS, TIMES, TRUST, VECTORED

FORMAT = 1
EXACT_BELOW = 40_000
"""What a filter leaves of a tenant is compared one by one up to so many versions; above, the graph is searched."""

_EF = 256
_TRIES_MAX = 4


class Stamp(msgspec.Struct, frozen=True):
    """What a collection says of itself.

    Attributes:
        format: of its properties; a newer one is not understood.
        buckets: how many tenants it has.
        model: name of the embedder that its vectors are of; empty if none.
        dimension: how many numbers each has.
        id: of the collection and of those that take its place with the same facts; none was given to it at first.
    """

    format: int
    buckets: int
    model: str
    dimension: int
    id: str = ""


class Collection(NamedTuple):
    """A collection that is ready.

    Attributes:
        name: its own, not its alias.
        buckets: how many tenants it has.
        model: which embedder its vectors are of.
        id: see :class:`Stamp`.
    """

    name: str
    buckets: int
    model: StoreModel
    id: str

    @property
    def tenants(self) -> list[str]:
        """The names of its tenants."""
        return [bucket_name(number) for number in range(self.buckets)]


def numbered(alias: str, number: int) -> str:
    """Returns the name of a collection behind an alias."""
    return f"{alias}_{number}"


def number_of(name: str) -> int:
    """Returns the number of a collection; 0 of one that has none."""
    _, _, number = name.rpartition("_")
    return int(number) if number.isdecimal() else 0


class Schema:
    """Finds and makes collections. Two servers may do so at once: both end with the same one.

    Args:
        calls: to Weaviate.
        access: what is to be made.
        lineage: which collection is the fleet's; without it whichever is there is used.
    """

    def __init__(self, calls: Calls, access: WeaviateAccess, lineage: Lineage | None = None) -> None:
        self._calls = calls
        self._access = access
        self._lineage = lineage

    async def ready(self, model: StoreModel) -> tuple[Collection, bool]:
        """Returns the collection of facts, and whether there was none; makes what is missing of it and its alias.

        Args:
            model: which embedder the vectors of a collection that is made are of.

        Raises:
            OtherCollection: it is not the fleet's.
            Refusal: ENGINE_UNAVAILABLE: Weaviate cannot be used, or what is there is of a newer format or not ours.
        """
        made = False
        for _ in range(_TRIES_MAX):
            name = await self.behind_alias()
            if name is None:
                # Where an alias was lost after its collection was made, the same name is there already.
                name = numbered(self._access.collection, 1)
                described = await self._described(name)
                self._check(None if described is None else self._stamp(name, described).id)
                made = made or described is None
                await self.make(name, model)
                await self.point(name)
                continue
            described = await self._described(name)
            if described is not None and not made:
                self._check(self._stamp(name, described).id)
            found = await self.read(name)
            if found is not None:
                if (number := number_of(name)) > 1:
                    # It may be that who made this one came to an end before the old one was removed.
                    await self.drop(numbered(self._access.collection, number - 1))
                return found, made
        # Its alias was left behind.
        self._check(None)
        raise unavailable(f"Weaviate at {self._access.url} changes collections all the time")

    async def behind_alias(self) -> str | None:
        """Returns the name of the collection that the alias points to, or None."""
        answer = await self._calls.ask("GET", f"/aliases/{self._access.collection}")
        if answer.status == 200 and isinstance(answer.body, dict) and isinstance(answer.body.get("class"), str):
            name: str = answer.body["class"]
            return name
        if answer.status == 404:
            return None
        raise self._refused(answer.text)

    async def point(self, name: str) -> None:
        """Points the alias to a collection, unless another server has made it meanwhile."""
        answer = await self._calls.ask("POST", "/aliases", {"alias": self._access.collection, "class": name})
        if answer.status not in (200, 201) and await self.behind_alias() is None:
            raise self._refused(answer.text)

    async def move(self, name: str) -> None:
        """Lets the alias, which is there, point to another collection."""
        answer = await self._calls.ask("PUT", f"/aliases/{self._access.collection}", {"class": name})
        if answer.status != 200:
            raise self._refused(answer.text)

    async def is_there(self, collection: Collection) -> bool:
        """Returns whether a collection that was known is still what is there."""
        found = await self._described(collection.name)
        return found is not None and self._stamp(collection.name, found).id == collection.id

    async def make(self, name: str, model: StoreModel, like: Collection | None = None) -> None:
        """Makes a collection, unless it is there; one of somebody else is refused, before an alias leads to it.

        Args:
            name: its name.
            model: which embedder its vectors are of.
            like: whose facts it will have; None for facts of its own.
        """
        buckets, id = (self._access.buckets, secrets.token_hex(8)) if like is None else (like.buckets, like.id)
        stamp = Stamp(FORMAT, buckets, model.name, model.dimension, id)
        answer = await self._calls.ask("POST", "/schema", self._definition(name, stamp))
        if answer.status == 200:
            return
        found = await self._described(name)
        if found is None:
            raise self._refused(answer.text)
        self._stamp(name, found)

    async def read(self, name: str) -> Collection | None:
        """Returns a collection, completed; None if it is not there."""
        found = await self._described(name)
        if found is None:
            return None
        stamp = self._stamp(name, found)
        collection = Collection(name, stamp.buckets, StoreModel(stamp.model, stamp.dimension), stamp.id)
        present = {one.get("name") for one in found.get("properties") or ()}
        for wanted in _PROPERTIES:
            if wanted["name"] not in present:
                answer = await self._calls.ask("POST", f"/schema/{name}/properties", wanted)
                if answer.status != 200 and "exist" not in answer.text:
                    raise self._refused(answer.text)
        await self._tenants(collection)
        return collection

    async def remodel(self, collection: Collection, model: StoreModel) -> Collection:
        """Notes that vectors are of another model from now on; there must be none yet."""
        found = await self._described(collection.name)
        if found is None:
            raise unavailable(f"the collection {collection.name} is gone")
        stamp = Stamp(FORMAT, collection.buckets, model.name, model.dimension, collection.id)
        body = {**found, "description": msgspec.json.encode(stamp).decode()}
        answer = await self._calls.ask("PUT", f"/schema/{collection.name}", body)
        if answer.status != 200:
            raise self._refused(answer.text)
        return collection._replace(model=model)

    async def begin_anew(self, model: StoreModel) -> None:
        """Puts an empty collection in the place of the one behind the alias, which is removed.

        Args:
            model: which embedder the vectors of the new one are of.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        old = await self.behind_alias()
        if old is None:
            await self.ready(model)
            return
        new = numbered(self._access.collection, number_of(old) + 1)
        # One that was begun before and cut off.
        await self.drop(new)
        await self.make(new, model)
        await self.read(new)
        await self.move(new)
        await self.drop(old)

    async def drop(self, name: str) -> None:
        """Removes a collection of ours and everything in it; one that is not there is no fault.

        Raises:
            Refusal: ENGINE_UNAVAILABLE; above all it is somebody else's, whose name is like ours.
        """
        found = await self._described(name)
        if found is None:
            return
        self._stamp(name, found)
        answer = await self._calls.ask("DELETE", f"/schema/{name}")
        if answer.status not in (200, 400, 404):
            raise self._refused(answer.text)

    async def freeze(self, collection: Collection, *, frozen: bool) -> None:
        """Lets the tenants of a collection take no writes any more, or take them again."""
        status = {"status": "READONLY" if frozen else "READY"}
        for tenant in collection.tenants:
            answer = await self._calls.ask("PUT", f"/schema/{collection.name}/shards/{tenant}", status)
            if answer.status != 200:
                raise self._refused(answer.text)

    async def _tenants(self, collection: Collection) -> None:
        path = f"/schema/{collection.name}/tenants"
        answer = await self._calls.ask("GET", path)
        if answer.status != 200 or not isinstance(answer.body, list):
            raise self._refused(answer.text)
        present = {one.get("name") for one in answer.body}
        missing = [{"name": name} for name in collection.tenants if name not in present]
        if missing:
            answer = await self._calls.ask("POST", path, missing)
            if answer.status != 200:
                raise self._refused(answer.text)

    async def _described(self, name: str) -> dict[str, Any] | None:
        answer = await self._calls.ask("GET", f"/schema/{name}")
        if answer.status == 404:
            return None
        if answer.status != 200 or not isinstance(answer.body, dict):
            raise self._refused(answer.text)
        # Where the name is an alias, what that leads to is described.
        return answer.body if answer.body.get("class") == name else None

    def _check(self, found: str | None) -> None:
        if self._lineage is not None:
            self._lineage.check(found)

    def _stamp(self, name: str, found: dict[str, Any]) -> Stamp:
        try:
            stamp = msgspec.json.decode(found.get("description") or "", type=Stamp)
        except msgspec.DecodeError:
            raise unavailable(
                f"the collection {name} of Weaviate was not made by this program; name another (weaviate_collection)"
            ) from None
        if stamp.format > FORMAT:
            raise unavailable(
                f"the collection {name} of Weaviate has the format {stamp.format}, of a newer version of this program; "
                f"this one reads up to {FORMAT}"
            )
        if not 1 <= stamp.buckets <= BUCKETS_MAX:
            raise unavailable(f"the collection {name} of Weaviate says that it has {stamp.buckets} buckets")
        return stamp

    def _refused(self, words: str) -> Refusal:
        return refused(f"Weaviate at {self._access.url}", words.strip()[:300])

    def _definition(self, name: str, stamp: Stamp) -> dict[str, Any]:
        return {
            "class": name,
            "description": msgspec.json.encode(stamp).decode(),
            "vectorizer": "none",
            "vectorIndexType": "hnsw",
            "vectorIndexConfig": {"distance": "dot", "flatSearchCutoff": EXACT_BELOW, "ef": _EF},
            "invertedIndexConfig": {
                "bm25": {"k1": bm25.SATURATION, "b": bm25.LENGTH_SHARE},
                "stopwords": {"preset": "none"},
            },
            "multiTenancyConfig": {"enabled": True, "autoTenantActivation": True},
            "replicationConfig": {"factor": self._access.replication, "deletionStrategy": "DeleteOnConflict"},
            "properties": _PROPERTIES,
        }


def _property(name: str, kind: str, *, searched: bool = False, filtered: bool = False, ranged: bool = False) -> Any:
    made: dict[str, Any] = {
        "name": name,
        "dataType": [kind],
        "indexFilterable": filtered,
        "indexRangeFilters": ranged,
    }
    if kind.startswith("text"):
        # Words are written without any white space, so this splits between them alone.
        made |= {"indexSearchable": searched, "tokenization": "whitespace" if searched else "field"}
    return made


_PROPERTIES = [
    _property(KEY, "text", filtered=True),
    _property(TERMS, "text[]", searched=True, filtered=True),
    _property(PAYLOAD, "text"),
    _property(LENGTH, "int"),
    _property(SLICE, "int", ranged=True),
    _property(VECTORED, "boolean", filtered=True),
    _property(TRUST, "number", ranged=True),
    *(_property(name, "text", filtered=True) for name in NAMES.values()),
    *(_property(name, "int", ranged=True) for name in TIMES.values()),
]
