"""A hundred rounds of recalling facts and extracting from what was said with them: nothing grows or gets surer."""

from __future__ import annotations

import pytest
from tests.support.contexts import ContextAgent
from tests.support.engine import LocalServer
from tests.support.facts import Conversation
from tests.support.sessions import SessionAgent
from tests.support.telling import Teller
from tests.support.toolcalls import finish, start

from noosphere.v1 import fact_service_pb2 as pb
from noosphere.v1 import session_service_pb2 as session_pb

ROUNDS = 100
ROUNDS_A_SESSION = 20


@pytest.mark.parametrize("repeats", ["the assistant", "a tool"])
async def test_a_hundred_rounds_of_recall_and_extraction_grow_nothing(local: LocalServer, repeats: str) -> None:
    user = await Teller.begin(await local.api.agent("planner"))
    told = {await user.tells(text) for text in ("I live in Berlin", "I prefer tea", "The launch of Phoenix is in May")}
    facts, sessions = user.facts, SessionAgent(user.facts.agent)
    known = await facts.listed(user.user, include_superseded=True)
    assert {fact.id for fact in known} == told
    decided = await facts.candidates(user.user)
    contents = (await local.engine.facts.store.stats()).versions
    shown = 0
    for at in range(ROUNDS):
        session = f"s{at // ROUNDS_A_SESSION}"
        if at % ROUNDS_A_SESSION == 0:
            await sessions.open(session)
        talk = Conversation(sessions, session)
        asked = session_pb.Message(
            id=f"asked-{at}",
            role=session_pb.ROLE_USER,
            parts=[session_pb.Part(text="Where do I live, and when is it?")],
        )
        await sessions.append(session, asked)
        context = await ContextAgent(sessions, session).assemble("Where do I live?", fact_owners=[user.user])
        recalled = [line for line in context.text.splitlines() if "Berlin" in line or "Phoenix" in line]
        shown += bool(recalled)
        said = "\n".join(["I live in Berlin. I prefer tea.", *recalled])
        if repeats == "a tool":
            await finish(sessions, (await start(sessions, session, name="memory", call_id=f"c{at}")).ticket, said)
        else:
            answer = session_pb.Message(
                id=f"answer-{at}", role=session_pb.ROLE_ASSISTANT, parts=[session_pb.Part(text=said)]
            )
            await sessions.append(session, answer)
        job = await facts.extract(session_id=talk.id, owner=user.user)
        assert job.state == pb.EXTRACTION_STATE_DONE
    assert shown == ROUNDS, "each round recalled something"
    assert await facts.listed(user.user, include_superseded=True) == known
    assert await facts.candidates(user.user) == decided
    assert (await local.engine.facts.store.stats()).versions == contents
