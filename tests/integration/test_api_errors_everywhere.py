"""Errors: reasons that any call may return are returned by every call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.support.api import SEEN_NOTHING, Agent, delete, put, span
from tests.support.engine import LocalServer
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import NOTHING_READ, Reason, encode_read_set
from noosphere.v1 import admin_service_pb2 as admin
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

SPACE = "shared/s"


def with_read_set(call: types.CallContext) -> types.CallContext:
    """Returns ``call`` with a read set that saw nothing, unless it has one."""
    found = types.CallContext(read_set_token=encode_read_set(NOTHING_READ))
    found.MergeFrom(call)
    return found


def calls_of(agent: Agent, space: str, call: types.CallContext) -> dict[str, Callable[[], Awaitable[object]]]:
    """Returns a call of every rpc that concerns a namespace."""
    task = types.Record(key="t", claim=types.Claim(fence=0))

    async def watch() -> None:
        stream = agent.api.watch(pb.WatchRequest(namespace=space, call=call))
        try:
            await anext(stream)
        finally:
            await stream.aclose()

    api = agent.api
    return {
        "Get": lambda: api.get(pb.GetRequest(namespace=space, key="k", call=call)),
        "BatchGet": lambda: api.batch_get(pb.BatchGetRequest(namespace=space, keys=["k"], call=call)),
        "List": lambda: api.list_records(pb.ListRequest(namespace=space, call=call)),
        "ListHistory": lambda: api.list_history(pb.ListHistoryRequest(namespace=space, call=call)),
        "Put": lambda: agent.put(space, "k", 1, blind=True, call=call),
        "Delete": lambda: agent.delete(space, "k", blind=True, call=call),
        "Merge": lambda: agent.add(space, "m", call=call),
        "Transact": lambda: agent.transact(space, put("k", 1, blind=True), call=call),
        "Watch": watch,
        "ClaimNext": lambda: agent.claim(space, call=call),
        "Renew": lambda: api.renew(pb.RenewRequest(namespace=space, key="t", lease=span(1000), call=call)),
        "Release": lambda: api.release(pb.ReleaseRequest(namespace=space, key="t", call=call)),
        "Complete": lambda: agent.complete(space, task, call=call),
        "Commit": lambda: api.commit(
            pb.CommitRequest(namespace=space, operations=[put("k", 1, blind=True)], call=with_read_set(call))
        ),
        "Reserve": lambda: api.reserve(pb.ReserveRequest(namespace=space, key="k", lease=span(1000), call=call)),
        "CancelReservation": lambda: api.cancel_reservation(
            pb.CancelReservationRequest(namespace=space, key="k", call=call)
        ),
        "ListConflicts": lambda: api.list_conflicts(pb.ListConflictsRequest(namespace=space, call=call)),
        "ResolveConflict": lambda: api.resolve_conflict(
            pb.ResolveConflictRequest(namespace=space, key="k", context=SEEN_NOTHING, delete=True, call=call)
        ),
        "EnsureNamespace": lambda: api.ensure_namespace(pb.EnsureNamespaceRequest(namespace=space, call=call)),
    }


async def test_no_call_reaches_into_anothers_namespace(world: World) -> None:
    agent, other = await world.agent("a"), await world.agent("b")
    for call in calls_of(other, f"agents/{agent.actor.agent_id}", other.call()).values():
        with refusal(Reason.PERMISSION_DENIED):
            await call()


async def test_no_call_takes_what_is_not_a_token(world: World) -> None:
    agent = await world.agent("a")
    for token in (types.CallContext(causal_tokens=[b"t"]), types.CallContext(read_set_token=b"t")):
        token.actor.CopyFrom(agent.actor)
        for call in calls_of(agent, world.space(), token).values():
            with refusal(Reason.INVALID_FIELD):
                await call()


async def test_every_call_says_so_when_the_engine_is_gone(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    await agent.put(SPACE, "k", 1)
    await local.engine.store.close()
    calls = calls_of(agent, SPACE, agent.call())
    calls["GetStats"] = local.api.stats
    calls["ListNamespaces"] = lambda: local.api.list_namespaces(admin.ListNamespacesRequest())
    for call in calls.values():
        with refusal(Reason.ENGINE_UNAVAILABLE):
            await call()


async def test_a_lost_revision_is_told_wherever_it_is_presented(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    await agent.put(SPACE, "k", 1)
    await agent.put(SPACE, "t/1", 1)
    image = local.image()
    lost = await agent.put(SPACE, "k", 2, blind=True)
    task = await agent.claim(SPACE, "t/")
    assert task is not None
    cut = lost.revision - 1
    await local.crash(image)
    agent = Agent(local.api, agent.actor)
    removal = pb.MergeOperation(key="s", set_update=pb.SetUpdate(remove=["1"], context=lost.context))
    extra = types.CausalContext(prefix=cut, extras=[lost.revision])
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: agent.put(SPACE, "k", 3, expected=lost.version),
        lambda: agent.put(SPACE, "k", 3, context=lost.context),
        lambda: agent.put(SPACE, "k", 3, context=extra),
        lambda: agent.delete(SPACE, "k", context=lost.context),
        lambda: agent.merge(SPACE, removal),
        lambda: agent.transact(SPACE, put("x", 1), compares={"k": lost.version}),
        lambda: agent.transact(SPACE, put("x", 1), delete("k", context=lost.context)),
        lambda: agent.renew(SPACE, task),
        lambda: agent.release(SPACE, task),
        lambda: agent.complete(SPACE, task),
    ]
    for call in calls:
        with refusal(Reason.ACKED_WRITES_LOST) as error:
            await call()
        assert getattr(error.lost(), "from") == cut
        assert error.lost().to >= task.version
        assert error.head == cut
    # What was read up to the cut stays good, and nothing above was executed.
    assert (await agent.get(SPACE, "k")).version == cut - 1
    await agent.put(SPACE, "k", 3, context=types.CausalContext(prefix=cut))


async def test_waiting_claims_are_told_that_the_server_goes(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    await agent.put(SPACE, "k", 1)
    local.engine.memory.signals.drain()
    with refusal(Reason.DRAINING):
        await agent.claim(SPACE, "empty/", wait_ms=1_000)
