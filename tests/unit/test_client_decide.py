"""Decisions when answers are lost or refused; what holds against a real server is tested against one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.unit.client_support import (
    QUICK,
    SILENCE,
    Fault,
    ManualTime,
    ScriptedServer,
    live_record,
    manual_transport,
    scripted_server,
)

from noosphere.client import (
    Client,
    Contention,
    DeadlineExceeded,
    InvalidArgument,
    NoosphereError,
    Operation,
    Put,
    StaleRead,
    TransactionFailed,
    UncheckableGuard,
    View,
    connect,
)
from noosphere.consistency import NOTHING_READ, KeySeen, encode_read_set
from noosphere.v1 import errors_pb2
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

X = "shared/x"
TOKEN = encode_read_set(NOTHING_READ.with_key(X, 9, "goal", KeySeen(5)))


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        script.script("Get", *[goal] * 10)
        yield script


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with connect(server.address, agent="a", retry=QUICK, coalesce=False) as made:
        yield made


def goal(_: Any) -> ms.GetResponse:
    return ms.GetResponse(record=live_record("goal", b"1", dot=5), head=9, call=pb.CallReply(read_set_token=TOKEN))


def written(revision: int = 20, *, replayed: bool = False) -> ms.CommitResponse:
    applied = ms.TransactApplied(
        revision=revision, results=[pb.Applied(revision=revision, version=revision)], replayed=replayed
    )
    return ms.CommitResponse(applied=applied, head=revision, call=pb.CallReply(read_set_token=TOKEN))


def stale() -> Fault:
    entry = pb.StaleEntry(namespace=X, name="goal", seen=5, now=8)
    entry.changes.add(key="goal", actor="b#1", revision=8)
    return Fault(reason="STALE_READ_SET", detail=errors_pb2.StaleReadSetDetail(stale=[entry], head=8))


class Thinker:
    """Reads the goal and decides; keeps what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def __call__(self, view: View) -> Sequence[Operation]:
        self.notes.append(view.notes.explain())
        record = await view.get("goal")
        assert record is not None
        return [Put("next", record.value)]


async def test_a_decision_is_thought_once_if_nothing_changed(server: ScriptedServer, client: Client) -> None:
    server.script("Commit", written())
    think = Thinker()
    decision = await client.shared("x").decide(think)
    assert (decision.revision, decision.attempts, think.notes) == (20, 1, [""])


async def test_each_attempt_reads_anew_and_is_told_why(server: ScriptedServer, client: Client) -> None:
    server.script("Commit", stale(), Fault(reason="CONTENTION"), written())
    think = Thinker()
    decision = await client.shared("x").decide(think)
    assert decision.attempts == 3
    assert "goal: changed, by b#1 at revision 8" in think.notes[1]
    assert think.notes[2] == ""
    assert len(server.requests["Get"]) == 3
    # Every attempt is a request of its own: what one refused, the next may do.
    assert len({str(request.call.request_id) for request in server.requests["Commit"]}) == 3


async def test_a_conflict_is_a_reason_to_think_again(server: ScriptedServer, client: Client) -> None:
    detail = errors_pb2.TransactionDetail(head=9)
    detail.failures.add(index=0, is_operation=True, key="next", reason="PRECONDITION_REQUIRED", version=7)
    server.script("Commit", Fault(reason="PRECONDITION_REQUIRED", detail=detail), written())
    think = Thinker()
    assert (await client.shared("x").decide(think)).attempts == 2
    assert "Your write to `next` failed" in think.notes[1]


async def test_what_no_thinking_mends_is_not_thought_again(server: ScriptedServer, client: Client) -> None:
    detail = errors_pb2.TransactionDetail(head=9)
    detail.failures.add(index=0, is_operation=True, key="next", reason="PRECONDITION_REQUIRED", version=7)
    detail.failures.add(index=0, is_operation=True, key="next", reason="MERGE_TYPE_MISMATCH", version=7)
    for fault, error in (
        (Fault(reason="PRECONDITION_REQUIRED", detail=detail), TransactionFailed),
        (Fault(reason="UNCHECKABLE_GUARD"), UncheckableGuard),
        (Fault(reason="VALUE_TOO_LARGE"), InvalidArgument),
    ):
        think = Thinker()
        server.script("Commit", fault)
        with pytest.raises(error):
            await client.shared("x").decide(think)
        assert len(think.notes) == 1


@pytest.mark.parametrize(("fault", "error"), [(stale(), StaleRead), (Fault(reason="CONTENTION"), Contention)])
async def test_after_the_last_attempt_the_reason_is_raised(
    server: ScriptedServer, client: Client, fault: Fault, error: type[NoosphereError]
) -> None:
    server.script("Commit", fault, fault)
    think = Thinker()
    with pytest.raises(error) as caught:
        await client.shared("x").decide(think, attempts=2)
    assert caught.value.outcome == "not_applied"
    assert len(think.notes) == 2


async def test_a_lost_reply_is_asked_for_and_not_thought_about(server: ScriptedServer, client: Client) -> None:
    """The commit was applied; thinking again would write the decision twice, or find it stale by its own doing."""
    server.script("Commit", SILENCE, written(replayed=True))
    think = Thinker()
    decision = await client.shared("x").decide(think, timeout=2)
    assert (decision.replayed, decision.attempts, len(think.notes)) == (True, 1, 1)
    first, second = server.requests["Commit"]
    assert first == second


async def test_an_unknown_outcome_is_the_callers_to_judge(server: ScriptedServer, client: Client) -> None:
    server.script("Commit", Fault("INTERNAL"))
    think = Thinker()
    with pytest.raises(NoosphereError) as caught:
        await client.shared("x").decide(think)
    assert (caught.value.outcome, len(think.notes)) == ("unknown", 1)


@pytest.mark.parametrize("writes", [None, [], ()])
async def test_to_decide_on_nothing_is_a_decision(server: ScriptedServer, client: Client, writes: Any) -> None:
    decision = await client.shared("x").decide(lambda view: writes)
    assert (decision.revision, decision.attempts) == (0, 1)
    assert not server.requests["Commit"]


@pytest.mark.parametrize(
    ("writes", "problem"),
    [(Put("k", 1), "expected several writes, got one Put"), ([[Put("k", 1)]], "operations: list is no operation")],
)
async def test_what_is_no_decision_is_said(client: Client, writes: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        await client.shared("x").decide(lambda view: writes)


async def test_one_limit_covers_all_thinking(server: ScriptedServer) -> None:
    """The clock stands still for the calls and moves while it is thought."""
    time = ManualTime()
    async with manual_transport(server, time) as transport:
        server.script("Commit", stale(), stale(), stale())
        thoughts = 0

        async def think(view: View) -> Sequence[Operation]:
            nonlocal thoughts
            thoughts += 1
            time.advance(4)
            await view.get("goal")
            return [Put("next", 1)]

        with pytest.raises(DeadlineExceeded, match="the decision was not finished within 10 s"):
            await Client(transport).shared("x").decide(think, timeout=10)
        assert thoughts == 3
        assert len(server.requests["Commit"]) == 2


async def test_an_error_of_the_function_is_its_own(client: Client) -> None:
    def think(view: View) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await client.shared("x").decide(think, timeout=5)


async def test_a_view_ends_with_its_attempt(server: ScriptedServer, client: Client) -> None:
    server.script("Commit", written())
    kept: list[View] = []

    async def think(view: View) -> Sequence[Operation]:
        kept.append(view)
        await view.get("goal")
        return [Put("next", 1)]

    await client.shared("x").decide(think, guard="goal")
    with pytest.raises(RuntimeError, match="closed"):
        await kept[0].get("goal")


async def test_arguments_are_named(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="attempts: 0 is less than 1"):
        await client.shared("x").decide(lambda view: None, attempts=0)
    with pytest.raises(InvalidArgument, match="mode: 'lax'"):
        await client.shared("x").decide(lambda view: None, mode="lax")  # type: ignore[arg-type] # what a typo does


async def test_a_guard_that_cannot_be_one_is_refused_before_anybody_thinks(client: Client) -> None:
    async def think(view: View) -> Sequence[Operation]:
        raise AssertionError("thought in vain")

    with pytest.raises(InvalidArgument, match=r"guards.prefix: 'goal//' has an empty segment"):
        await client.shared("x").decide(think, guard="goal//")
    with pytest.raises(InvalidArgument, match=r"guards.prefix: 'goal//' has an empty segment"):
        client.shared("x").reading(guard="goal//")


async def test_what_guards_the_first_attempt_guards_the_others_too(server: ScriptedServer, client: Client) -> None:
    """An iterator gives its items once, and no guards would mean that everything is guarded."""
    server.script("Commit", Fault(reason="STALE_READ_SET"), written())

    async def think(view: View) -> Sequence[Operation]:
        await view.get("goal")
        return [Put("next", 1)]

    await client.shared("x").decide(think, guard=iter(["goal"]))
    guards = [[guard.prefix for guard in request.call.guards] for request in server.requests["Commit"]]
    assert guards == [["goal"], ["goal"]]
