"""Read, think, commit against what was read; and again with what changed meanwhile, until it holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from ._budget import Budget
from ._conflict import Conflict
from ._errors import Contention, InvalidArgument, TransactionFailed
from ._operations import Operation
from ._readset import Readings, checked_guards
from ._space import Space
from ._stale import NO_NOTES, Notes, StaleRead
from ._view import Decision, Terms, View

Writes = Iterable[Operation] | None
Think = Callable[[View], Writes | Awaitable[Writes]]
"""Reads through a view, decides, and returns what to write; may be async and slow. See ``Namespace.decide``."""


async def decide(space: Space, think: Think, terms: Terms, attempts: int, timeout: float | None) -> Decision:
    """Decides; see ``Namespace.decide``."""
    if attempts < 1:
        raise InvalidArgument(f"attempts: {attempts} is less than 1")
    budget = Budget(space.transport, timeout, "decision")
    notes = NO_NOTES
    # Each attempt has a view of its own, and what guards the first has to guard the last.
    terms = terms._replace(guard=checked_guards(terms.guard))
    for attempt in range(1, attempts + 1):
        async with View(space, Readings(), terms, notes) as view:
            writes = checked_writes(await budget.run(think, view))
            if not writes:
                # Nothing is written, so nothing is written on stale grounds.
                return Decision(0, (), attempt, (), False, 0)
            try:
                decision = await view.commit(*writes, timeout=budget.call())
            except (StaleRead, TransactionFailed, Contention) as refused:
                found = notes_of(refused, space.name)
                if attempt == attempts or found is None:
                    raise
                notes = found
            else:
                return decision._replace(attempts=attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")


def checked_writes(wanted: Writes) -> tuple[Operation, ...]:
    """Returns what somebody has decided to write.

    Raises:
        InvalidArgument: it is one write, not several.
    """
    if wanted is not None and not isinstance(wanted, Iterable):
        raise InvalidArgument(f"think: expected several writes, got one {type(wanted).__name__}")
    return tuple(wanted or ())


def notes_of(refused: StaleRead | TransactionFailed | Contention, namespace: str) -> Notes | None:
    """Returns what the next attempt has to know, None if no further attempt can mend it."""
    if isinstance(refused, StaleRead):
        return refused.notes
    if isinstance(refused, Contention):
        return Notes(namespace=namespace, refused=True)
    conflicts = tuple(part.error for part in refused.failures if isinstance(part.error, Conflict))
    if len(conflicts) < len(refused.failures):
        return None
    return Notes(conflicts=conflicts, namespace=namespace, refused=True)
