"""Every acknowledged write of a run with a failover is accounted for, and what cannot be is said."""

from __future__ import annotations

from typing import Any

import pytest

from noosphere.server.checking import Call, Op, Outcome, Reply, Write, WriteKind
from noosphere.server.demo.chaos.held import Held
from noosphere.server.demo.chaos.losses import Losses, Signals, account
from noosphere.server.demo.protocol import Recovered, Settled, Told
from noosphere.server.demo.run import spread

OLD, NEW = 1 << 40, 2 << 40
CUT = OLD | 2


def acked(agent: str, number: int, revision: int, op: Op = Op.PUT) -> Call:
    writes = (Write(f"key/{revision}", WriteKind.PUT),) if op is Op.PUT else ()
    reply = Reply(agent, number, 2, Outcome.OK, revision=revision)
    return Call(agent, number, op, "shared/demo", 1, writes=writes, key="" if writes else "sections/1", reply=reply)


CALLS = (
    acked("a", 1, OLD | 1),
    acked("b", 1, OLD | 2),
    acked("a", 2, OLD | 3),
    acked("b", 2, OLD | 4, Op.RENEW),
    acked("a", 3, NEW | 1),
    Call("b", 3, Op.PUT, "shared/demo", 1, writes=(Write("key/9", WriteKind.PUT),)),
)


def held(*revisions: int) -> Held:
    return Held(frozenset(revisions), max(revisions), 0)


OLD_HELD = held(OLD | 1, OLD | 2, OLD | 3, OLD | 4, OLD | 5)
NEW_HELD = held(OLD | 1, OLD | 2, NEW | 1)


def told() -> Signals:
    signals = Signals()
    signals.add("a", Told(CUT, NEW - 1, "error", (("key/3", "put", OLD | 3),)))
    signals.add("a", Recovered(1, 2, 0))
    signals.add("b", Told(CUT, NEW - 1, "epoch"))
    for agent in ("a", "b"):
        signals.add(agent, Settled())
    return signals


def accounted(**changes: Any) -> Losses:
    given = {"calls": CALLS, "old": OLD_HELD, "new": NEW_HELD, "signals": told(), "wanted": 2, "agents": ("a", "b")}
    return account(**{**given, **changes})


def test_what_was_told_to_its_writer_is_accounted_for() -> None:
    found = accounted()
    assert found.failures == []
    assert (found.acknowledged, found.unsignalled, found.cut, found.only_old) == (5, 0, CUT, 3)
    assert [(w.agent, w.op, w.keys, w.revision, w.told, w.named) for w in found.lost] == [
        ("a", "put", (f"key/{OLD | 3}",), OLD | 3, True, True),
        ("b", "renew", ("sections/1",), OLD | 4, True, False),
    ]
    document = found.as_dict()
    assert document["told_by"] == {"epoch": 1, "error": 1}
    assert (document["resubmitted"], document["redone"], document["left"]) == (1, 2, 0)


def silent(agent: str) -> Signals:
    signals = told()
    del signals.told[agent]
    return signals


def unnamed() -> Signals:
    signals = told()
    signals.named.clear()
    return signals


def too_far() -> Signals:
    signals = told()
    signals.told["b"] = {(OLD | 1, NEW - 1)}
    return signals


def restless() -> Signals:
    signals = told()
    signals.settled.discard("b")
    return signals


@pytest.mark.parametrize(
    ("changes", "unsignalled", "message"),
    [
        ({"wanted": 3}, 0, "the failover lost 2 acknowledged writes, at least 3 were wanted"),
        ({"old": held(OLD | 1), "new": held(OLD | 1, OLD | 2, NEW | 1)}, 2, "neither Redis holds"),
        ({"new": NEW_HELD._replace(floor=1)}, 0, "the logs were trimmed before they could be compared"),
        ({"signals": silent("b")}, 1, "1 acknowledged writes were lost unsignalled, first 1.4 b renew"),
        ({"signals": unnamed()}, 0, "1 lost writes were not named by their client, first 1.3 a put"),
        ({"signals": too_far()}, 0, "1 acknowledged writes were said to be lost and are there (1.2)"),
        ({"signals": restless()}, 0, "b did not learn of the failover"),
    ],
)
def test_what_is_not_accounted_for_is_said(changes: dict[str, Any], unsignalled: int, message: str) -> None:
    found = accounted(**changes)
    assert message in "; ".join(found.failures)
    assert found.unsignalled == unsignalled


def test_a_completion_that_was_lost_is_counted_once() -> None:
    signals = Signals()
    for _ in range(2):
        signals.add("a", Told(CUT, NEW - 1, "error", (("sections/0007", "complete", OLD | 3),)))
    assert signals.completed == {"0007": 1}


def test_each_server_is_the_first_for_as_many_agents() -> None:
    orders = spread("a:1,b:2,c:3", 7)
    assert orders[:3] == ["a:1,b:2,c:3", "b:2,c:3,a:1", "c:3,a:1,b:2"]
    assert [orders.count(order) for order in orders[:3]] == [3, 2, 2]
    assert spread("a:1", 2) == ["a:1", "a:1"]
