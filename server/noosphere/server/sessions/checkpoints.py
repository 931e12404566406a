"""Checkpoints: savepoints of a whole session, made on request, at the end of turns and around calls of tools."""

from __future__ import annotations

from typing import NamedTuple

from noosphere.consistency import ReadSet, StaleEntry, too_large

from ..memory.reads import PAGE_BYTES_MAX, check_page_size
from ..memory.types import Call
from .draft import Draft, Look
from .keys import CHECKPOINTS, KeyRange, slot
from .retention import Retention
from .saving import (
    NEWEST,
    checkpoint_key,
    decode_checkpoint,
    has_changed,
    no_checkpoint,
    prepared,
    save,
    stand,
    survey,
)
from .scribe import Intent, Scan, Scribe, Written
from .types import Checkpoint, CheckpointCause, CheckpointPolicy, TurnOutcome

NAME_BYTES_MAX = 128
_RECENT = 32
"""How many checkpoints back a retried end of a turn looks for the one that it has made."""


class CheckpointReply(NamedTuple):
    """A checkpoint that was made."""

    checkpoint: Checkpoint
    head: int
    read_set: ReadSet | None
    stale: tuple[StaleEntry, ...]


class CheckpointPage(NamedTuple):
    """One page of a list; ``position`` is where the next page begins, None at the end."""

    checkpoints: tuple[Checkpoint, ...]
    position: str | None


class Checkpoints:
    """Makes and lists checkpoints.

    Args:
        scribe: reads and writes their records.
        retention: lets the oldest go when there are too many.
    """

    def __init__(self, scribe: Scribe, retention: Retention) -> None:
        self._scribe = scribe
        self._retention = retention

    async def create(self, call: Call, session_id: str, *, name: str) -> CheckpointReply:
        """Makes a checkpoint, whether or not anything has changed since the one before.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, VALUE_TOO_LARGE, CONTENTION, or a reason that concerns the
                caller.
        """
        if (size := len(name.encode())) > NAME_BYTES_MAX:
            raise too_large("name", size, NAME_BYTES_MAX)
        written = await self._make(call, session_id, CheckpointCause.REQUEST, name=name, always=True)
        checkpoint = await self.get(session_id, slot(written.revision, int.from_bytes(written.reply, "big")))
        return CheckpointReply(checkpoint, written.head, written.read_set, written.stale)

    async def get(self, session_id: str, checkpoint_id: str) -> Checkpoint:
        """Reads a checkpoint.

        Raises:
            Refusal: SESSION_NOT_FOUND, ENTRY_NOT_FOUND.
        """
        key = checkpoint_key(checkpoint_id, session_id)
        look = await self._scribe.read(Call(), session_id, (key,))
        entry = look.internal(key)
        if entry is None:
            raise no_checkpoint(checkpoint_id, session_id)
        return decode_checkpoint(entry)

    async def list(self, call: Call, session_id: str, *, page_size: int, position: str | None) -> CheckpointPage:
        """Reads one page of checkpoints, the newest first.

        Raises:
            Refusal: SESSION_NOT_FOUND, INVALID_FIELD, or a reason that concerns the caller.
        """
        size = check_page_size(page_size)
        found: list[Checkpoint] = []
        cursor = position
        taken = 0
        more = True
        while more:
            scan = Scan(CHECKPOINTS, size, reverse=True, keys=KeyRange(None, cursor))
            look = await self._scribe.read(call, session_id, (), (scan,))
            page = look.scans[0]
            more = page.more
            for entry in page.entries:
                cursor = entry.key
                if entry.live_until_ms <= look.now_ms:
                    continue
                found.append(decode_checkpoint(entry))
                taken += len(entry.data)
                if len(found) >= size or taken >= PAGE_BYTES_MAX:
                    return CheckpointPage(tuple(found), cursor)
        return CheckpointPage(tuple(found), None)

    async def after_turn(self, call: Call, session_id: str, turn: int) -> TurnOutcome:
        """Makes the checkpoint of a turn that has ended, if the session's policy wants one and something changed.

        Raises:
            Refusal: SESSION_CLOSED, CONTENTION.
        """
        info = (await self._scribe.peek(session_id)).info
        if info is None or info.settings.checkpoint_policy is CheckpointPolicy.MANUAL:
            return TurnOutcome()
        made = await self._of_turn(session_id, turn)
        if made is None:
            written = await self._make(call, session_id, CheckpointCause.TURN_END, turn=turn)
            if written.revision:
                made = slot(written.revision, int.from_bytes(written.reply, "big"))
        return TurnOutcome(made or "")

    async def around_call(self, call: Call, session_id: str, cause: CheckpointCause) -> None:
        """Makes a checkpoint before or after a tool call with side effects, if the policy wants one and it differs.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, CONTENTION.
        """
        info = (await self._scribe.peek(session_id)).info
        if info is not None and info.settings.checkpoint_policy is CheckpointPolicy.SIDE_EFFECTS:
            await self._make(Call(call.incarnation, fences=call.fences), session_id, cause)

    async def _make(
        self,
        call: Call,
        session_id: str,
        cause: CheckpointCause,
        *,
        name: str = "",
        turn: int | None = None,
        always: bool = False,
    ) -> Written[None]:
        async def attempt() -> Written[None]:
            ground = await survey(self._scribe, session_id)

            def decide(look: Look, draft: Draft) -> None:
                standing = stand(look, ground)
                if always or has_changed(ground, standing, look.session.branch):
                    index = save(look, draft, ground, standing, cause, name=name, turn=turn)
                    draft.reply = index.to_bytes(2, "big")

            intent = Intent("checkpoint", (name,), keys=ground.keys, glances=ground.glances, scans=NEWEST, items=True)
            return await self._scribe.write(call, session_id, intent, decide)

        written = await prepared(session_id, attempt)
        if written.revision and not written.replayed:
            await self._retention.enforce(session_id)
        return written

    async def _of_turn(self, session_id: str, turn: int) -> str | None:
        look = await self._scribe.read(Call(), session_id, (), (Scan(CHECKPOINTS, _RECENT, reverse=True),))
        for entry in look.scans[0].entries:
            if entry.live_until_ms > look.now_ms:
                found = decode_checkpoint(entry)
                if found.turn == turn and found.cause is CheckpointCause.TURN_END:
                    return found.id
        return None
