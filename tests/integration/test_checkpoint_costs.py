"""What checkpoints cost: bytes grow with what changed, not with what a session holds."""

from __future__ import annotations

import pytest
from tests.support.api import put
from tests.support.engine import LocalServer
from tests.support.sessions import SessionAgent, space

from noosphere.v1 import session_service_pb2 as pb

TURNS = 48
ITEM_BYTES = 400


async def stored_bytes(server: LocalServer, session_id: str) -> int:
    """Returns how much a session takes in the store."""
    ref = await server.engine.sessions.scribe.living(session_id)
    return (await server.engine.store.stats(ref)).record_bytes


async def play(a: SessionAgent, session_id: str, items: int, changed: int) -> int:
    """Plays turns that change some items each and append two messages; returns the bytes that changed."""
    for start in range(0, items, 50):
        keys = range(start, min(items, start + 50))
        await a.agent.transact(
            space(session_id), *(put(f"notes/{key:03}", "x" * ITEM_BYTES, blind=True) for key in keys)
        )
    total = 0
    for turn in range(TURNS):
        await a.begin_turn(session_id)
        await a.say(session_id, "u" * 120)
        for number in range(changed):
            key = (turn * changed + number) % items
            await a.agent.put(space(session_id), f"notes/{key:03}", f"{turn:04}" + "y" * ITEM_BYTES, blind=True)
        await a.say(session_id, "a" * 120)
        await a.end_turn(session_id)
        total += changed * ITEM_BYTES + 240
    return total


@pytest.mark.parametrize(("items", "changed"), [(20, 2), (100, 3), (200, 5)])
async def test_a_turn_costs_at_most_twice_what_it_changed(local: LocalServer, items: int, changed: int) -> None:
    a = SessionAgent(await local.api.agent("a"))
    plain = await a.open(
        settings=pb.SessionSettings(checkpoint_policy=pb.CHECKPOINT_POLICY_MANUAL, transitions_manual=True)
    )
    saved = await a.open(settings=pb.SessionSettings(transitions_manual=True))
    await play(a, plain.id, items, changed)
    total = await play(a, saved.id, items, changed)
    made = await a.checkpoints(saved.id)
    assert len(made) == TURNS
    first = made.pop()
    assert first.items == items
    told = sum(checkpoint.bytes for checkpoint in made)
    assert told <= 2 * total * (TURNS - 1) / TURNS
    # What checkpoints say of themselves is what the store has more to hold, but for the frames of records.
    more = await stored_bytes(local, saved.id) - await stored_bytes(local, plain.id) - first.bytes
    assert told == pytest.approx(more, rel=0.25)


async def test_retention_keeps_the_bytes_within_their_limit(local: LocalServer) -> None:
    a = SessionAgent(await local.api.agent("a"))
    limit = 64 * 1024
    s = (await a.open(settings=pb.SessionSettings(checkpoint_bytes_max=limit, transitions_manual=True))).id
    plain = (
        await a.open(
            settings=pb.SessionSettings(checkpoint_policy=pb.CHECKPOINT_POLICY_MANUAL, transitions_manual=True)
        )
    ).id
    for session in (plain, s):
        for _ in range(3):
            await play(a, session, 40, 10)
    made = await a.checkpoints(s)
    assert 1 < len(made) < TURNS
    assert sum(checkpoint.bytes for checkpoint in made[:-1]) <= limit
    held = await stored_bytes(local, s) - await stored_bytes(local, plain)
    assert held < 2 * limit
    await a.restore(s, made[-1].id)
