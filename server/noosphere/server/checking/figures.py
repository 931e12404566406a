"""What happened in a history, counted from its calls."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from .history import MUTATING, Call, Op, Outcome
from .registers import Coverage
from .revisions import CONFLICT_REASONS
from .timeline import Timeline
from .verdict import Figures, Findings, Kind

_LOSSES = (Kind.LOST_UPDATE, Kind.RESURRECTED_DELETE)


def count_figures(
    calls: Sequence[Call],
    timelines: Iterable[Timeline],
    findings: Iterable[Findings],
    coverage: Iterable[Coverage],
) -> Figures:
    """Counts what happened.

    Args:
        calls: every call, in the order of their start.
        timelines: the order of commits in each namespace.
        findings: what the checkers found; lost updates and double completions are counted by the checker
            that found most of them, for several may find the same.
        coverage: what the register checker looked at.
    """
    attempts, resolved, abandoned = _count_attempts(calls)
    timelines = tuple(timelines)
    found = tuple(findings)
    covered = tuple(coverage)
    refusals = Counter(call.reply.reason for call in calls if call.reply and call.reply.outcome is Outcome.REFUSED)
    return Figures(
        processes=len({call.process for call in calls}),
        calls=len(calls),
        by_op=dict(sorted(Counter(str(call.op) for call in calls).items())),
        unknown=sum(call.outcome is Outcome.UNKNOWN for call in calls),
        commits=sum(call.applied is not None and call.applied.revision > 0 for call in calls),
        lost_updates=_most(found, _LOSSES),
        duplicate_completions=_most(found, (Kind.DOUBLE_COMPLETION,)),
        conflicts={reason: refusals[reason] for reason in sorted(CONFLICT_REASONS & refusals.keys())},
        resolved=resolved,
        abandoned=abandoned,
        attempts=dict(sorted(attempts.items())),
        blind_losses=sum(_count_blind_losses(calls, timeline) for timeline in timelines),
        claims_lost=refusals["CLAIM_LOST"],
        completions=sum(call.op is Op.COMPLETE and call.applied is not None for call in calls),
        takeovers=sum(_count_takeovers(timeline) for timeline in timelines),
        registers=sum(part.registers for part in covered),
        uncovered=dict(sorted(Counter(reason for part in covered for reason in part.uncovered.values()).items())),
    )


def _most(findings: Iterable[Findings], kinds: Iterable[Kind]) -> int:
    by_checker: Counter[str] = Counter()
    for found in findings:
        by_checker[found.checker] += sum(found.counts[kind] for kind in kinds)
    return max(by_checker.values(), default=0)


def _count_attempts(calls: Sequence[Call]) -> tuple[Counter[int], int, int]:
    """Returns how many conditional writes took how many attempts, and the conflicts resolved and abandoned."""
    attempts: Counter[int] = Counter()
    resolved = 0
    waiting: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
    for call in calls:
        if call.reply is None or not any(write.conditional for write in call.writes):
            continue
        name = (call.process, call.namespace, call.written_keys)
        if call.reply.reason in CONFLICT_REASONS:
            waiting[name] += 1
        elif call.applied is not None:
            refused = waiting.pop(name, 0)
            attempts[refused + 1] += 1
            resolved += refused
    return attempts, resolved, waiting.total()


def _count_blind_losses(calls: Sequence[Call], timeline: Timeline) -> int:
    """Counts values that a blind write replaced although its process had never read them."""
    views = _views(calls)
    losses = 0
    for commit in timeline.commits:
        call = commit.call
        for write in call.writes:
            if not write.blind:
                continue
            seen_ns, seen = views.get((call.process, call.namespace, write.key), ((), ()))
            index = bisect_left(seen_ns, call.start_ns)
            newest = seen[index - 1] if index else 0
            before = timeline.state(write.key, commit.revision - 1)
            losses += sum(dot > newest for dot in before.live)
    return losses


def _views(calls: Iterable[Call]) -> Mapping[tuple[str, str, str], tuple[list[int], list[int]]]:
    """Returns when each process had seen each key up to which revision."""
    moments: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
    for call in calls:
        reply = call.reply
        if reply is None:
            continue
        for seen in reply.seen:
            newest = seen.version or seen.at or reply.head
            moments[call.process, call.namespace, seen.key].append((reply.return_ns, newest))
        if call.op in MUTATING and reply.revision:
            for key in call.written_keys:
                moments[call.process, call.namespace, key].append((reply.return_ns, reply.revision))
    views = {}
    for name, pairs in moments.items():
        pairs.sort()
        highest = list(accumulate((revision for _, revision in pairs), max))
        views[name] = ([time_ns for time_ns, _ in pairs], highest)
    return views


def _count_takeovers(timeline: Timeline) -> int:
    """Counts claims of tasks whose earlier holder neither completed nor released them."""
    return sum(
        (held := timeline.state(key, commit.revision - 1).claim) is not None
        and held.held
        and held.granted.process != commit.call.process
        for commit in timeline.commits
        if commit.call.op is Op.CLAIM
        for key in commit.call.written_keys
    )
