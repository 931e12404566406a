"""Forks: a new session that begins as another one is, or was at a checkpoint.

Its first commit copies items, control state, summary and the newest messages. Older messages are read through a
reference to the parent, which therefore cannot be purged before the fork.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from noosphere.consistency import Reason, Record, Refusal, invalid
from noosphere.consistency.limits import COMMIT_BYTES_MAX

from ..memory.admission import require_writer
from ..memory.codec import decode_record, encode_record
from ..memory.types import Call
from .branches import BranchData, Stretch, branch_key, branch_keys, older_history, stretches, up_to
from .children import FORK_MS_MAX, Mark, child_key, encode_mark
from .codec import decode_message, decode_meta, decode_turns, encode, encode_message, message_attributes
from .draft import Draft, Look
from .items import live_items
from .keys import (
    CONTROL,
    EPHEMERAL,
    HANDED,
    INFO,
    MESSAGE_IDS,
    MESSAGES,
    META,
    SAVEPOINTS,
    SUMMARIES,
    TURNS,
    KeyRange,
    check_session_id,
    id_key,
    is_slot,
)
from .putting_back import decide_put_back
from .restoring import check_fits, old_version
from .savepoints import decode_savepoints
from .saving import (
    NEWEST,
    Moved,
    checkpoint_key,
    copies_of,
    decode_checkpoint,
    newest_at,
    no_checkpoint,
    prepared,
    read_manifest,
)
from .scribe import BACKGROUND, Intent, Need, Scan, Scribe, Written, not_found
from .sessions import SessionBook, SessionReply
from .settings import check_title
from .summary_record import (
    BEGINNING,
    Place,
    SummaryData,
    decode_summary,
    encode_summary,
    farthest_first,
    reached,
    summary_attributes,
)
from .types import Message, Role, SessionInfo, SessionMeta, Turns
from .users import require_use

_COPIED_MAX = 64
"""Most messages that a fork copies; each may take its id along."""

_COPIED_BYTES_MAX = 256 * 1024
_SLACK_BYTES = 32 * 1024
"""What the commit of a fork holds besides items and messages, keys included."""

_SUMMARIES_MAX = 64
_SCAN_STEP = 64


class _Source(NamedTuple):
    """What is forked.

    Attributes:
        info: the session's.
        meta: its title and labels.
        turn: the newest turn.
        saved: items and control state.
        parts: its messages, each stretch with its session.
        now_ms: store time.
    """

    info: SessionInfo
    meta: SessionMeta
    turn: int
    saved: dict[str, Record]
    parts: tuple[Stretch, ...]
    now_ms: int


class _History(NamedTuple):
    """What a fork has of its source's messages: what it reads there, what it copies, and a summary of older ones."""

    kept: tuple[Stretch, ...]
    copied: tuple[Message, ...]
    summary: SummaryData | None


class Forker:
    """Makes forks.

    Args:
        scribe: reads and writes the records.
        book: issues ids and reads the new session.
    """

    def __init__(self, scribe: Scribe, book: SessionBook) -> None:
        self._scribe = scribe
        self._book = book

    async def fork(self, call: Call, session_id: str, *, checkpoint_id: str, fork_id: str, title: str) -> SessionReply:
        """Opens a session that begins with another one's items, summary and window.

        Args:
            call: who calls, and will own the fork.
            session_id: the session to fork, open or closed. A fork of an ephemeral one is ephemeral too.
            checkpoint_id: at which checkpoint; empty for as it is now.
            fork_id: the fork's id; empty asks for one.
            title: the fork's title; empty takes over the source's.

        Raises:
            Refusal: SESSION_NOT_FOUND, ENTRY_NOT_FOUND, SESSION_EXISTS, INVALID_FIELD, VALUE_TOO_LARGE (it does not fit
                one commit), CONTENTION, or a reason that concerns the caller.
        """
        require_writer(call)
        check_title(title)
        self._scribe.core.admit_reader(call, check_session_id(session_id))
        info = (await self._scribe.read(Call(call.incarnation), session_id)).session
        if info.ephemeral and fork_id:
            raise invalid("fork_id", "must be empty for a fork of an ephemeral session, which is ephemeral too")
        if fork_id.startswith(EPHEMERAL):
            raise invalid("fork_id", f"{fork_id!r} begins with {EPHEMERAL!r}, as only ephemeral sessions do")
        named = fork_id or self._book.issue_id(call, ephemeral=info.ephemeral)
        check_session_id(named, "fork_id")
        meaning = (session_id, checkpoint_id, fork_id, title)
        written = await prepared(
            session_id, lambda: self._attempt(call, session_id, checkpoint_id, named, title, meaning)
        )
        return await self._book.after(call, named, written, created=True)

    async def _attempt(
        self, call: Call, session_id: str, checkpoint_id: str, named: str, title: str, meaning: tuple[str, ...]
    ) -> Written[None]:
        marked_ms = await self._mark(session_id, named)
        source = await (self._at(session_id, checkpoint_id) if checkpoint_id else self._now(session_id))
        history = await self._history(session_id, source)
        # What the fork begins with must not be lost while the fork itself is kept.
        await self._scribe.core.store.settle(await self._scribe.living(session_id))

        def decide(look: Look, draft: Draft) -> None:
            require_use(self._scribe, call, look)
            _refuse_existing(look)
            draft.not_after_ms = marked_ms + FORK_MS_MAX
            if look.now_ms >= draft.not_after_ms:
                raise Moved
            owner = call.agent_id
            info = SessionInfo(
                owner, look.now_ms, source.info.settings, ephemeral=source.info.ephemeral, parent=session_id
            )
            meta = SessionMeta(title or source.meta.title, source.meta.labels)
            draft.put(INFO, encode(info))
            draft.put(META, encode(meta))
            draft.put(TURNS, encode(Turns(source.turn)))
            draft.put(branch_key(0), encode(BranchData(checkpoint=checkpoint_id, kept=history.kept)))
            for key, record in source.saved.items():
                decision = decide_put_back(None, record, draft.at(key))
                if decision is not None:
                    draft.change(key, decision)
            if history.summary is not None:
                draft.append(SUMMARIES, encode_summary(history.summary), summary_attributes(history.summary))
            for message in history.copied:
                entry_id = (MESSAGE_IDS, message.id) if message.id else None
                draft.append(MESSAGES, encode_message(message), message_attributes(message), entry_id=entry_id)
            check_fits(draft, "the fork")

        ids = (id_key(MESSAGE_IDS, message.id) for message in history.copied if message.id)
        keys = (META, TURNS, HANDED, branch_key(0), *source.saved, *ids)
        return await self._scribe.write(
            call, named, Intent("fork", meaning, keys=keys, need=Need.NONE, verbs=()), decide
        )

    async def _mark(self, session_id: str, named: str) -> int:
        """Leaves a mark of the fork in its parent; returns when."""
        head = (await self._scribe.peek(named)).view.head

        def decide(look: Look, draft: Draft) -> int:
            draft.keep(child_key(named), encode_mark(Mark(look.now_ms, head)))
            return look.now_ms

        intent = Intent("mark_child", keys=(child_key(named),), need=Need.ANY, background=True)
        written = await self._scribe.write(BACKGROUND, session_id, intent, decide)
        assert written.value is not None, "without a request id nothing is replayed"
        return written.value

    async def _now(self, session_id: str) -> _Source:
        """Reads a session as it is.

        Raises:
            Moved: it changed meanwhile.
        """
        scribe = self._scribe
        older = await older_history(scribe, session_id)
        look = await scribe.peek(session_id, (META, TURNS, CONTROL, *branch_keys(older.branch)))
        if look.info is None:
            raise not_found(session_id)
        ref = await scribe.living(session_id)
        items = await live_items(scribe.core.store, ref, look.view)
        newest = newest_at(await scribe.scan(ref, NEWEST[0], accepted=True), look.view.head, older.begins)
        if items is None or look.info.branch != older.branch:
            raise Moved
        saved = {entry.key: decode_record(entry.data, entry.revision) for entry in items}
        if (control := look.record(CONTROL)) is not None:
            saved[CONTROL] = control
        last, last_session = ("", "") if older.last is None else (older.last.key, older.last_session)
        if newest:
            last, last_session = newest, ""
        parts = up_to(stretches(look, older.branch), last, last_session)
        turn = decode_turns(look.record(TURNS)).turn
        return _Source(look.info, decode_meta(look.record(META)), turn, saved, _named(parts, session_id), look.now_ms)

    async def _at(self, session_id: str, checkpoint_id: str) -> _Source:
        """Reads a session as it was at a checkpoint.

        Raises:
            Refusal: ENTRY_NOT_FOUND.
            Moved: checkpoints have come or gone meanwhile.
        """
        scribe = self._scribe
        key = checkpoint_key(checkpoint_id, session_id)
        look = await scribe.peek(session_id, (key, SAVEPOINTS))
        entry = look.internal(key)
        if entry is None:
            raise no_checkpoint(checkpoint_id, session_id)
        checkpoint = decode_checkpoint(entry)
        savepoints = decode_savepoints(look.entries[SAVEPOINTS])
        manifest = await read_manifest(scribe, session_id, savepoints, checkpoint.number)
        branch = branch_keys(checkpoint.branch)
        look = await scribe.peek(session_id, (SAVEPOINTS, META, *branch, *manifest, *copies_of(manifest)))
        if decode_savepoints(look.entries[SAVEPOINTS]) != savepoints:
            raise Moved
        if look.info is None:
            raise not_found(session_id)
        saved = {
            name: decode_record(then.data, then.revision)
            for name, version in manifest.items()
            if (then := old_version(look, name, version)) is not None
        }
        parts = up_to(stretches(look, checkpoint.branch), checkpoint.last_message, checkpoint.last_session)
        meta = decode_meta(look.record(META))
        return _Source(look.info, meta, checkpoint.turn, saved, _named(parts, session_id), look.now_ms)

    async def _history(self, session_id: str, source: _Source) -> _History:
        """Decides which messages are copied: the newest, back to the summary, or as many as there is room for."""
        summary, covered = await self._summary(session_id, source)
        room = COMMIT_BYTES_MAX - _SLACK_BYTES
        room -= sum(len(key.encode()) + len(encode_record(record)) for key, record in source.saved.items())
        room = min(room, _COPIED_BYTES_MAX)
        found: list[tuple[Place, Message]] = []
        for index in reversed(range(len(source.parts))):
            if not await self._read_back(source.parts[index], index, covered, room, found):
                break
        found.reverse()
        while found and found[0][1].role is Role.TOOL:
            # A tool's message stays with the one that asked for it.
            found.pop(0)
        if not found:
            return _History(source.parts, (), summary)
        (first, _), *_ = found
        cut = msgspec.structs.replace(source.parts[first.stretch], before=first.key)
        copied = _with_own_ids(message for _, message in found)
        return _History((*source.parts[: first.stretch], cut), copied, summary)

    async def _read_back(
        self, stretch: Stretch, index: int, covered: Place, room: int, found: list[tuple[Place, Message]]
    ) -> bool:
        """Collects messages of a stretch from its end; returns whether there is room for those before it."""
        ref = await self._scribe.living(stretch.session)
        cursor, more = stretch.before or None, True
        taken = sum(_size(message) for _, message in found)
        while more:
            scan = Scan(MESSAGES, _SCAN_STEP, reverse=True, keys=KeyRange(stretch.after or None, cursor))
            page = await self._scribe.scan(ref, scan, accepted=True)
            more = page.more
            for entry in page.entries:
                cursor = entry.key
                place = Place(index, entry.key)
                message = decode_message(entry.key, decode_record(entry.data, entry.revision))
                taken += _size(message)
                if place <= covered or len(found) >= _COPIED_MAX or taken > room:
                    return False
                found.append((place, message))
        return True

    async def _summary(self, session_id: str, source: _Source) -> tuple[SummaryData | None, Place]:
        """Returns the summary that covers most of a history, and up to where."""
        ref = await self._scribe.living(session_id)
        page = await self._scribe.scan(ref, Scan(SUMMARIES, _SUMMARIES_MAX, reverse=True), accepted=True)
        live = [decode_summary(entry) for entry in page.entries if entry.live_until_ms > page.view.now_ms]
        # Within the source its own messages are in no other session.
        own = tuple(
            msgspec.structs.replace(part, session="") if part.session == session_id else part for part in source.parts
        )
        for stored in farthest_first(own, live):
            place = reached(own, stored)
            if place is not None:
                told_by = stored.data.last_session or session_id
                data = msgspec.structs.replace(stored.data, last_session=told_by, number=0)
                return data, place
        return None, BEGINNING


def _refuse_existing(look: Look) -> None:
    if look.info is not None:
        raise Refusal(Reason.SESSION_EXISTS, f"session {look.session_id!r} was opened before by {look.info.owner!r}")


def _with_own_ids(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Returns messages to be copied, each with its id if that is its author's and no later one has it too."""
    known: set[str] = set()
    copied: list[Message] = []
    for message in reversed(tuple(messages)):
        own = "" if is_slot(message.id) or message.id in known else message.id
        known.add(own)
        copied.append(message._replace(id=own))
    return tuple(reversed(copied))


def _named(parts: tuple[Stretch, ...], session_id: str) -> tuple[Stretch, ...]:
    """Returns stretches as another session reads them."""
    return tuple(msgspec.structs.replace(part, session=part.session or session_id) for part in parts)


def _size(message: Message) -> int:
    return 2 * len(message.id) + len(encode_message(message))
