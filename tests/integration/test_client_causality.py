"""What agents tell each other about what they have seen, and what becomes of writes that a failover has lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import pytest
from tests.support.process import ServerProcess
from tests.support.threaded import Connect

import noosphere.testing
from noosphere.client import (
    AckedWritesLost,
    Client,
    Compare,
    Conflict,
    ConflictPolicy,
    FutureRevision,
    Increment,
    Namespace,
    NamespacePolicy,
    Operation,
    PreconditionRequired,
    Put,
    Record,
    StaleRead,
    TransactionFailed,
    View,
    new_request_id,
)
from noosphere.client._causal import from_text, to_text
from noosphere.v1 import admin_service_pb2 as admin
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub


@pytest.fixture
async def agents(binary: ServerProcess, connect: Connect) -> AsyncIterator[Sequence[Client]]:
    """Three agents, each with its own connection."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connect(binary.address, timeout=60)) for _ in range(3)]


@pytest.fixture
def name() -> str:
    """The name of a namespace that no other test uses."""
    return f"causality/{new_request_id()}"


async def test_who_was_told_sees_what_the_other_wrote(agents: Sequence[Client], name: str) -> None:
    a, b, c = agents
    for n in range(20):
        await a.shared(name).put("findings", {"n": n}, blind=True)
        # From hand to hand, and the last one has it from the second only.
        await b.observe(a.causal_token())
        await c.observe(f'{{"note": "see findings", "causal_token": "{b.causal_token()}"}}')
        record = await c.shared(name).get("findings", consistency="causal")
        assert record is not None
        assert record.value == {"n": n}


async def test_a_client_sees_what_it_wrote_and_never_less_than_before(agents: Sequence[Client], name: str) -> None:
    """Read your writes, monotonic reads, writes follow reads: by the heads of all that it gets."""
    writer, reader, _ = agents
    space = reader.shared(name)
    seen = 0
    for n in range(20):
        await writer.shared(name).put("k", n, blind=True)
        own = await space.put(f"own/{n}", n)
        assert own.applied is not None
        records = [record async for record in space.list(consistency="causal")]
        many = await space.get_many(["k", f"own/{n}"], consistency="causal")
        assert many[1].version == own.applied.revision
        for record in (*records, *many):
            assert record.head >= max(seen, own.applied.revision)
            seen = max(seen, record.head)
    assert from_text(reader.causal_token()).revisions[f"shared/{name}"] >= seen


async def test_a_token_orders_reads_and_authorises_nothing(agents: Sequence[Client], name: str) -> None:
    a, b, _ = agents
    await a.shared(name).put("plan", "a's")
    await b.observe(a.causal_token())
    with pytest.raises(PreconditionRequired):
        await b.shared(name).put("plan", "b's")


async def test_what_the_other_keeps_to_itself_is_no_obstacle(agents: Sequence[Client], name: str) -> None:
    a, b, _ = agents
    await a.private.put("draft", 1)
    await a.shared(name).put("findings", 1)
    await b.observe(a.causal_token())
    assert f"agents/{a.agent}" in from_text(b.causal_token()).revisions
    await a.observe(b.causal_token())
    assert await a.private.get("draft", consistency="causal") is not None


async def test_a_deleted_namespace_is_no_obstacle(agents: Sequence[Client], name: str) -> None:
    a, b, _ = agents
    await a.shared(name).put("findings", 1)
    token = a.causal_token()
    stub = AdminServiceStub(a.channel)
    await a.call(stub.DeleteNamespace, admin.DeleteNamespaceRequest(namespace=f"shared/{name}"), changes=True)
    await b.observe(token)
    await a.ensure_namespace(f"shared/{name}")
    assert await b.shared(name).get("findings", consistency="causal") is None


async def test_a_token_of_elsewhere_is_refused(agents: Sequence[Client], name: str) -> None:
    a, b, _ = agents
    record = await a.shared(name).put("k", 1)
    token = from_text(a.causal_token()).seen(f"shared/{name}", record.head + 1)
    with pytest.raises(FutureRevision):
        await b.observe(to_text(token))
    assert await b.shared(name).get("k", consistency="causal") is not None


async def test_what_a_watch_has_shown_was_seen(agents: Sequence[Client], name: str) -> None:
    a, b, _ = agents
    space = b.shared(name)
    async with space.watch() as batches:
        written = await a.shared(name).put("k", 1)
        async for batch in batches:
            if batch.kind == "changes":
                break
    assert from_text(b.causal_token()).revisions[space.name] == written.version
    record = await space.get("k", consistency="causal")
    assert record is not None
    assert record.version == written.version


# Losses: a server whose misfortunes the test decides on.


@pytest.fixture
async def server() -> AsyncIterator[noosphere.testing.Server]:
    async with noosphere.testing.server() as made:
        yield made


async def test_handover_of_findings_that_died(server: noosphere.testing.Server) -> None:
    """The writer was told that they are written, told the other, and then the server failed over."""
    async with server.client("planner-0") as a, server.client("writer-0") as b:
        await a.shared("launch").put("goal", "kept")
        await a.shared("launch").put("findings", {"n": 3})
        envelope = a.causal_token()
        await server.faults.fail_over(lose=1)
        with pytest.raises(AckedWritesLost) as caught:
            await b.observe(envelope)
        assert caught.value.namespace == "shared/launch"
        # None of them was the reader's own.
        assert caught.value.own_writes == ()
        # What survived can be read, and the next handover is about that.
        assert await b.shared("launch").get("goal", consistency="causal") is not None
        await b.shared("launch").put("findings", "anew")
        await a.observe(b.causal_token())


async def test_newer_revisions_hide_no_loss(server: noosphere.testing.Server) -> None:
    """Before its owner looked again, it has already seen the new epoch in another answer."""
    async with server.client("a") as a, server.client("b") as b:
        space = a.shared("launch")
        await space.put("findings", 1)
        await server.faults.fail_over(lose=1)
        await b.shared("launch").put("other", 2)
        assert await space.get("other") is not None
        # So it would be for whoever it tells.
        with pytest.raises(AckedWritesLost):
            await b.observe(a.causal_token())
        with pytest.raises(AckedWritesLost) as caught:
            await space.get("other", consistency="causal")
        assert [write.key for write in caught.value.own_writes] == ["findings"]
        record = await space.get("other", consistency="causal")
        assert record is not None


async def test_a_failover_that_lost_nothing_is_none_of_the_readers_business(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a, server.client("b") as b:
        await a.shared("launch").put("findings", 1)
        await server.faults.fail_over()
        await b.shared("launch").put("other", 2)
        await b.observe(a.causal_token())
        record = await a.shared("launch").get("findings", consistency="causal")
        assert record is not None
        assert record.value == 1


async def told(space: Namespace) -> AckedWritesLost:
    with pytest.raises(AckedWritesLost) as caught:
        await space.get("any", consistency="causal")
    return caught.value


async def test_lost_writes_are_named_and_written_again_once(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a:
        space = a.shared("launch")
        first = await space.put("plan", {"v": 1}, attributes={"kind": "plan"})
        await space.put("gone", "deleted in vain")
        await space.key("tally").increment(10)
        second = await first.replace({"v": 2})
        await second.replace({"v": 3})
        await space.put("new", "x")
        await space.delete("gone", blind=True)
        await space.key("tally").increment(5)
        await space.transact(operations=[Put("both", 1), Increment("tally", 7)])
        await server.faults.fail_over(lose=6)
        loss = await told(space)
        assert [(write.operation, write.key, write.value) for write in loss.own_writes] == [
            ("put", "plan", {"v": 2}),
            ("put", "plan", {"v": 3}),
            ("put", "new", "x"),
            ("delete", "gone", None),
            ("merge", "tally", None),
            ("put", "both", 1),
            ("merge", "tally", None),
        ]
        results = await a.resubmit(loss)
        assert [result.error for result in results] == [None] * 7
        assert all(result.revision > loss.lost_through for result in results)
        assert results[5].revision == results[6].revision
        assert await a.resubmit(loss) == results
        assert await contents(space) == {"both": 1, "new": "x", "plan": {"v": 3}, "tally": 22}
        plan = await space.get("plan")
        assert plan is not None
        assert plan.attributes == {"kind": "plan"}
        assert plan.change_count == 3


async def test_what_others_wrote_since_stays(server: noosphere.testing.Server) -> None:
    """Also a delete: whoever deleted it after the loss has decided on what was left."""
    async with server.client("a") as a, server.client("b") as b:
        space, others = a.shared("launch"), b.shared("launch")
        for key in ("changed", "deleted", "created", "free"):
            if key != "created":
                await space.put(key, "old")
        lost = 0
        for key in ("changed", "deleted", "created", "free"):
            await space.put(key, "lost", blind=True)
            lost += 1
        await server.faults.fail_over(lose=lost)
        await others.put("changed", "theirs", blind=True)
        await others.delete("deleted", blind=True)
        await others.put("created", "theirs")
        results = {result.write.key: result for result in await a.resubmit(await told(space))}
        for key in ("changed", "deleted", "created"):
            error = results[key].error
            assert isinstance(error, Conflict)
            assert (results[key].revision, error.mine) == (0, "lost")
            assert error.theirs is not None
            assert [writer.actor for writer in error.theirs.writers] == ([] if key == "deleted" else [b.actor])
        assert results["free"].error is None
        assert await contents(space) == {"changed": "theirs", "created": "theirs", "free": "lost"}


async def test_a_decision_whose_grounds_died_is_not_written_again(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a:
        space = a.shared("launch")
        await space.put("goal", "old")
        goal = await space.get("goal")
        assert goal is not None

        async def think(view: View) -> Sequence[Operation]:
            record = await view.get("goal")
            assert record is not None
            return [Put(f"step/{record.value}", 1)]

        await space.decide(think)
        await goal.replace("new")
        await space.decide(think)
        await server.faults.fail_over(lose=2)
        loss = await told(space)
        assert [write.key for write in loss.own_writes] == ["goal", "step/new"]
        survived, decided = await a.resubmit(loss)
        assert survived.error is None
        # The goal says the same again, but it is not what was seen.
        assert isinstance(decided.error, AckedWritesLost)
        assert await contents(space) == {"goal": "new", "step/old": 1}


async def test_a_decision_whose_grounds_survived_is(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a, server.client("b") as b:
        space = a.shared("launch")
        await space.put("goal", "old")

        async def think(view: View) -> Sequence[Operation]:
            await view.get("goal")
            return [Put(f"step/{len(space.name)}", 1, blind=True)]

        for _ in range(2):
            await space.decide(think)
            await server.faults.fail_over(lose=1)
            loss = await told(space)
            (result,) = await a.resubmit(loss)
            assert result.error is None
        await space.decide(think)
        await server.faults.fail_over(lose=1)
        loss = await told(space)
        await b.shared("launch").put("goal", "theirs", blind=True)
        (result,) = await a.resubmit(loss)
        assert isinstance(result.error, StaleRead)


async def _commit(view: View) -> None:
    await view.commit(Put("step", 1, blind=True))


async def _put(view: View) -> None:
    await view.put("step", 1)


async def _delete(view: View) -> None:
    await view.delete("old", blind=True)


async def _apply(view: View) -> None:
    await view.apply(Increment("count"))


@pytest.mark.parametrize("changed", [False, True], ids=["grounds survived", "grounds changed"])
@pytest.mark.parametrize("write", [_commit, _put, _delete, _apply], ids=lambda write: write.__name__.strip("_"))
async def test_what_was_written_through_a_view_is_written_again_on_its_grounds_only(
    server: noosphere.testing.Server, write: Callable[[View], Awaitable[None]], changed: bool
) -> None:
    async with server.client("a") as a, server.client("b") as b:
        space = a.shared("launch")
        await space.put("goal", "north")
        await space.put("old", 1)
        async with space.reading(guard="goal") as view:
            await view.get("goal")
            await write(view)
        written = await contents(space)
        await server.faults.fail_over(lose=1)
        survived = await contents(space)
        loss = await told(space)
        if changed:
            await b.shared("launch").put("goal", "south", blind=True)
        (result,) = await a.resubmit(loss)
        if changed:
            assert isinstance(result.error, StaleRead)
            assert await contents(space) == {**survived, "goal": "south"}
        else:
            assert result.error is None
            assert await contents(space) == written


async def test_a_decision_is_not_written_again_over_somebody_elses_work(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a, server.client("b") as b:
        space = a.shared("launch")
        await space.put("goal", "north")
        async with space.reading(guard="goal") as view:
            await view.get("goal")
            await _commit(view)
        await server.faults.fail_over(lose=1)
        loss = await told(space)
        await b.shared("launch").put("step", "theirs")
        (result,) = await a.resubmit(loss)
        assert isinstance(result.error, Conflict)
        assert await contents(space) == {"goal": "north", "step": "theirs"}


async def test_what_was_compared_has_to_hold_again(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a, server.client("b") as b:
        space = a.shared("launch")
        goal = await space.put("goal", "north")
        other = await space.put("other", 1)
        first = await space.transact([goal], [Put("step/1", 1)])
        await space.transact([Compare("step/1", first.revision)], [Put("step/2", 1)])
        await space.transact([other], [Put("step/3", 1)])
        await server.faults.fail_over(lose=3)
        loss = await told(space)
        await b.shared("launch").put("other", 2, blind=True)
        results = {result.write.key: result for result in await a.resubmit(loss)}
        assert [results[key].error for key in ("step/1", "step/2")] == [None, None]
        assert isinstance(results["step/3"].error, TransactionFailed)
        assert set(await contents(space)) == {"goal", "other", "step/1", "step/2"}


async def test_a_lost_reply_of_a_resubmission_counts_once(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a:
        space = a.shared("launch")
        await space.key("tally").increment(1)
        await space.key("tally").increment(1)
        await server.faults.fail_over(lose=1)
        loss = await told(space)
        server.faults.drop_reply(method="Transact")
        results = await asyncio.gather(a.resubmit(loss), a.resubmit(loss))
        assert results[0] == results[1]
        assert await contents(space) == {"tally": 2}


async def test_siblings_that_were_resolved_in_vain_are_resolved_again(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a:
        space = a.shared("launch")
        await a.ensure_namespace(space.name, NamespacePolicy(conflict_policy=ConflictPolicy.SIBLINGS))
        base = await space.put("plan", 0)
        await asyncio.gather(base.replace(1), base.replace(2))
        both = await space.get("plan")
        assert both is not None
        await both.resolve(3)
        await server.faults.fail_over(lose=1)
        loss = await told(space)
        assert [(write.operation, write.value) for write in loss.own_writes] == [("put", 3)]
        (result,) = await a.resubmit(loss)
        assert result.error is None
        assert await contents(space) == {"plan": 3}
        assert [pending async for pending in space.conflicts()] == []


async def test_nothing_is_resubmitted_for_those_who_lost_nothing(server: noosphere.testing.Server) -> None:
    async with server.client("a") as a, server.client("b") as b:
        await a.shared("launch").put("k", 1)
        await server.faults.fail_over(lose=1)
        with pytest.raises(AckedWritesLost) as caught:
            await b.observe(a.causal_token())
        assert await b.resubmit(caught.value) == ()


async def contents(space: Namespace) -> dict[str, object]:
    found: dict[str, object] = {}
    record: Record[object]
    async for record in space.list():
        found[record.key] = record.value
    return found
