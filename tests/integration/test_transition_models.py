"""A model that decides about working memory, in a whole server: within the rules' bounds, and never in the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.endpoint import Asked, Endpoint, answering, completion, open_endpoint, send
from tests.support.engine import LocalServer
from tests.support.sessions import SessionAgent, proposed, space

from noosphere.v1 import session_service_pb2 as pb

S = "s1"
CANARY = "canary-of-a-policy"


def deciding(**wanted: str) -> bytes:
    """Returns an answer about items by their numbers: ``_0="archive"``."""
    found = [{"id": int(at[1:]), "action": action} for at, action in wanted.items()]
    return completion(json.dumps({"decisions": found}))


class Lab:
    """A server whose policy is a scripted model, and an agent with a session."""

    def __init__(self, server: LocalServer, model: Endpoint, agent: SessionAgent) -> None:
        self.server = server
        self.model = model
        self.a = agent

    async def note(self, key: str, session_id: str = S) -> None:
        await self.a.agent.put(space(session_id), f"notes/{key}", f"{key} {CANARY}")

    @property
    def asked_about(self) -> list[list[str]]:
        """The keys that the model was asked about, by call."""
        return [[item["key"] for item in asked.data["items"]] for asked in self.model.asked]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with open_endpoint(answering(deciding(_0="archive"))) as model:
        server = LocalServer(
            tmp_path,
            transition_policy="openai",
            transition_policy_url=model.url,
            transition_policy_model="tiny",
            transition_policy_timeout_seconds=0.5,
        )
        await server.start()
        a = SessionAgent(await server.api.agent("a"))
        await a.open(S)
        try:
            yield Lab(server, model, a)
        finally:
            await server.stop()


async def test_a_model_lets_go_what_the_rules_would_keep_and_the_event_names_it(lab: Lab) -> None:
    await lab.note("flight")
    assert await lab.a.turns(S, 3) == []
    assert lab.model.asked == [], "nothing was a candidate"
    (gone,) = await lab.a.turns(S)
    assert (gone.key, gone.action, gone.reason) == ("notes/flight", pb.TRANSITION_ACTION_ARCHIVE, "policy")
    assert gone.policy == "tiny/1"
    assert gone.explanation == "The policy 'tiny/1' wants it so."
    assert await lab.a.items(S) == {}
    assert [candidate["item"] for candidate in await proposed(lab.a, S)] == ["notes/flight"]
    assert lab.asked_about == [["notes/flight"]]


async def test_several_items_that_a_model_wants_shorter_become_one(lab: Lab) -> None:
    lab.model.script = answering(deciding(_0="compress", _1="compress"))
    for key in ("a", "b"):
        await lab.note(key)
    gone = await lab.a.turns(S, 4)
    assert {one.action for one in gone} == {pb.TRANSITION_ACTION_COMPRESS}
    (made,) = await lab.a.items(S)
    assert {one.into for one in gone} == {made}


async def test_goals_and_pinned_items_are_never_its_to_decide(lab: Lab) -> None:
    await lab.a.agent.put(space(S), "goals/main", "find a flight")
    await lab.a.agent.put(space(S), "notes/pinned", "x", attributes={"pinned": True})
    await lab.note("flight")
    await lab.a.turns(S, 4)
    assert lab.asked_about == [["notes/flight"]]
    assert lab.model.asked[0].data["goals"] == ["find a flight"]
    assert set(await lab.a.items(S)) == {"goals/main", "notes/pinned"}


@pytest.mark.parametrize("wrong", ["away", "malformed", "slow", "busy"])
async def test_without_a_usable_answer_the_rules_decide_and_the_turn_ends(wrong: str, lab: Lab) -> None:
    async def script(writer: asyncio.StreamWriter, _: Asked) -> None:
        match wrong:
            case "away":
                writer.close()
            case "malformed":
                send(writer, completion("everything may go"))
            case "slow":
                await asyncio.Event().wait()
            case "busy":
                send(writer, b"{}", status="429 Too Many Requests")

    lab.model.script = script
    await lab.note("flight")
    assert await lab.a.turns(S, 11) == []
    (gone,) = await lab.a.turns(S)
    assert (gone.reason, gone.policy) == ("idle", "rules/1")
    assert len(lab.model.asked) == 1, "after a failure it rests; the turns that follow do not wait for it"


async def test_a_dry_run_asks_and_changes_nothing(lab: Lab) -> None:
    await lab.note("flight")
    await lab.a.turns(S, 3)
    turn = await lab.a.begin_turn(S)
    told = await lab.a.run(S, dry_run=True)
    assert (told["notes/flight"].action, told["notes/flight"].policy) == (pb.TRANSITION_ACTION_ARCHIVE, "tiny/1")
    assert set(await lab.a.items(S)) == {"notes/flight"}
    await lab.a.end_turn(S, turn)
    assert await lab.a.items(S) == {}


async def test_an_instruction_asks_no_model(lab: Lab) -> None:
    await lab.note("flight")
    await lab.a.turns(S, 3)
    await lab.a.begin_turn(S)
    await lab.a.run(S, keys=["notes/flight"], instruction=pb.TRANSITION_ACTION_RETAIN)
    assert lab.model.asked == []


async def test_what_an_ephemeral_session_holds_reaches_no_model(lab: Lab) -> None:
    s = (await lab.a.open("", ephemeral=True)).id
    await lab.note("secret", s)
    assert [one.policy for one in await lab.a.turns(s, 12)] == ["rules/1"]
    assert lab.model.asked == []


async def test_neither_items_nor_answers_are_logged(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.model.script = answering(completion(CANARY))
    await lab.note("flight")
    await lab.a.turns(S, 4)
    assert len(lab.model.asked) == 1
    said = capsys.readouterr()
    assert "rests after a failure" in said.out + said.err
    assert CANARY not in said.out + said.err
