"""Read, think, commit against what was read; and again with what changed meanwhile, until it holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

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


Grounds = TypeVar("Grounds")


async def decide(space: Space, think: Think, terms: Terms, attempts: int, timeout: float | None) -> Decision:
    """Decides; see ``Namespace.decide``."""
    # Each attempt has a view of its own, and what guards the first has to guard the last.
    terms = terms._replace(guard=checked_guards(terms.guard))
    budget = Budget(space.transport, timeout, "decision")
    return await until_it_holds(
        lambda notes, again: View(space, Readings(), terms, notes),
        think,
        lambda view, writes, left: view.commit(*writes, timeout=left),
        budget,
        attempts,
        space.name,
    )


async def until_it_holds(
    grounds: Callable[[Notes, bool], AbstractAsyncContextManager[Grounds]],
    think: Callable[[Grounds], Writes | Awaitable[Writes]],
    commit: Callable[[Grounds, tuple[Operation, ...], float | None], Awaitable[Decision]],
    budget: Budget,
    attempts: int,
    namespace: str,
) -> Decision:
    """Lets somebody think and commits what they decide, again as long as another attempt may mend a refusal.

    Args:
        grounds: what an attempt is thought about with, from why the one before was refused, and whether there was one.
        think: decides.
        commit: commits against the grounds, within so many seconds.
        budget: the time for all of it.
        attempts: how many there are at the most.
        namespace: where the grounds lie.

    Raises:
        InvalidArgument: ``attempts`` is less than 1, or what was decided is one write, not several.
        StaleRead: the last attempt's grounds have changed.
        TransactionFailed: a write failed for a reason that thinking again does not mend, or on the last attempt.
        Contention: the server could not decide the last attempt.
    """
    if attempts < 1:
        raise InvalidArgument(f"attempts: {attempts} is less than 1")
    notes = NO_NOTES
    for attempt in range(1, attempts + 1):
        async with grounds(notes, attempt > 1) as found:
            writes = _checked_writes(await budget.run(think, found))
            if not writes:
                # Nothing is written, so nothing is written on stale grounds.
                return Decision(0, (), attempt, (), False, 0)
            try:
                decision = await commit(found, writes, budget.call())
            except (StaleRead, TransactionFailed, Contention) as refused:
                mended = _notes_of(refused, namespace)
                if attempt == attempts or mended is None:
                    raise
                notes = mended
            else:
                return decision._replace(attempts=attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _checked_writes(wanted: Writes) -> tuple[Operation, ...]:
    """Returns what somebody has decided to write.

    Raises:
        InvalidArgument: it is one write, not several.
    """
    if wanted is not None and not isinstance(wanted, Iterable):
        raise InvalidArgument(f"think: expected several writes, got one {type(wanted).__name__}")
    return tuple(wanted or ())


def _notes_of(refused: StaleRead | TransactionFailed | Contention, namespace: str) -> Notes | None:
    """Returns what the next attempt has to know, None if no further attempt can mend it."""
    if isinstance(refused, StaleRead):
        return refused.notes
    if isinstance(refused, Contention):
        return Notes(namespace=namespace, refused=True)
    conflicts = tuple(part.error for part in refused.failures if isinstance(part.error, Conflict))
    if len(conflicts) < len(refused.failures):
        return None
    return Notes(conflicts=conflicts, namespace=namespace, refused=True)
