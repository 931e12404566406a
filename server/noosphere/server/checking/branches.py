"""Histories across failovers that have lost commits: each branch is judged by itself.

A failover that loses commits goes back to an earlier head, the *cut*, and goes on from there in a later epoch. What
is past the cut is a branch that has ended; the rest, up to the present, is the trunk. Each is to be strictly
serialisable: a branch together with the commits that it rests on, the trunk without any of the branches. And whoever
presents a revision of an ended branch is to be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from .history import MUTATING, Call, Op, Outcome, Reply, show_revision
from .revisions import CHECKER
from .verdict import Findings, Kind


class Branch(NamedTuple):
    """Calls that have to fit together.

    Attributes:
        epoch: that ended it; 0 for the trunk, which nothing has ended.
        calls: in the order of their start.
        lost: how many acknowledged commits have ended with it.
    """

    epoch: int
    calls: tuple[Call, ...]
    lost: int


def branches_of(calls: Sequence[Call], cuts: Sequence[tuple[int, int]]) -> Iterator[Branch]:
    """Yields the trunk of one namespace and, oldest first, the branches that failovers have ended.

    Args:
        calls: the calls of one namespace in the order of their start.
        cuts: for each later epoch, oldest first, its number and what survived: the newest revision before it.
    """
    lost = [_lost_by(call, cuts) for call in calls]
    # What was answered from a state that is lost may have been executed before, as a repetition: its commit is there.
    kept = [call if not by else _outlasting(call, cuts) for call, by in zip(calls, lost, strict=True)]
    yield Branch(0, tuple(call for call in kept if call is not None), 0)
    for epoch, cut in cuts:
        ended = [call for call, by in zip(calls, lost, strict=True) if by == epoch]
        if ended:
            last_ns = max(call.reply.return_ns for call in ended if call.reply is not None)
            # What an earlier failover has ended is nothing that later ones could rest on.
            others = (
                call if not by or by > epoch else shown
                for call, shown, by in zip(calls, kept, lost, strict=True)
                if by != epoch
            )
            rest = (_below(call, cut, last_ns) for call in others if call is not None)
            found = sorted((*ended, *(call for call in rest if call is not None)), key=lambda call: call.start_ns)
            commits = sum(call.applied is not None and call.applied.revision > cut for call in ended)
            yield Branch(epoch, tuple(found), commits)


def check_told(namespace: str, calls: Sequence[Call], cuts: Sequence[tuple[int, int]]) -> Findings:
    """Checks that nobody was served who presented a revision that was lost by then; see :func:`branches_of`."""
    findings = Findings(CHECKER, namespace)
    for call in calls:
        reply = call.applied
        if reply is None or not reply.revision:
            continue
        for revision in _presented(call):
            epoch = next((epoch for epoch, cut in cuts if cut < revision <= epoch << 40), 0)
            if epoch and reply.revision > epoch << 40:
                text = f"presented revision {show_revision(revision)}, which epoch {epoch} has lost, and was served"
                findings.add(Kind.UNTOLD_LOSS, call.written_keys, text, call)
                break
    return findings


def _presented(call: Call) -> Iterator[int]:
    yield call.fence
    yield from (compare.expected for compare in call.compares)
    for write in call.writes:
        yield write.expected or 0
        if write.context is not None:
            yield write.context.prefix
            yield from write.context.extras


def _lost_by(call: Call, cuts: Sequence[tuple[int, int]]) -> int:
    """Returns the epoch with which the state that a call was answered from was lost; 0 if it was not."""
    if call.reply is None:
        return 0
    return _ended_by(max(call.reply.head, call.reply.revision), cuts)


def _ended_by(revision: int, cuts: Sequence[tuple[int, int]]) -> int:
    return next((epoch for epoch, cut in cuts if cut < revision <= epoch << 40), 0)


def _outlasting(call: Call, cuts: Sequence[tuple[int, int]]) -> Call | None:
    """Returns the commit of a call whose answer shows a lost state; None without one, or if that is lost, too."""
    reply = call.applied
    if call.op not in MUTATING or reply is None or not reply.revision or _ended_by(reply.revision, cuts):
        return None
    return replace(call, reply=_bare(reply, call))


def _below(call: Call, cut: int, last_ns: int) -> Call | None:
    """Returns what a call is to a branch that ended above ``cut``: a commit that it rests on, a doubt, or nothing."""
    if call.op not in MUTATING or call.start_ns > last_ns:
        return None
    if call.outcome is Outcome.REFUSED:
        return None
    if (reply := call.applied) is not None:
        if not reply.revision:
            # It changed nothing.
            return None
        if reply.revision <= cut:
            return replace(call, reply=_bare(reply, call))
    # Not answered, or answered later: an attempt may have been executed here.
    return replace(call, reply=None)


def _bare(reply: Reply, call: Call) -> Reply:
    """Returns what a commit says of itself, without what its reply shows of others."""
    if call.op in (Op.CLAIM, Op.RENEW, Op.RELEASE, Op.COMPLETE):
        # Its record is as its own revision has left it.
        return replace(reply, head=reply.revision)
    return replace(reply, head=reply.revision, seen=())
