"""A namespace's commits in the order of their revisions, and every key's state between them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set

from msgspec.structs import replace

from .history import MUTATING, Call, Op, Outcome, Result, Seen, WriteKind
from .states import ABSENT, Commit, KeyState, claim_step, write_step
from .verdict import Findings, Kind

_STEPS = frozenset({Op.RENEW, Op.RELEASE, Op.COMPLETE})


class Timeline:
    """What every key of a namespace held at every revision.

    A call with unknown outcome is placed at the revision under which somebody saw its effect; one that
    nobody saw is *unsettled* and excuses what it might explain.

    Args:
        calls: the namespace's calls in the order of their start.
        private: whether it is an agent's own namespace.
        findings: where commits that should not have been possible are reported.
    """

    def __init__(self, calls: Sequence[Call], private: bool, findings: Findings) -> None:
        self._private = private
        self._findings = findings
        self._commits: dict[int, Call] = {}
        self._revisions: dict[str, list[int]] = defaultdict(list)
        self._states: dict[str, list[KeyState]] = defaultdict(list)
        for call in calls:
            if (reply := call.applied) is not None and reply.revision:
                self._commits.setdefault(reply.revision, call)
        unknown = [call for call in calls if call.outcome is Outcome.UNKNOWN and call.op in MUTATING]
        self.unsettled = _place(unknown, calls, self._commits)
        self._unsettled_ops = {key: frozenset(ops) for key, ops in _ops_by_key(self.unsettled).items()}
        self._boards = tuple(call.collection for call in self.unsettled if call.op is Op.CLAIM)
        self.commits = tuple(Commit(revision, call) for revision, call in sorted(self._commits.items()))
        for commit in self.commits:
            self._apply(commit)

    def call_at(self, revision: int) -> Call | None:
        """Returns the call that committed ``revision``."""
        return self._commits.get(revision)

    def state(self, key: str, revision: int) -> KeyState:
        """Returns what ``key`` held after the newest commit up to ``revision``."""
        index = bisect_right(self._revisions.get(key, ()), revision)
        return self._states[key][index - 1] if index else ABSENT

    def states(self, key: str) -> Sequence[KeyState]:
        """Returns every state of ``key``, oldest first."""
        return self._states.get(key, ())

    def keys(self, collection: str) -> Iterator[str]:
        """Yields every key that was ever written in ``collection`` (empty: the namespace)."""
        return (key for key in self._states if key.startswith(collection))

    def unsettled_ops(self, key: str) -> Set[Op]:
        """Returns the operations on ``key`` that may or may not have taken effect."""
        ops = self._unsettled_ops.get(key, frozenset())
        return ops | {Op.CLAIM} if any(key.startswith(board) for board in self._boards) else ops

    def _apply(self, commit: Commit) -> None:
        call = commit.call
        if call.op is Op.CLAIM or call.op in _STEPS:
            # An unanswered claim was placed by what somebody saw, so its key is known from there.
            for key in call.written_keys:
                step = claim_step(self.state(key, commit.revision), commit, self.unsettled_ops(key))
                self._put(key, step.state)
                for problem in step.problems:
                    self._findings.add(problem.kind, [key], problem.text, call, *problem.calls)
            return
        for compare in call.compares:
            version = self.state(compare.key, commit.revision).version
            if version != compare.expected and not self.unsettled_ops(compare.key):
                text = f"a transaction compared with version {compare.expected} although it was {version}"
                last = self.state(compare.key, commit.revision).call
                self._findings.add(
                    Kind.UNCHECKED_WRITE, [compare.key], text, call, *((last,) if last is not None else ())
                )
        for write, result in zip(call.writes, _results(call), strict=True):
            before = self.state(write.key, commit.revision)
            step = write_step(before, write, result, commit, self._private, self.unsettled_ops(write.key))
            if result is not None and result.version == 0 and write.kind is WriteKind.DELETE and not before.live:
                continue  # nothing was there to delete
            self._put(write.key, step.state)
            for problem in step.problems:
                self._findings.add(problem.kind, [write.key], problem.text, call, *problem.calls)

    def _put(self, key: str, state: KeyState) -> None:
        self._revisions[key].append(state.stored)
        self._states[key].append(state)


def _results(call: Call) -> Iterable[Result | None]:
    reply = call.applied
    if reply is None or reply.replayed or len(reply.results) != len(call.writes):
        return [None] * len(call.writes)
    return reply.results


def _ops_by_key(calls: Iterable[Call]) -> dict[str, set[Op]]:
    ops: dict[str, set[Op]] = defaultdict(set)
    for call in calls:
        for key in call.written_keys:
            ops[key].add(call.op)
    return ops


def _place(unknown: Iterable[Call], calls: Sequence[Call], commits: dict[int, Call]) -> tuple[Call, ...]:
    """Adds unanswered calls to ``commits`` where they were seen; returns those that nobody saw."""
    waiting = list(unknown)
    if not waiting:
        return ()
    sightings = [
        (revision, seen, call.reply.return_ns)
        for call in calls
        if call.reply is not None
        for seen in call.reply.seen
        for revision in {*seen.written_at, seen.version, seen.fence}
        if revision and revision not in commits
    ]
    for revision, seen, return_ns in sorted(sightings, key=lambda sighting: sighting[0]):
        if revision in commits:
            continue
        found = next((c for c in waiting if c.start_ns < return_ns and _explains(c, seen, revision)), None)
        if found is not None:
            waiting.remove(found)
            commits[revision] = replace(found, key=seen.key) if found.op is Op.CLAIM else found
    return tuple(waiting)


def _explains(call: Call, seen: Seen, revision: int) -> bool:
    """Tells whether ``call`` may have committed ``revision``, which ``seen`` shows."""
    if revision in seen.written_at:
        return any(
            write.key == seen.key and (write.value in seen.values or seen.kind == write.kind) for write in call.writes
        )
    if revision == seen.fence:
        return call.op is Op.CLAIM and seen.key.startswith(call.collection)
    step = Op.COMPLETE if seen.done else call.op
    return step in _STEPS and call.op is step and seen.key == call.key and seen.fence == call.fence
