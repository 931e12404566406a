"""Reads what a context is made of from the session's records. What it reads does not grow with the transcript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from noosphere.consistency import Encoding, KeySeen, Record, Sibling
from noosphere.consistency.merge import render

from ..memory.codec import decode_record
from ..memory.types import Call
from ..ports.store import CollectionStamps, NamespaceRef, ScanResult
from ..sessions.branches import Stretch, branch_data, branch_keys, stretches
from ..sessions.codec import decode_message, decode_turns
from ..sessions.draft import Draft, Look
from ..sessions.keys import (
    CONTROL,
    GOALS,
    ITEM_RANGES,
    MESSAGES,
    SUMMARIES,
    TASK,
    TURNS,
    KeyRange,
)
from ..sessions.scribe import BACKGROUND, Intent, Need, Scan, Scribe
from ..sessions.summary_record import Place, StoredSummary, decode_summary, farthest_first, reached
from ..sessions.types import Item, Message, Role, SessionInfo
from .asked import Asked
from .calls import States, read_states
from .instructions import INSTRUCTIONS_DROPPED, Instructions
from .reading import Readable
from .request import Coverage

GUARDED = (GOALS, TASK)
"""Collections whose members every context guards."""

_PAGE = 64
_ITEMS_PAGE = 512
_MESSAGES_MAX = 1_024
"""Most messages that are looked at; beyond, a current input is not searched any more."""
_COVERED_MAX = 256
"""Most messages that are looked at only to find where the summary ends."""
_SUMMARIES = 8
_SECRET_BYTES = 32
SECRET = "\0fence"
"""What a session's fence is made from; nobody can read it."""
_ATTEMPTS_MAX = 3


class Gathered(NamedTuple):
    """A session as a context needs it.

    Attributes:
        info: its settings and owner.
        turn: the newest turn.
        items: the live items, by key.
        messages: the newest messages, the oldest first.
        more_before: whether there are older ones.
        instructions: messages for the system role that are older.
        warnings: words of warning.
        coverages: summaries, the newest first.
        secret: makes the session's fence.
        now_ms: store time.
        read: what of it a decision may depend on.
        states: of calls of tools of which the messages do not tell all.
    """

    info: SessionInfo
    turn: int
    items: tuple[Item, ...]
    messages: tuple[Message, ...]
    more_before: bool
    instructions: tuple[Message, ...]
    warnings: tuple[str, ...]
    coverages: tuple[Coverage, ...]
    secret: bytes
    now_ms: int
    read: Readable
    states: States


class Gatherer:
    """Reads sessions.

    Args:
        scribe: reads their records.
        entropy: makes secrets of so many bytes.
    """

    def __init__(self, scribe: Scribe, entropy: Callable[[int], bytes]) -> None:
        self._scribe = scribe
        self._entropy = entropy
        self._instructions = Instructions(scribe)

    async def gather(self, call: Call, asked: Asked, me: str) -> Gathered:
        """Reads everything that the context may show.

        All of it is read at one head if nobody writes in between; if somebody keeps writing, it is read at heads as
        close as they come. A decision is safe either way, because the read set holds each part as it was read.

        Raises:
            Refusal: SESSION_NOT_FOUND, or a reason that concerns the caller.
        """
        gathered = await self._gather(call, asked, me)
        for _ in range(_ATTEMPTS_MAX - 1):
            if gathered.coherent:
                break
            gathered = await self._gather(call, asked, me)
        return gathered.value

    async def _gather(self, call: Call, asked: Asked, me: str) -> _Reading:
        session_id = asked.session_id
        keys = (TURNS, CONTROL, SECRET, *asked.guarded_keys)
        look = await self._scribe.read(call, session_id, keys)
        ref = await self._scribe.living(session_id)
        heads = {look.view.head}
        branch = await self._branch(call, look)
        # Before the items: what changes in between is then newer than the stamps, and makes a decision stale.
        stamps = await self._stamps(ref, heads, (*GUARDED, *asked.guarded_collections, MESSAGES))
        items = await self._items(ref, heads, look.now_ms)
        summaries = await self._summaries(ref, heads, branch, look.now_ms)
        reach = reached(branch.parts, summaries[0]) if summaries else None
        history = _History(me, look.session, asked, reach)
        await self._messages(look, branch.parts, history)
        messages = tuple(message for _, message in reversed(history.said))
        calls = await read_states(self._scribe, call, session_id, history.own(branch.parts))
        heads |= calls.heads
        instructions = await self._instructions.older(look, branch.parts, messages, speakers(look.session, me))
        gathered = Gathered(
            info=look.session,
            turn=decode_turns(look.record(TURNS)).turn,
            items=items,
            messages=messages,
            more_before=history.more,
            instructions=instructions.messages,
            warnings=(INSTRUCTIONS_DROPPED,) if instructions.dropped else (),
            coverages=tuple(history.coverage(one, reached(branch.parts, one)) for one in summaries),
            secret=await self._secret(look),
            now_ms=look.now_ms,
            read=Readable(session_id, min(heads), stamps, _guarded_keys(look, items, asked)),
            states=calls.states,
        )
        return _Reading(gathered, len(heads) == 1)

    async def _branch(self, call: Call, look: Look) -> _Branch:
        branch = look.session.branch
        if not branch and not look.session.parent:
            return _Branch((Stretch(),), "")
        with_branch = await self._scribe.read(call, look.session_id, branch_keys(branch))
        return _Branch(stretches(with_branch, branch), branch_data(with_branch, branch).summary)

    async def _items(self, ref: NamespaceRef, heads: set[int], now_ms: int) -> tuple[Item, ...]:
        items: list[Item] = []
        for keys in ITEM_RANGES:
            more = True
            while more:
                page = await self._scan(ref, heads, Scan("", _ITEMS_PAGE, keys=keys))
                live = (entry for entry in page.entries if entry.live_until_ms > now_ms)
                items += [_item(e.key, decode_record(e.data, e.revision), now_ms) for e in live]
                more = page.more
                if more:
                    keys = KeyRange(page.entries[-1].key, keys.before)
        return tuple(items)

    async def _stamps(
        self, ref: NamespaceRef, heads: set[int], collections: Sequence[str]
    ) -> dict[str, CollectionStamps]:
        pages = {name: await self._scan(ref, heads, Scan(name, 1)) for name in dict.fromkeys(collections)}
        return {name: page.stamps for name, page in pages.items()}

    async def _summaries(
        self, ref: NamespaceRef, heads: set[int], branch: _Branch, now_ms: int
    ) -> tuple[StoredSummary, ...]:
        page = await self._scan(ref, heads, Scan(SUMMARIES, _SUMMARIES, reverse=True))
        entries = {entry.key: entry for entry in page.entries}
        if branch.summary and branch.summary not in entries:
            # A branch begins with a summary that may lie behind many of the branch that was left.
            for entry in (await self._scribe.core.store.read(ref, (branch.summary,))).entries:
                entries |= {} if entry is None else {entry.key: entry}
        live = [decode_summary(entry) for entry in entries.values() if entry.live_until_ms > now_ms]
        return farthest_first(branch.parts, live)

    async def _messages(self, look: Look, parts: Sequence[Stretch], history: _History) -> None:
        """Reads back as far as a window can reach, to the current input, and to where the summary ends."""
        for number in range(len(parts) - 1, -1, -1):
            stretch = parts[number]
            ref = await self._scribe.living(stretch.session or look.session_id)
            keys, more = stretch.keys, True
            while more:
                page = await self._scribe.scan(ref, Scan(MESSAGES, _PAGE, reverse=True, keys=keys))
                for entry in page.entries:
                    if history.enough:
                        history.more = True
                        return
                    message = decode_message(entry.key, decode_record(entry.data, entry.revision))
                    history.add(Place(number, entry.key), message)
                more = page.more
                if more:
                    keys = KeyRange(keys.after, page.entries[-1].key)

    async def _scan(self, ref: NamespaceRef, heads: set[int], scan: Scan) -> ScanResult:
        page = await self._scribe.scan(ref, scan)
        heads.add(page.view.head)
        return page

    async def _secret(self, look: Look) -> bytes:
        held = look.internal(SECRET)
        if held is not None:
            return held.data
        made = self._entropy(_SECRET_BYTES)

        def decide(now: Look, draft: Draft) -> bytes:
            found = now.internal(SECRET)
            if found is not None:
                return found.data
            draft.keep(SECRET, made)
            return made

        intent = Intent("fence", keys=(SECRET,), need=Need.ANY, background=True)
        written = await self._scribe.write(BACKGROUND, look.session_id, intent, decide)
        assert written.value is not None, "without a request id nothing is replayed"
        return written.value


class _Reading(NamedTuple):
    value: Gathered
    coherent: bool


class _Branch(NamedTuple):
    parts: tuple[Stretch, ...]
    summary: str


class _History:
    """Messages from the newest back, and when there are enough of them.

    Args:
        me: for whom.
        info: the session.
        asked: what was asked for.
        reach: how far the farthest summary reaches; None if there is none.
    """

    def __init__(self, me: str, info: SessionInfo, asked: Asked, reach: Place | None) -> None:
        self.said: list[tuple[Place, Message]] = []
        self.more = False
        self._me = me
        self._users = speakers(info, me)
        self._settings = info.settings
        self._units = 0
        self._turns: set[int] = set()
        self._has_input = bool(asked.input)
        self._reach = reach
        self._joined = reach is None

    def add(self, place: Place, message: Message) -> None:
        """Takes the next older message."""
        self.said.append((place, message))
        self._units += message.role is not Role.TOOL
        if message.turn:
            self._turns.add(message.turn)
        if self._reach is not None and place <= self._reach:
            self._joined = True
        # What stands before the agent's own answer cannot be the current input.
        answered = message.role is Role.ASSISTANT and message.author == self._me and not message.tool_calls
        if answered or (message.role is Role.USER and message.author in self._users):
            self._has_input = True

    @property
    def enough(self) -> bool:
        """Whether older messages would change nothing: a unit more than the window can hold is known."""
        count = len(self.said)
        settings = self._settings
        beyond = self._units > settings.window_steps or len(self._turns) > settings.window_turns
        joined = self._joined or count >= _COVERED_MAX
        return count >= _MESSAGES_MAX or (beyond and self._has_input and joined)

    def own(self, parts: Sequence[Stretch]) -> list[Message]:
        """Returns the messages that lie in the session itself and not in one that it was forked from, in order."""
        return [message for place, message in reversed(self.said) if not parts[place.stretch].session]

    def coverage(self, stored: StoredSummary, reach: Place | None) -> Coverage:
        """Returns what a summary stands for of the messages that were read."""
        covered = sum(reach is not None and place <= reach for place, _ in self.said)
        return Coverage(stored.summary, covered, covered > 0 or not self.more, stored.revision)


def speakers(info: SessionInfo, me: str) -> frozenset[str]:
    """Returns whose messages in the user's role are the user's words, and in the system's role instructions.

    That is the agent itself, and whoever opened the session. What others send in these roles is data.
    """
    return frozenset({me, info.owner})


def _guarded_keys(look: Look, items: Sequence[Item], asked: Asked) -> dict[str, KeySeen]:
    collections = (*GUARDED, *asked.guarded_collections)
    guarded = {
        item.key: KeySeen(item.version, item.expires_at_ms) for item in items if item.key.startswith(collections)
    }
    for key in (CONTROL, *asked.guarded_keys):
        record = look.record(key)
        guarded[key] = (
            KeySeen(0) if record is None else KeySeen(record.version(look.now_ms), record.ends_ms(look.now_ms))
        )
    return guarded


def _item(key: str, record: Record, now_ms: int) -> Item:
    values = record.live(now_ms)
    newest = values[-1]
    data, is_json = _value(record, newest)
    if len(values) > 1:
        # Nobody has decided between them; the model sees them all.
        shown = [msgspec.Raw(value) if json else repr(value) for value, json in (_value(record, one) for one in values)]
        data, is_json = msgspec.json.encode({"conflicting_values": shown}), True
    return Item(
        key,
        record.version(now_ms),
        data,
        is_json,
        record.attributes,
        newest.actor,
        record.created_ms,
        newest.time_ms,
        record.ends_ms(now_ms),
    )


def _value(record: Record, sibling: Sibling) -> tuple[bytes, bool]:
    assert sibling.data is not None, "asked of live values only"
    if sibling.encoding is Encoding.BYTES:
        return sibling.data, False
    return render(record.merge_type, sibling.data), True
