"""What is remembered of an owner's turns in order to learn procedures, and what follows from one more turn. Pure.

One record for each owner, out of the users' sight. It holds ids and numbers, no arguments, and names of tools only as
long as a candidate is on its way to its session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..ports.store import StoredEntry
from ..sessions.outbox import Candidate, CandidateValue
from ..sessions.types import Transition, TransitionAction
from .patterns import Pattern, Place, Run, recurring, with_run
from .tool_steps import ToolStep

NAME = "patterns/1"
REASON = "recurring"
PROCEDURES = "procedures/"
KIND = "procedure"
PROCEDURAL = "procedural"
"""The word for this kind of memory; facts have the same."""

PATTERNS_MAX = 128
"""So many patterns are learned for one owner, then no more: none is forgotten, so that none is learned twice."""

OWED_MAX = 4
"""So many candidates may be on their way to their sessions; what else recurs is found again at the end of a turn."""

EVIDENCE_MAX = 32
"""Calls that a candidate names, the newest sessions first; facts take as much."""

SESSIONS_NAMED_MAX = 8


class Owed(msgspec.Struct, frozen=True):
    """A candidate that belongs into a session's outbox, and may not be there yet.

    Attributes:
        id: what it is called by, the same for the same calls.
        session: where it was learned.
        turn: in which turn of it.
        decided_ms: store time at which it was learned.
        explanation: why, in a sentence.
        pattern: what recurs.
        candidate: the candidate, as the outbox holds it.
    """

    id: str
    session: str
    turn: int
    decided_ms: int
    explanation: str
    pattern: Pattern
    candidate: bytes

    @property
    def item(self) -> str:
        """What the candidate is called, as if it had been an item."""
        return PROCEDURES + self.id

    @property
    def transition(self) -> Transition:
        """The decision, as it is shown."""
        return Transition(
            self.item,
            TransitionAction.LEARN,
            REASON,
            self.explanation,
            turn=self.turn,
            decided_ms=self.decided_ms,
            policy=NAME,
        )


class Habits(msgspec.Struct, frozen=True):
    """The record.

    Attributes:
        runs: the newest turns, the oldest first.
        known: the patterns that were learned.
        owed: what was learned and is not known to be in its session's outbox; in ``known``, too.
    """

    runs: tuple[Run, ...] = ()
    known: frozenset[Pattern] = frozenset()
    owed: tuple[Owed, ...] = ()

    def after(self, run: Run, steps: Mapping[int, ToolStep], now_ms: int) -> Habits:
        """Returns the record after a turn, with what has come to recur by it.

        Args:
            run: the turn, with patterns.
            steps: what the numbers of its steps stand for.
            now_ms: store time.
        """
        runs = with_run(self.runs, run)
        # The turn itself, or an earlier one of its session in which the same was done.
        present = next((n for n, r in enumerate(runs) if (r.session, r.steps) == (run.session, run.steps)), None)
        room = min(OWED_MAX - len(self.owed), PATTERNS_MAX - len(self.known))
        if present is None or room <= 0:
            return msgspec.structs.replace(self, runs=runs)
        found = [
            (pattern, places)
            for pattern, places in recurring(runs, self.known).items()
            if any(place.run == present for place in places)
        ]
        learned = tuple(_owed(runs, run, pattern, places, steps, now_ms) for pattern, places in found[:room])
        return Habits(runs, self.known.union(owed.pattern for owed in learned), self.owed + learned)

    def delivered(self, ids: frozenset[str]) -> Habits:
        """Returns the record once candidates are in their sessions' outboxes."""
        return msgspec.structs.replace(self, owed=tuple(owed for owed in self.owed if owed.id not in ids))

    def released(self, ids: frozenset[str]) -> Habits:
        """Returns the record once candidates can reach their sessions no more; what they say can be learned anew."""
        gone = {owed.pattern for owed in self.owed if owed.id in ids}
        return msgspec.structs.replace(self.delivered(ids), known=self.known - gone)


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(Habits)


def encode_habits(habits: Habits) -> bytes:
    """Returns the record's bytes."""
    return _encoder.encode(habits)


def decode_habits(entry: StoredEntry | None) -> Habits:
    """Returns the record; an empty one if there is none."""
    return Habits() if entry is None else _decoder.decode(entry.data)


def _owed(
    runs: Sequence[Run], run: Run, pattern: Pattern, places: Sequence[Place], steps: Mapping[int, ToolStep], now_ms: int
) -> Owed:
    by_session = {runs[place.run].session: place for place in places}
    repeated = [
        any(runs[place.run].times[place.start + n] > 1 for place in by_session.values()) for n in range(len(pattern))
    ]
    tools = [steps[number] for number in pattern]
    order = " → ".join(
        f"{step} several times" if often else str(step) for step, often in zip(tools, repeated, strict=True)
    )
    explanation = f"{len(pattern)} steps have succeeded in this order in {len(by_session)} sessions: {order}."
    value = {
        "text": f"These tools are used in this order: {order}.",
        "steps": [
            {"tool": step.tool, "arguments": step.arguments, "repeated": often}
            for step, often in zip(tools, repeated, strict=True)
        ],
        "sessions": len(by_session),
    }
    name = hashlib.blake2b("\0".join(map(str, tools)).encode(), digest_size=16).hexdigest()
    candidate = Candidate(
        PROCEDURES + name,
        0,
        CandidateValue(json=msgspec.Raw(msgspec.json.encode(value)), time_ms=now_ms),
        attributes={"kind": KIND},
        created_ms=now_ms,
        reason=REASON,
        turn=run.turn,
        evidence=_evidence(runs, by_session.values(), len(pattern)),
        memory_type=PROCEDURAL,
    )
    return Owed(name, run.session, run.turn, now_ms, explanation, pattern, msgspec.json.encode(candidate))


def _evidence(runs: Sequence[Run], places: Iterable[Place], length: int) -> tuple[str, ...]:
    """Returns references to calls, as many of each session as there is room for."""
    newest = sorted(places, reverse=True)[:SESSIONS_NAMED_MAX]
    share = min(length, EVIDENCE_MAX // len(newest))
    return tuple(
        f"tool:{runs[place.run].session}/{call_id}"
        for place in newest
        for call_id in runs[place.run].call_ids[place.start : place.start + share]
    )
