"""What a key holds after each commit, worked out from the calls alone.

The rules of the data model are written down here a second time, from their description and not from
the code that is checked, so that a mistake in one is seen by the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from .history import Call, Op, Result, Write, WriteKind, show_revision
from .merged import merge
from .verdict import Kind

LEASE_SLACK_NS = 5_000_000
"""Store time counts whole milliseconds, so a lease may differ by so much on the monotonic clock."""

MERGED = "(merged)"
"""Stands for the value of a merge type, whose content is compared instead."""


_ENDS_LIFE = frozenset({Op.DELETE, Op.TRANSACT})
_BEGINS_LIFE = frozenset({Op.PUT, Op.TRANSACT})


class Problem(NamedTuple):
    """Why a commit should not have been possible."""

    kind: Kind
    text: str
    calls: tuple[Call, ...] = ()


class Commit(NamedTuple):
    """A call that is known to have committed."""

    revision: int
    call: Call


class Dot(NamedTuple):
    """A value, or a tombstone (``value`` is None), and the call that wrote it."""

    value: str | None
    call: Call


@dataclass(frozen=True, slots=True)
class ClaimState:
    """A claim as its commits left it.

    Attributes:
        fence: the revision at which it was taken.
        granted: the call that took it or last renewed it.
        expires_ms: store time at which it ends, 0 if not known.
        held: not given up.
        done: the completing call.
    """

    fence: int
    granted: Call
    expires_ms: int
    held: bool = True
    done: Call | None = None


@dataclass(frozen=True, slots=True)
class KeyState:
    """A key between two commits.

    Attributes:
        stored: the revision of its last change.
        dots: values and tombstones by the revision that wrote them.
        kind: the merge type, empty for a plain value.
        content: what a merge type holds.
        sure: whether ``content`` is known.
        vague: whether it is open which values unanswered writes left.
        claim: the claim on it.
        expires: whether a live value may end by itself.
        call: the call of the last change.
    """

    stored: int = 0
    dots: Mapping[int, Dot] = field(default_factory=lambda: MappingProxyType({}))
    kind: str = ""
    content: Any = None
    sure: bool = True
    vague: bool = False
    claim: ClaimState | None = None
    expires: bool = False
    call: Call | None = None

    @property
    def live(self) -> dict[int, Dot]:
        """The values without the tombstones."""
        return {dot: entry for dot, entry in self.dots.items() if entry.value is not None}

    @property
    def version(self) -> int:
        """The revision of the last change, 0 without a live value."""
        return self.stored if self.live else 0


ABSENT = KeyState()


class Step(NamedTuple):
    """A key after a commit, and why that commit should not have been possible."""

    state: KeyState
    problems: tuple[Problem, ...] = ()


def write_step(
    before: KeyState, write: Write, result: Result | None, commit: Commit, private: bool, unsettled: Set[Op]
) -> Step:
    """Applies one write of a commit.

    Args:
        before: the key as the newest earlier commit left it.
        write: what was asked for.
        result: what the caller was told; None if it never was, or if a replay did not repeat it.
        commit: the commit.
        private: whether the namespace is the writer's own, where the last writer wins.
        unsettled: operations on the key whose outcome is unknown; they may explain what else would be wrong.
    """
    if write.kind in (WriteKind.PUT, WriteKind.DELETE):
        return _plain_step(before, write, result, commit, private, unsettled)
    revision, call = commit
    problems: tuple[Problem, ...] = ()
    fresh = not before.live
    if not fresh and before.kind != write.kind and not unsettled:
        held = before.kind or "plain value"
        problems = (Problem(Kind.UNCHECKED_WRITE, f"{write.kind} was applied to a {held}", _last(before)),)
    sure = fresh or (before.sure and before.kind == write.kind)
    state = replace(
        before,
        stored=revision,
        dots={revision: Dot(MERGED, call)},
        kind=str(write.kind),
        content=merge(write.kind, None if fresh else before.content, write.merge, revision, write.context)
        if sure
        else None,
        sure=sure,
        claim=None if fresh else before.claim,
        call=call,
    )
    return Step(state, problems)


def _plain_step(
    before: KeyState, write: Write, result: Result | None, commit: Commit, private: bool, unsettled: Set[Op]
) -> Step:
    revision, call = commit
    problems = []
    live = before.live
    excused = before.expires or not unsettled.isdisjoint(_ENDS_LIFE)
    if write.expected is not None and write.expected != before.version:
        overtaken = before.stored > write.expected
        text = (
            f"accepted with expected version {show_revision(write.expected)} although the version was "
            f"{show_revision(before.version)}"
        )
        if overtaken if write.expected else not excused:
            problems.append(Problem(Kind.LOST_UPDATE if live else Kind.RESURRECTED_DELETE, text, _last(before)))
        elif write.expected and not unsettled:
            problems.append(Problem(Kind.UNCHECKED_WRITE, text, _last(before)))
    unseen: dict[int, Dot] = {}
    if write.context is not None:
        context = write.context
        unseen = {dot: entry for dot, entry in before.dots.items() if not context.covers(dot)}
    elif write.expected is None and not write.blind and live and not private and not excused:
        problems.append(Problem(Kind.LOST_UPDATE, "replaced a live value without having read anything", _last(before)))
    missed = {dot: entry for dot, entry in unseen.items() if entry.value is not None}
    kept: dict[int, Dot] = {}
    vague = False
    if result is None:
        vague = bool(missed)
    elif result.version is None:
        # Only SIBLINGS acknowledges without a version: what the writer had not seen lives on.
        kept = missed
    else:
        problems += _undeclared(unseen, result)
    state = KeyState(
        stored=revision,
        dots=kept,
        kind=before.kind if live else "",
        # The new content of a merge type is a value that the history knows only by name.
        sure=not (before.kind and live),
        vague=vague,
        claim=before.claim if live or before.vague else None,
        expires=write.expires or bool(kept and before.expires),
        call=call,
    )
    if write.kind is WriteKind.PUT:
        state = replace(state, dots={**kept, revision: Dot(write.value, call)})
    elif not kept:
        state = KeyState(stored=revision, dots={revision: Dot(None, call)}, vague=vague, call=call)
    return Step(state, tuple(problems))


def _undeclared(unseen: Mapping[int, Dot], result: Result) -> Iterator[Problem]:
    """Yields what a write replaced without its writer having seen it or being told."""
    for dot, entry in unseen.items():
        if dot in result.overwritten:
            continue
        if entry.value is not None:
            text = f"replaced value {entry.value} that the writer had not seen, and did not say so"
            yield Problem(Kind.LOST_UPDATE, text, (entry.call,))
        elif not result.undone_delete:
            text = "brought back a key whose delete the writer had not seen"
            yield Problem(Kind.RESURRECTED_DELETE, text, (entry.call,))


def claim_step(before: KeyState, commit: Commit, unsettled: Set[Op]) -> Step:
    """Applies a claim, renew, release or complete.

    Args:
        before: the key as the newest earlier commit left it.
        commit: the commit.
        unsettled: operations on the key whose outcome is unknown: a lease may have been longer or shorter
            than the commits tell.
    """
    revision, call = commit
    problems: list[Problem] = []
    claim = before.claim
    if not before.live and not unsettled.isdisjoint(_BEGINS_LIFE):
        before = replace(before, vague=True)
    elif not before.live and not before.expires:
        problems.append(Problem(Kind.CLAIM_RULE, f"{call.op} on a key that has no live value", _last(before)))
    expires_ms = call.reply.expires_ms if call.reply is not None else 0
    granted_ms = expires_ms - call.lease_ms if expires_ms else 0
    if call.op is Op.CLAIM:
        if claim is not None and claim.done is not None:
            problems.append(Problem(Kind.CLAIM_RULE, "a completed task was handed out again", (claim.done,)))
        elif claim is not None and Op.RELEASE not in unsettled and _certainly_live(claim, call, granted_ms, revision):
            text = f"claimed while {claim.granted.process} still held it"
            problems.append(Problem(Kind.TWO_HOLDERS, text, (claim.granted,)))
        fresh = ClaimState(revision, call, expires_ms, done=claim.done if claim is not None else None)
        return Step(replace(before, stored=revision, claim=fresh, call=call), tuple(problems))
    if claim is not None and claim.done is not None:
        kind = Kind.DOUBLE_COMPLETION if call.op is Op.COMPLETE else Kind.CLAIM_RULE
        problems.append(Problem(kind, f"{call.op} of a task that was already completed", (claim.done,)))
    elif claim is None or claim.fence != call.fence:
        held = f"the fence was {show_revision(claim.fence)}" if claim is not None else "there was no claim"
        kind = Kind.TWO_HOLDERS if claim is not None else Kind.CLAIM_RULE
        evidence = (claim.granted,) if claim is not None else ()
        text = f"{call.op} was accepted with fence {show_revision(call.fence)} although {held}"
        problems.append(Problem(kind, text, evidence))
    elif not claim.held:
        problems.append(Problem(Kind.CLAIM_RULE, f"{call.op} of a claim that had been given up", (claim.granted,)))
    elif Op.RENEW not in unsettled and _certainly_over(claim, call, granted_ms, revision):
        text = f"{call.op} was accepted after the lease had ended"
        problems.append(Problem(Kind.CLAIM_RULE, text, (claim.granted,)))
    claim = claim or ClaimState(call.fence, call, expires_ms)
    if call.op is Op.RENEW:
        claim = replace(claim, granted=call, expires_ms=expires_ms)
    elif call.op is Op.RELEASE:
        claim = replace(claim, held=False)
    else:
        claim = replace(claim, held=False, done=claim.done or call)
    return Step(replace(before, stored=revision, claim=claim, call=call), tuple(problems))


def _certainly_live(claim: ClaimState, call: Call, granted_ms: int, revision: int) -> bool:
    """Tells whether ``call`` took a claim that cannot have lapsed: by store time, else by the callers' clock."""
    if not claim.held:
        return False
    if granted_ms and claim.expires_ms:
        return granted_ms < claim.expires_ms
    # A crash may move store time on, and a new epoch tells of that.
    if claim.granted.lease_ms == 0 or call.reply is None or claim.fence >> 40 != revision >> 40:
        return False
    earliest_end_ns = claim.granted.start_ns + claim.granted.lease_ms * 1_000_000
    return call.reply.return_ns < earliest_end_ns - LEASE_SLACK_NS


def _certainly_over(claim: ClaimState, call: Call, granted_ms: int, revision: int) -> bool:
    """Tells whether the claim had lapsed before ``call`` was decided, whatever its renewals did."""
    if granted_ms and claim.expires_ms:
        return granted_ms >= claim.expires_ms
    granted = claim.granted
    # Store time may pause while a server restarts, and a new epoch tells of that.
    if granted.reply is None or granted.lease_ms == 0 or claim.fence >> 40 != revision >> 40:
        return False
    return call.start_ns > granted.reply.return_ns + granted.lease_ms * 1_000_000 + LEASE_SLACK_NS


def _last(state: KeyState) -> tuple[Call, ...]:
    return (state.call,) if state.call is not None else ()
