"""The test kit's faults: each really happens, once, to the call that it is meant for, and nothing without it."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from noosphere.client import (
    Client,
    Conflict,
    ConflictPolicy,
    DeadlineExceeded,
    Delete,
    Increment,
    Key,
    NamespacePolicy,
    NoosphereError,
    PreconditionRequired,
    Put,
    Record,
    TransactionFailed,
    Unavailable,
    ValueTooLarge,
    connect,
)
from noosphere.testing import Server, UnmetFaults, server

SPACE = "shared/launch"


class Plan(BaseModel):
    steps: list[str]


@pytest.fixture
async def srv() -> AsyncIterator[Server]:
    async with server() as found:
        yield found


@pytest.fixture(params=["pipelined", "unary"])
async def client(srv: Server, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client whose calls share a stream, and one whose calls do not."""
    async with connect(srv.address, agent="planner-0", coalesce=request.param == "pipelined") as found:
        yield found


Write = Callable[[Key[Any], Record[Any]], Awaitable[object]]


async def _replace(key: Key[Any], seen: Record[Any]) -> None:
    await seen.replace("mine")


async def _delete(key: Key[Any], seen: Record[Any]) -> None:
    await seen.delete()


async def _expect_version(key: Key[Any], seen: Record[Any]) -> None:
    await key.put("mine", expected_version=seen.version)


@pytest.mark.parametrize("fault", [True, False], ids=["with the fault", "without it"])
@pytest.mark.parametrize("write", [_replace, _delete, _expect_version])
async def test_somebody_comes_between_a_read_and_the_next_write(
    srv: Server, client: Client, write: Write, fault: bool
) -> None:
    key = client.namespace(SPACE).key("plan")
    await key.put("old")
    seen = await key.read()
    if fault:
        srv.faults.conflict_next(SPACE, "plan", "theirs")
        with pytest.raises(Conflict) as caught:
            await write(key, seen)
        assert caught.value.theirs is not None
        assert caught.value.theirs.value == "theirs"
        assert [dot.actor.split("#")[0] for dot in caught.value.unseen] == ["rival"]
        assert srv.faults.unmet == ()
        # Once: who looks again is not disturbed again.
        seen = await key.read()
    await write(key, seen)


@pytest.mark.parametrize("fault", [True, False], ids=["with the fault", "without it"])
@pytest.mark.parametrize("part", ["put", "delete", "compare"])
async def test_a_transaction_that_writes_or_compares_the_key_meets_it_too(
    srv: Server, client: Client, part: str, fault: bool
) -> None:
    space = client.namespace(SPACE)
    seen = await space.put("plan", "old")
    compares = [seen] if part == "compare" else []
    operations: dict[str, Sequence[Put | Delete | Increment]] = {
        "put": [Put("plan", "mine", seen=seen), Increment("count")],
        "delete": [Delete("plan", seen=seen)],
        "compare": [Put("other", 1)],
    }
    if not fault:
        await space.transact(compares, operations[part])
        return
    srv.faults.conflict_next(SPACE, "plan", "theirs")
    with pytest.raises(TransactionFailed) as caught:
        await space.transact(compares, operations[part])
    assert [failure.key for failure in caught.value.failures] == ["plan"]
    assert (await space.key("plan").read()).value == "theirs"


async def test_update_meets_the_conflict_and_resolves_it(srv: Server, client: Client) -> None:
    key = client.namespace(SPACE).key("plan", Plan)
    await key.put(Plan(steps=["draft"]))
    srv.faults.conflict_next(SPACE, "plan", Plan(steps=["theirs"]), agent="writer-1")
    met: list[Conflict[Plan]] = []

    def revise(plan: Plan | None, conflict: Conflict[Plan] | None) -> Plan:
        assert plan is not None
        if conflict is not None:
            met.append(conflict)
        return Plan(steps=[*plan.steps, "mine"])

    assert (await key.update(revise)).value.steps == ["theirs", "mine"]
    assert [dot.actor.split("#")[0] for conflict in met for dot in conflict.unseen] == ["writer-1"]


async def test_the_other_write_obeys_the_namespaces_policy(srv: Server, client: Client) -> None:
    for policy in (ConflictPolicy.SIBLINGS, ConflictPolicy.LAST_WRITER_WINS):
        name = f"shared/{policy.name.lower()}"
        await client.ensure_namespace(name, NamespacePolicy(conflict_policy=policy))
        key = client.namespace(name).key("plan")
        seen = await key.put("old")
        srv.faults.conflict_next(name, "plan", "theirs")
        written = await seen.replace("mine")
        found = await key.read()
        if policy is ConflictPolicy.SIBLINGS:
            assert set(found.values) == {"theirs", "mine"}
        else:
            assert found.values == ("mine",)
            assert written.applied is not None
            assert [dot.actor.split("#")[0] for dot in written.applied.overwritten] == ["rival"]


async def test_somebody_creates_what_was_about_to_be_created(srv: Server, client: Client) -> None:
    srv.faults.conflict_next(SPACE, "plan", "theirs")
    with pytest.raises(PreconditionRequired):
        await client.namespace(SPACE).put("plan", "mine")


async def test_somebody_can_do_anything_before_a_write(srv: Server, client: Client) -> None:
    key = client.namespace(SPACE).key("plan")
    seen = await key.put("old")
    srv.faults.before_write(SPACE, "plan", lambda theirs: theirs.delete(blind=True), agent="cleaner")
    with pytest.raises(Conflict) as caught:
        await seen.replace("mine")
    assert [(dot.deleted, dot.actor.split("#")[0]) for dot in caught.value.unseen] == [(True, "cleaner")]


async def test_two_appointments_are_kept_at_once(srv: Server, client: Client) -> None:
    key = client.namespace(SPACE).key("plan")
    seen = await key.put("old")
    srv.faults.conflict_next(SPACE, "plan", "first", agent="a")
    srv.faults.conflict_next(SPACE, "plan", "second", agent="b")
    with pytest.raises(Conflict) as caught:
        await seen.replace("mine")
    assert caught.value.theirs is not None
    assert caught.value.theirs.value == "second"
    assert srv.faults.unmet == ()


async def test_other_keys_and_reads_are_left_alone(srv: Server, client: Client) -> None:
    space = client.namespace(SPACE)
    seen = await space.put("plan", "old")
    srv.faults.conflict_next(SPACE, "plan", "theirs")
    await space.put("other", 1)
    await client.namespace("shared/elsewhere").put("plan", 1)
    assert (await space.key("plan").read()).value == "old"
    assert srv.faults.unmet == (f"rival coming before a write of 'plan' in {SPACE}",)
    with pytest.raises(Conflict):
        await seen.replace("mine")


def test_an_appointment_that_nobody_could_keep_is_refused_at_once() -> None:
    async def run() -> None:
        async with server() as srv:
            with pytest.raises(ValueError, match="nobody but its agent writes to 'agents/planner-0'"):
                srv.faults.conflict_next("agents/planner-0", "draft", 1)
            with pytest.raises(ValueError, match="namespace: 'launch' is not agents/…, "):
                srv.faults.conflict_next("launch", "plan", 1)
            with pytest.raises(ValueError, match="key: '/plan' has an empty segment"):
                srv.faults.before_write("shared/launch", "/plan", lambda key: key.delete(blind=True))
            with pytest.raises(ValueError, match=r"n: 0 is not a number of calls"):
                srv.faults.drop_reply(0)
            with pytest.raises(ValueError, match=r"method: 'Push' is not one of .*Put"):
                srv.faults.drop_reply(method="Push")
            with pytest.raises(ValueError, match=r"seconds: 0 is not above 0"):
                srv.faults.delay(0)
            with pytest.raises(ValueError, match=r"lose: -1 is not a number of commits"):
                await srv.faults.fail_over(lose=-1)

    asyncio.run(run())


async def test_a_fault_that_nobody_met_fails_the_test() -> None:
    with pytest.raises(UnmetFaults, match=re.escape("a lost reply of Put by planner-0, 2 times")):
        async with server() as srv:
            srv.faults.drop_reply(2, method="Put", agent="planner-0")
    with pytest.raises(UnmetFaults, match="a delay of 5 s of any call that changes something"):
        async with server() as srv:
            srv.faults.delay(5)
    async with server(allow_unmet_faults=True) as srv:
        srv.faults.drop_reply()


async def _with_too_large_a_conflict(then: Exception | None = None) -> None:
    async with server() as srv, srv.client("planner-0") as client:
        srv.faults.conflict_next(SPACE, "plan", "x" * 5_000)
        await client.namespace(SPACE).put("plan", "mine")
        if then is not None:
            raise then


async def test_a_fault_that_failed_fails_the_test() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await _with_too_large_a_conflict()
    (error,) = caught.value.exceptions
    assert isinstance(error, ValueTooLarge)
    assert error.__notes__ == [f"while the test's server had rival coming before a write of 'plan' in {SPACE}"]


async def test_a_fault_that_failed_is_noted_on_what_the_test_failed_of() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        await _with_too_large_a_conflict(ZeroDivisionError())
    assert "ValueTooLarge" in caught.value.__notes__[0]


async def _leave_a_fault_over(error: Exception) -> None:
    async with server() as srv:
        srv.faults.drop_reply()
        raise error


async def test_a_failure_of_the_test_is_not_hidden_by_a_fault_that_was_not_met() -> None:
    with pytest.raises(ZeroDivisionError):
        await _leave_a_fault_over(ZeroDivisionError())


async def test_nobody_conflicts_with_itself(srv: Server, client: Client) -> None:
    with pytest.raises(ValueError, match=r"agent: 'planner-0' is a client of the test itself"):
        srv.faults.conflict_next(SPACE, "plan", "theirs", agent="planner-0")
    srv.faults.conflict_next(SPACE, "plan", "theirs", agent="writer-1")
    with pytest.raises(ValueError, match="'writer-1' is to come between the test's clients"):
        async with srv.client("writer-1"):
            raise AssertionError("connected")
    with pytest.raises(PreconditionRequired):
        await client.namespace(SPACE).put("plan", "mine")


@pytest.mark.parametrize("lost", [0, 1, 3])
async def test_a_lost_reply_is_answered_by_what_was_done_the_first_time(srv: Server, client: Client, lost: int) -> None:
    space = client.namespace(SPACE)
    if lost:
        srv.faults.drop_reply(lost)
    written = await space.put("plan", "mine")
    assert written.applied is not None
    assert written.applied.replayed is bool(lost)
    history = [event.key async for entry in space.history() for event in entry.events]
    assert history == ["plan"]


async def test_what_counts_is_counted_once_whatever_is_lost(srv: Server, client: Client) -> None:
    space = client.namespace(SPACE)
    board = space.board("todo/")
    await board.add("crawl", "first")
    srv.faults.drop_reply(method="Merge")
    srv.faults.drop_reply(method="Transact")
    srv.faults.drop_reply(method="ClaimNext")
    srv.faults.drop_reply(method="Complete")
    assert (await space.key("count").increment(1)).value == 1
    result = await space.transact(operations=[Increment("count"), Put("note", 1, expected_version=0)])
    assert result.replayed
    async with board.claim() as claim:
        assert claim is not None
        assert claim.attempts == 1
        await claim.complete("done")
    assert srv.faults.unmet == ()
    assert (await space.key("count").read()).value == 2


async def test_a_reply_is_lost_for_the_agent_and_method_it_is_meant_for_only(srv: Server, client: Client) -> None:
    async with srv.client("other") as other:
        srv.faults.drop_reply(method="Put", agent="other")
        mine = await client.namespace(SPACE).put("mine", 1)
        assert (await other.namespace(SPACE).key("count").increment(1)).replayed is False
        theirs = await other.namespace(SPACE).put("theirs", 1)
    assert mine.applied is not None
    assert theirs.applied is not None
    assert (mine.applied.replayed, theirs.applied.replayed) == (False, True)


async def test_a_refusal_can_be_lost_too_and_is_decided_again(srv: Server, client: Client) -> None:
    space = client.namespace(SPACE)
    await space.put("plan", "old")
    srv.faults.drop_reply(method="Put")
    with pytest.raises(PreconditionRequired):
        await space.put("plan", "mine")
    assert srv.faults.unmet == ()


async def test_when_every_reply_is_lost_nobody_knows_and_it_was_done() -> None:
    async with server(allow_unmet_faults=True) as srv, srv.client("planner-0", timeout=60) as client:
        space = client.namespace(SPACE)
        srv.faults.drop_reply(1_000_000, method="Put")
        with pytest.raises((Unavailable, DeadlineExceeded)) as caught:
            # Long enough for it to be done on a slow machine, too.
            await space.put("plan", "mine", timeout=2)
        assert caught.value.outcome == "unknown"
        assert (await space.key("plan").read()).value == "mine"


async def test_a_delayed_call_is_executed_when_time_has_come(srv: Server, client: Client) -> None:
    async with srv.client("other") as other:
        srv.faults.delay(5, method="Put", agent="planner-0")
        mine = asyncio.create_task(client.namespace(SPACE).put("plan", "mine"))
        await srv.advance(4)
        # Held back before it was executed: whoever comes now comes first.
        await other.namespace(SPACE).put("plan", "theirs")
        assert not mine.done()
        await srv.advance(1)
        with pytest.raises(PreconditionRequired):
            await mine


async def test_a_delayed_read_sees_what_was_written_meanwhile(srv: Server, client: Client) -> None:
    async with srv.client("other") as other:
        key = client.namespace(SPACE).key("plan")
        srv.faults.delay(5, method="Get")
        read = asyncio.create_task(key.read())
        await srv.advance(1)
        await other.namespace(SPACE).put("plan", "theirs")
        await srv.advance(4)
        assert (await read).value == "theirs"


async def test_a_call_that_is_held_back_does_not_hold_up_a_restart(srv: Server, client: Client) -> None:
    srv.faults.delay(3_600, method="Put")
    put = asyncio.create_task(client.namespace(SPACE).put("plan", "mine"))
    await srv.advance(1)
    await srv.restart()
    # Nothing was executed, so the client has simply asked again.
    written = await put
    assert written.applied is not None
    assert not written.applied.replayed


@pytest.mark.parametrize("coalesce", [True, False], ids=["pipelined", "unary"])
@pytest.mark.parametrize("request_id", [None, str(uuid.uuid5(uuid.NAMESPACE_DNS, SPACE))], ids=["number", "uuid"])
async def test_no_late_attempt_is_executed_after_the_server_has_forgotten_the_first(
    request_id: str | None, coalesce: bool
) -> None:
    """Every attempt is 11 minutes on its way, and the reply to the first one gets lost."""
    async with (
        server(allow_unmet_faults=True) as srv,
        connect(srv.address, agent="planner-0", coalesce=coalesce) as client,
    ):
        srv.faults.drop_reply(method="Merge")
        srv.faults.delay(660, 2, method="Merge")
        count = client.namespace(SPACE).key("count")
        adding = asyncio.create_task(count.increment(1, request_id=request_id, timeout=24 * 3600))
        await srv.advance(3600)
        with pytest.raises(NoosphereError, match="not repeated: ") as caught:
            await adding
        assert caught.value.outcome == "unknown"
        assert (await count.read()).value == 1
