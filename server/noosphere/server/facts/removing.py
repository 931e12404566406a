"""Removes the words of what a ledger has forgotten from store, queue, caches and sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import msgspec

from ..ports.factqueue import FactQueue, Job
from ..ports.factstore import BATCH_MAX, FactContent, FactKey, FactStore
from ..ports.sources import REDACTED, SOURCES_MAX, WORDS_MAX, Redaction
from .contents import HELD, decode_body, decode_candidate
from .intake import candidate_in, group_of
from .ledger import Ledger, remove
from .selecting import Wanted, means
from .types import Candidate
from .unlearning import Forgotten, forgotten_key

WORD_CHARS_MIN = 4
"""Shorter values would blot out half of every text; with the source they stand in they go all the same."""

NUMBER_CHARS_MIN = 6
"""The same of numbers, which are more often others'."""


class Removal:
    """Removes words.

    Args:
        ledger: where it is noted what still has to be removed.
        store: where claims are kept in words.
        queue: where candidates wait.
        redaction: overwrites sources.
        dropped: told of contents that are gone, so that no cache keeps them.
    """

    def __init__(
        self,
        ledger: Ledger,
        store: FactStore,
        queue: FactQueue,
        redaction: Redaction,
        dropped: Callable[[Sequence[FactKey]], None],
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._queue = queue
        self._redaction = redaction
        self._dropped = dropped

    async def words(self, scope: str, gone: Sequence[Forgotten]) -> tuple[Counter[str], tuple[str, ...]]:
        """Removes the words of forgotten facts everywhere but in the ledger, where there are none."""
        places: Counter[str] = Counter()
        keys = [FactKey(scope, one.fact_id, number) for one in gone for number in one.contents]
        contents = await self.read(keys)
        words = list(dict.fromkeys(word for content in contents for word in words_of(content)))
        references = list(dict.fromkeys(reference for one in gone for reference in one.references))
        places.update(await self.overwrite(references, words))
        places["queue"] += await self.queued(scope, None, gone, words)
        await self.erase_finished([candidate for one in gone for candidate in one.candidates])
        places["index"] += await self.drop(keys)
        mentions = await self._redaction.mentions(words[:WORDS_MAX]) if words else ()
        await self._ledger.change(
            scope,
            [forgotten_key(one.fact_id) for one in gone],
            lambda page: [remove(key) for key, entry in page.entries.items() if entry is not None],
        )
        return places, tuple(f"session {session_id!r} still holds some of its words" for session_id in mentions)

    async def overwrite(self, references: Sequence[str], words: Sequence[str]) -> Counter[str]:
        """Overwrites sources, and words in their sessions, however many; returns how many records of which place."""
        places: Counter[str] = Counter()
        for start in range(0, len(references), SOURCES_MAX):
            for first in range(0, max(len(words), 1), WORDS_MAX):
                part = references[start : start + SOURCES_MAX], words[first : first + WORDS_MAX]
                for redacted in await self._redaction.redact(*part):
                    places[redacted.place] += redacted.records
        return places

    async def waiting(self, scope: str, wanted: Wanted) -> list[Candidate]:
        """Returns the candidates of an owner that are meant and wait, or are being decided, or were given up."""
        if not wanted.owner or wanted.fact_id:
            return []
        is_meant = means(wanted)
        return [
            candidate
            async for job in self._jobs(scope, wanted.owner)
            if (candidate := candidate_in(job.body)) is not None and is_meant(candidate)
        ]

    async def take_out(self, candidates: Sequence[Candidate]) -> int:
        """Removes candidates from the queue; returns how many were there."""
        return await self._unqueue([candidate.id for candidate in candidates])

    async def erase_finished(self, candidate_ids: Iterable[str]) -> None:
        """Has what finished jobs said overwritten where the queue's file still has it."""
        # Which job is named makes no difference: whatever is gone is erased with it.
        for id in filter(None, candidate_ids):
            await self._queue.remove(ids=(id,))
            return

    async def queued(self, scope: str, wanted: Wanted | None, gone: Sequence[Forgotten], words: Sequence[str]) -> int:
        """Removes waiting work that is about what was forgotten."""
        owners = {one.owner for one in gone} | ({wanted.owner} if wanted is not None and wanted.owner else set())
        references = {reference for one in gone for reference in one.references}
        count = 0
        for owner in sorted(owners):
            if wanted is not None and wanted.all:
                count += await self._queue.remove(group=group_of(scope, owner))
                continue
            doomed = [
                job.id async for job in self._jobs(scope, owner) if _concerns(job.body, wanted, references, words)
            ]
            count += await self._unqueue(doomed)
        return count

    async def _jobs(self, scope: str, owner: str) -> AsyncIterator[Job]:
        """Streams an owner's jobs wherever they are."""
        group, after = group_of(scope, owner), ""
        while True:
            page = await self._queue.members(group, after, BATCH_MAX)
            for one in page:
                after = one.job.id
                yield one.job
            if len(page) < BATCH_MAX:
                return

    async def _unqueue(self, ids: Sequence[str]) -> int:
        count = 0
        for start in range(0, len(ids), BATCH_MAX):
            count += await self._queue.remove(ids=ids[start : start + BATCH_MAX])
        return count

    async def read(self, keys: Sequence[FactKey]) -> list[FactContent]:
        """Returns the contents that are there, however many are asked for."""
        found: list[FactContent] = []
        for start in range(0, len(keys), BATCH_MAX):
            found += [one for one in await self._store.read(keys[start : start + BATCH_MAX]) if one is not None]
        return found

    async def drop(self, keys: Sequence[FactKey]) -> int:
        """Removes contents for good; returns how many there were."""
        count = 0
        for start in range(0, len(keys), BATCH_MAX):
            count += await self._store.remove(keys[start : start + BATCH_MAX])
        self._dropped(keys)
        return count


def words_of(content: FactContent) -> tuple[str, ...]:
    """Returns the texts of a fact that must stand nowhere any more: the claim, its value, the quoted words."""
    if content.scope.startswith(HELD):
        candidate = decode_candidate(content.body)
        quotes = [evidence.quote for evidence in candidate.evidence]
        return long_enough((candidate.text, *values(candidate.object), *quotes))
    body = decode_body(content)
    return long_enough((body.text, *values(body.object), *(evidence.quote for evidence in body.evidence)))


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


def _concerns(body: bytes, wanted: Wanted | None, references: set[str], words: Sequence[str]) -> bool:
    """Tells whether a job is about what was forgotten: it names its evidence or holds its words."""
    text = body.decode("utf-8", "replace")
    if any(word in text or msgspec.json.encode(word).decode()[1:-1] in text for word in words):
        return True
    if any(f'"{reference}"' in text for reference in references):
        return True
    if wanted is None or not wanted.producer:
        return False
    return f'"producer":{msgspec.json.encode(wanted.producer).decode()}' in text
