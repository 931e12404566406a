"""Old events of one session become one summary; they stay as its evidence until they end by themselves."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..ports.factstore import FactStore
from ..ports.models import SourceMessage, Summariser, SummariserError, SummaryText, Tokenizer
from ..ports.store import Mutation
from .contents import Body, content_key, content_of, decode_body
from .fresh import news
from .intake import TEXT_BYTES_MAX
from .ledger import (
    KEYS,
    SOURCES_MAX,
    FactNote,
    Ledger,
    Page,
    SourceNote,
    VersionNote,
    content_number,
    digest,
    fact_key,
    put,
)
from .planning import Change, Step, unchanged
from .scopes import make_id
from .types import Channel, Evidence, FactState, MemoryType
from .vectors import Vectors

SUMMARY_TOKENS_MAX = 400
PRODUCER = "upkeep"

FACT_REFERENCE = "fact:"
"""Before the id of a fact that a summary stands for."""


class EventCompressor:
    """Makes summaries of events.

    Args:
        ledger: where decisions stand.
        store: where words stand.
        summariser: makes the words; without a model, so that a round never waits for one.
        tokenizer: counts them.
        vectors: tells what they mean.
    """

    def __init__(
        self, ledger: Ledger, store: FactStore, summariser: Summariser, tokenizer: Tokenizer, vectors: Vectors
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._summariser = summariser
        self._tokenizer = tokenizer
        self._vectors = vectors

    def step(self, scope: str, session: str, notes: Sequence[FactNote]) -> Step:
        """Returns the step that replaces events by their summary."""
        return _Compression(self, scope, session, tuple(notes))

    async def carry_out(self, scope: str, session: str, notes: Sequence[FactNote]) -> bool:
        """Replaces events by their summary, in one commit."""
        contents = await self._store.read([content_key(scope, note.id, note.newest) for note in notes])
        if any(content is None for content in contents):
            return False
        bodies = [decode_body(content) for content in contents if content is not None]
        # They are not the events' own words any more, so nobody else's claim can be equal to them.
        text = await self._text(bodies)
        if not text:
            return False
        now_ms = self._ledger.now_ms
        summary_id = make_id(scope, digest("compress", *(note.id for note in notes)))
        starts = [note.newest.valid_from_ms for note in notes]
        said = (summary_id, text, str(now_ms))
        version = VersionNote(
            1, content_number(1, *said), now_ms, min(starts), max(note.newest.valid_to_ms for note in notes)
        )
        trust = min(note.trust for note in notes)
        confidence = min(note.confidence for note in notes)
        sources = tuple(
            SourceNote(FACT_REFERENCE + note.id, b"", note.trust, note.confidence, PRODUCER, "", now_ms)
            for note in notes
        )
        summary = FactNote(
            id=summary_id,
            owner=notes[0].owner,
            state=FactState.CURRENT,
            versions=(version,),
            key=digest(notes[0].owner, scope, "summary", summary_id),
            memory_type=MemoryType.EPISODIC,
            trust=trust,
            confidence=confidence,
            importance=max(note.importance for note in notes),
            expires_at_ms=max(note.expires_at_ms for note in notes),
            sources=sources[-SOURCES_MAX:],
            source_count=len(sources),
            decayed_ms=now_ms,
        )
        body = Body(
            text=text,
            evidence=tuple(Evidence(source.reference) for source in sources[-SOURCES_MAX:]),
            producer=PRODUCER,
            channel=Channel.INTERNAL,
        )
        vector = await self._vectors.of(text)
        await self._store.write((content_of(scope, summary, version, body, vector, now_ms=now_ms),))

        def decide(page: Page) -> Sequence[Mutation]:
            ended = (
                msgspec.structs.replace(note, state=FactState.SUPERSEDED, superseded_by=summary_id, pinned=False)
                for note in notes
            )
            return (
                put(fact_key(summary_id), summary),
                put(KEYS + summary.key, summary_id),
                *(put(fact_key(note.id), note) for note in ended),
                news((summary_id,), page.view.now_ms),
            )

        return await unchanged(self._ledger, scope, notes, decide)

    async def _text(self, bodies: Sequence[Body]) -> str:
        messages = [SourceMessage("user", "", body.text) for body in bodies]
        try:
            made = await self._summariser.summarise(None, messages, SUMMARY_TOKENS_MAX, self._tokenizer)
        except SummariserError:
            return ""
        return _flat(made).encode()[:TEXT_BYTES_MAX].decode("utf-8", "ignore")


class _Compression:
    """The step."""

    def __init__(self, compressor: EventCompressor, scope: str, session: str, notes: tuple[FactNote, ...]) -> None:
        self._compressor, self._scope, self._session, self._notes = compressor, scope, session, notes

    @property
    def changes(self) -> tuple[Change, ...]:
        """The events that it stands for."""
        count = len(self._notes)
        explanation = f"It becomes part of one summary of {count} events of session {self._session!r}."
        return tuple(Change(note.id, "compress", explanation) for note in self._notes)

    async def carry_out(self) -> bool:
        """Makes the summary."""
        return await self._compressor.carry_out(self._scope, self._session, self._notes)


def _flat(made: SummaryText) -> str:
    """Returns a summary as one text."""
    lists = (made.goals, made.decisions, made.open_questions)
    return "\n".join(filter(None, (made.narrative, *(line for lines in lists for line in lines))))
