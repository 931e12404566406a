"""The controller's decisions as records: one for each run that changed something, the newest few hundred kept.

What was learned has records of its own, one for each candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..memory.codec import decode_record
from ..memory.reads import check_page_size
from ..memory.types import Call
from ..ports.store import StoredEntry
from ..sessions.codec import TURN_ATTRIBUTE, value_of
from ..sessions.draft import Draft
from ..sessions.keys import EVENTS, KeyRange
from ..sessions.scribe import Scan, Scribe
from ..sessions.types import Transition, TransitionAction

EVENTS_MAX = 256
"""Runs that are kept. One more is the bound; each new one takes the oldest's place."""

_SCAN_STEP = 64


class _Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str
    action: TransitionAction
    reason: str
    explanation: str
    score: float = 0.0
    into: str = ""


class _Run(msgspec.Struct, frozen=True):
    turn: int
    decided_ms: int
    policy: str
    decisions: tuple[_Decision, ...]


_decoder = msgspec.json.Decoder(_Run)


class TransitionPage(NamedTuple):
    """One page of decisions; ``position`` is where the next page begins, None at the end."""

    transitions: tuple[Transition, ...]
    position: str | None


EVENT_SCAN = Scan(EVENTS, EVENTS_MAX, reverse=True)
"""What has to be read to know which event is too many: the newest ones, for the tombstones are all older."""


def surplus_keys(newest: Sequence[StoredEntry], now_ms: int) -> tuple[str, ...]:
    """Returns which event goes to make room for one more.

    Args:
        newest: what :data:`EVENT_SCAN` found, the newest first.
        now_ms: store time.
    """
    if len(newest) < EVENTS_MAX or newest[-1].live_until_ms <= now_ms:
        return ()
    return (newest[-1].key,)


def record_run(draft: Draft, turn: int, decided_ms: int, policy: str, transitions: tuple[Transition, ...]) -> None:
    """Adds an event to a draft."""
    decisions = tuple(_Decision(t.key, t.action, t.reason, t.explanation, t.score, t.into) for t in transitions)
    data = msgspec.json.encode(_Run(turn, decided_ms, policy, decisions))
    draft.append(EVENTS, data, ((TURN_ATTRIBUTE, turn),))


async def list_transitions(
    scribe: Scribe, call: Call, session_id: str, *, page_size: int, position: str | None
) -> TransitionPage:
    """Reads one page of decisions that changed something, the newest first.

    Raises:
        Refusal: SESSION_NOT_FOUND, INVALID_FIELD, or a reason that concerns the caller.
    """
    size = check_page_size(page_size)
    found: list[Transition] = []
    key, _, index = (position or "").rpartition("#")
    before, skip = (key + "\0" if key else None), int(index or 0)
    while True:
        scan = Scan(EVENTS, _SCAN_STEP, reverse=True, keys=KeyRange(None, before))
        page = (await scribe.read(call, session_id, (), (scan,))).scans[0]
        for entry in page.entries:
            before = entry.key
            if entry.live_until_ms <= page.view.now_ms:
                continue
            for n, transition in enumerate(_transitions(entry.data, entry.revision)):
                if n < skip:
                    continue
                if len(found) == size:
                    return TransitionPage(tuple(found), f"{entry.key}#{n}")
                found.append(transition)
            skip = 0
        if not page.more:
            return TransitionPage(tuple(found), None)


async def transitions_of_turn(scribe: Scribe, session_id: str, turn: int) -> tuple[Transition, ...]:
    """Returns what was decided at the end of a turn, and learned in it, as far as it is among the newest decisions."""
    look = await scribe.read(Call(), session_id, (), (Scan(EVENTS, _SCAN_STEP, reverse=True),))
    decided: tuple[Transition, ...] = ()
    learned: tuple[Transition, ...] = ()
    for entry in look.scans[0].entries:
        if entry.live_until_ms <= look.now_ms:
            continue
        found = _transitions(entry.data, entry.revision)
        if found[0].turn == turn:
            if found[0].action is TransitionAction.LEARN:
                learned += found
            else:
                decided = decided or found
    return tuple(sorted((*decided, *learned)))


def _transitions(data: bytes, revision: int) -> tuple[Transition, ...]:
    run = _decoder.decode(value_of(decode_record(data, revision)))
    return tuple(
        Transition(d.key, d.action, d.reason, d.explanation, d.score, d.into, run.turn, run.decided_ms, run.policy)
        for d in run.decisions
    )
