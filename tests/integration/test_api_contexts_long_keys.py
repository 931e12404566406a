"""Contexts of sessions whose keys are too long, all together, for a read set: shown as far as decisions stay safe."""

from __future__ import annotations

import pytest
from tests.support.api import put
from tests.support.contexts import Assembled, ContextAgent, against
from tests.support.sessions import SessionAgent, caller, said, session_name, space
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason, StampMode, decode_read_set
from noosphere.v1 import context_service_pb2 as pb
from noosphere.v1 import memory_service_pb2 as memory_pb
from noosphere.v1 import session_service_pb2 as session_pb

ITEMS = 256
KEY_CHARS = 300
TOKEN_BYTES_MAX = 64 * 1024
ROOMY = pb.ContextBudget(tokens=200_000, window_tokens=1_000_000)


async def opened(world: World) -> tuple[SessionAgent, str, ContextAgent]:
    """Opens a session in which there is something to answer."""
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    await a.say(s, "Hello")
    return a, s, ContextAgent(a, s)


def long_keys(collection: str, count: int = ITEMS) -> list[str]:
    """Names of which 256 do not fit into one token."""
    return [f"{collection}{number:03}-".ljust(KEY_CHARS, "x") for number in range(count)]


async def fill(agent: SessionAgent, session_id: str, keys: list[str], *, important: str = "") -> None:
    """Writes an item at each key."""
    for begin in range(0, len(keys), 64):
        page = keys[begin : begin + 64]
        operations = [put(key, "x", blind=True, attributes={"pinned": key == important}) for key in page]
        await agent.agent.transact(space(session_id), *operations)


async def decide(agent: SessionAgent, session_id: str, token: bytes, *writes: memory_pb.Operation) -> bytes:
    """Commits a decision against everything that a context showed; returns the token as it is then."""
    append = memory_pb.AppendOperation(message=said("done", session_pb.ROLE_ASSISTANT))
    request = memory_pb.CommitRequest(
        namespace=space(session_id),
        operations=[memory_pb.Operation(append=append), *writes],
        call=against(agent, token),
    )
    return (await agent.agent.api.commit(request)).call.read_set_token


def shown(context: Assembled) -> set[str]:
    """The keys of the items that are shown."""
    return {name.removeprefix("item:") for name, (fate, _) in context.fates().items() if fate != "dropped"}


async def test_items_that_a_read_set_cannot_hold_are_not_shown_and_said_not_to_be(world: World) -> None:
    a, s, c = await opened(world)
    keys = long_keys("notes/")
    # The last of them is the most valuable.
    await fill(a, s, keys, important=keys[-1])
    context = await c.assemble(budget=ROOMY)
    assert TOKEN_BYTES_MAX - 2 * KEY_CHARS < len(context.token) <= TOKEN_BYTES_MAX
    left_out = {name for name, (_, why) in context.fates("WORKING").items() if why == "read_set_full"}
    assert len(left_out) + len(shown(context) & set(keys)) == ITEMS
    assert keys[-1] in shown(context)
    again = await c.assemble(budget=ROOMY)
    assert again.response.messages == context.response.messages
    # What was not shown does not matter; what was does.
    unseen = sorted(left_out)[0].removeprefix("item:")
    assert unseen not in context.text
    await a.agent.put(space(s), unseen, "y", blind=True)
    await decide(a, s, context.token)
    await a.agent.put(space(s), keys[-1], "y", blind=True)
    with refusal(Reason.STALE_READ_SET):
        await decide(a, s, context.token)


@pytest.mark.parametrize("change", ["edited", "new", "gone"])
async def test_a_guarded_collection_stands_for_the_long_keys_in_it(world: World, change: str) -> None:
    a, s, c = await opened(world)
    keys = long_keys("goals/", ITEMS - 3)
    await fill(a, s, [*keys, "notes/short"])
    context = await c.assemble(budget=ROOMY)
    assert shown(context) >= {*keys, "notes/short"}, "nothing is left out"
    seen = decode_read_set(context.token).namespaces[space(s)]
    assert ("goals/", StampMode.CHANGED) in seen.collections
    assert not [key for key in seen.keys if key.startswith("goals/")]
    # The agent's own write makes its decision no staler; anybody else's does.
    token = await decide(a, s, context.token, put(keys[0], "mine", blind=True))
    await a.agent.put(space(s), "notes/other", "z")
    token = await decide(a, s, token)
    if change == "edited":
        await a.agent.put(space(s), keys[-1], "y", blind=True)
    elif change == "new":
        await a.agent.put(space(s), "goals/new", "y")
    else:
        await a.agent.delete(space(s), keys[-1], blind=True)
    with refusal(Reason.STALE_READ_SET):
        await decide(a, s, token)


async def test_a_goal_that_the_caller_guards_by_name_keeps_its_own_entry(world: World) -> None:
    a, s, c = await opened(world)
    keys = long_keys("goals/")
    await fill(a, s, keys)
    context = await c.assemble(budget=ROOMY, guard=[keys[7]])
    seen = decode_read_set(context.token).namespaces[space(s)]
    assert [key for key in seen.keys if key.startswith("goals/")] == [keys[7]]


async def test_what_ends_in_a_collection_that_stands_for_its_keys_ends_the_decision(world: World) -> None:
    a, s, c = await opened(world)
    keys = long_keys("goals/", ITEMS - 1)
    await fill(a, s, keys)
    await a.agent.put(space(s), "goals/mortal", "soon", ttl_ms=3_600_000)
    context = await c.assemble(budget=ROOMY)
    seen = decode_read_set(context.token).namespaces[space(s)]
    value = (await a.agent.get(space(s), "goals/mortal")).values[0]
    assert seen.collections["goals/", StampMode.CHANGED].expires_at_ms == value.expire_time.ToMilliseconds()


async def test_a_few_long_keys_are_guarded_one_by_one(world: World) -> None:
    a, s, c = await opened(world)
    keys = long_keys("goals/", 20)
    await fill(a, s, keys)
    seen = decode_read_set((await c.assemble()).token).namespaces[space(s)]
    assert set(keys) <= set(seen.keys)
    assert {mode for _, mode in seen.collections} == {StampMode.MEMBERS}
