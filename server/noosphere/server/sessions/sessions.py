"""Sessions themselves: opening, reading, listing, naming."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from noosphere.consistency import ReadSet, Reason, Refusal, StaleEntry, invalid

from ..memory.reads import check_page_size
from ..memory.types import Call
from ..ports.models import Tokenizers
from .branches import last_message
from .codec import decode_meta, decode_turns, encode
from .draft import Draft, Look
from .keys import (
    EPHEMERAL,
    HANDED,
    INFO,
    META,
    NAMESPACES,
    TURNS,
    check_session_id,
    is_ephemeral,
    namespace_of,
    session_of,
)
from .scribe import Intent, Need, Scribe, Written, closed, recorded
from .settings import check_labels, check_settings, check_title
from .types import Session, SessionInfo, SessionMeta, SessionSettings, SessionStatus, Turns
from .users import may_use, require_use

_NAMES_STEP = 128
_SCANNED_MAX = 10_000
"""Most namespaces that one page looks through for matches; the page may then be empty, with a next token."""

_ID_BYTES = 10


class SessionReply(NamedTuple):
    """A session as it is after a call.

    Attributes:
        session: the session.
        head: its namespace's newest visible revision.
        created: whether the call opened it.
        read_set: the caller's read set.
        stale: what was stale and was overruled.
    """

    session: Session
    head: int
    created: bool = False
    read_set: ReadSet | None = None
    stale: tuple[StaleEntry, ...] = ()


class SessionPage(NamedTuple):
    """One page of a list; ``next_id`` is where the next page begins after, None at the end."""

    sessions: tuple[Session, ...]
    next_id: str | None


class SessionFilter(NamedTuple):
    """Which sessions are wanted; what is empty does not matter."""

    status: SessionStatus | None = None
    owner: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def matches(self, session: Session) -> bool:
        """Tells whether a session is wanted."""
        return (
            (self.status is None or session.info.status is self.status)
            and (not self.owner or session.info.owner == self.owner)
            and all(session.labels.get(name) == value for name, value in self.labels)
        )


class SessionBook:
    """Opens, reads, lists and names sessions.

    Args:
        scribe: reads and writes their records.
        tokenizers: knows the vocabularies.
        rng: makes ids for calls that carry no request id.
    """

    def __init__(self, scribe: Scribe, tokenizers: Tokenizers, rng: random.Random) -> None:
        self._scribe = scribe
        self._tokenizers = tokenizers
        self._rng = rng

    async def open(
        self,
        call: Call,
        session_id: str,
        *,
        title: str,
        labels: Mapping[str, str],
        settings: SessionSettings,
        ephemeral: bool,
        allow_existing: bool,
    ) -> SessionReply:
        """Opens a session; a retry under the same request id finds the one that was opened.

        Args:
            call: who calls, and will own it.
            session_id: its id; empty asks for one. Must be empty for an ephemeral session.
            title: for people.
            labels: for filters.
            settings: how it behaves.
            ephemeral: whether it leaves nothing behind.
            allow_existing: return an open session of that id as it is.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, SESSION_EXISTS, SESSION_CLOSED (it exists, and is closed), or a
                reason that concerns the caller.
        """
        check_title(title)
        check_labels(labels)
        check_settings(settings, self._tokenizers)
        if ephemeral and session_id:
            raise invalid("session_id", "must be empty for an ephemeral session, whose id the server issues")
        if session_id.startswith(EPHEMERAL):
            raise invalid("session_id", f"{session_id!r} begins with {EPHEMERAL!r}, as only ephemeral sessions do")
        named = session_id or self.issue_id(call, ephemeral=ephemeral)
        owner = call.agent_id

        def decide(look: Look, draft: Draft) -> bool:
            if look.info is not None:
                require_use(self._scribe, call, look)
                if not allow_existing:
                    raise Refusal(Reason.SESSION_EXISTS, f"session {named!r} was opened before by {look.info.owner!r}")
                if look.info.status is SessionStatus.CLOSED:
                    raise closed(named)
                return False
            info = SessionInfo(owner, look.now_ms, settings, ephemeral=ephemeral)
            draft.put(INFO, encode(info))
            draft.put(META, encode(SessionMeta(title, dict(labels))))
            draft.put(TURNS, encode(Turns()))
            return True

        meaning = (session_id, title, sorted(labels.items()), settings, ephemeral, allow_existing)
        intent = Intent("open", meaning, keys=(META, TURNS, HANDED), need=Need.NONE, verbs=())
        written = await self._scribe.write(call, named, intent, decide)
        return await self.after(call, named, written, created=written.replayed or bool(written.value))

    async def get(self, call: Call, session_id: str) -> SessionReply:
        """Reads a session.

        Raises:
            Refusal: SESSION_NOT_FOUND, INVALID_FIELD, or a reason that concerns the caller.
        """
        look = await self._scribe.read(call, session_id, (META, TURNS))
        session = await self._session(call, look)
        return SessionReply(session, look.view.head, read_set=recorded(call, look, (INFO,)))

    async def list(self, call: Call, wanted: SessionFilter, *, page_size: int, after: str) -> SessionPage:
        """Reads one page of sessions by id, ephemeral ones and those left out that the caller may not read.

        Raises:
            Refusal: INVALID_FIELD, or a reason that concerns the caller.
        """
        size = check_page_size(page_size)
        check_labels(dict(wanted.labels))
        core = self._scribe.core
        cursor = namespace_of(after)
        core.require_current(call)
        found: list[Session] = []
        scanned = 0
        while True:
            page = await core.store.namespaces(NAMESPACES, cursor, _NAMES_STEP)
            for summary in page:
                cursor = summary.ref.name
                session_id = session_of(cursor)
                if summary.deleted or not session_id or is_ephemeral(session_id):
                    continue
                session = await self._listed(call, session_id)
                if session is not None and wanted.matches(session):
                    found.append(session)
                    if len(found) >= size:
                        return SessionPage(tuple(found), cursor[len(NAMESPACES) :])
                # A page may wake many sessions that have left memory.
                await asyncio.sleep(0)
            scanned += len(page)
            if len(page) < _NAMES_STEP:
                return SessionPage(tuple(found), None)
            if scanned >= _SCANNED_MAX:
                return SessionPage(tuple(found), cursor[len(NAMESPACES) :])

    async def update(
        self,
        call: Call,
        session_id: str,
        *,
        title: str | None,
        set_labels: Mapping[str, str],
        remove_labels: Sequence[str],
    ) -> SessionReply:
        """Changes title and labels. They have a record of their own, so this disturbs no turn and no decision.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, INVALID_FIELD, VALUE_TOO_LARGE, or a reason that concerns
                the caller.
        """
        if title is not None:
            check_title(title)
        check_labels(set_labels, "set_labels")
        check_labels(dict.fromkeys(remove_labels, ""), "remove_labels")
        if both := sorted(set(set_labels) & set(remove_labels)):
            raise invalid("remove_labels", f"{both[0]!r} is also to be set")

        def decide(look: Look, draft: Draft) -> None:
            before = decode_meta(look.record(META))
            labels = {name: value for name, value in before.labels.items() if name not in remove_labels}
            labels.update(set_labels)
            check_labels(labels)
            after = SessionMeta(before.title if title is None else title, labels)
            if after != before:
                draft.put(META, encode(after))

        meaning = (title, sorted(set_labels.items()), sorted(remove_labels))
        written = await self._scribe.write(call, session_id, Intent("update", meaning, keys=(META,)), decide)
        return await self.after(call, session_id, written)

    async def after(self, call: Call, session_id: str, written: Written[Any], *, created: bool = False) -> SessionReply:
        """Returns a session as it is after a call of its own wrote to it."""
        look = await self._scribe.read(Call(call.incarnation), session_id, (META, TURNS))
        session = await self._session(call, look)
        return SessionReply(session, look.view.head, created, written.read_set, written.stale)

    def issue_id(self, call: Call, *, ephemeral: bool = False) -> str:
        """Returns an id for a new session: the same for a retry of the same call, and nobody else's."""
        request = call.request
        if request is None:
            digest = self._rng.randbytes(_ID_BYTES)
        else:
            # Whoever has seen somebody else's request id must not get that session.
            parts = (request.client, str(request.sequence), request.uuid, *filter(None, (call.principal.name,)))
            text = "\0".join(parts).encode()
            digest = hashlib.blake2b(text, digest_size=_ID_BYTES).digest()
        name = base64.b32encode(digest).decode().lower()
        return EPHEMERAL + name if ephemeral else name

    async def _session(self, call: Call, look: Look) -> Session:
        meta = decode_meta(look.record(META))
        turns = decode_turns(look.record(TURNS))
        last = await last_message(self._scribe, Call(call.incarnation), look)
        return Session(look.session_id, look.session, meta.title, meta.labels, turns, last)

    async def _listed(self, call: Call, session_id: str) -> Session | None:
        """Returns a session, None for a namespace that is none or has just gone."""
        try:
            check_session_id(session_id)
            who = Call(call.incarnation)
            look = await self._scribe.read(who, session_id, (META, TURNS, HANDED), missing_ok=True)
            if look.info is None or not may_use(self._scribe, call, look):
                return None
            return await self._session(call, look)
        except Refusal as refusal:
            if refusal.reason in (Reason.SESSION_NOT_FOUND, Reason.INVALID_FIELD, Reason.VALUE_TOO_LARGE):
                return None
            raise
