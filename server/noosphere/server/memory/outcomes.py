"""What operations did, in the order in which they were asked for, and what is remembered of that."""

from __future__ import annotations

from collections.abc import Sequence

from noosphere.consistency import CausalContext, Decision

from .extension import Additions
from .remembered import OpMemory
from .types import AppendOp, AppliedOp, Operation


def applied(decision: Decision, revision: int) -> AppliedOp:
    """Returns what the commit at ``revision`` did to a key."""
    if decision.noop:
        # The commit has checked that the key has no live value: the same as reading that at its revision.
        return AppliedOp(0, CausalContext(revision))
    version, context = decision.ack(revision)
    return AppliedOp(
        version, context, decision.overwritten, decision.concurrent_delete, decision.merged, decision.trimmed
    )


def in_order(
    asked: Sequence[Operation], done: Sequence[AppliedOp], additions: Additions, revision: int
) -> tuple[AppliedOp, ...]:
    """Returns what each operation did.

    Args:
        asked: every operation.
        done: what those on keys did.
        additions: what the extension did about those that append.
        revision: the commit's; 0 if nothing had to change.
    """
    keyed, appended = iter(done), iter(additions.appended)
    found: list[AppliedOp] = []
    for op in asked:
        if isinstance(op, AppendOp):
            version = next(appended) or revision
            found.append(AppliedOp(version, CausalContext(version)))
        else:
            found.append(next(keyed))
    return tuple(found)


def memories(asked: Sequence[Operation], decisions: Sequence[Decision], additions: Additions) -> list[OpMemory]:
    """Returns what is remembered of each operation; of an append that was known, only that it changed nothing."""
    keyed, appended = iter(decisions), iter(additions.appended)
    return [
        OpMemory(sole=True, live=not next(appended)) if isinstance(op, AppendOp) else _memory(next(keyed))
        for op in asked
    ]


def _memory(decision: Decision) -> OpMemory:
    return OpMemory(
        decision.sole,
        decision.live,
        decision.base.prefix,
        decision.concurrent_delete,
        tuple(dot.dot for dot in decision.overwritten),
        decision.merged,
        decision.trimmed,
    )
