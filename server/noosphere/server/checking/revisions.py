"""The first checker: strict serialisability from revisions, heads and the times of the calls.

Revisions order the commits of a namespace, so nothing has to be searched: each commit is applied in
turn, each reply is held against the state after the newest commit up to its head, and the heads are
held against the times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from .history import Call, Compare, Op, Outcome, Reply, Seen, Write, show_revision
from .merged import reads_as, show
from .states import KeyState
from .timeline import Timeline
from .verdict import Findings, Kind

CHECKER = "revisions"

_MAY_DELETE = frozenset({Op.DELETE, Op.TRANSACT})

REVISIONS_PER_RESERVATION_MAX = 2
"""One is taken when it is made or given up, and one if it lapses and is swept."""

CONFLICT_REASONS = frozenset({"CONFLICT", "VERSION_MISMATCH"})
"""Refusals that somebody else's commit must account for."""


def check_revisions(namespace: str, calls: Sequence[Call], complete: bool) -> tuple[Findings, Timeline]:
    """Checks one namespace.

    Args:
        namespace: its name.
        calls: its calls in the order of their start.
        complete: whether these are all that may have written since the namespace was made. If not, only
            heads, times and the uniqueness of revisions can be checked.

    Returns:
        What was found, and the order of commits that it rests on.
    """
    findings = Findings(CHECKER, namespace)
    ignored = Findings(CHECKER, namespace)
    timeline = Timeline(calls, namespace.startswith("agents/"), findings if complete else ignored)
    _check_unique(calls, findings)
    _check_heads(calls, timeline, findings)
    if not complete:
        return findings, timeline
    for call in calls:
        if call.reply is None:
            continue
        for seen in call.reply.seen:
            _check_seen(call, call.reply, seen, timeline, findings)
        if call.reply.whole:
            _check_whole(call, call.reply, timeline, findings)
        if call.reply.outcome is Outcome.REFUSED and call.reply.reason in CONFLICT_REASONS:
            _check_refusal(call, call.reply, timeline, findings)
    _check_ghosts(calls, timeline, findings)
    return findings, timeline


def _check_unique(calls: Sequence[Call], findings: Findings) -> None:
    owners: dict[int, Call] = {}
    for call in calls:
        if (reply := call.applied) is not None and reply.revision:
            other = owners.setdefault(reply.revision, call)
            if other is not call:
                text = f"two calls were acknowledged at revision {show_revision(reply.revision)}"
                keys = {*other.written_keys, *call.written_keys}
                findings.add(Kind.DUPLICATE_REVISION, sorted(keys), text, other, call)


def _check_heads(calls: Sequence[Call], timeline: Timeline, findings: Findings) -> None:
    """Holds heads and revisions against the times: nothing acknowledged may be missed, nothing foreseen."""
    replies = sorted(
        ((call.reply, call) for call in calls if call.reply is not None and (call.reply.head or call.reply.revision)),
        key=lambda pair: pair[0].return_ns,
    )
    known, witness, answered = 0, None, 0
    for call in calls:
        while answered < len(replies) and replies[answered][0].return_ns < call.start_ns:
            reply, other = replies[answered]
            if (newest := max(reply.head, reply.revision)) > known:
                known, witness = newest, other
            answered += 1
        own = call.reply
        if own is None or witness is None:
            continue
        if own.revision and not own.replayed and own.revision <= known:
            text = (
                f"committed at revision {show_revision(own.revision)}, but {show_revision(known)} "
                "had been acknowledged before the call began"
            )
            findings.add(Kind.REAL_TIME, call.written_keys, text, call, witness)
        if own.head and own.head < known and not call.stale:
            text = (
                f"answered with head {show_revision(own.head)}, but {show_revision(known)} "
                "had been acknowledged before the call began"
            )
            findings.add(Kind.HEAD_ORDER, call.keys or call.written_keys, text, call, witness)
    _check_future(replies, timeline, findings)


def _check_future(replies: Sequence[tuple[Reply, Call]], timeline: Timeline, findings: Findings) -> None:
    revisions = [commit.revision for commit in timeline.commits]
    latest: list[Call] = []
    for commit in timeline.commits:
        later = not latest or commit.call.start_ns > latest[-1].start_ns
        latest.append(commit.call if later else latest[-1])
    for reply, call in replies:
        if reply.head and reply.revision > reply.head:
            text = (
                f"committed at {show_revision(reply.revision)}, above the head {show_revision(reply.head)} of its reply"
            )
            findings.add(Kind.HEAD_ORDER, call.written_keys, text, call)
        index = bisect_right(revisions, max(reply.head, reply.revision))
        if index and latest[index - 1].start_ns > reply.return_ns:
            text = f"answered with head {show_revision(reply.head)}, which covers a commit whose call had not begun"
            findings.add(Kind.FUTURE_READ, call.keys or call.written_keys, text, call, latest[index - 1])


def _check_seen(call: Call, reply: Reply, seen: Seen, timeline: Timeline, findings: Findings) -> None:
    at = seen.at or reply.head
    if not at:
        return
    state = timeline.state(seen.key, at)
    unsettled = timeline.unsettled_ops(seen.key)
    if seen.version != state.version:
        if seen.version or not (state.expires or unsettled & _MAY_DELETE):
            _add_mismatch(call, seen, at, state, timeline, findings)
        return
    if seen.version == 0:
        return
    if state.kind != seen.kind:
        text = f"read as {seen.kind or 'a plain value'}, but the commits make it {state.kind or 'a plain value'}"
        findings.add(Kind.WRONG_CONTENT, [seen.key], text, call, *_last(state))
    elif state.kind:
        # An unanswered merge that nobody saw may be part of what was read.
        sure = state.sure and unsettled.isdisjoint({Op.MERGE, Op.TRANSACT})
        if sure and not reads_as(state.kind, state.content, seen.content):
            text = (
                f"read {show('', seen.content)} at revision {show_revision(at)}, "
                f"but the operations up to there make {show(state.kind, state.content)}"
            )
            findings.add(Kind.WRONG_CONTENT, [seen.key], text, call, *_last(state))
    elif not state.vague and not state.expires:
        expected = {dot: entry.value for dot, entry in state.live.items()}
        if dict(zip(seen.written_at, seen.values, strict=False)) != expected:
            text = (
                f"read {'+'.join(seen.values)} at version {show_revision(seen.version)}, "
                f"where the commits make it {'+'.join(map(str, expected.values()))}"
            )
            findings.add(Kind.PHANTOM, [seen.key], text, call, *_last(state))
    if Op.COMPLETE not in unsettled:
        _check_claim_seen(call, seen, state, findings)


def _check_claim_seen(call: Call, seen: Seen, state: KeyState, findings: Findings) -> None:
    fence = state.claim.fence if state.claim is not None else 0
    done = state.claim is not None and state.claim.done is not None
    if (seen.fence, seen.done) != (fence, done):
        text = (
            f"read with fence {show_revision(seen.fence)}{', done' if seen.done else ''}, but its commits make "
            f"fence {show_revision(fence)}{', done' if done else ''}"
        )
        findings.add(Kind.CLAIM_RULE, [seen.key], text, call, *_last(state))


def _add_mismatch(call: Call, seen: Seen, at: int, state: KeyState, timeline: Timeline, findings: Findings) -> None:
    """Names what is wrong with a version that is not the newest up to ``at``."""
    have, want = show_revision(seen.version), show_revision(state.version)
    wanted, found = state.call, timeline.call_at(seen.version)
    where = f"at revision {show_revision(at)}"
    if wanted is not None and len(wanted.writes) > 1 and seen.version < state.stored and _saw_part(call, wanted):
        text = f"saw one part of a transaction and missed this one: version {have} instead of {want} {where}"
        kind = Kind.TORN_TRANSACTION
    elif seen.version == 0:
        kind, text = Kind.MISSING_RECORD, f"read as absent {where}, although version {want} was there"
    elif seen.version > at:
        kind, text = Kind.FUTURE_READ, f"read version {have} {where}, which is older"
    elif found is None or seen.key not in found.written_keys:
        kind, text = Kind.PHANTOM, f"read version {have} {where}, which no call wrote (expected {want})"
    elif state.version == 0:
        kind, text = Kind.RESURRECTED_DELETE, f"read version {have} {where}, after it had been deleted"
    else:
        kind, text = Kind.STALE_READ, f"read version {have} {where}, although {want} was there"
    evidence = [other for other in (wanted, found) if other is not None]
    findings.add(kind, [seen.key], text, call, *evidence)


def _saw_part(call: Call, transaction: Call) -> bool:
    revision = transaction.reply.revision if transaction.reply is not None else 0
    return call.reply is not None and any(seen.version == revision for seen in call.reply.seen)


def _check_whole(call: Call, reply: Reply, timeline: Timeline, findings: Findings) -> None:
    """A list that claims to hold everything in its collection must do so."""
    listed = {seen.key for seen in reply.seen}
    for key in timeline.keys(call.collection):
        state = timeline.state(key, reply.head)
        ends = timeline.unsettled_ops(key) & _MAY_DELETE
        if key not in listed and state.version and not state.expires and not ends:
            text = f"missing from a list at head {show_revision(reply.head)}, but version {state.version} was there"
            findings.add(Kind.MISSING_RECORD, [key], text, call, *_last(state))


def _check_refusal(call: Call, reply: Reply, timeline: Timeline, findings: Findings) -> None:
    """A conflict must have a commit behind it that the caller had not seen."""
    parts: tuple[Write | Compare, ...] = (*call.writes, *call.compares)
    if any(_may_conflict(part, reply.return_ns, timeline) for part in parts):
        return
    text = f"refused with {reply.reason}, but no commit that had begun by then differs from what the caller had seen"
    findings.add(Kind.UNFOUNDED_REFUSAL, call.written_keys, text, call)


def _may_conflict(part: Write | Compare, until_ns: int, timeline: Timeline) -> bool:
    """Tells whether anything that began before ``until_ns`` may have refused ``part``."""
    if timeline.unsettled_ops(part.key):
        return True
    states = [state for state in timeline.states(part.key) if state.call is None or state.call.start_ns < until_ns]
    if any(state.expires for state in states):
        return True
    if part.expected == 0 and any(state.version for state in states):
        return True
    if part.expected:
        known = any(state.version == part.expected for state in states)
        if not known or any(state.stored > part.expected for state in states):
            return True
    # With both given, both have to hold.
    context = part.context if isinstance(part, Write) else None
    return context is not None and any(not context.covers(dot) for state in states for dot in state.dots)


def _check_ghosts(calls: Sequence[Call], timeline: Timeline, findings: Findings) -> None:
    """Every revision of a complete history belongs to a call, so nothing was executed twice."""
    if any(write.expires for call in calls for write in call.writes):
        return  # expiry takes revisions of its own
    heads: Counter[int] = Counter()
    for call in calls:
        if call.reply is not None:
            newest = max(call.reply.head, call.reply.revision)
            heads[newest >> 40] = max(heads[newest >> 40], newest & (1 << 40) - 1)
    explained = Counter(commit.revision >> 40 for commit in timeline.commits)
    first = {commit.revision >> 40: commit.revision & (1 << 40) - 1 for commit in reversed(timeline.commits)}
    extra = sum(head - first[epoch] + 1 - explained[epoch] for epoch, head in heads.items() if epoch in first)
    reserved = sum(call.op is Op.RESERVE and call.outcome is not Outcome.REFUSED for call in calls)
    possible = len(timeline.unsettled) + REVISIONS_PER_RESERVATION_MAX * reserved
    if extra > possible:
        text = f"the head moved over {extra} commits that no answered call made; unanswered ones explain {possible}"
        findings.add(Kind.GHOST_COMMIT, (), text)


def _last(state: KeyState) -> tuple[Call, ...]:
    return (state.call,) if state.call is not None else ()
