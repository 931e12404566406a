"""The second checker's other half: merge types and claims, by sums and times alone.

A counter read must hold at least what had been acknowledged before the read began and at most what had
been asked for by the time it returned; the last read of a run is the final tally. Sets and extremes are
bounded likewise. A claim is surely held from its acknowledgement to the end of its lease; over a restart or a
failover the lease runs by the store's time, which a crash may move on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .history import Call, Op, Outcome, Reply, Seen, Write, WriteKind
from .merged import canonical
from .states import LEASE_SLACK_NS
from .verdict import Findings, Kind

CHECKER = "tallies"

COMPARISONS_MAX = 20_000_000

CHECKED = frozenset({WriteKind.ADD, WriteKind.SET, WriteKind.MAX, WriteKind.MIN})


class Change(NamedTuple):
    """A merge operation on a key; ``answered_ns`` is None if its outcome is unknown."""

    write: Write
    call: Call
    answered_ns: int | None


class Read(NamedTuple):
    """Somebody's view of a key."""

    seen: Seen
    call: Call
    reply: Reply


@dataclass(slots=True)
class _Key:
    changes: list[Change] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    kinds: set[WriteKind] = field(default_factory=set)


def check_tallies(namespace: str, calls: Sequence[Call]) -> tuple[Findings, set[str]]:
    """Checks one namespace of which every write is known and which was empty at first.

    Returns:
        What was found, and the keys that were checked.
    """
    findings = Findings(CHECKER, namespace)
    keys = _collect(calls)
    checked = set()
    for name, key in keys.items():
        if len(key.kinds) == 1 and key.kinds <= CHECKED:
            if len(key.reads) * len(key.changes) > COMPARISONS_MAX:
                findings.undecided.append(
                    f"tallies: {namespace} {name}: {len(key.reads)} reads of {len(key.changes)} changes are too many"
                )
                continue
            checked.add(name)
            kind = next(iter(key.kinds))
            for read in key.reads:
                if not read.call.stale:
                    _check_read(name, kind, key.changes, read, findings)
    _check_claims(calls, findings)
    return findings, checked


def _collect(calls: Sequence[Call]) -> dict[str, _Key]:
    keys: dict[str, _Key] = defaultdict(_Key)
    for call in calls:
        reply = call.reply
        if call.outcome is not Outcome.REFUSED:
            answered = reply.return_ns if reply is not None and reply.outcome is Outcome.OK else None
            for write in call.writes:
                keys[write.key].kinds.add(write.kind)
                keys[write.key].changes.append(Change(write, call, answered))
        if reply is not None and reply.outcome is not Outcome.UNKNOWN:
            for seen in reply.seen:
                keys[seen.key].reads.append(Read(seen, call, reply))
    return keys


def _check_read(key: str, kind: WriteKind, changes: Sequence[Change], read: Read, findings: Findings) -> None:
    """Holds one read against what must and what may be in it."""
    content = read.seen.content if read.seen.version else None
    before = [
        change
        for change in changes
        if change.answered_ns is not None and (change.answered_ns < read.call.start_ns or change.call is read.call)
    ]
    maybe = [change for change in changes if change.call.start_ns <= read.reply.return_ns]
    for problem in _contradictions(kind, content, before, maybe):
        findings.add(problem.kind, [key], problem.text, read.call, *problem.calls)


class _Problem(NamedTuple):
    kind: Kind
    text: str
    calls: tuple[Call, ...] = ()


def _contradictions(
    kind: WriteKind, content: Any, before: Sequence[Change], maybe: Sequence[Change]
) -> Iterator[_Problem]:
    if kind is WriteKind.ADD:
        yield from _counter(content, before, maybe)
    elif kind is WriteKind.SET:
        yield from _set(content, before, maybe)
    else:
        yield from _extreme(kind, content, before, maybe)


def _counter(content: Any, before: Sequence[Change], maybe: Sequence[Change]) -> Iterator[_Problem]:
    sure = {id(change) for change in before}
    total = sum(change.write.merge for change in before)
    open_ = [change.write.merge for change in maybe if id(change) not in sure]
    low = total + sum(delta for delta in open_ if delta < 0)
    high = total + sum(delta for delta in open_ if delta > 0)
    value = content or 0
    if not low <= value <= high:
        kind = Kind.LOST_UPDATE if value < low else Kind.WRONG_CONTENT
        yield _Problem(kind, f"read {value}, but what was acknowledged and asked for by then makes {low} to {high}")


def _set(content: Any, before: Sequence[Change], maybe: Sequence[Change]) -> Iterator[_Problem]:
    held = {canonical(element) for element in content or ()}
    added = {canonical(element) for change in maybe for element in change.write.merge.get("add", ())}
    removed = {canonical(element) for change in maybe for element in change.write.merge.get("remove", ())}
    for element in sorted(held - added):
        yield _Problem(Kind.PHANTOM, f"holds {element}, which nobody had added")
    for change in before:
        for element in map(canonical, change.write.merge.get("add", ())):
            if element not in held and element not in removed:
                yield _Problem(Kind.LOST_UPDATE, f"lacks {element}, whose add was acknowledged", (change.call,))


def _extreme(kind: WriteKind, content: Any, before: Sequence[Change], maybe: Sequence[Change]) -> Iterator[_Problem]:
    if content is None:
        if before:
            yield _Problem(Kind.LOST_UPDATE, "is absent after an acknowledged write", (before[0].call,))
        return
    if all(change.write.merge != content for change in maybe):
        yield _Problem(Kind.PHANTOM, f"holds {content!r}, which nobody had written")
    for change in before:
        operand = change.write.merge
        if operand > content if kind is WriteKind.MAX else operand < content:
            yield _Problem(Kind.LOST_UPDATE, f"holds {content!r} after {operand!r} was acknowledged", (change.call,))
            return


@dataclass(slots=True)
class _Hold:
    """A claim is surely held after its acknowledgement until the lease ends or its holder lets go."""

    claim: Call
    fence: int
    from_ns: int
    until_ns: int
    granted_ms: int
    """Store time when it was granted; 0 if unknown."""
    expires_ms: int
    """Store time when the lease ends, by the newest answer; 0 if unknown."""

    def lapsed_before(self, later: _Hold) -> bool:
        """Tells whether store time, which a new epoch may begin further on, had ended it when ``later`` was granted.

        In one epoch store time runs as fast as the callers', so nothing ends a lease early.
        """
        if self.fence >> 40 == later.fence >> 40 or not (self.expires_ms and later.granted_ms):
            return False
        return later.granted_ms >= self.expires_ms


def _check_claims(calls: Sequence[Call], findings: Findings) -> None:
    """No two sure holders at once, and one completion for each task that is never deleted."""
    holds: dict[str, dict[int, _Hold]] = defaultdict(dict)
    completions: dict[str, list[Call]] = defaultdict(list)
    deleted = {write.key for call in calls for write in call.writes if write.kind is WriteKind.DELETE}
    for call in calls:
        reply = call.applied
        if call.op is Op.CLAIM and reply is not None:
            for seen in reply.seen:
                if seen.key not in deleted:
                    end_ns = call.start_ns + call.lease_ms * 1_000_000 - LEASE_SLACK_NS
                    granted_ms = reply.expires_ms - call.lease_ms if reply.expires_ms else 0
                    # The fence serves as the claim's name and tells its epoch; its order is not used.
                    holds[seen.key][seen.fence] = _Hold(
                        call, seen.fence, reply.return_ns, end_ns, granted_ms, reply.expires_ms
                    )
        hold = holds.get(call.key, {}).get(call.fence)
        if call.op is Op.RENEW and reply is not None and hold is not None:
            hold.until_ns = max(hold.until_ns, call.start_ns + call.lease_ms * 1_000_000 - LEASE_SLACK_NS)
            hold.expires_ms = max(hold.expires_ms, reply.expires_ms)
        if call.op in (Op.RELEASE, Op.COMPLETE) and hold is not None and call.outcome is not Outcome.REFUSED:
            hold.until_ns = min(hold.until_ns, call.start_ns)
        if call.op is Op.COMPLETE and reply is not None and call.key not in deleted:
            completions[call.key].append(call)
    for key, done in completions.items():
        for again in done[1:]:
            findings.add(Kind.DOUBLE_COMPLETION, [key], "the task was completed twice", done[0], again)
    for key, by_fence in holds.items():
        last: _Hold | None = None
        for hold in sorted(by_fence.values(), key=lambda hold: hold.from_ns):
            if hold.from_ns >= hold.until_ns:
                continue
            if last is not None and last.lapsed_before(hold):
                last = None
            if last is not None and hold.from_ns < last.until_ns:
                text = f"{last.claim.process} and {hold.claim.process} both held the task"
                findings.add(Kind.TWO_HOLDERS, [key], text, last.claim, hold.claim)
            if last is None or hold.until_ns > last.until_ns:
                last = hold
