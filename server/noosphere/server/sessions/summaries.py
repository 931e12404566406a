"""Rolling summaries: what stands for the messages that have left the window.

Rules make a summary at once, so that nothing is missing while a model is slow, wrong or away. Where a model is
configured, it then makes a better one of the same, which takes the other's place when it is ready. A summary covers
everything from the beginning of the history to its last message; the one that reaches farthest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from noosphere.consistency import ReadSet, StampMode

from ..memory.admission import require_writer
from ..memory.types import Call
from ..ports.models import Summariser, SummariserError, SummaryText, Tokenizer, Tokenizers
from ..ports.store import StoredEntry
from .draft import Draft, Look
from .history import History, Said, newest_key, read_history, said_after
from .keys import RETRACTED, SUMMARIES
from .saving import Moved
from .scribe import BACKGROUND, Intent, Scan, Scribe, closed
from .sources import source_of
from .summary_bounds import Pace, on_request, to_cover, whole
from .summary_record import BEGINNING, Place, StoredSummary, SummaryData, encode_summary, reached, summary_attributes
from .summary_text import summary_text
from .types import SessionSettings, SessionStatus

log = structlog.get_logger(__name__)

SUMMARY_TOKENS_MAX = 1_500
SUMMARY_TOKENS_MIN = 128
_RATIO = 6
"""Tokens of messages for each token of summary."""

_STEPS_MAX = 256
"""Most summaries that one call makes one after another, each of at most as many messages as are read at once."""

_AGAIN_MAX = 16
_MODEL_MESSAGES_MAX = 200
"""Most messages that a model is given to read again, because rules stood in for it."""

_KEPT_MAX = 256
_PRUNE_EVERY = 16


class SummaryReply(NamedTuple):
    """The newest summary after a call, None if there is none, and whether the call made it."""

    summary: StoredSummary | None
    created: bool
    head: int
    read_set: ReadSet | None


class Summaries:
    """Makes and finds summaries.

    Args:
        scribe: reads and writes their records.
        tokenizers: knows the vocabularies.
        summariser: makes them as configured.
        fallback: makes them at once, and cannot fail; the same object if no model is configured.
    """

    def __init__(self, scribe: Scribe, tokenizers: Tokenizers, summariser: Summariser, fallback: Summariser) -> None:
        self._scribe = scribe
        self._tokenizers = tokenizers
        self._summariser = summariser
        self._fallback = fallback

    @property
    def has_model(self) -> bool:
        """Whether anything can improve on the rules."""
        return self._summariser is not self._fallback

    async def recent(self, session_id: str) -> tuple[StoredSummary, ...]:
        """Returns the summaries of the present branch, the farthest reaching first; none of what is no session."""
        history = await read_history(self._scribe, session_id)
        return () if history is None else history.summaries

    async def make(self, call: Call, session_id: str) -> SummaryReply:
        """Covers what has left the window, by the model if there is one.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, CONTENTION, or a reason that concerns the caller.
        """
        require_writer(call)
        info = (await self._scribe.read(call, session_id)).session
        if info.status is SessionStatus.CLOSED:
            raise closed(session_id)
        created = await self.cover(session_id, on_request)
        if created:
            await self.improve(session_id)
        found = await self.recent(session_id)
        look = await self._scribe.read(Call(call.incarnation), session_id)
        read_set = None if call.tokens is None else call.tokens.read_set
        return SummaryReply(found[0] if found else None, created, look.view.head, read_set)

    async def cover(self, session_id: str, pace: Callable[[SessionSettings], Pace]) -> bool:
        """Makes the summaries that are due, by rules.

        Args:
            session_id: whose.
            pace: when one is due, and how far it goes.

        Returns:
            Whether any was made.

        Raises:
            Refusal: CONTENTION, or the store cannot be used.
        """
        made = failed = 0
        while made < _STEPS_MAX and failed < _AGAIN_MAX:
            history = await read_history(self._scribe, session_id)
            if history is None or history.info.status is SessionStatus.CLOSED:
                break
            try:
                if not await self._cover_some(history, pace(history.info.settings)):
                    break
                made += 1
            except Moved:
                failed += 1
        return made > 0

    async def improve(self, session_id: str) -> bool:
        """Lets the model make what rules made in its stead, if there is a model and anything to improve.

        Returns:
            False if the model failed.

        Raises:
            Refusal: the store cannot be used.
        """
        history = await read_history(self._scribe, session_id)
        # What is said in an ephemeral session goes nowhere.
        if not self.has_model or history is None or history.info.ephemeral or not history.summaries:
            return True
        farthest = history.summaries[0]
        if not farthest.data.stand_in or history.info.status is SessionStatus.CLOSED:
            return True
        end = _place(history, farthest)
        base = _base_for_model(history)
        said = await said_after(self._scribe, history, _place(history, base))
        taken = [one for one in said.messages if one.place <= end]
        if not taken or taken[-1].place != end:
            # More than a model is asked to read at once; it begins with what comes next.
            return True
        try:
            text = await self._summarise(self._summariser, history, base, taken)
        except SummariserError as error:
            log.warning(
                "a model made no summary, what rules made stays", namespace=history.namespace, reason=str(error)
            )
            return False
        try:
            await self._store(history, base, taken, text, stand_in=False)
        except Moved:
            log.debug("a message was taken back, what a model made of it is not kept", namespace=history.namespace)
        return True

    async def _cover_some(self, history: History, pace: Pace) -> bool:
        """Makes one summary by rules if one is due; returns whether it was."""
        farthest = history.summaries[0] if history.summaries else None
        end = _place(history, farthest)
        base = _base_for_rules(history)
        said = await said_after(self._scribe, history, _place(history, base))
        if base is not farthest and said.more and said.messages[-1].place <= end:
            base = farthest
            said = await said_after(self._scribe, history, end)
        covered = sum(one.place <= end for one in said.messages)
        fresh = [one.message for one in said.messages[covered:]]
        count = whole(fresh) if said.more else to_cover(fresh, pace)
        if not count:
            return False
        taken = said.messages[: covered + count]
        text = await self._summarise(self._fallback, history, base, taken)
        await self._store(history, base, taken, text, stand_in=self.has_model)
        return True

    async def _summarise(
        self, summariser: Summariser, history: History, base: StoredSummary | None, taken: Sequence[Said]
    ) -> SummaryText:
        """Makes a summary.

        Raises:
            SummariserError: the summariser failed.
        """
        sources = [source_of(one.message) for one in taken if not one.message.retracted]
        previous = None if base is None else base.text
        if not sources:
            return previous or SummaryText()
        before = 0 if base is None else base.data.tokens
        fresh = sum(one.message.tokens for one in taken)
        room = min(SUMMARY_TOKENS_MAX, max(SUMMARY_TOKENS_MIN, before + fresh // _RATIO))
        try:
            return await summariser.summarise(previous, sources, room, self._tokenizer(history))
        except SummariserError:
            raise
        except Exception as error:
            # A driver may be anybody's. Its faults must not end the background work, nor may its words be logged.
            raise SummariserError(f"{summariser.name} failed with {type(error).__name__}") from error

    def _tokenizer(self, history: History) -> Tokenizer:
        return self._tokenizers.named(history.info.settings.tokenizer)

    async def _store(
        self, history: History, base: StoredSummary | None, taken: Sequence[Said], text: SummaryText, *, stand_in: bool
    ) -> None:
        """Stores a summary.

        Raises:
            Moved: a message was taken back meanwhile, which the summary may quote, or somebody else made one by rules.
        """
        by_rules = stand_in or not self.has_model
        last = taken[-1]
        data = SummaryData(
            first=taken[0].message.key if base is None else base.data.first,
            last=last.message.key,
            messages=len(taken) + (0 if base is None else base.data.messages),
            last_session=history.parts[last.place.stretch].session,
            number=history.number,
            stand_in=stand_in,
            producer=(self._fallback if by_rules else self._summariser).name,
            tokens=self._tokenizer(history).count(summary_text(text)),
            **text._asdict(),
        )
        stale = await self._stale(history)

        def decide(look: Look, draft: Draft) -> None:
            if _revision(look.entries[RETRACTED]) != history.retracted:
                raise Moved
            # A model's result is never too late: others reach farther then, and the next ones are built on it.
            if by_rules and newest_key(look.scans[0]) != history.newest:
                raise Moved
            draft.append(SUMMARIES, encode_summary(data), summary_attributes(data))
            for key in stale:
                draft.remove(key)

        guard = StampMode.MEMBERS if by_rules else None
        scans = (Scan(SUMMARIES, 1, reverse=True, guard=guard),)
        intent = Intent("summarise", keys=(RETRACTED,), glances=stale, scans=scans, background=True)
        await self._scribe.write(BACKGROUND, history.session_id, intent, decide)

    async def _stale(self, history: History) -> tuple[str, ...]:
        """Returns some of the oldest summaries if there are too many; a checkpoint from then does without."""
        if history.number < _KEPT_MAX or history.number % _PRUNE_EVERY:
            return ()
        scan = Scan(SUMMARIES, 4 * _KEPT_MAX)
        found = await self._scribe.scan(await self._scribe.living(history.session_id), scan, accepted=True)
        live = [entry.key for entry in found.entries if entry.live_until_ms > found.view.now_ms]
        return tuple(live[: min(2 * _PRUNE_EVERY, max(0, len(live) - _KEPT_MAX))])


def _base_for_rules(history: History) -> StoredSummary | None:
    """Returns what rules go on from: a model's summary if it is not too far behind, else what reaches farthest."""
    if not history.summaries:
        return None
    farthest = history.summaries[0]
    behind = farthest.data.messages - _MODEL_MESSAGES_MAX
    return next((s for s in history.summaries if not s.data.stand_in and s.data.messages > behind), farthest)


def _base_for_model(history: History) -> StoredSummary | None:
    """Returns what a model goes on from: its own last summary, else the oldest one that is not too far behind."""
    farthest, *others = history.summaries
    behind = farthest.data.messages - _MODEL_MESSAGES_MAX
    near = [s for s in others if behind <= s.data.messages < farthest.data.messages]
    own = next((s for s in near if not s.data.stand_in), None)
    return near[-1] if own is None and behind > 0 and near else own


def _place(history: History, stored: StoredSummary | None) -> Place:
    """Returns up to where a summary of the branch reaches; without one, the beginning."""
    place = BEGINNING if stored is None else reached(history.parts, stored)
    assert place is not None, "asked of summaries of the branch only"
    return place


def _revision(entry: StoredEntry | None) -> int:
    return 0 if entry is None else entry.revision
