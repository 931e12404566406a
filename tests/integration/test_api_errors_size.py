"""Errors are small enough for any client: gRPC's limit for metadata is hard; one above it would reach nobody."""

from __future__ import annotations

import pytest
from tests.support.api import SEEN_NOTHING, put, put_op
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

SIBLINGS = types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS)

KEYS = [
    pytest.param("k" * 512, id="ascii"),
    pytest.param("é" * 256, id="two bytes"),
    pytest.param("鍵" * 170, id="three bytes"),
    pytest.param("🔑" * 128, id="four bytes"),
    pytest.param("%" * 512, id="percent"),
]


@pytest.mark.parametrize("key", KEYS)
async def test_sixteen_siblings_of_a_kilobyte_still_give_a_readable_error(world: World, key: str) -> None:
    space = world.space("智" * 60)
    writers = [await world.agent("書" * 34) for _ in range(17)]
    await writers[0].ensure(space, SIBLINGS)
    for writer in writers[:16]:
        await writer.put(space, key, "x" * 1000, context=SEEN_NOTHING)
    with refusal(Reason.SIBLING_LIMIT) as error:
        await writers[16].put(space, key, "x" * 1000, context=SEEN_NOTHING)
    detail = error.conflict()
    assert (detail.key, detail.namespace) == (key, space)
    newest_first = [dot.dot for dot in detail.unseen]
    assert newest_first == sorted(newest_first, reverse=True)
    assert newest_first[0] == (await writers[0].get(space, key)).version
    assert len(newest_first) >= 8, "as many as fit"


@pytest.mark.parametrize("letter", ["k", "鍵", "🔑"])
async def test_a_transaction_that_fails_everywhere_still_gives_a_readable_error(world: World, letter: str) -> None:
    space, agent = world.space(), await world.agent("a")
    keys = [f"{n:02}" + letter * (510 // len(letter.encode())) for n in range(64)]
    await agent.transact(space, *(put(key, 1) for key in keys))
    with refusal(Reason.PRECONDITION_REQUIRED) as error:
        await agent.transact(space, *(put(key, 2) for key in keys))
    failures = error.transaction().failures
    assert [failure.index for failure in failures] == list(range(len(failures)))
    assert len(failures) >= 4, "as many as fit"
    assert failures[0].key == keys[0]


async def test_a_long_message_is_cut(world: World) -> None:
    agent = await world.agent("a")
    with refusal(Reason.INVALID_FIELD) as error:
        await agent.put("x" * 250, "k", 1)
    assert len(error.message) <= 512
    put_request = pb.PutRequest(namespace=world.space(), put=put_op("k", 1), call=agent.call(uuid="🔑" * 5000))
    with refusal(Reason.INVALID_FIELD) as error:
        await world.api.put(put_request)
    assert len(error.message) <= 512
