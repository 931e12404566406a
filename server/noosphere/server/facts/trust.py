"""How far a candidate is trusted: what the server assigns from its channel and from what it rests on.

A claim of more than that is refused. What an agent submits has the lowest trust of its evidence, so that a poisoned
page does not become a trusted fact because an agent repeats it. What says more than its evidence does is made of
something else that its agent has seen, and is trusted no more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..ports.sources import Source
from .telling import mentions, tells
from .types import Channel, Evidence

INTERNAL_TRUST = 1.0
USER_TRUST = 0.5
EXTERNAL_TRUST = 0.0


class Assigned(NamedTuple):
    """A candidate's trust, and why in a sentence."""

    trust: float
    explanation: str


def assign(
    channel: Channel,
    text: str,
    value: str,
    evidence: Sequence[Evidence],
    found: Sequence[Source | None],
    context_trust: float | None,
) -> Assigned:
    """Returns the trust of a candidate.

    Args:
        channel: how it came in; INTERNAL only for those who may use it.
        text: what it claims.
        value: the value that it states apart, as JSON text; empty for none.
        evidence: what its producer named.
        found: what the server holds of that, in the same order.
        context_trust: the lowest trust of what its producer has seen, if :func:`rests_on_context`.
    """
    match channel:
        case Channel.INTERNAL:
            return Assigned(INTERNAL_TRUST, "It comes from the server itself or its operator.")
        case Channel.EXTERNAL:
            return Assigned(EXTERNAL_TRUST, "It is external content.")
        case Channel.USER:
            if not any(source is not None and source.role == "user" for source in found):
                return Assigned(EXTERNAL_TRUST, "No message of a user that the server holds is named as evidence.")
        case Channel.AGENT:
            if not evidence:
                lowest = min(context_trust or EXTERNAL_TRUST, USER_TRUST)
                return Assigned(
                    lowest, "Without evidence it is trusted as far as the least of what its agent has seen."
                )
    for named, source in zip(evidence, found, strict=True):
        if (doubt := _doubt(f"{text} {value}", named, source)) is not None:
            return Assigned(EXTERNAL_TRUST, f"{named.reference}: {doubt}")
    trust = min(USER_TRUST, *(source.trust for source in found if source is not None))
    if context_trust is not None and context_trust < trust:
        return Assigned(
            context_trust,
            "It says more than its evidence, so it is trusted as far as the least of what its agent has seen.",
        )
    return Assigned(trust, "It is trusted as far as the least trusted of its evidence.")


def rests_on_context(text: str, value: str, found: Sequence[Source | None]) -> bool:
    """Tells whether a candidate's trust depends on what its agent has seen besides the evidence that was found."""
    held = [source for source in found if source is not None]
    if len(held) < len(found) or any(source.trust == EXTERNAL_TRUST for source in held):
        # It is worth nothing anyway.
        return False
    return not held or not tells([source.text for source in held], text, value)


def _doubt(text: str, named: Evidence, source: Source | None) -> str | None:
    """Returns why a piece of evidence proves nothing, None if it does."""
    if source is None:
        return "the server does not hold it."
    if named.content_hash and named.content_hash != source.content_hash:
        return "it does not say what it said when it was named."
    if named.quote and named.quote not in source.text:
        return "the quoted words are not in it."
    # Of what is worth nothing it makes no difference, and results of tools may be long.
    if source.trust > EXTERNAL_TRUST and not mentions((source.text,), text):
        return "it shares no word with the claim."
    return None
