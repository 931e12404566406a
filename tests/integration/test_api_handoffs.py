"""Hand-overs, in every world: the grant is recorded, and the text carries what the next agent needs."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.support.sessions import SessionAgent, caller, refusal, session_name, space
from tests.support.worlds import World

from noosphere.consistency import NOTHING_SEEN, decode_causal, encode_causal
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


async def hand(a: SessionAgent, s: str, to: str = "writer", note: str = "", **fields: Any) -> pb.HandoffResponse:
    request = pb.HandoffRequest(session_id=s, to=to, note=note, **fields)
    return await a.call("Handoff", request, pb.HandoffResponse)


def token_of(envelope: str) -> Any:
    text = json.loads(envelope)["causal_token"]
    return decode_causal(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "token")


async def test_the_text_carries_note_control_and_what_was_seen(world: World) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    shared = world.space("findings")
    put = await a.agent.put(shared, "k", 1)
    version = (await a.set_control(s, control=pb.ControlState(next_node="write", retries=2))).version
    call = a.agent.call()
    call.causal_tokens.append(encode_causal(NOTHING_SEEN.seen(shared, put.revision)))
    response = await hand(a, s, "writer-0", "draft the report ✍", call=call)
    found = json.loads(response.envelope)
    assert (found["session"], found["to"], found["note"]) == (s, "writer-0", "draft the report ✍")
    assert found["from"] == a.agent.actor.agent_id
    assert found["control"] == {
        "key": "_session/control",
        "version": version,
        "next_node": "write",
        "pending_interrupt": "",
        "retries": 2,
    }
    token = token_of(response.envelope)
    assert token.revisions[shared] == put.revision
    assert token.revisions[space(s)] == response.head
    record = await a.agent.get(space(s), f"_session/handoffs/{response.handoff_id}")
    assert record.attributes["to"] == types.Scalar(string_value="writer-0")
    assert json.loads(record.values[0].value.data)["note"] == "draft the report ✍"


async def test_a_retry_hands_over_once_and_tells_the_same(world: World) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    call = a.agent.call()
    call.request_id.uuid = "7a0d7d6e-21a0-4c61-9a77-0c1f8f2a9d11"
    await a.set_control(s, control=pb.ControlState(next_node="now"))
    first = await hand(a, s, note="once", call=call)
    await a.set_control(s, control=pb.ControlState(next_node="later"))
    again = await hand(a, s, note="once", call=call)
    assert again.envelope == first.envelope
    assert json.loads(again.envelope)["control"]["next_node"] == "now"
    assert len(await a.agent.listing(space(s), "_session/handoffs/")) == 1


@pytest.mark.parametrize(
    ("to", "note", "reason", "words"),
    [
        ("", "", "INVALID_FIELD", ("to", "empty")),
        ("a#1", "", "INVALID_FIELD", ("to", "#")),
        ("writer", "é" * 2049, "VALUE_TOO_LARGE", ("note", "4098", "4096")),
    ],
    ids=["nobody", "an incarnation", "a long note"],
)
async def test_what_cannot_be_handed_over(
    world: World, to: str, note: str, reason: str, words: tuple[str, ...]
) -> None:
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    with refusal(reason, *words):
        await hand(a, s, to, note)
    await a.close(s)
    with refusal("SESSION_CLOSED", s):
        await hand(a, s)
