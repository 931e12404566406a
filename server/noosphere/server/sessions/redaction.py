"""Forgetting in sessions: sources are overwritten whole, and words wherever a session's records have them.

The order makes it safe to be cut off at any place and begun again: copies of a source go while the source can still be
read, then the source, then what was made of it meanwhile. Whoever reads a session and then writes to it, as those who
make summaries do, notices and begins anew. In the end the store erases what was overwritten.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from noosphere.consistency import ChangeKind, Decision, Event, Record, invalid, too_large

from ..memory.cache_drops import CacheDrops
from ..memory.codec import decode_record, encode_record, forget_decoded
from ..memory.internal import is_internal
from ..ports.models import Tokenizers
from ..ports.sources import SOURCES_MAX, WORDS_MAX, Redacted
from ..ports.store import StoredEntry
from .blackout import Blackout, folded
from .blobs import Blobs
from .codec import encode_message
from .draft import Draft, Look
from .forgetting import Forgetting, family, plan
from .keys import (
    CONTEXTS,
    MESSAGES,
    NAMESPACES,
    RAW,
    RETRACTED,
    VERSIONS,
    KeyRange,
    is_ephemeral,
    session_of,
)
from .rewriting import GONE, Fate, Rewriter, own_id
from .scribe import BACKGROUND, Intent, Need, Scan, Scribe
from .toolcall import encode_tool_call
from .types import SessionSettings
from .witness import message_of, tool_call_of

WORD_CHARS_MIN = 4
WORD_CHARS_MAX = 4_096
MENTIONS_MAX = 1_000

_READ_TO_SUMMARISE = frozenset({"messages", "summaries"})
"""Whoever makes a summary at this moment has read these as they were; ``keys.RETRACTED`` has them begin anew."""

_SWEEPS_MAX = 8
_PAGE = 64
_SESSIONS_AT_ONCE = 16
_RECORDS_A_STEP = 32
_BYTES_A_STEP = 64 * 1024
"""Words in more are looked for while others wait."""


class Redactor:
    """Forgets; the writing half of ``ports.sources``.

    Args:
        scribe: reads and writes the records of sessions.
        tokenizers: knows the vocabularies.
        rng: makes names for results that are stored anew.
        forget: each is told the id of a session of which it must no longer hold what it has decoded or made.
        cache_drops: has other processes hold nothing of it either; None if there are none.
    """

    def __init__(
        self,
        scribe: Scribe,
        tokenizers: Tokenizers,
        rng: random.Random,
        forget: Sequence[Callable[[str], None]] = (),
        cache_drops: CacheDrops | None = None,
    ) -> None:
        self._scribe = scribe
        self._tokenizers = tokenizers
        self._blobs = Blobs(scribe, rng)
        self._forget = forget
        self._cache_drops = cache_drops

    async def redact(self, references: Sequence[str], words: Sequence[str]) -> tuple[Redacted, ...]:
        """Overwrites sources, and words in their sessions and in those that were forked from or into them, for good.

        Names stay: keys, ids, agents, tools. What has been begun and was cut off is finished by the same call again.

        Args:
            references: at most 256 sources, or ``session:<id>`` for the words of a session alone; those that are not
                there are skipped.
            words: at most 256 texts of 4 to 4,096 characters.

        Returns:
            How many records were overwritten or removed, by what they are.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE or LIMIT_EXCEEDED (too many forks), before anything is done;
                CONTENTION or ENGINE_UNAVAILABLE, to be called again.
        """
        if len(references) > SOURCES_MAX:
            raise too_large("references", len(references), SOURCES_MAX, "entries")
        blackout = _blackout(words)
        wanted = await plan(self._scribe, references)
        counts: Counter[str] = Counter()
        rewriters = {one: await self._rewriter(one, blackout, wanted) for one in wanted.sessions}
        for session_id, rewriter in rewriters.items():
            await self._sweep(session_id, rewriter, blackout, wanted, counts)
        for session_id, rewriter in rewriters.items():
            await self._forget_sources(session_id, rewriter, wanted, counts)
        for session_id in await family(self._scribe, wanted.sessions):
            # A fork that was being made has copied what was read before.
            rewriter = rewriters.get(session_id) or await self._rewriter(session_id, blackout, wanted)
            await self._sweep(session_id, rewriter, blackout, wanted, counts)
        self._drop_caches(rewriters)
        store = self._scribe.core.store
        refs = [await self._scribe.living(session_id) for session_id in (*wanted.sessions, *wanted.gone)]
        await asyncio.gather(*map(store.erase, refs))
        if self._cache_drops is not None:
            await self._cache_drops.tell()
        return tuple(Redacted(place, count) for place, count in sorted(counts.items()) if count)

    async def mentions(self, words: Sequence[str]) -> tuple[str, ...]:
        """Returns the ids of sessions whose records hold one of the words, at most 1,000; no ephemeral ones.

        Args:
            words: at most 256 texts of 4 to 4,096 characters.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, ENGINE_UNAVAILABLE.
        """
        blackout = _blackout(words)
        found: list[str] = []
        cursor = NAMESPACES
        while True:
            page = await self._scribe.core.store.namespaces(NAMESPACES, cursor, _PAGE)
            wanted: list[str] = []
            for summary in page:
                cursor = summary.ref.name
                session_id = session_of(cursor) or ""
                if session_id and not summary.deleted and not is_ephemeral(session_id):
                    wanted.append(session_id)
            for first in range(0, len(wanted), _SESSIONS_AT_ONCE):
                part = wanted[first : first + _SESSIONS_AT_ONCE]
                # A store that is elsewhere takes a round trip for each, however little a session holds.
                held = await asyncio.gather(*(self._has(session_id, blackout) for session_id in part))
                found += itertools.compress(part, held)
                if len(found) >= MENTIONS_MAX:
                    return tuple(found[:MENTIONS_MAX])
            if len(page) < _PAGE:
                return tuple(found)
            await asyncio.sleep(0)

    async def _has(self, session_id: str, blackout: Blackout) -> bool:
        rewriter = Rewriter(blackout, lambda _: 0)
        async for entry in self._entries(session_id):
            if _fate(entry, rewriter) is not None or await self._blobs.has(session_id, entry, blackout):
                return True
        return False

    async def _rewriter(self, session_id: str, blackout: Blackout, wanted: Forgetting) -> Rewriter:
        info = (await self._scribe.peek(session_id)).info
        tokenizer = self._tokenizers.named((SessionSettings() if info is None else info.settings).tokenizer)
        return Rewriter(blackout, lambda texts: sum(map(tokenizer.count, texts)), wanted.texts)

    async def _sweep(
        self, session_id: str, rewriter: Rewriter, blackout: Blackout, wanted: Forgetting, counts: Counter[str]
    ) -> None:
        """Rewrites whatever has the words or is a copy of a source, until nothing is left of it.

        What is overwritten may leave a copy where a checkpoint keeps it, which the next round finds.
        """
        for _ in range(_SWEEPS_MAX):
            due: list[StoredEntry] = []
            results = 0
            async for entry in self._entries(session_id):
                if wanted.is_source(session_id, entry.key):
                    continue
                results += await self._blobs.rewrite(session_id, entry, blackout)
                if _fate(entry, rewriter) is not None or wanted.is_copy(session_id, entry):
                    due.append(entry)
            for step in _steps(due):
                await self._rewrite(session_id, step, rewriter, wanted, counts)
            counts["tool_results"] += results
            if not due and not results:
                return

    async def _rewrite(
        self, session_id: str, keys: Sequence[str], rewriter: Rewriter, wanted: Forgetting, counts: Counter[str]
    ) -> None:
        def decide(look: Look, draft: Draft) -> list[str]:
            entries = [entry for key in keys if (entry := look.entries[key]) is not None]
            places = [place for entry in entries if (place := _rewrite(draft, session_id, entry, rewriter, wanted))]
            if not _READ_TO_SUMMARISE.isdisjoint(places):
                draft.keep(RETRACTED, b"")
            return places

        intent = Intent("forget", keys=tuple(keys), need=Need.ANY, background=True)
        counts.update((await self._scribe.write(BACKGROUND, session_id, intent, decide)).value or ())

    async def _forget_sources(
        self, session_id: str, rewriter: Rewriter, wanted: Forgetting, counts: Counter[str]
    ) -> None:
        for key in wanted.messages.get(session_id, ()):
            counts["messages"] += await self._forget_source(session_id, key, (), rewriter)
        for key in wanted.calls.get(session_id, ()):
            entry = (await self._scribe.peek(session_id, (key,))).entries[key]
            pieces = [] if entry is None else await self._blobs.pieces(session_id, tool_call_of(entry))
            counts["tool_results"] += await self._forget_source(session_id, key, pieces, rewriter)

    async def _forget_source(self, session_id: str, key: str, pieces: Sequence[str], rewriter: Rewriter) -> bool:
        def decide(look: Look, draft: Draft) -> bool:
            entry = look.entries[key]
            if entry is None or look.record(key) is None or not _forget(draft, entry, rewriter):
                return False
            for piece in pieces:
                draft.forget(piece)
            draft.keep(RETRACTED, b"")
            return True

        intent = Intent("forget_source", keys=(key, *pieces), need=Need.ANY, background=True)
        return bool((await self._scribe.write(BACKGROUND, session_id, intent, decide)).value)

    async def _entries(self, session_id: str) -> AsyncGenerator[StoredEntry, None]:
        """Yields all records of a session but the pieces of results, which go with their calls."""
        ref = await self._scribe.living(session_id)
        read_bytes = 0
        for after, before in ((None, RAW), (RAW + "\U0010ffff", None)):
            keys, more = KeyRange(after, before), True
            while more:
                page = await self._scribe.scan(ref, Scan("", _PAGE, keys=keys), accepted=True)
                more = page.more
                for entry in page.entries:
                    yield entry
                    read_bytes += len(entry.data)
                    if read_bytes > _BYTES_A_STEP:
                        read_bytes = 0
                        await asyncio.sleep(0)
                if page.entries:
                    keys = KeyRange(page.entries[-1].key, keys.before)
                await asyncio.sleep(0)

    def _drop_caches(self, sessions: Iterable[str]) -> None:
        forget_decoded()
        for session_id in sessions:
            for forget in self._forget:
                forget(session_id)


def _blackout(words: Sequence[str]) -> Blackout:
    """Returns the words, checked.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    if len(words) > WORDS_MAX:
        raise too_large("words", len(words), WORDS_MAX, "entries")
    for index, word in enumerate(words):
        if len(word) < WORD_CHARS_MIN:
            raise invalid(f"words[{index}]", f"has fewer than {WORD_CHARS_MIN} characters, and would be found anywhere")
        if len(word) > WORD_CHARS_MAX:
            raise too_large(f"words[{index}]", len(word), WORD_CHARS_MAX, "characters")
    # Of what is nearly all white space too little is left to tell it from any other text.
    return Blackout(word for word in words if len(folded(word)) >= WORD_CHARS_MIN)


def _steps(due: Iterable[StoredEntry]) -> list[list[str]]:
    """Returns keys by commits."""
    steps: list[list[str]] = []
    size = _BYTES_A_STEP
    for entry in due:
        size += len(entry.data)
        if size > _BYTES_A_STEP or len(steps[-1]) == _RECORDS_A_STEP:
            steps.append([])
            size = len(entry.data)
        steps[-1].append(entry.key)
    return steps


def _fate(entry: StoredEntry, rewriter: Rewriter) -> Fate | None:
    """Returns what becomes of a record for the words' sake, None if it stays as it is."""
    if entry.key.startswith(VERSIONS):
        key, _, revision = entry.key[len(VERSIONS) :].rpartition("/")
        fate = rewriter.visible(key, decode_record(entry.data, int(revision, 16)))
        return None if fate is None else fate._replace(place="checkpoints")
    if entry.key.startswith(CONTEXTS):
        return Fate("contexts", GONE) if rewriter.manifest(entry.data) else None
    return None if is_internal(entry.key) else rewriter.visible(entry.key, decode_record(entry.data, entry.revision))


def _rewrite(draft: Draft, session_id: str, entry: StoredEntry, rewriter: Rewriter, wanted: Forgetting) -> str | None:
    """Rewrites one record in a draft; returns as what it counts, None if it stays."""
    if wanted.is_copy(session_id, entry):
        return "messages" if _forget(draft, entry, rewriter) else None
    fate = _fate(entry, rewriter)
    if fate is None:
        return None
    if not isinstance(fate.record, Record):
        (draft.forget if is_internal(entry.key) else draft.remove)(entry.key)
    elif is_internal(entry.key):
        draft.keep(entry.key, encode_record(fate.record), live_until_ms=entry.live_until_ms)
    else:
        _change(draft, entry.key, fate.record)
    return fate.place


def _forget(draft: Draft, entry: StoredEntry, rewriter: Rewriter) -> bool:
    """Overwrites a message or a result whole; returns whether anything was left to overwrite."""
    record = decode_record(entry.data, entry.revision)
    if entry.key.startswith(MESSAGES):
        message = message_of(entry)
        left = rewriter.forgotten(message)
        same, data = left == message, encode_message(own_id(left))
    else:
        call = tool_call_of(entry)
        after = rewriter.forgotten_result(call)
        same, data = call.pending or after == call, encode_tool_call(after)
    if not same:
        siblings = (*record.siblings[:-1], record.siblings[-1]._replace(data=data))
        _change(draft, entry.key, record._replace(siblings=siblings))
    return not same


def _change(draft: Draft, key: str, record: Record) -> None:
    """Puts a rewritten record in its place: a new version of the same values, by the same writers."""
    event = Event(ChangeKind.PUT, record.siblings[-1].actor)
    draft.change(key, Decision(record, events=(event,)))
