"""Facts that come back by themselves: into contexts, with source and trust, and into working memory for open goals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.support.contexts import ContextAgent
from tests.support.engine import LocalServer, local_server
from tests.support.facts import FactAgent
from tests.support.sessions import SessionAgent, space
from tests.support.telling import Teller

from noosphere.server.facts.asked import OWNERS_MAX
from noosphere.v1 import context_service_pb2 as context_pb
from noosphere.v1 import fact_service_pb2 as pb
from noosphere.v1 import session_service_pb2 as session_pb


class Scene:
    """A user with facts, and an agent's session in which they are of use."""

    def __init__(self, server: LocalServer, user: Teller, sessions: SessionAgent) -> None:
        self.server = server
        self.user = user
        self.sessions = sessions
        self.contexts = ContextAgent(sessions, "work")

    async def context(self, input: str, **fields: Any) -> tuple[str, dict[str, tuple[str, str]], list[str]]:
        """Assembles a context with the user's facts: its text, what became of facts, and warnings."""
        made = await self.contexts.assemble(input, **{"fact_owners": [self.user.user], **fields})
        return made.text, {**made.fates("FACTS"), **made.fates("PROFILE")}, made.warnings


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with local_server(tmp_path) as server:
        agent = await server.api.agent("planner")
        sessions = SessionAgent(agent)
        await sessions.open("work")
        scene = Scene(server, await Teller.begin(agent), sessions)
        # The session's first context writes its secret, for which the clock of the test would not wait.
        await scene.contexts.assemble("hello")
        yield scene


async def test_a_context_shows_what_is_known_with_source_and_trust(scene: Scene) -> None:
    fact_id = await scene.user.tells("The launch of Phoenix is on 12 May 2026", producer="notes 1.0")
    await scene.user.tells("Anna sings in a choir")
    text, fates, warnings = await scene.context("When is the launch of Phoenix?")
    assert fates == {f"fact:{fact_id}": ("included", "fits")}, "what would hardly help stays out"
    (line,) = [line for line in text.splitlines() if "12 May 2026" in line]
    assert "notes 1.0; msg:" in line
    assert "trust 0.5" in line
    assert warnings == []


async def test_a_profile_is_in_every_context_until_it_is_not_one_any_more(scene: Scene) -> None:
    metric = await scene.user.tells("Prefers metric units", pinned=True)
    await scene.user.tells("Prefers tea", pinned=True, importance=0.95, owner="agent/planner")
    home = {"subject": "user", "predicate": "home city", "cardinality": pb.CARDINALITY_SINGLE}
    paris = await scene.user.tells("Lives in Paris", object="Paris", pinned=True, importance=0.9, **home)
    _, fates, _ = await scene.context("Tell me a joke")
    assert set(fates) == {f"fact:{metric}", f"fact:{paris}"}
    await scene.server.elapse(1)
    await scene.user.tells("Lives in Rome", object="Rome", **home)
    text, fates, _ = await scene.context("Tell me a joke")
    assert set(fates) == {f"fact:{metric}"}
    assert "Paris" not in text
    await scene.user.facts.forget(fact_id=metric)
    _, fates, _ = await scene.context("Tell me a joke")
    assert fates == {}


async def test_what_has_ended_is_in_no_context(scene: Scene) -> None:
    ends = Timestamp()
    ends.FromMilliseconds(scene.server.engine.store.now_ms() + 1_000)
    await scene.user.tells("The code is 4711", expire_time=ends, pinned=True)
    assert "4711" in (await scene.context("What is the code?"))[0]
    await scene.server.elapse(1_000)
    assert "4711" not in (await scene.context("What is the code?"))[0]


async def test_contradictions_are_marked_in_a_context_the_newest_first(scene: Scene) -> None:
    await scene.user.facts.set_policy(scene.user.user, conflict_rule=pb.CONFLICT_RULE_KEEP_BOTH)
    home = {"subject": "user", "predicate": "home city", "cardinality": pb.CARDINALITY_SINGLE}
    await scene.user.tells("The user lives in Paris", object="Paris", **home)
    await scene.server.elapse(1_000)
    await scene.user.tells("The user lives in Rome", object="Rome", **home)
    text, _, _ = await scene.context("Where does the user live?")
    assert text.index("The user lives in Rome") < text.index("The user lives in Paris")
    assert sum("contested" in line for line in text.splitlines()) == 2


async def test_what_an_agent_may_not_see_is_in_none_of_its_contexts(scene: Scene) -> None:
    other = FactAgent(await scene.server.api.agent("other"))
    secret = await Teller.begin(other.agent, "agent/other")
    await secret.tells("The other agent's launch code is 0815", pinned=True)
    text, fates, warnings = await scene.context("What is the launch code?", fact_owners=["agent/other"])
    assert "0815" not in text
    assert (fates, warnings) == ({}, [])


async def test_long_facts_take_no_more_than_their_room(scene: Scene) -> None:
    for at in range(40):
        await scene.user.tells(f"Launch note {at}: " + f"the launch has {at} parts and many details " * 40)
    made = await scene.contexts.assemble(
        "What of the launch?", fact_owners=[scene.user.user], budget=context_pb.ContextBudget(tokens=4_000)
    )
    assert made.manifest.tokens_used <= 4_000
    shown = [entry for entry in made.manifest.entries if entry.id.startswith("fact:")]
    assert 1 <= len(shown) <= 10


@pytest.mark.parametrize("owner", ["anna", "user/", "app/shop/user/1", "user/1#2"])
async def test_an_owner_of_another_form_is_refused(scene: Scene, owner: str) -> None:
    with pytest.raises(Exception, match=r"INVALID_FIELD: fact_owners\[1\]: "):
        await scene.context("hello", fact_owners=["user/1", owner])


async def test_many_owners_are_asked_at_once(scene: Scene) -> None:
    users = [scene.user.another() for _ in range(OWNERS_MAX)]
    for at, user in enumerate(users):
        await user.tells(f"Launch site {at} is ready")
    text, _, _ = await scene.context("Is the launch site ready?", fact_owners=[user.user for user in users])
    assert all(f"Launch site {at} is ready" in text for at in range(OWNERS_MAX))


async def test_facts_near_an_open_goal_enter_working_memory_once(scene: Scene) -> None:
    mine = {"owner": "agent/planner"}
    near = await scene.user.tells("The launch of Phoenix needs a sign-off from legal", **mine)
    await scene.user.tells("The canteen serves soup on Mondays", **mine)
    await scene.user.tells("The Phoenix launch is a secret of another", owner=scene.user.user)
    await scene.sessions.agent.put(space("work"), "goals/main", "Prepare the launch of Phoenix")
    changes = await scene.sessions.turns("work")
    promoted = [change for change in changes if change.action == session_pb.TRANSITION_ACTION_PROMOTE]
    assert {change.reason for change in promoted} == {"near_goal"}
    items = {key: json.loads(data) for key, data in (await scene.sessions.items("work")).items()}
    facts = {key: value for key, value in items.items() if key.startswith("facts/")}
    assert [value["id"] for value in facts.values()] == [near]
    assert {change.key for change in promoted} == set(facts)
    assert {value["trust"] for value in facts.values()} == {0.5}
    again = await scene.sessions.turns("work")
    assert [change for change in again if change.action == session_pb.TRANSITION_ACTION_PROMOTE] == []
