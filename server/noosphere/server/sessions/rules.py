"""What sessions add to the writes of shared memory; see ``memory.extension``.

Items are ordinary records that anybody writes through MemoryService. A session has a say in that: it keeps its own
records from being written, admits nothing once it is closed, limits how many items there are, appends messages in the
same commit, and lets hooks keep what a write replaces. A namespace ``sessions/<id>`` that was never opened as a
session is a plain one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from noosphere.consistency import Reason, Record, Refusal, invalid, too_large

from ..memory.codec import decode_entry
from ..memory.expiry import key_check
from ..memory.extension import NO_ADDITIONS, Additions, Change, ExtendedWrite, check_plain
from ..memory.types import AppendOp, Call
from ..ports.grants import Verb
from ..ports.models import Tokenizers
from ..ports.store import WorkingStore
from ..security.permissions import FACTS, deciding, denied
from .appending import append, check_distinct, check_message, keys_of, turn_keys
from .claims import GIVEN_OWNERS, OWNER_ATTRIBUTE
from .codec import decode_info
from .counting import count, texts_of
from .draft import Draft, Look
from .hooks import AccessObserver, ItemChange, ItemHook
from .items import check_item_room
from .keys import (
    CALL_IDS,
    INFO,
    ITEMS_COUNTED,
    MESSAGES,
    NAMESPACES,
    OWN,
    PENDING,
    UPLOADS,
    check_entry_id,
    id_key,
    is_item,
    pieces_of,
    session_of,
    slot,
    slot_revision,
)
from .scribe import closed, not_found
from .types import Message, SessionInfo, SessionStatus

AWAITED_MAX = 64


class SessionRules:
    """Extends writes to ``sessions/*``.

    Args:
        tokenizers: counts appended messages.
        hooks: add to every commit that changes an item.
        observers: hear of explicit reads and writes of items.
    """

    def __init__(
        self, tokenizers: Tokenizers, hooks: Sequence[ItemHook] = (), observers: Sequence[AccessObserver] = ()
    ) -> None:
        self.hooks = tuple(hooks)
        self._observers = tuple(observers)
        self._tokenizers = tokenizers
        self._hook_keys = tuple(dict.fromkeys(key for hook in self.hooks for key in hook.keys))

    def concerns(self, namespace: str) -> bool:
        """Tells whether a namespace is or would be a session's."""
        return namespace.startswith(NAMESPACES)

    def reserved(self, key: str) -> bool:
        """Tells whether a key is kept by the services of sessions."""
        return key.startswith(OWN)

    def check(
        self, namespace: str, keys: Iterable[str], appends: tuple[AppendOp, ...], awaited: tuple[str, ...]
    ) -> None:
        """Checks the form of a write.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
        """
        for key in keys:
            if self.reserved(key):
                raise invalid("key", f"{key!r} cannot be written: '{OWN}…' is kept by the SessionService")
        if session_of(namespace) is None:
            check_plain(namespace, appends, awaited)
        messages = _messages(appends)
        for message in messages:
            check_message(message, "operations.append.message")
        check_distinct(messages, "operations.append.message")
        if len(awaited) > AWAITED_MAX:
            raise too_large("awaited_calls", len(awaited), AWAITED_MAX, "entries")
        for call_id in awaited:
            check_entry_id(call_id, "awaited_calls")

    def keys(self, appends: tuple[AppendOp, ...], awaited: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the keys that are decided on."""
        found = [INFO, ITEMS_COUNTED, *self._hook_keys]
        if appends:
            messages = _messages(appends)
            checked, glanced = turn_keys(messages)
            found += [*keys_of(messages), *checked, *glanced]
        for call_id in awaited:
            found += [id_key(CALL_IDS, call_id), PENDING + call_id]
        return tuple(dict.fromkeys(found))

    def written(self, appends: tuple[AppendOp, ...]) -> tuple[str, ...]:
        """Returns a key below the transcript if anything is appended."""
        return (MESSAGES + slot(0, 0),) if appends else ()

    def admit(self, write: ExtendedWrite) -> None:
        """Refuses what cannot be written now.

        Raises:
            Refusal: SESSION_CLOSED; with appends or awaited calls SESSION_NOT_FOUND, ENTRY_NOT_FOUND, CALLS_PENDING.
        """
        session_id = session_of(write.ref.name) or ""
        info = _info(write)
        if info is None:
            if write.appends or write.awaited:
                raise not_found(session_id)
            return
        if info.status is SessionStatus.CLOSED:
            raise closed(session_id)
        for call_id in write.awaited:
            if write.entries[id_key(CALL_IDS, call_id)] is None:
                raise Refusal(
                    Reason.ENTRY_NOT_FOUND, f"awaited_calls: session {session_id!r} has no tool call {call_id!r}"
                )
        pending = [call_id for call_id in write.awaited if write.entries[PENDING + call_id] is not None]
        if pending:
            raise Refusal(
                Reason.CALLS_PENDING,
                f"awaited_calls: {len(pending)} of {len(write.awaited)} calls have not finished, e.g. {pending[0]!r}",
            )

    async def extend(
        self, store: WorkingStore, write: ExtendedWrite, changes: tuple[Change, ...], offset: int
    ) -> Additions:
        """Returns what a session adds to a commit.

        Raises:
            Refusal: LIMIT_EXCEEDED (too many items), TURN_NOT_OPEN, INVALID_FIELD, PERMISSION_DENIED.
        """
        info = _info(write)
        unchanged = key_check(INFO, write.entries[INFO], write.view.now_ms)
        if info is None:
            return NO_ADDITIONS._replace(checks=(unchanged,))
        now_ms, entries = write.view.now_ms, write.entries
        look = Look(session_of(write.ref.name) or "", write.view, info, entries)
        draft = Draft(write.call, look, write.policy, self.hooks, offset=offset)
        draft.require(unchanged)
        items = [change for change in changes if is_item(change.key)]
        if items:
            draft.require(*(key_check(key, entries[key], now_ms) for key in self._hook_keys))
        for key, before, record, decision in items:
            assert decision.record is not None, "only the sweeper removes records for good"
            _check_owner(write.call, decision.record)
            draft.note(ItemChange(key, before, record, decision.record, now_ms))
        await check_item_room(store, write.ref, look, draft)
        for call_id in write.awaited:
            draft.require(key_check(PENDING + call_id, entries[PENDING + call_id], now_ms))
        appended = await self._append(write, look, draft)
        return Additions(draft.checks, draft.mutations(), appended, draft.fresh_count)

    async def _append(self, write: ExtendedWrite, look: Look, draft: Draft) -> tuple[int, ...]:
        messages = _messages(write.appends)
        if not messages:
            return ()
        tokenizer = self._tokenizers.named(look.session.settings.tokenizer)
        tokens = [await count(tokenizer, texts_of(message)) for message in messages]
        checked, _ = turn_keys(messages)
        for key in (*keys_of(messages), *checked):
            draft.require(key_check(key, look.entries[key], look.now_ms))
        author = write.call.agent_id
        stored = append(look, draft, messages, author, tokens)
        return tuple(slot_revision(place.key) if place.key else 0 for place in stored)

    def trailing(self, key: str) -> str:
        """Returns the pieces of an upload, which go with its record."""
        return pieces_of(key[len(UPLOADS) :]) if key.startswith(UPLOADS) else ""

    def accessed(self, call: Call, namespace: str, keys: Iterable[str]) -> None:
        """Tells the observers."""
        session_id = session_of(namespace)
        if session_id is None or not self._observers:
            return
        for key in keys:
            if is_item(key):
                for observer in self._observers:
                    observer.accessed(call, session_id, key)


def _check_owner(call: Call, after: Record) -> None:
    """Checks a value that is written to an item that says whose fact it is to become.

    Whoever put it there has been asked; merges, resolutions and results of tasks keep what it says, and are not theirs.

    Raises:
        Refusal: PERMISSION_DENIED.
    """
    if call.principal.open or not after.attributes:
        return
    owner, permissions = dict(after.attributes).get(OWNER_ATTRIBUTE), deciding.get()
    if permissions is None or not isinstance(owner, str) or not owner.startswith(GIVEN_OWNERS):
        return
    # What this commit writes has no revision yet.
    if not any(one.dot == 0 and one.data is not None for one in after.siblings):
        return
    if not permissions.may(call.principal, call.agent_id, FACTS + owner, Verb.WRITE):
        raise denied(Verb.WRITE, FACTS + owner)


def _messages(appends: Iterable[AppendOp]) -> tuple[Message, ...]:
    found = tuple(op.message for op in appends)
    assert all(isinstance(message, Message) for message in found), "whoever decodes a request makes messages"
    return found  # type: ignore[return-value] # just checked


def _info(write: ExtendedWrite) -> SessionInfo | None:
    record = decode_entry(write.entries[INFO])
    return None if record is None or not record.version(write.view.now_ms) else decode_info(record)
