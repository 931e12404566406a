"""Agents that open at one replica and call another, which has not heard of them yet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
from tests.contract.coordlab import EtcdLab
from tests.contract.lab import EmbeddedLab, until
from tests.support.api import Agent, Api
from tests.support.etcd import needs_etcd
from tests.support.statuses import Refused, refusal
from tests.support.transport import HandlerTransport

from noosphere.consistency import Reason
from noosphere.consistency.limits import AGENT_LEASE_MS
from noosphere.server.memory import Memory
from noosphere.server.memory.newcomers import ENDED_MS
from noosphere.server.rpc.admin import AdminRpc
from noosphere.server.rpc.memory import MemoryRpc
from noosphere.server.storage.etcd import EtcdCoordinator
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

pytestmark = needs_etcd


class Replica:
    """The services of one process on a coordinator of its own; the working store is shared.

    Attributes:
        questions: how often etcd was asked for something, since this was last set to 0.
    """

    def __init__(self, coordinator: EtcdCoordinator, store: EmbeddedLab) -> None:
        self.coordinator = coordinator
        self.memory = Memory.build(
            store.store, coordinator, clock=store.clock, agent_lease_ms=AGENT_LEASE_MS, sweep_interval_ms=3_600_000
        )
        self.rpc = MemoryRpc(self.memory)
        rest: Any = None
        self.api = Api(HandlerTransport(self.rpc, AdminRpc(self.memory, store.clock), rest, rest))
        self.questions = 0
        self._hears = asyncio.Event()
        self._hears.set()
        self._count_questions()
        self._delay_news()

    def _count_questions(self) -> None:
        client: Any = self.coordinator._client
        call = client._call

        async def counted(*args: Any, **options: Any) -> Any:
            self.questions += 1
            return await call(*args, **options)

        client._call = counted

    def _delay_news(self) -> None:
        feed: Any = self.coordinator._feed
        take = feed._take

        async def when_it_hears(response: Any) -> bool:
            await self._hears.wait()
            return cast(bool, await take(response))

        feed._take = when_it_hears

    @contextlib.contextmanager
    def out_of_hearing(self) -> Any:
        """Keeps what others change in etcd from this replica for the length of the block."""
        self._hears.clear()
        try:
            yield
        finally:
            self._hears.set()

    async def asking(self) -> None:
        """Returns when somebody waits because it is asked whether an incarnation is current."""
        await until(lambda: bool(self.memory.core.newcomers._asked))


@pytest.fixture
async def pair(etcd: EtcdLab, embedded: EmbeddedLab) -> AsyncIterator[tuple[Replica, Replica]]:
    other = await etcd.another()
    try:
        yield Replica(etcd.coordinator, embedded), Replica(other, embedded)
    finally:
        await other.close()


CALLS: dict[str, Callable[[Agent], Awaitable[Any]]] = {
    "read": lambda agent: agent.get("shared/a", "k"),
    "write": lambda agent: agent.put("shared/a", "k", "v", blind=True),
    "claim": lambda agent: agent.claim("shared/a", "todo/"),
    "watch": lambda agent: anext(agent.watch("shared/a", snapshot=True)),
}


@pytest.mark.parametrize("kind", CALLS)
async def test_an_agent_may_call_a_replica_that_has_not_heard_of_it(pair: tuple[Replica, Replica], kind: str) -> None:
    here, there = pair
    with there.out_of_hearing():
        opened = await here.api.agent("a")
        call = asyncio.ensure_future(CALLS[kind](Agent(there.api, opened.actor)))
        await there.asking()
    await call
    there.questions = 0
    await Agent(there.api, opened.actor).get("shared/a", "k")
    assert there.questions == 0, "who is known is not asked for"


async def test_calls_of_a_pipeline_wait_for_news_of_their_agent_each_by_itself(pair: tuple[Replica, Replica]) -> None:
    here, there = pair
    known = await there.api.agent("known")
    sent: asyncio.Queue[pb.PipelineRequest | None] = asyncio.Queue()

    async def requests() -> AsyncIterator[pb.PipelineRequest]:
        while (request := await sent.get()) is not None:
            yield request

    with there.out_of_hearing():
        opened = await here.api.agent("a")
        batch = pb.PipelineRequest()
        for number, agent in enumerate((opened, known), 1):
            get = pb.GetRequest(namespace="shared/a", key="k", call=agent.call())
            batch.calls.add(id=number, get=get)
        batch.calls.add(id=3, list=pb.ListRequest(namespace="shared/a", call=opened.call()))
        context: Any = None
        answers = there.rpc.Pipeline(requests(), context)
        sent.put_nowait(batch)
        first = await anext(answers)
        assert [reply.id for reply in first.replies] == [2], "others do not wait for it"
        await there.asking()
    sent.put_nowait(None)
    rest = [reply async for message in answers for reply in message.replies]
    assert sorted((reply.id, reply.WhichOneof("response")) for reply in rest) == [(1, "get"), (3, "list")]


async def test_a_retry_at_a_replica_that_has_not_heard_of_the_agent_is_a_replay(pair: tuple[Replica, Replica]) -> None:
    here, there = pair
    with there.out_of_hearing():
        opened = await here.api.agent("a")
        first = await opened.put("shared/a", "k", "v", blind=True, call=opened.call(sequence=1))
        moved = Agent(there.api, opened.actor)
        again = asyncio.ensure_future(moved.put("shared/a", "k", "v", blind=True, call=opened.call(sequence=1)))
        await there.asking()
    assert ((await again).version, (await again).replayed) == (first.version, True)


async def test_a_flood_of_an_ended_incarnation_does_not_reach_etcd(
    pair: tuple[Replica, Replica], embedded: EmbeddedLab
) -> None:
    here, there = pair
    opened = await here.api.agent("a")
    gone = Agent(there.api, opened.actor)
    await gone.get("shared/a", "k")
    await here.api.close_agent(opened.actor)
    await until(lambda: "a" not in there.coordinator._view.agents)
    there.questions = 0
    for _ in range(3):
        results = await asyncio.gather(*(gone.get("shared/a", "k") for _ in range(200)), return_exceptions=True)
        assert {r.reason for r in results if isinstance(r, Refused)} == {"STALE_INCARNATION"}
        assert len(results) == len([r for r in results if isinstance(r, Refused)])
    assert there.questions == 1
    embedded.advance(ENDED_MS)
    with pytest.raises(Refused):
        await gone.get("shared/a", "k")
    assert there.questions == 2


async def test_whether_one_was_taken_over_need_not_be_asked(pair: tuple[Replica, Replica]) -> None:
    here, there = pair
    first = await there.api.agent("a")
    newer = await here.api.agent("a", takeover=True)
    await Agent(there.api, newer.actor).get("shared/a", "k")
    there.questions = 0
    with pytest.raises(Refused) as refused:
        await first.get("shared/a", "k")
    assert (refused.value.reason, there.questions) == ("STALE_INCARNATION", 0)


async def test_without_etcd_an_unknown_agent_is_told_so_and_a_known_one_goes_on(
    etcd: EtcdLab, embedded: EmbeddedLab
) -> None:
    alone = Replica(await etcd.another(), embedded)
    known = await alone.api.agent("known")
    client: Any = alone.coordinator._client
    await client.close()
    with pytest.raises(Refused) as refused:
        await Agent(alone.api, type(known.actor)(agent_id="x", incarnation=10**6)).get("shared/a", "k")
    assert refused.value.reason == "ENGINE_UNAVAILABLE"
    await known.get("shared/a", "k")
    await alone.coordinator.close()


async def test_a_write_under_rules_that_others_have_replaced_is_decided_again_under_theirs(
    pair: tuple[Replica, Replica],
) -> None:
    here, there = pair
    space, long = "shared/a", b'"' + b"x" * 500 + b'"'
    late, prompt = await there.api.agent("late"), await here.api.agent("prompt")
    await late.put(space, "k", long, blind=True)
    with there.out_of_hearing():
        await prompt.ensure(space, types.NamespacePolicy(item_bytes_max=100))
        await prompt.put(space, "k", "short", blind=True)
        writing = asyncio.ensure_future(late.put(space, "k", long, blind=True))
        reading = await late.get(space, "k")
        # It has been refused by the store, and asks for the rules of which it has not heard.
        await until(lambda: there.questions > 0)
        assert not writing.done()
    with refusal(Reason.VALUE_TOO_LARGE):
        await writing
    assert reading == await prompt.get(space, "k"), "nothing was written by the old rules"
