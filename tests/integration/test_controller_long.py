"""A thousand turns of one session: working memory stays between its bounds, and nothing is lost on the way."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.support.api import Agent
from tests.support.engine import local_server
from tests.support.sessions import SessionAgent, space

from noosphere.server.transitions.rules import ACTIVE_MAX
from noosphere.v1 import session_service_pb2 as pb

S = "long"
TURNS = 1_000
GRACE_TURNS = 3
ITEMS_A_TURN_MAX = 3
_GOING = {pb.TRANSITION_ACTION_ARCHIVE, pb.TRANSITION_ACTION_COMPRESS, pb.TRANSITION_ACTION_DROP}


@pytest.mark.campaign
@pytest.mark.timeout(600)
async def test_a_thousand_turns_stay_between_the_bounds(tmp_path: Path) -> None:
    rng = random.Random(4)
    made: dict[str, int] = {}
    gone: dict[str, pb.Transition] = {}
    async with local_server(tmp_path) as server:
        a = SessionAgent(Agent(server.api, await server.api.open_agent("a")))
        await a.open(S, settings=pb.SessionSettings(grace_turns=GRACE_TURNS))
        await a.agent.put(space(S), "goals/main", "Write the report.")
        await a.agent.put(space(S), "notes/pinned", "Never mind.", attributes={"pinned": True})
        alive: list[str] = []
        for turn in range(1, TURNS + 1):
            number = await a.begin_turn(S)
            assert number == turn
            for n in range(rng.randint(0, ITEMS_A_TURN_MAX)):
                key = f"notes/{turn}-{n}"
                await a.agent.put(space(S), key, f"Finding {n} of turn {turn}.", attributes={"importance": 0.5})
                made[key] = turn
                alive.append(key)
            for key in rng.sample(alive, min(1, len(alive))):
                await a.agent.get(space(S), key)
            for transition in (await a.end_turn(S, turn)).transitions:
                assert transition.action in _GOING
                assert transition.key not in gone, "an item leaves once"
                assert turn - made[transition.key] >= GRACE_TURNS, "nothing leaves before the grace age"
                gone[transition.key] = transition
            alive = [key for key in alive if key not in gone]
            assert len(alive) <= ACTIVE_MAX
        assert set(await a.items(S)) == {"goals/main", "notes/pinned", *alive}
        assert set(made) == set(alive) | set(gone)
        store, ref = server.engine.store, await server.engine.sessions.scribe.living(S)
        outbox = await store.scan(ref, "_session/outbox/", limit=2_000)
        assert len(outbox.entries) == len(gone), "whatever left became a candidate"
        events = await store.scan(ref, "_session/events/", limit=2_000)
        assert sum(entry.live_until_ms > events.view.now_ms for entry in events.entries) <= 256
        health = {figure.metric: figure for figure in (await a.health(S)).figures}
        assert health[pb.HEALTH_METRIC_STATE_LIFESPAN].value > 0
