"""Which version of a fact counts: what the ledger says at a moment, whatever the fact store has found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..ports.factstore import FactKey
from ..ports.store import NamespaceView
from ..together import each
from .asked import SearchAsked
from .contents import content_key
from .ledger import FactNote, Ledger, VersionNote, fact_key
from .types import FactState


class Standing(NamedTuple):
    """A version of a fact that counts.

    Attributes:
        scope: where it is valid.
        note: what the ledger says of the fact.
        version: the version.
    """

    scope: str
    note: FactNote
    version: VersionNote

    @property
    def key(self) -> FactKey:
        """Names its content."""
        return content_key(self.scope, self.note.id, self.version)


def version_at(note: FactNote, as_of_ms: int | None) -> VersionNote | None:
    """Returns the version that was the newest at a store time; None if there was none yet."""
    if as_of_ms is None:
        return note.newest
    return next((version for version in reversed(note.versions) if version.recorded_ms <= as_of_ms), None)


def is_current(note: FactNote, version: VersionNote, as_of_ms: int | None) -> bool:
    """Tells whether a fact had not been superseded at a store time; ``version`` is its version then."""
    if as_of_ms is None:
        return note.state is FactState.CURRENT
    return version.valid_to_ms > as_of_ms


def standing(scope: str, note: FactNote, asked: SearchAsked, now_ms: int) -> Standing | None:
    """Returns the version of a fact that a search may show; None if it may show none.

    The store's filter has looked at all of this before, but at another moment. What decides is the ledger.
    """
    version = version_at(note, asked.as_of_ms)
    if version is None or not (asked.include_superseded or is_current(note, version, asked.as_of_ms)):
        return None
    if note.owner not in asked.owners or note.expires_at_ms <= asked.alive_at_ms(now_ms):
        return None
    if note.trust < asked.trust_min or (asked.memory_types and note.memory_type not in asked.memory_types):
        return None
    if asked.valid_after_ms is not None and version.valid_to_ms <= asked.valid_after_ms:
        return None
    if asked.valid_before_ms is not None and version.valid_from_ms >= asked.valid_before_ms:
        return None
    return Standing(scope, note, version)


class Standings(NamedTuple):
    """Those of some versions that count, in the order given, and each scope's ledger as it was read.

    Attributes:
        found: those that the store has found.
        fresh: those of facts that it may have missed.
        views: by scope.
    """

    found: tuple[Standing, ...]
    fresh: tuple[Standing, ...]
    views: Mapping[str, NamespaceView]


async def standings(
    ledger: Ledger, keys: Sequence[FactKey], asked: SearchAsked, fresh: Mapping[str, Sequence[str]]
) -> Standings:
    """Asks the ledgers of all scopes of a search which versions count.

    Args:
        ledger: the ledgers.
        keys: the versions that a store has found.
        asked: the search.
        fresh: ids of facts that it may have missed, by scope.
    """
    read = await each(ledger.read(scope, _fact_keys(scope, keys, fresh)) for scope in asked.scopes)
    pages = dict(zip(asked.scopes, read, strict=True))
    found = []
    for key in keys:
        page = pages[key.scope]
        note = page.get(fact_key(key.fact_id), FactNote)
        one = None if note is None else standing(key.scope, note, asked, page.view.now_ms)
        if one is not None and one.key == key:
            found.append(one)
    have = {one.key for one in found}
    missed = []
    for scope, ids in fresh.items():
        page = pages[scope]
        for id in ids:
            note = page.get(fact_key(id), FactNote)
            one = None if note is None else standing(scope, note, asked, page.view.now_ms)
            if one is not None and one.key not in have:
                missed.append(one)
    return Standings(tuple(found), tuple(missed), {scope: page.view for scope, page in pages.items()})


def _fact_keys(scope: str, keys: Sequence[FactKey], fresh: Mapping[str, Sequence[str]]) -> Iterable[str]:
    yield from (fact_key(key.fact_id) for key in keys if key.scope == scope)
    yield from map(fact_key, fresh.get(scope, ()))
