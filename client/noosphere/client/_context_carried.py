"""Evidence that a session's handle carries on from one step to the next, so that no step has to search again.

The server keeps no text of a context, and whoever thinks in steps holds the one handle for all of them: so it is the
handle that remembers, in this process and no longer, what its caller has asked it to (see decision record 14).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from noosphere.v1 import context_service_pb2 as pb

from ._session_wire import whole

CARRY_STEPS_MAX = 100
CARRIED_PIECES_MAX = 200
"""Most pieces of evidence in one context, and most that are carried."""
CARRIED_BYTES_MAX = 256 * 1024
"""Most bytes of text that are carried; what was given first goes first."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """What was given at one step.

    Attributes:
        origin: the id of that step's context.
        query: the mark of what it was found for; empty if nobody searched, or not all that was found is still here.
        pieces: as they are sent to later contexts.
        left: to how many more steps. At 0 they are shown no more, but still known should they be found again.
    """

    origin: str
    query: str
    pieces: tuple[pb.Evidence, ...]
    left: int


class Step:
    """The evidence of one context.

    Args:
        batches: what is carried so far.
    """

    def __init__(self, batches: Sequence[_Batch]) -> None:
        self._batches = tuple(batches)
        self._fresh: tuple[pb.Evidence, ...] = ()

    def answers(self, query: str) -> bool:
        """Tells whether what was found for a query is still carried, be it nothing."""
        mark = _mark(query)
        return any(batch.left and batch.query == mark for batch in self._batches)

    def evidence(self, fresh: Sequence[pb.Evidence]) -> list[pb.Evidence]:
        """Returns what is sent: what is given for this context, and what is carried from the steps before.

        Args:
            fresh: what is given. What has no id of the caller's own gets a number that no other piece has, or keeps
                the one under which it is carried.
        """
        known = [piece for batch in self._batches for piece in batch.pieces]
        again = {_content(piece): piece.id for piece in known}
        named = {one.id for one in fresh if one.id}
        taken = named | {piece.id for piece in known}
        for index, one in enumerate(fresh, start=1):
            if not one.id:
                held = again.pop(_content(one), "")
                one.id = held if held and held not in named else _number(index, taken)
                taken.add(one.id)
        self._fresh = tuple(fresh)
        contents = {(one.id, _content(one)) for one in fresh}
        live = [piece for batch in self._batches if batch.left for piece in batch.pieces]
        # What was shown no more, but is given once more, shows where it stood.
        ended = [piece for batch in self._batches if not batch.left for piece in batch.pieces]
        live += [piece for piece in ended if (piece.id, _content(piece)) in contents]
        room = max(0, CARRIED_PIECES_MAX - len(fresh))
        return [*fresh, *live[len(live) - min(room, len(live)) :]]

    def after(
        self, batches: Iterable[_Batch], context_id: str, revision: int, query: str | None, steps: int, *, ages: bool
    ) -> tuple[_Batch, ...]:
        """Returns what is carried after this context.

        Args:
            batches: what is carried by now: other contexts may have been assembled meanwhile.
            context_id: the context's id.
            revision: its manifest's revision.
            query: what the fresh pieces were found for; None if nobody searched.
            steps: to how many more steps the fresh pieces are shown.
            ages: whether this context is a step of its own.
        """
        fresh = {one.id: one for one in self._fresh}
        stood: dict[str, pb.Evidence] = {}
        kept: list[_Batch] = []
        mine = {batch.origin for batch in self._batches}
        for batch in batches:
            pieces = []
            for piece in batch.pieces:
                newer = fresh.get(piece.id)
                if newer is not None and _content(newer) == _content(piece):
                    stood[piece.id] = piece
                if newer is None or (not steps and piece.id in stood):
                    pieces.append(piece)
            left = batch.left - 1 if ages and batch.origin in mine else batch.left
            if left >= 0:
                kept.append(replace(batch, pieces=tuple(pieces), left=left))
        if steps:
            pieces = [stood.get(one.id) or _carried(one, context_id, revision) for one in self._fresh]
            kept.append(_Batch(context_id, "" if query is None else _mark(query), tuple(pieces), steps))
        return _within_limits(kept)


class CarriedEvidence:
    """What one handle carries. Not thread-safe, but for :meth:`forget`; open to concurrent steps."""

    def __init__(self) -> None:
        self._batches: tuple[_Batch, ...] = ()

    def step(self) -> Step:
        """Begins a context."""
        return Step(self._batches)

    def end(self, step: Step, reply: pb.AssembleContextResponse, query: str | None, steps: int, *, ages: bool) -> None:
        """Ends a context that was assembled; see :meth:`Step.after`."""
        self._batches = step.after(self._batches, reply.context_id, reply.manifest.revision, query, steps, ages=ages)

    def forget(self) -> None:
        """Drops everything."""
        self._batches = ()


def checked_carry(steps: int) -> int:
    """Returns for how many steps evidence is carried.

    Raises:
        InvalidArgument: it is no whole number, or above the limit.
    """
    return whole("carry_evidence", steps, high=CARRY_STEPS_MAX)


def _content(piece: pb.Evidence) -> tuple[str, str, float, float]:
    return piece.text, piece.source, piece.trust, piece.relevance


def _mark(query: str) -> str:
    # A question may be long, and there may be many.
    return hashlib.blake2b(query.encode(), digest_size=16).hexdigest()


def _number(index: int, taken: set[str]) -> str:
    while str(index) in taken:
        index += 1
    return str(index)


def _carried(piece: pb.Evidence, context_id: str, revision: int) -> pb.Evidence:
    carried = pb.Evidence()
    carried.CopyFrom(piece)
    carried.carried_from, carried.carried_revision = context_id, revision
    return carried


def _within_limits(batches: Sequence[_Batch]) -> tuple[_Batch, ...]:
    """Returns the newest of it that may be carried, whole pieces each."""
    kept: list[_Batch] = []
    pieces_left, bytes_left = CARRIED_PIECES_MAX, CARRIED_BYTES_MAX
    for batch in reversed(batches):
        here = []
        for piece in batch.pieces:
            size = len(piece.text.encode())
            if pieces_left and size <= bytes_left:
                here.append(piece)
                pieces_left -= 1
                bytes_left -= size
        # Of what a search found, a part is no answer: it is asked again.
        query = batch.query if len(here) == len(batch.pieces) else ""
        if here or query:
            kept.append(replace(batch, query=query, pieces=tuple(here)))
    return tuple(reversed(kept))
