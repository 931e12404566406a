"""Violations planted by hand, one each, and what each checker must say about them.

Every history starts from one that is valid, so that what is rejected is the plant and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from noosphere.server.checking import (
    Call,
    Compare,
    Context,
    History,
    Kind,
    Op,
    Outcome,
    Reply,
    Result,
    Seen,
    Verdict,
    Write,
    WriteKind,
    check_calls,
    new_header,
)

NAMESPACE = "shared/planted"
MS = 1_000_000


@dataclass
class Story:
    """Builds a history call by call; times are in milliseconds."""

    calls: list[Call] = field(default_factory=list)

    def put(self, who: str, key: str, value: str, time: tuple[int, int], revision: int, **given: Any) -> None:
        write = Write(key, WriteKind.PUT, value, **given)
        self._add(who, Op.PUT, time, revision, writes=(write,), results=(Result(revision),))

    def refused(self, who: str, key: str, time: tuple[int, int], head: int, **given: Any) -> None:
        write = Write(key, WriteKind.PUT, "refused", **given)
        self._add(who, Op.PUT, time, 0, writes=(write,), head=head, outcome=Outcome.REFUSED, reason="CONFLICT")

    def delete(self, who: str, key: str, time: tuple[int, int], revision: int, **given: Any) -> None:
        write = Write(key, WriteKind.DELETE, **given)
        self._add(who, Op.DELETE, time, revision, writes=(write,), results=(Result(0),))

    def merge(self, who: str, key: str, kind: WriteKind, operand: Any, time: tuple[int, int], revision: int) -> None:
        write = Write(key, kind, merge=operand)
        self._add(who, Op.MERGE, time, revision, writes=(write,), results=(Result(revision),))

    def transact(self, who: str, writes: tuple[Write, ...], time: tuple[int, int], revision: int, **given: Any) -> None:
        self._add(who, Op.TRANSACT, time, revision, writes=writes, results=(Result(revision),) * len(writes), **given)

    def get(self, who: str, time: tuple[int, int], head: int, *seen: Seen) -> None:
        self._add(who, Op.GET, time, 0, keys=tuple(s.key for s in seen), head=head, seen=seen)

    def list(self, who: str, time: tuple[int, int], head: int, *seen: Seen) -> None:
        self._add(who, Op.LIST, time, 0, head=head, seen=seen, whole=True)

    def claim(self, who: str, key: str, time: tuple[int, int], revision: int, version_of: str, dot: int) -> None:
        seen = Seen(key, revision, (version_of,), (dot,), fence=revision, at=revision)
        self._add(who, Op.CLAIM, time, revision, collection="todo/", lease_ms=100, seen=(seen,))

    def complete(self, who: str, key: str, fence: int, time: tuple[int, int], revision: int) -> None:
        self._add(who, Op.COMPLETE, time, revision, key=key, fence=fence)

    def _add(
        self,
        who: str,
        op: Op,
        time: tuple[int, int],
        revision: int,
        *,
        head: int = 0,
        outcome: Outcome = Outcome.OK,
        reason: str = "",
        seen: tuple[Seen, ...] = (),
        results: tuple[Result, ...] = (),
        whole: bool = False,
        **asked: Any,
    ) -> None:
        number = len(self.calls) + 1
        reply = Reply(
            who,
            number,
            time[1] * MS,
            outcome,
            reason,
            head or revision,
            revision,
            seen=seen,
            results=results,
            whole=whole,
        )
        self.calls.append(Call(who, number, op, NAMESPACE, time[0] * MS, **asked, reply=reply))

    def judge(self) -> Verdict:
        calls = sorted(self.calls, key=lambda call: call.start_ns)
        return check_calls(History(new_header(complete=[NAMESPACE]), tuple(calls)))


def valid(story: Story) -> None:
    """Two agents change one plan, a pair of keys and a tally, and finish a task; all as it should be."""
    story.put("p", "plan", "v1", (0, 10), 1)
    story.get("q", (20, 30), 1, Seen("plan", 1, ("v1",)))
    story.put("q", "plan", "v2", (40, 50), 2, context=Context(1), base=("v1",))
    story.refused("p", "plan", (60, 70), 2, context=Context(1), base=("v1",))
    story.get("p", (80, 90), 2, Seen("plan", 2, ("v2",)))
    story.put("p", "plan", "v3", (100, 110), 3, context=Context(2), base=("v2",))
    pair = (Write("left", WriteKind.PUT, "l4"), Write("right", WriteKind.PUT, "r4"))
    story.transact("q", pair, (120, 130), 4)
    story.get("p", (140, 150), 4, Seen("left", 4, ("l4",)), Seen("right", 4, ("r4",)))
    story.merge("p", "tally", WriteKind.ADD, 5, (160, 170), 5)
    story.merge("q", "tally", WriteKind.ADD, 7, (165, 175), 6)
    story.get("q", (180, 190), 6, Seen("tally", 6, kind="add", content=12))
    story.put("p", "todo/1", "t7", (200, 210), 7)
    story.claim("p", "todo/1", (220, 230), 8, "t7", 7)
    story.complete("p", "todo/1", 8, (240, 250), 9)


PLANTS: dict[str, tuple[Callable[[Story], None], dict[str, Kind]]] = {}


def plant(name: str, **expected: Kind) -> Callable[[Callable[[Story], None]], Callable[[Story], None]]:
    def register(write: Callable[[Story], None]) -> Callable[[Story], None]:
        PLANTS[name] = (write, expected)
        return write

    return register


@plant("lost update", revisions=Kind.LOST_UPDATE, registers=Kind.LOST_UPDATE)
def _lost_update(story: Story) -> None:
    story.put("q", "plan", "v10", (300, 310), 10, context=Context(3), base=("v3",))
    story.put("p", "plan", "v11", (320, 330), 11, context=Context(3), base=("v3",))


@plant("lost update under an expected version", revisions=Kind.LOST_UPDATE, registers=Kind.LOST_UPDATE)
def _lost_update_version(story: Story) -> None:
    story.put("q", "plan", "v10", (300, 310), 10, expected=3, base=("v3",))
    story.put("p", "plan", "v11", (305, 330), 11, expected=3, base=("v3",))


@plant("overwritten without having read", revisions=Kind.LOST_UPDATE, registers=Kind.NOT_LINEARIZABLE)
def _unread(story: Story) -> None:
    story.put("q", "plan", "v10", (300, 310), 10)


@plant("stale read", revisions=Kind.STALE_READ, registers=Kind.NOT_LINEARIZABLE)
def _stale_read(story: Story) -> None:
    story.get("q", (300, 310), 9, Seen("plan", 2, ("v2",)))


@plant("stale read under a stale head", revisions=Kind.HEAD_ORDER, registers=Kind.NOT_LINEARIZABLE)
def _stale_head(story: Story) -> None:
    story.get("q", (300, 310), 2, Seen("plan", 2, ("v2",)))


@plant("read from the future", revisions=Kind.FUTURE_READ, registers=Kind.FUTURE_READ)
def _future(story: Story) -> None:
    story.get("q", (300, 310), 10, Seen("plan", 10, ("v10",)))
    story.put("p", "plan", "v10", (320, 330), 10, context=Context(3), base=("v3",))


@plant("value from nowhere", revisions=Kind.PHANTOM, registers=Kind.PHANTOM)
def _phantom(story: Story) -> None:
    story.get("q", (300, 310), 9, Seen("plan", 3, ("v99",)))


@plant("version from nowhere", revisions=Kind.PHANTOM, registers=Kind.PHANTOM)
def _phantom_version(story: Story) -> None:
    story.get("q", (300, 310), 9, Seen("plan", 6, ("v99",)))


@plant("head that went back", revisions=Kind.HEAD_ORDER)
def _head_back(story: Story) -> None:
    story.get("q", (300, 310), 8, Seen("plan", 3, ("v3",)))


@plant("revision given twice", revisions=Kind.DUPLICATE_REVISION)
def _duplicate(story: Story) -> None:
    story.put("q", "other", "o9", (300, 310), 9)


@plant("real-time inversion between two clients", revisions=Kind.REAL_TIME)
def _inversion(story: Story) -> None:
    story.put("q", "one", "o11", (300, 310), 11)
    story.put("p", "two", "o10", (320, 330), 10)
    story.get("q", (340, 350), 11, Seen("one", 11, ("o11",)), Seen("two", 10, ("o10",)))


@plant("real-time inversion on one key", revisions=Kind.REAL_TIME, registers=Kind.NOT_LINEARIZABLE)
def _inversion_key(story: Story) -> None:
    story.put("q", "one", "o11", (300, 310), 11, blind=True)
    story.put("p", "one", "o10", (320, 330), 10, blind=True)
    story.get("q", (340, 350), 11, Seen("one", 11, ("o11",)))


@plant("torn transaction", revisions=Kind.TORN_TRANSACTION, registers=Kind.TORN_TRANSACTION)
def _torn(story: Story) -> None:
    pair = (
        Write("left", WriteKind.PUT, "l10", context=Context(4), base=("l4",)),
        Write("right", WriteKind.PUT, "r10", context=Context(4), base=("r4",)),
    )
    story.transact("q", pair, (300, 310), 10)
    story.get("p", (305, 320), 10, Seen("left", 10, ("l10",)), Seen("right", 4, ("r4",)))


@plant("transaction whose condition did not hold", revisions=Kind.UNCHECKED_WRITE, registers=Kind.TORN_TRANSACTION)
def _unchecked(story: Story) -> None:
    writes = (Write("left", WriteKind.PUT, "l10", context=Context(4), base=("l4",)),)
    story.transact("q", writes, (300, 310), 10, compares=(Compare("plan", 2, ("v2",)),))


@plant("resurrected delete", revisions=Kind.RESURRECTED_DELETE, registers=Kind.NOT_LINEARIZABLE)
def _resurrected(story: Story) -> None:
    story.delete("q", "plan", (300, 310), 10, context=Context(3), base=("v3",))
    story.get("p", (320, 330), 10, Seen("plan", 3, ("v3",)))


@plant("write that undoes an unseen delete", revisions=Kind.RESURRECTED_DELETE, registers=Kind.LOST_UPDATE)
def _undone(story: Story) -> None:
    story.delete("q", "plan", (300, 310), 10, context=Context(3), base=("v3",))
    story.put("p", "plan", "v11", (320, 330), 11, context=Context(3), base=("v3",))


@plant("acknowledged write missing at the end", revisions=Kind.MISSING_RECORD, registers=Kind.NOT_LINEARIZABLE)
def _missing(story: Story) -> None:
    story.put("q", "new", "n10", (300, 310), 10)
    story.get("p", (320, 330), 10, Seen("new"))


@plant("record missing from a list", revisions=Kind.MISSING_RECORD)
def _unlisted(story: Story) -> None:
    story.list(
        "q",
        (300, 310),
        9,
        Seen("left", 4, ("l4",)),
        Seen("right", 4, ("r4",)),
        Seen("tally", 6, kind="add", content=12),
        Seen("todo/1", 9, ("t7",), (7,), fence=8, done=True),
    )


@plant("double completion", revisions=Kind.DOUBLE_COMPLETION, tallies=Kind.DOUBLE_COMPLETION)
def _double(story: Story) -> None:
    story.complete("q", "todo/1", 8, (300, 310), 10)


@plant("completed task handed out again", revisions=Kind.CLAIM_RULE)
def _again(story: Story) -> None:
    seen = Seen("todo/1", 10, ("t7",), (7,), fence=10, done=True, at=10)
    story._add("q", Op.CLAIM, (300, 310), 10, collection="todo/", lease_ms=100, seen=(seen,))


@plant("two holders at once", revisions=Kind.TWO_HOLDERS, tallies=Kind.TWO_HOLDERS)
def _two_holders(story: Story) -> None:
    story.put("p", "todo/2", "t10", (300, 310), 10)
    story.claim("p", "todo/2", (320, 330), 11, "t10", 10)
    story.claim("q", "todo/2", (340, 350), 12, "t10", 10)


@plant("completion by somebody who had lost the claim", revisions=Kind.TWO_HOLDERS)
def _late(story: Story) -> None:
    story.put("p", "todo/2", "t10", (300, 310), 10)
    story.claim("p", "todo/2", (320, 330), 11, "t10", 10)
    story.claim("q", "todo/2", (500, 510), 12, "t10", 10)
    story.complete("p", "todo/2", 11, (520, 530), 13)


@plant("completion after the lease", revisions=Kind.CLAIM_RULE)
def _over(story: Story) -> None:
    story.put("p", "todo/2", "t10", (300, 310), 10)
    story.claim("p", "todo/2", (320, 330), 11, "t10", 10)
    story.complete("p", "todo/2", 11, (520, 530), 12)


@plant("refusal without a reason", revisions=Kind.UNFOUNDED_REFUSAL, registers=Kind.NOT_LINEARIZABLE)
def _unfounded(story: Story) -> None:
    story.refused("q", "plan", (300, 310), 9, context=Context(3), base=("v3",))


@plant("merge executed twice", revisions=Kind.GHOST_COMMIT, tallies=Kind.WRONG_CONTENT)
def _twice(story: Story) -> None:
    story.merge("p", "tally", WriteKind.ADD, 5, (300, 310), 11)
    story.get("q", (320, 330), 11, Seen("tally", 11, kind="add", content=22))


@plant("forgotten add", revisions=Kind.WRONG_CONTENT, tallies=Kind.LOST_UPDATE)
def _forgotten(story: Story) -> None:
    story.merge("p", "tally", WriteKind.ADD, 5, (300, 310), 10)
    story.get("q", (320, 330), 10, Seen("tally", 10, kind="add", content=12))


@plant("element lost from a set", revisions=Kind.WRONG_CONTENT, tallies=Kind.LOST_UPDATE)
def _set(story: Story) -> None:
    story.merge("p", "names", WriteKind.SET, {"add": ["x"]}, (300, 310), 10)
    story.merge("q", "names", WriteKind.SET, {"add": ["y"]}, (320, 330), 11)
    story.get("q", (340, 350), 11, Seen("names", 11, kind="set", content=["y"]))


@plant("maximum that fell", revisions=Kind.WRONG_CONTENT, tallies=Kind.LOST_UPDATE)
def _max(story: Story) -> None:
    story.merge("p", "peak", WriteKind.MAX, 9, (300, 310), 10)
    story.merge("q", "peak", WriteKind.MAX, 4, (320, 330), 11)
    story.get("q", (340, 350), 11, Seen("peak", 11, kind="max", content=4))


@plant("field of a map that went back", revisions=Kind.WRONG_CONTENT, registers=Kind.NOT_LINEARIZABLE)
def _map(story: Story) -> None:
    story.merge("p", "index", WriteKind.MAP, {"set": {"a": 1}}, (300, 310), 10)
    story.merge("q", "index", WriteKind.MAP, {"set": {"a": 2}}, (320, 330), 11)
    story.get("q", (340, 350), 11, Seen("index", 11, kind="map", content={"a": 1}))


def test_the_history_without_a_plant_is_valid() -> None:
    story = Story()
    valid(story)
    verdict = story.judge()
    assert verdict.ok, verdict.explain()
    assert not verdict.notes
    assert verdict.figures.conflict_count == verdict.figures.resolved == 1
    assert verdict.figures.attempts == {1: 1, 2: 1}


@pytest.mark.parametrize("name", PLANTS)
def test_a_plant_is_rejected_by_every_checker_that_can_see_it(name: str) -> None:
    write, expected = PLANTS[name]
    story = Story()
    valid(story)
    write(story)
    verdict = story.judge()
    found = {(violation.checker, violation.kind) for violation in verdict.violations}
    for checker, kind in expected.items():
        assert (checker, kind) in found, verdict.explain()
    # Every contradiction names its keys and calls; only a commit that no call explains has none to name.
    for violation in verdict.violations:
        assert violation.kind is Kind.GHOST_COMMIT or (violation.keys and violation.calls)
        assert violation.text in verdict.explain()


def test_a_server_that_numbers_rightly_what_it_does_wrong_is_caught_without_revisions() -> None:
    """Revisions, heads and versions are in order, but a value came back: only the values tell."""
    story = Story()
    valid(story)
    story.put("q", "plan", "v1", (300, 310), 10, context=Context(3), base=("v2",))
    verdict = story.judge()
    assert {violation.checker for violation in verdict.violations} == {"registers"}


def test_losses_to_declared_blind_writes_are_counted_and_are_no_violation() -> None:
    story = Story()
    valid(story)
    story.put("p", "control", "c10", (300, 310), 10, blind=True)
    story.get("q", (320, 330), 10, Seen("control", 10, ("c10",)))
    story.get("p", (322, 332), 10, Seen("control", 10, ("c10",)))
    story.put("p", "control", "c11", (340, 350), 11, blind=True)
    story.put("q", "control", "c12", (360, 370), 12, blind=True)  # q never read c11
    verdict = story.judge()
    assert verdict.ok, verdict.explain()
    assert verdict.figures.blind_losses == 1
    assert verdict.figures.lost_updates == 0


def test_an_unanswered_call_may_or_may_not_have_happened() -> None:
    for happened in (True, False):
        story = Story()
        valid(story)
        story.put("p", "plan", "v10", (300, 310), 10, context=Context(3), base=("v3",))
        story.calls[-1] = replace(story.calls[-1], reply=None)
        seen = Seen("plan", 10, ("v10",)) if happened else Seen("plan", 3, ("v3",))
        story.get("q", (400, 410), 10 if happened else 9, seen)
        verdict = story.judge()
        assert verdict.ok, verdict.explain()
        # Once seen it cannot be unseen.
        story.get("q", (420, 430), 10, Seen("plan", 3, ("v3",)))
        assert story.judge().ok is not happened


def test_unknown_writers_limit_the_check_and_the_verdict_says_so() -> None:
    story = Story()
    valid(story)
    story.get("q", (300, 310), 12, Seen("plan", 11, ("from elsewhere",)))
    calls = tuple(sorted(story.calls, key=lambda call: call.start_ns))
    verdict = check_calls(History(new_header(), calls))
    assert verdict.ok
    assert "may have had other writers" in verdict.notes[0]


def test_a_write_with_version_and_context_may_be_refused_for_either() -> None:
    """As writing a lost value again is: somebody has written since, as its context says and its version does not."""
    story = Story()
    valid(story)
    story.put("p", "plan", "v10", (300, 310), 10, blind=True)
    story.refused("q", "plan", (320, 330), 10, expected=10, context=Context(3))
    assert story.judge().ok, story.judge().explain()


@pytest.mark.parametrize("renewed", [False, True])
@pytest.mark.parametrize(
    ("epoch", "granted_ms", "right"),
    [
        (1, 1_100, True),  # the restart moved it on, just far enough
        (1, 1_099, False),
        (0, 1_100, False),  # in one epoch nothing ends a lease early
    ],
)
def test_a_lease_ends_by_store_time_which_a_restart_may_move_on(
    epoch: int, granted_ms: int, right: bool, renewed: bool
) -> None:
    story = Story()
    valid(story)
    story.put("p", "todo/2", "t10", (300, 310), 10)
    story.claim("p", "todo/2", (320, 330), 11, "t10", 10)
    _lease_ends(story, 1_100)
    version = 11
    if renewed:
        version = 12
        seen = Seen("todo/2", version, ("t10",), (10,), fence=11, at=version)
        story._add("p", Op.RENEW, (332, 335), version, key="todo/2", fence=11, lease_ms=100, seen=(seen,))
        _lease_ends(story, 1_110)
        granted_ms += 10
    story.claim("q", "todo/2", (340, 350), (epoch << 40) + 13, "t10", 10)
    _lease_ends(story, granted_ms + 100)
    by_times = [found for found in story.judge().violations if found.checker == "tallies"]
    assert (not by_times) is right, by_times
    assert all(found.kind is Kind.TWO_HOLDERS for found in by_times)
    if epoch:
        assert story.judge().ok is right, story.judge().explain()


def test_a_claim_whose_lease_nobody_was_told_of_may_have_ended_over_a_restart() -> None:
    for epoch, right in ((0, False), (1, True)):
        story = Story()
        valid(story)
        story.put("p", "todo/2", "t10", (300, 310), 10)
        story.claim("p", "todo/2", (320, 330), 11, "t10", 10)
        story.calls[-1] = replace(story.calls[-1], reply=None)
        story.get("p", (331, 332), 11, Seen("todo/2", 11, ("t10",), (10,), fence=11))
        story.claim("q", "todo/2", (340, 350), (epoch << 40) + 12, "t10", 10)
        _lease_ends(story, 1_200)
        assert story.judge().ok is right, story.judge().explain()


def _lease_ends(story: Story, expires_ms: int) -> None:
    """Has the newest reply tell when, by store time, the lease ends."""
    call = story.calls[-1]
    assert call.reply is not None
    story.calls[-1] = replace(call, reply=replace(call.reply, expires_ms=expires_ms))
