"""Two agents write at once where both are kept; somebody joins them."""

from __future__ import annotations

from noosphere.client import Order, PendingConflict

from .cast import NOTES, Cast, after_writing, is_order, name_of, sights
from .telling import Step

NOTE = NOTES + "summary"
EXPLANATION_TOKENS = 300


async def keep_both(cast: Cast, step: Step) -> None:
    """Ada and Ben write a note on the same grounds; Cleo works the queue."""
    ada, ben, cleo = (agent.namespace(cast.namespace).key(NOTE) for agent in (cast.ada, cast.ben, cast.cleo))
    await ada.put("first draft")
    for_ada, for_ben = await ada.read(), await ben.read()
    by_ada = await for_ada.replace("shorter")
    by_ben = await for_ben.replace("with figures")
    assert by_ada.applied is not None
    assert by_ben.applied is not None
    seen_by_ada = after_writing(for_ada.clock, cast.ada.actor, by_ada.applied.revision)
    seen_by_ben = after_writing(for_ben.clock, cast.ben.actor, by_ben.applied.revision)
    both = await cleo.read()
    step.parts.append(
        sights(
            both.clock,
            [
                (name_of(cast.ada), "'shorter'", seen_by_ada),
                (name_of(cast.ben), "'with figures'", seen_by_ben),
                (name_of(cast.cleo), "both", both.clock),
            ],
        )
    )
    step.line(
        "Ada's and Ben's notes are CONCURRENT: neither had seen the other's",
        is_order(seen_by_ada, seen_by_ben, Order.CONCURRENT),
    )
    step.line(
        "Under the policy SIBLINGS both are kept, and Ben got no version to overwrite Ada's with",
        both.values == ("shorter", "with figures") and by_ben.version is None,
    )
    queue = await _queue(cast)
    step.line(
        "The note waits in the queue of conflicts since Ben's write",
        [(pending.record.key, pending.since) for pending in queue] == [(NOTE, by_ben.applied.revision)],
    )
    step.quote(
        "What whoever works the queue is told:",
        queue[0].conflict.explain(EXPLANATION_TOKENS),
        *(cast.ada.actor, cast.ben.actor, "shorter", "with figures"),
    )
    resolved = await queue[0].record.resolve("shorter, with figures")
    now = await ada.read()
    step.line(
        "Cleo puts one note in the place of both: it is AFTER each, and the queue is empty",
        now.values == ("shorter, with figures",)
        and now.version == resolved.version
        and is_order(now.clock, seen_by_ada, Order.AFTER)
        and is_order(now.clock, seen_by_ben, Order.AFTER)
        and await _queue(cast) == [],
    )


async def _queue(cast: Cast) -> list[PendingConflict[str]]:
    return [pending async for pending in cast.cleo.namespace(cast.namespace).conflicts(model=str)]
