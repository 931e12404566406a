"""The order of checks on every write.

permission → namespace live and epoch mine → request id known? (a replay wins over everything after)
→ lost revisions → fence and incarnation → limits → read set → then :mod:`decide`: expected version →
context and floor → policy. What a caller is told must not depend on which backend or code path
serves it, so the order is written down once, here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .errors import LogRangeInfo, LostInfo, Reason, Refusal
from .requests import Remembered, check_replay
from .revision import Cut, find_lost


class NamespaceState(NamedTuple):
    """What a write finds before it looks at any record."""

    namespace: str
    deleted: bool
    head: int
    cuts: Sequence[Cut]


def check_presented(revisions: Iterable[int], state: NamespaceState) -> None:
    """Checks revisions that a caller presents: contexts, expected versions, fences, watch starts.

    Raises:
        Refusal: ACKED_WRITES_LOST if any was lost, naming the lowest; else FUTURE_REVISION if any was never issued.
    """
    future: int | None = None
    lowest: int | None = None
    for revision in revisions:
        # Several may have been lost, in different epochs; the caller is told up to where all is still good.
        if (lowest is None or revision < lowest) and find_lost(revision, state.cuts) is not None:
            lowest = revision
        if revision > state.head and future is None:
            future = revision
    if lowest is not None and (lost := find_lost(lowest, state.cuts)) is not None:
        raise Refusal(
            Reason.ACKED_WRITES_LOST,
            f"revision {lowest} of {state.namespace!r} was lost: revisions after {lost.after} "
            f"through {lost.through} did not survive",
            LostInfo(lost.after, lost.through),
        )
    if future is not None:
        raise Refusal(
            Reason.FUTURE_REVISION,
            f"revision {future} of {state.namespace!r} was never issued; the head is {state.head}",
            LogRangeInfo(future, 0),
        )


def admit(
    state: NamespaceState,
    *,
    permitted: bool,
    remembered: Remembered | None,
    fingerprint: bytes,
    presented: Iterable[int],
    incarnation_current: bool,
    stale_fence: str | None,
    limits: Iterable[Callable[[], Refusal | None]],
) -> Remembered | None:
    """Runs the checks that come before any record is looked at, in their order.

    Args:
        state: the namespace.
        permitted: whether the caller may write here.
        remembered: the earlier execution of this request id, if any.
        fingerprint: what this request means.
        presented: every revision that the request carries.
        incarnation_current: whether the caller's incarnation is the agent's living one.
        stale_fence: the name of a presented lock whose token is below the highest seen.
        limits: checks of sizes and counts; each returns a refusal or None.

    Returns:
        The remembered call if this is a replay, None if the write is to be decided.

    Raises:
        Refusal: the first check that failed.
    """
    if not permitted:
        raise Refusal(Reason.PERMISSION_DENIED, f"writing to {state.namespace!r} is not permitted")
    if state.deleted:
        raise Refusal(
            Reason.NAMESPACE_DELETED, f"namespace {state.namespace!r} was deleted; EnsureNamespace opens a new one"
        )
    if remembered is not None:
        check_replay(remembered, fingerprint)
        return remembered
    check_presented(presented, state)
    if stale_fence is not None:
        raise Refusal(Reason.STALE_FENCE, f"lock {stale_fence!r}: a later holder has already written")
    if not incarnation_current:
        raise Refusal(Reason.STALE_INCARNATION, "this incarnation of the agent has ended; open the agent again")
    for limit in limits:
        if (refusal := limit()) is not None:
            raise refusal
    return None
