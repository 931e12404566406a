"""Turns: what one agent does in answer to one input, in any number of steps. Several agents may have turns open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from noosphere.consistency import ReadSet, Reason, Refusal, StaleEntry, exhausted

from ..memory.types import Call
from .appending import turn_not_open
from .codec import decode_turns, encode
from .draft import Draft, Look
from .keys import TURNS
from .scribe import Intent, Scribe, Written
from .types import OpenTurn, Transition, TurnOutcome, Turns

OPEN_TURNS_MAX = 64


class AfterTurn(Protocol):
    """What else the end of a turn brings about: a checkpoint, a run of the controller.

    It runs after the commit that ended the turn, in commits of its own, and runs again if a caller retries: it must
    find out by the turn's number what it has done already. What it raises reaches the caller, whose turn has ended
    nevertheless.
    """

    async def after_turn(self, call: Call, session_id: str, turn: int) -> TurnOutcome:
        """Does its part.

        Args:
            call: who ended the turn; without request id and tokens.
            session_id: where.
            turn: the turn's number.

        Raises:
            Refusal: why it cannot.
        """
        ...


class TurnReply(NamedTuple):
    """A turn that began or ended, and what its end brought about."""

    turn: int
    head: int
    outcome: TurnOutcome
    read_set: ReadSet | None
    stale: tuple[StaleEntry, ...]


class TurnBook:
    """Begins and ends turns.

    Args:
        scribe: reads and writes their record.
        after: what happens at the end of each turn, in this order.
    """

    def __init__(self, scribe: Scribe, after: Sequence[AfterTurn] = ()) -> None:
        self._scribe = scribe
        self._after = after

    async def begin(self, call: Call, session_id: str) -> TurnReply:
        """Begins the caller's turn.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, LIMIT_EXCEEDED, or a reason that concerns the caller.
        """
        author = call.agent_id

        def decide(look: Look, draft: Draft) -> int:
            before = decode_turns(look.record(TURNS))
            if len(before.open) >= OPEN_TURNS_MAX:
                raise exhausted("turns", len(before.open), OPEN_TURNS_MAX, "too many open turns, end some of them")
            turn = before.turn + 1
            draft.put(TURNS, encode(Turns(turn, (*before.open, OpenTurn(turn, author, look.now_ms)))))
            draft.reply = _pack(turn)
            return turn

        written = await self._scribe.write(call, session_id, Intent("begin_turn", keys=(TURNS,)), decide)
        return _reply(written, TurnOutcome())

    async def end(self, call: Call, session_id: str, turn: int) -> TurnReply:
        """Ends a turn; 0 means the newest that the caller has open.

        Raises:
            Refusal: SESSION_NOT_FOUND, SESSION_CLOSED, TURN_NOT_OPEN, or a reason that concerns the caller.
        """
        author = call.agent_id

        def decide(look: Look, draft: Draft) -> int:
            before = decode_turns(look.record(TURNS))
            ended = turn or before.newest_of(author)
            if not ended:
                raise Refusal(Reason.TURN_NOT_OPEN, f"turn: {author!r} has none open in session {session_id!r}")
            if not before.is_open(ended):
                raise turn_not_open(session_id, ended, before.turn)
            left = tuple(opened for opened in before.open if opened.turn != ended)
            draft.put(TURNS, encode(msgspec.structs.replace(before, open=left)))
            draft.reply = _pack(ended)
            return ended

        written = await self._scribe.write(call, session_id, Intent("end_turn", (turn,), keys=(TURNS,)), decide)
        number = _number(written)
        checkpoint_id = ""
        transitions: tuple[Transition, ...] = ()
        head = written.head
        who = Call(call.incarnation, fences=call.fences, principal=call.principal)
        for hook in self._after:
            outcome = await hook.after_turn(who, session_id, number)
            checkpoint_id = outcome.checkpoint_id or checkpoint_id
            transitions += outcome.transitions
        if self._after:
            head = (await self._scribe.read(Call(call.incarnation), session_id)).view.head
        return _reply(written, TurnOutcome(checkpoint_id, transitions), head)


def _pack(turn: int) -> bytes:
    return turn.to_bytes(8, "big")


def _number(written: Written[int]) -> int:
    return int.from_bytes(written.reply, "big") if written.value is None else written.value


def _reply(written: Written[int], outcome: TurnOutcome, head: int = 0) -> TurnReply:
    return TurnReply(_number(written), head or written.head, outcome, written.read_set, written.stale)
