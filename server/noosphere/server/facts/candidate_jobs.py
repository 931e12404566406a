"""Candidates as they wait in the queue."""

from __future__ import annotations

import msgspec

from .contents import decode_candidate
from .types import Candidate, Decision, Status, Why

CANDIDATE_JOBS = "candidate"
"""The kind of a job that decides about a candidate."""


def group_of(scope: str, owner: str) -> str:
    """Returns the group of the queue in which an owner's candidates wait."""
    return f"{scope}#{owner}"


class Waiting(msgspec.Struct, frozen=True):
    """A candidate's job: its kind, the candidate, and the meaning of the request that brought it."""

    kind: str
    candidate: msgspec.Raw
    meaning: bytes = b""


class _Kind(msgspec.Struct, frozen=True):
    kind: str


_waiting = msgspec.json.Decoder(Waiting)


def decode_waiting(body: bytes) -> Waiting:
    """Returns what a candidate's job holds."""
    return _waiting.decode(body)


def candidate_in(body: bytes) -> Candidate | None:
    """Returns the candidate that a job is about, None for a job of another kind."""
    if msgspec.json.decode(body, type=_Kind).kind != CANDIDATE_JOBS:
        return None
    return decode_candidate(bytes(decode_waiting(body).candidate))


NOBODY_DECIDES = Why("queue", "no_store", "It waits until there is a fact store: this server has none.")


def waiting_decision(candidate_id: str, *, nobody_decides: bool = False, away: str = "") -> Decision:
    """Returns what is known of a candidate that nobody has decided about.

    Args:
        candidate_id: the candidate's id.
        nobody_decides: whether that will be so for as long as there is no fact store.
        away: why nothing can be decided at present; empty if nothing is known to stand in the way.
    """
    if nobody_decides:
        return Decision(candidate_id, Status.QUEUED, (NOBODY_DECIDES,))
    if not away:
        return Decision(candidate_id, Status.QUEUED)
    told = f"It was accepted, and is decided once that is possible again. What stands in the way: {away}"
    return Decision(candidate_id, Status.QUEUED, (Why("queue", "engine_away", told),))
