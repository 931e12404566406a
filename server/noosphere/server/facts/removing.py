"""Removes the words of what a ledger has forgotten from store, queue, caches and sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ..memory.cache_drops import CacheDrops
from ..ports.factstore import BATCH_MAX, FactContent, FactKey, FactStore
from ..ports.sources import REDACTED, SESSION, SOURCES_MAX, WORDS_MAX, Redaction
from ..ports.store import Mutation
from .contents import decode_body, decode_candidate, read_all
from .fresh import Fresh
from .ledger import SECRET, Ledger, Page, candidate_key, put, remove
from .suppression import SECRET_BYTES
from .telling import said_in
from .types import Candidate
from .unlearning import Forgotten, forgotten_key, suppress_candidate
from .waiting import WaitingWork, concerns

WORD_CHARS_MIN = 4
"""Shorter values would blot out half of every text; with the source they stand in they go all the same."""

NUMBER_CHARS_MIN = 6
"""The same of numbers, which are more often others'."""


class Removal:
    """Removes words.

    Args:
        ledger: where it is noted what still has to be removed.
        store: where claims are kept in words.
        waiting: work that is not done yet.
        redaction: overwrites sources.
        dropped: told of contents that are gone, so that no cache keeps them.
        entropy: makes secrets.
        cache_drops: has other processes drop what they keep of it.
    """

    def __init__(
        self,
        ledger: Ledger,
        store: FactStore,
        waiting: WaitingWork,
        redaction: Redaction,
        dropped: Callable[[Sequence[FactKey]], None],
        *,
        entropy: Callable[[int], bytes],
        cache_drops: CacheDrops,
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._fresh = Fresh(ledger, store)
        self._waiting = waiting
        self._redaction = redaction
        self._dropped = dropped
        self._entropy = entropy
        self._cache_drops = cache_drops

    async def begun(self, scope: str, fact_id: str) -> Forgotten | None:
        """Returns what is left of a fact that the ledger has forgotten, and whose words may still stand somewhere."""
        key = forgotten_key(fact_id)
        return (await self._ledger.read(scope, (key,), accepted=True)).get(key, Forgotten)

    async def words(self, scope: str, gone: Sequence[Forgotten]) -> tuple[Counter[str], tuple[str, ...]]:
        """Removes the words of forgotten facts everywhere but in the ledger, where there are none."""
        places: Counter[str] = Counter()
        keys = [FactKey(scope, one.fact_id, number) for one in gone for number in one.contents]
        contents = await self.read(keys)
        words = list(dict.fromkeys(word for content in contents for word in words_of(content)))
        references = list(dict.fromkeys(reference for one in gone for reference in one.references))
        places.update(await self.overwrite(references, words))
        places.update(await self._copies(gone, contents))
        concerned = await self._waiting.concerned(scope, {one.owner for one in gone}, references, words)
        await self._waiting.drop(scope, concerned)
        places["queue"] += len(concerned)
        places.update(await self.held(scope, await self._twins(scope, gone, references, words)))
        await self._waiting.erase_finished([candidate for one in gone for candidate in one.candidates])
        places["index"] += await self.drop(keys)
        mentions = await self._redaction.mentions(words[:WORDS_MAX]) if words else ()
        await self._ledger.change(
            scope,
            [forgotten_key(one.fact_id) for one in gone],
            lambda page: [remove(key) for key, entry in page.entries.items() if entry is not None],
        )
        return places, tuple(f"session {session_id!r} still holds some of its words" for session_id in mentions)

    async def held(self, scope: str, keys: Sequence[FactKey]) -> Counter[str]:
        """Removes candidates that are kept apart, and suppresses and overwrites what they rested on."""
        candidates = [decode_candidate(content.body) for content in await self.read(keys)]
        for candidate in candidates:

            def decide(page: Page, candidate: Candidate = candidate) -> list[Mutation]:
                secret = page.get(SECRET, bytes) or self._entropy(SECRET_BYTES)
                return [put(SECRET, secret), *suppress_candidate(page, secret, candidate)]

            await self._ledger.change(scope, (SECRET, candidate_key(candidate.id)), decide)
        places = await self.overwrite_said(candidates)
        await self._waiting.erase_finished(candidate.id for candidate in candidates)
        places["candidates"] += await self.drop(keys) if keys else 0
        return places

    async def overwrite_said(self, candidates: Sequence[Candidate]) -> Counter[str]:
        """Overwrites what candidates rest on, and their words; returns how many records of which place."""
        references = dict.fromkeys(evidence.reference for one in candidates for evidence in one.evidence)
        words = dict.fromkeys(word for one in candidates for word in candidate_words(one))
        return await self.overwrite(list(references), list(words))

    async def _twins(
        self, scope: str, gone: Sequence[Forgotten], references: Sequence[str], words: Sequence[str]
    ) -> list[FactKey]:
        """Finds candidates kept apart that forgotten facts came from, or that say or rest on the same."""
        owners = {one.owner for one in gone if one.with_twins}
        came_from = {candidate for one in gone if one.with_twins for candidate in one.candidates}
        found: list[FactKey] = []
        if not owners:
            return found
        async for part in self._fresh.held_parts(scope):
            for key, content in zip(part, await self._store.read(part), strict=True):
                if content is None or content.owner not in owners:
                    continue
                if content.fact_id in came_from or concerns(content.body, references, words):
                    found.append(key)
        return found

    async def _copies(self, gone: Sequence[Forgotten], contents: Sequence[FactContent]) -> Counter[str]:
        """Overwrites claims in sessions that the server itself brought them into, by which they are known there."""
        ids = [one.fact_id for one in gone]
        claims = list(dict.fromkeys(claim for content in contents for claim in long_enough((_claim(content),))))
        sessions: list[str] = []
        for start in range(0, len(ids), WORDS_MAX):
            sessions += await self._redaction.mentions(ids[start : start + WORDS_MAX])
        return await self.overwrite([SESSION + id for id in dict.fromkeys(sessions)], claims)

    async def overwrite(self, references: Sequence[str], words: Sequence[str]) -> Counter[str]:
        """Overwrites sources, and words in their sessions, however many; returns how many records of which place."""
        places: Counter[str] = Counter()
        for start in range(0, len(references), SOURCES_MAX):
            for first in range(0, max(len(words), 1), WORDS_MAX):
                part = references[start : start + SOURCES_MAX], words[first : first + WORDS_MAX]
                for redacted in await self._redaction.redact(*part):
                    places[redacted.place] += redacted.records
        # What is kept of sources is words of theirs.
        said_in.cache_clear()
        return places

    async def read(self, keys: Sequence[FactKey]) -> list[FactContent]:
        """Returns the contents that are there, however many are asked for."""
        return [one for one in await read_all(self._store, keys) if one is not None]

    async def drop(self, keys: Sequence[FactKey]) -> int:
        """Removes contents for good; returns how many there were."""
        count = 0
        for start in range(0, len(keys), BATCH_MAX):
            count += await self._store.remove(keys[start : start + BATCH_MAX])
        self._dropped(keys)
        await self._cache_drops.tell()
        return count


def words_of(content: FactContent) -> tuple[str, ...]:
    """Returns the texts of a fact that must stand nowhere any more: the claim, its value, the quoted words."""
    body = decode_body(content)
    return long_enough((body.text, *values(body.object), *(evidence.quote for evidence in body.evidence)))


def _claim(content: FactContent) -> str:
    return decode_body(content).text


def candidate_words(candidate: Candidate) -> tuple[str, ...]:
    """Returns the same of a candidate that is kept apart or waits."""
    quotes = (evidence.quote for evidence in candidate.evidence)
    return long_enough((candidate.text, *values(candidate.object), *quotes))


def values(object: str) -> tuple[str, ...]:
    """Returns the texts and numbers in a JSON value."""
    if not object:
        return ()
    found: list[str] = []
    pending = [msgspec.json.decode(object)]
    while pending:
        match pending.pop():
            case str(text):
                found.append(text)
            case bool() | None:
                pass
            case int() | float() as number:
                found += [str(number)] if len(str(number)) >= NUMBER_CHARS_MIN else []
            case list(items):
                pending += items
            case dict(fields):
                pending += fields.values()
            case _:
                pass
    return tuple(found)


def long_enough(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns those texts that may be overwritten wherever they stand, each once."""
    return tuple(dict.fromkeys(text for text in texts if len(text) >= WORD_CHARS_MIN and text != REDACTED))
