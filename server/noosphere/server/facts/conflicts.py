"""What becomes of claims that give one slot different values: which one holds, and which only held once.

Everything is decided between two claims at a time, by a relation that is transitive. So the same facts are current in
the end in whatever order claims arrive, and a decision needs to know only what is current.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .types import Cardinality, ConflictRule, Contender, Status

USER_TRUST = 0.5
SYSTEM_TRUST = 1.0


class Outcome(NamedTuple):
    """What becomes of a new claim and of those that it meets.

    Attributes:
        status: what becomes of the new one.
        supersedes: ids of facts that it supersedes.
        superseded_by: the fact that holds instead of it: it is then written as history; empty if there is none.
        contested: ids of facts that contradict it and are kept beside it; each of both is flagged.
        reason: why, as a word.
        explanation: why, in a sentence.
    """

    status: Status
    supersedes: tuple[str, ...] = ()
    superseded_by: str = ""
    contested: tuple[str, ...] = ()
    reason: str = "new"
    explanation: str = "Nothing else is known of this."


def trust_class(trust: float) -> int:
    """Returns how far something is trusted: 0 external content, 1 what users say, 2 the system itself."""
    return (trust >= USER_TRUST) + (trust >= SYSTEM_TRUST)


def preference(one: Contender) -> tuple[int, int, int, str]:
    """Returns the sort key by which claims that contradict each other are shown, the greatest first.

    The newest, but not before one that is trusted more: whoever can write a web page must not decide what is read
    first.
    """
    return (trust_class(one.trust), *_age(one))


def settle(new: Contender, old: Sequence[Contender], cardinality: Cardinality, rule: ConflictRule) -> Outcome:
    """Decides what becomes of a claim whose slot has values already.

    With one value at a time, the newest wins (by the time since when it is so, then by when it was recorded, then by
    id), but never over one of a higher class of trust: then both are kept. What is to be so later counts from when it
    was recorded. A claim that is older than what is known is written as history. Where it is not known whether there
    is one value or several, both are kept.

    Args:
        new: the new claim.
        old: what is current in its slot. Those with the same value contradict nothing.
        cardinality: how the slot's values relate.
        rule: what the scope's policy says of contradictions.
    """
    others = [one for one in old if one.value != new.value and one.id != new.id]
    if not others:
        return Outcome(Status.WRITTEN)
    if cardinality is Cardinality.MULTI:
        return Outcome(Status.WRITTEN, reason="several_values", explanation="This may have several values at a time.")
    if cardinality is Cardinality.UNKNOWN:
        return _beside(others, "unknown_cardinality", "It is not known whether this has one value at a time.")
    if rule is ConflictRule.KEEP_BOTH:
        return _beside(others, "keep_both", "The scope's policy keeps all that contradict each other.")
    beats = _more_trusted if rule is ConflictRule.TRUST else _newer
    winners = [one for one in others if beats(one, new)]
    if winners:
        winner = max(winners, key=preference)
        if rule is ConflictRule.TRUST and winner.trust > new.trust:
            explanation = "Another value is known from what is trusted more; this one is kept as history."
            return Outcome(Status.WRITTEN, (), winner.id, (), "more_trusted_known", explanation)
        explanation = "A newer value is known; this one is kept as history."
        return Outcome(Status.WRITTEN, (), winner.id, (), "newer_known", explanation)
    losers = tuple(one.id for one in others if beats(new, one))
    beside = tuple(one.id for one in others if not beats(new, one))
    if beside:
        explanation = "What is newer is trusted less, so neither supersedes the other."
        return Outcome(Status.CONTESTED, losers, "", beside, "trust_differs", explanation)
    if rule is ConflictRule.TRUST and any(new.trust > one.trust for one in others):
        return Outcome(
            Status.SUPERSEDED, losers, "", (), "more_trusted", "It is trusted more than the value before it."
        )
    return Outcome(Status.SUPERSEDED, losers, "", (), "newer", "It is newer than the value before it.")


def _beside(others: Sequence[Contender], reason: str, explanation: str) -> Outcome:
    return Outcome(Status.CONTESTED, (), "", tuple(one.id for one in others), reason, explanation)


def _age(one: Contender) -> tuple[int, int, str]:
    # Nobody says today what will be newer than all that is still to come.
    return (min(one.valid_from_ms, one.recorded_ms), one.recorded_ms, one.id)


def _newer(one: Contender, other: Contender) -> bool:
    return _age(one) > _age(other) and trust_class(one.trust) >= trust_class(other.trust)


def _more_trusted(one: Contender, other: Contender) -> bool:
    return (one.trust, *_age(one)) > (other.trust, *_age(other))
