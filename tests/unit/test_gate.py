"""The gate: steps are told of each call's begin and end, may refuse it, and see calls inside a Pipeline one by one."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
import pytest

from noosphere.consistency import NamePattern, Reason, Refusal
from noosphere.server.rpc.calls import Context, streaming, unary
from noosphere.server.rpc.gate import Gate, Rpc, Step, nothing, under_way
from noosphere.server.rpc.switchboard import Collected, Switchboard
from noosphere.server.security import OPEN, Principal, Unsettled, calling
from noosphere.server.security.permissions import require_acting
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2

SECONDS_MAX = 30
FULL = Refusal(Reason.LIMIT_EXCEEDED, "no more")


class Noted:
    """A step that writes down what it is told, and refuses what a test says."""

    def __init__(self, name: str, told: list[str], refuses: tuple[str, ...] = ()) -> None:
        self.name = name
        self.told = told
        self.refuses = refuses
        self.ended: list[Rpc] = []
        self.changed = asyncio.Event()

    def begin(self, rpc: Rpc) -> None:
        """Notes it, or refuses."""
        if rpc.method.rpartition("/")[2] in self.refuses:
            raise FULL
        self.told.append(f"{self.name} begins {rpc.method}")
        self.changed.set()

    def end(self, rpc: Rpc) -> None:
        """Notes it."""
        self.told.append(f"{self.name} ends {rpc.method} {rpc.code.name}")
        self.ended.append(rpc)
        self.changed.set()

    async def has_ended(self, count: int = 1) -> None:
        """Returns once calls have; their callers may know earlier."""
        while len(self.ended) < count:
            self.changed.clear()
            await self.changed.wait()


class Looked(Unsettled):
    """Something that has to be looked up first."""

    def __init__(self, looks: asyncio.Event) -> None:
        super().__init__(Reason.ENGINE_UNAVAILABLE, "it is not known yet")
        self.looks = looks

    async def settle(self) -> None:
        """Waits until it was looked up."""
        await self.looks.wait()


class Looking(Noted):
    """A step that has to look something up some times before it lets a call pass."""

    def __init__(self, name: str, told: list[str], times: int, *, found: bool = True) -> None:
        super().__init__(name, told)
        self.times = times
        self.looks = asyncio.Event()
        if found:
            self.looks.set()

    def begin(self, rpc: Rpc) -> None:
        """Has something looked up, or notes it."""
        self.changed.set()
        if self.times:
            self.times -= 1
            raise Looked(self.looks)
        super().begin(rpc)


class Counting:
    """A step that does nothing when a call begins."""

    begin = nothing

    def __init__(self) -> None:
        self.count = 0

    def end(self, rpc: Rpc) -> None:
        """Counts."""
        self.count += 1


class Service:
    """Methods that end in each way."""

    @unary
    async def Well(self, request: pb.GetRequest, context: Context) -> pb.GetResponse:
        """Answers."""
        seen = under_way.get()
        assert seen is not None
        return pb.GetResponse(head=len(request.key), record={"key": seen.method})  # type: ignore[arg-type]

    @unary
    async def Refused(self, request: pb.GetRequest, context: Context) -> pb.GetResponse:
        """Refuses."""
        raise Refusal(Reason.CONFLICT, "somebody was faster")

    @unary
    async def Broken(self, request: pb.GetRequest, context: Context) -> pb.GetResponse:
        """Fails."""
        raise ValueError("secret value")

    @unary
    async def Never(self, request: pb.GetRequest, context: Context) -> pb.GetResponse:
        """Waits."""
        await asyncio.Event().wait()
        raise AssertionError

    @streaming
    async def Stream(self, request: pb.WatchRequest, context: Context) -> AsyncGenerator[pb.WatchResponse, None]:
        """Answers twice, then refuses."""
        yield pb.WatchResponse()
        yield pb.WatchResponse()
        raise Refusal(Reason.SLOW_CONSUMER, "too slow")


@contextlib.asynccontextmanager
async def serving(*steps: Step) -> AsyncIterator[grpc.aio.Channel]:
    """Serves the methods behind a gate."""
    service = Service()

    def of(name: str) -> Any:
        behaviour: Any = getattr(service, name)
        make = grpc.unary_stream_rpc_method_handler if name == "Stream" else grpc.unary_unary_rpc_method_handler
        request, response = (pb.WatchRequest, pb.WatchResponse) if name == "Stream" else (pb.GetRequest, pb.GetResponse)
        return make(behaviour, request.FromString, response.SerializeToString)

    collected = Collected()
    names = ("Well", "Refused", "Broken", "Never", "Stream")
    collected.add_registered_method_handlers("s", {name: of(name) for name in names})
    switchboard = Switchboard(Gate(steps))
    switchboard.connect(collected.handlers, may_end=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((switchboard,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(0)


async def call(channel: grpc.aio.Channel, name: str, **options: Any) -> pb.GetResponse:
    made: Any = channel.unary_unary(
        f"/s/{name}",
        request_serializer=pb.GetRequest.SerializeToString,
        response_deserializer=pb.GetResponse.FromString,
    )
    response: pb.GetResponse = await made(pb.GetRequest(key="abc"), timeout=SECONDS_MAX, **options)
    return response


@pytest.fixture
def told() -> list[str]:
    return []


async def test_steps_are_told_of_begin_and_end_in_opposite_orders(told: list[str]) -> None:
    first = Noted("a", told)
    async with serving(first, Noted("b", told)) as channel:
        assert (await call(channel, "Well")).record.key == "/s/Well"
        await first.has_ended()
    assert told == ["a begins /s/Well", "b begins /s/Well", "b ends /s/Well OK", "a ends /s/Well OK"]


@pytest.mark.parametrize(
    ("name", "code", "reason"), [("Refused", "ABORTED", Reason.CONFLICT), ("Broken", "INTERNAL", None)]
)
async def test_steps_are_told_why_a_call_failed(told: list[str], name: str, code: str, reason: Reason | None) -> None:
    step = Noted("a", told)
    async with serving(step) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call(channel, name)
        assert failed.value.code().name == code
        await step.has_ended()
    (rpc,) = step.ended
    assert (rpc.code.name, rpc.refusal and rpc.refusal.reason) == (code, reason)


async def test_a_step_refuses_before_later_ones_and_the_method_are_told(told: list[str]) -> None:
    first, last = Noted("a", told), Noted("c", told)
    async with serving(first, Noted("b", told, ("Well", "Stream")), last) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(channel, "Well")
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        made: Any = channel.unary_stream("/s/Stream", request_serializer=pb.WatchRequest.SerializeToString)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await made(pb.WatchRequest()).read()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await first.has_ended(2)
    ends = [f"a ends /s/{name} RESOURCE_EXHAUSTED" for name in ("Well", "Stream")]
    assert told == ["a begins /s/Well", ends[0], "a begins /s/Stream", ends[1]]
    assert [rpc.refusal for rpc in first.ended] == [FULL, FULL]


async def test_a_stream_ends_for_the_steps_when_it_does(told: list[str]) -> None:
    step = Noted("a", told)
    async with serving(step) as channel:
        made: Any = channel.unary_stream("/s/Stream", request_serializer=pb.WatchRequest.SerializeToString)
        stream = made(pb.WatchRequest(), timeout=SECONDS_MAX)
        assert [await stream.read() for _ in range(2)] == [b"", b""]
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.read()
        await step.has_ended()
    (rpc,) = step.ended
    assert (rpc.code.name, rpc.streams, rpc.refusal and rpc.refusal.reason) == (
        "RESOURCE_EXHAUSTED",
        True,
        Reason.SLOW_CONSUMER,
    )


async def test_a_call_that_is_given_up_ends_as_well(told: list[str]) -> None:
    step = Noted("a", told)
    async with serving(step) as channel:
        waiting = asyncio.create_task(call(channel, "Never"))
        await step.changed.wait()
        waiting.cancel()
        await step.has_ended()
    assert told == ["a begins /s/Never", "a ends /s/Never CANCELLED"]


@pytest.mark.parametrize("name", ["Well", "Stream"])
async def test_what_has_to_be_looked_up_keeps_later_steps_waiting(told: list[str], name: str) -> None:
    first = Noted("a", told)
    async with serving(first, Looking("b", told, 2), Counting(), Looking("c", told, 1), Noted("d", told)) as channel:
        if name == "Well":
            await call(channel, name)
        else:
            made: Any = channel.unary_stream(f"/s/{name}", request_serializer=pb.WatchRequest.SerializeToString)
            with pytest.raises(grpc.aio.AioRpcError, match="too slow"):
                _ = [message async for message in made(pb.WatchRequest(), timeout=SECONDS_MAX)]
        await first.has_ended()
    assert [line.partition(" /")[0] for line in told] == [
        *(f"{step} begins" for step in "abcd"),
        *(f"{step} ends" for step in "dcba"),
    ]


async def test_a_call_given_up_while_something_is_looked_up_ends_for_the_steps_before(told: list[str]) -> None:
    first, looking, last = Noted("a", told), Looking("b", told, 1, found=False), Counting()
    async with serving(first, looking, last) as channel:
        waiting = asyncio.create_task(call(channel, "Well"))
        await looking.changed.wait()
        waiting.cancel()
        await first.has_ended()
    assert told == ["a begins /s/Well", "a ends /s/Well CANCELLED"]
    assert last.count == 0


async def test_a_step_without_a_beginning_is_told_of_ends_only_of_calls_that_came_so_far(told: list[str]) -> None:
    before, after, first = Counting(), Counting(), Noted("a", told)
    async with serving(first, before, Noted("b", told, ("Never",)), after) as channel:
        await call(channel, "Well")
        with pytest.raises(grpc.aio.AioRpcError):
            await call(channel, "Never")
        await first.has_ended(2)
    assert (before.count, after.count) == (2, 1)


async def test_each_call_inside_a_pipeline_passes_by_itself(told: list[str]) -> None:
    step = Noted("a", told, ("Delete",))
    gate = Gate((step,))

    async def answer(request: pb.GetRequest) -> pb.GetResponse:
        seen = under_way.get()
        assert seen is not None
        return pb.GetResponse(record=types_pb2.Record(key=f"{request.key} by {seen.method}"))

    answered = await gate.passing_inside("/m/Get", answer)(pb.GetRequest(key="x"))
    assert answered.record.key == "x by /m/Get"
    with pytest.raises(Refusal):
        await gate.passing_inside("/m/Delete", answer)(pb.GetRequest(key="x"))
    assert told == ["a begins /m/Get", "a ends /m/Get OK"]


def _act_as(principal: Principal, agent_id: str) -> None:
    calling.set(principal)
    require_acting(agent_id)


def test_an_identity_acts_as_its_own_agents_only() -> None:
    planner = Principal("planner", agents=(NamePattern("agents/writer", True), NamePattern("agents/team/", False)))
    mine = ("planner", "planner/3", "writer", "team/1")
    others = ("planner2", "writer/1", "writers", "team", "cli/1", "", "PLANNER", "planner/../writer2")
    assert [name for name in (*mine, *others) if planner.may_act_as(name)] == [*mine, "planner/../writer2"]
    assert all(who.may_act_as(name) for name in mine + others for who in (OPEN, Principal("root", admin=True)))
    assert not Principal("cli").may_act_as("cli/1")
    with pytest.raises(Refusal) as refused:
        # In a context of its own: whoever calls in this one is nobody in the next test.
        contextvars.copy_context().run(_act_as, planner, "other")
    assert refused.value.reason is Reason.PERMISSION_DENIED
