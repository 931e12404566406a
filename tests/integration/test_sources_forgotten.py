"""Forgetting in sessions: words and sources are gone from every record, log and file, and nothing else is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import toolcalls
from tests.support.forgetting import SPELLINGS, WORD, Bench, S, forgetting, summaries_of
from tests.support.sessions import space, text_of, texts

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.sources import REDACTED
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

USER, ASSISTANT = pb.ROLE_USER, pb.ROLE_ASSISTANT


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    async with forgetting(tmp_path, monkeypatch) as made:
        yield made


async def test_a_source_is_overwritten_whole_and_keeps_who_said_it_when_and_in_which_turn(bench: Bench) -> None:
    turn = await bench.agent.begin_turn(S)
    await bench.say(USER, "my password is hunter22", "m")
    (before,) = await bench.agent.messages(S)
    assert await bench.forget(f"msg:{S}/m", words=()) == {"messages": 1}
    (after,) = await bench.agent.messages(S)
    assert text_of(after) == REDACTED
    same = [(m.id, m.role, m.author, m.turn, m.create_time, m.key) for m in (before, after)]
    assert same[0] == same[1]
    assert 0 < after.tokens < before.tokens
    assert turn == after.turn
    assert await bench.sources.find("", [f"msg:{S}/m"]) == (None,)
    assert await bench.sources.page("", S, "", 10) == ()
    assert await bench.forget(f"msg:{S}/m", words=()) == {}, "there is nothing left to do"


@pytest.mark.parametrize("spelling", SPELLINGS, ids=["as it is", "in capitals", "decomposed", "escaped"])
async def test_a_word_is_blacked_out_in_messages_that_are_no_sources(bench: Bench, spelling: str) -> None:
    await bench.say(USER, "the source", "m")
    use = pb.ToolUse(call_id="c", name="search", arguments=json.dumps({"q": f"is {spelling} known"}))
    await bench.say(ASSISTANT, f"before {spelling} after", "n", tool_calls=[use], name=f"me and {spelling}")
    assert await bench.forget(f"msg:{S}/m") == {"messages": 2}
    assert await bench.text("n") == f"before {REDACTED} after"
    (message,) = [m for m in await bench.agent.messages(S) if m.id == "n"]
    assert json.loads(message.tool_calls[0].arguments) == {"q": f"is {REDACTED} known"}
    assert message.name == f"me and {REDACTED}"


async def test_results_of_tools_are_blacked_out_in_content_arguments_and_raw(bench: Bench) -> None:
    await bench.say(USER, "the source", "m")
    rows = [{"row": number, "text": f"value {number} of {WORD}"} for number in range(4_000)]
    large = await bench.tool("large", rows, arguments=json.dumps({"about": WORD}))
    small = await bench.tool("small", f"say {WORD}")
    found = await bench.forget(f"msg:{S}/m")
    assert found.keys() == {"messages", "tool_results"}
    whole = json.loads(b"".join(await toolcalls.raw(bench.agent, large)))
    assert whole == [{"row": number, "text": f"value {number} of {REDACTED}"} for number in range(4_000)]
    call = (await toolcalls.get(bench.agent, large)).tool_call
    assert json.loads(call.arguments) == {"about": REDACTED}
    assert WORD not in call.content
    assert json.loads(b"".join(await toolcalls.raw(bench.agent, small))) == f"say {REDACTED}"
    assert bench.in_files() == set()


async def test_a_result_that_is_a_source_goes_whole_with_the_message_that_shows_it(bench: Bench) -> None:
    call = await toolcalls.start(bench.agent, S, "c")
    page = "a page about nothing in particular. " * 4_000
    await toolcalls.finish(bench.agent, call.ticket, page, append_message=True)
    await bench.say(USER, "thank you", "u")
    assert await bench.forget(f"tool:{S}/c", words=()) == {"messages": 1, "tool_results": 1}
    assert texts(await bench.agent.messages(S)) == [REDACTED, "thank you"]
    assert b"".join(await toolcalls.raw(bench.agent, call.ticket)).decode() == REDACTED
    assert await bench.sources.find("", [f"tool:{S}/c"]) == (None,)


async def test_items_of_every_kind_lose_the_word_and_keep_the_rest(bench: Bench) -> None:
    await bench.say(USER, "the source", "m")
    a = bench.agent.agent
    value = json.dumps({"who": WORD, "n": 7, "deep": [{WORD: True}]}).encode()
    await a.put(space(S), "notes/json", value, attributes={"about": f"of {WORD}", "importance": 0.5})
    await a.put(space(S), "notes/escaped", json.dumps(WORD).encode())
    await a.put(space(S), "notes/bytes", b"\xff" + WORD.encode() + b"\x00", encoding=types.ENCODING_BYTES)
    await a.put(space(S), "notes/other", "has nothing to do with it")
    await a.add(space(S), "notes/count", 3)
    other = (await a.get(space(S), "notes/other")).version
    assert (await bench.forget(f"msg:{S}/m"))["items"] == 3
    items = await bench.agent.items(S)
    assert json.loads(items["notes/json"]) == {"who": REDACTED, "n": 7, "deep": [{REDACTED: True}]}
    assert json.loads(items["notes/escaped"]) == REDACTED
    assert items["notes/bytes"] == b"\xff" + REDACTED.encode() + b"\x00"
    assert (items["notes/count"], items["notes/other"]) == (b"3", b'"has nothing to do with it"')
    record = await a.get(space(S), "notes/json")
    assert record.attributes["about"].string_value == f"of {REDACTED}"
    assert record.values[0].actor == bench.agent.agent.name
    assert (await a.get(space(S), "notes/other")).version == other
    assert bench.in_files() == set()


@pytest.mark.parametrize("value", ["47110815", "[1, 47110815]", '{"code": "x47110815"}'])
async def test_an_item_that_is_json_stays_json(bench: Bench, value: str) -> None:
    await bench.agent.agent.put(space(S), "pin", value.encode(), blind=True)
    await bench.say(USER, "it is 47110815", "m")
    await bench.forget(f"msg:{S}/m", words=("47110815",))
    (left,) = (await bench.agent.items(S)).values()
    assert "47110815" not in str(json.loads(left))


async def test_a_checkpoint_no_longer_has_the_word_and_still_brings_everything_else_back(bench: Bench) -> None:
    await bench.say(USER, "the source", "m")
    a = bench.agent.agent
    await a.put(space(S), "notes/a", f"first {WORD}")
    await a.put(space(S), "notes/b", "untouched")
    await bench.agent.set_control(S, control=pb.ControlState(next_node="ask", pending_interrupt=f"of {WORD}"))
    first = await bench.agent.checkpoint(S, name=f"with {WORD}")
    await a.put(space(S), "notes/a", f"second {WORD}", blind=True)
    await a.put(space(S), "notes/b", "changed", blind=True)
    second = await bench.agent.checkpoint(S)
    found = await bench.forget(f"msg:{S}/m")
    assert found["checkpoints"] >= 3
    assert bench.in_files() == set()
    for checkpoint, expected in ((first, ("first", "untouched")), (second, ("second", "changed"))):
        await bench.agent.restore(S, checkpoint.id)
        items = {key: json.loads(value) for key, value in (await bench.agent.items(S)).items()}
        assert items == {"notes/a": f"{expected[0]} {REDACTED}", "notes/b": expected[1]}
        control = (await bench.agent.control(S)).control
        assert (control.next_node, control.pending_interrupt) == ("ask", f"of {REDACTED}")
    assert [one.name for one in await bench.agent.checkpoints(S) if one.id == first.id] == [f"with {REDACTED}"]


async def test_a_summary_loses_the_sentences_that_tell_of_it(bench: Bench) -> None:
    await bench.agent.open("long", settings=pb.SessionSettings(window_turns=1, window_steps=2))
    for number, text in enumerate(
        (
            "Decision: we travel to Oslo on the second of May.",
            f"Decision: the vault code for the archive is {WORD} today.",
            "Decision: the hotel in Oslo costs ninety dollars.",
            "What does the ferry to Bergen cost?",
            "The weather is fine.",
            "Go on, please.",
        )
    ):
        await bench.say(USER, text, f"m{number}", "long")
    await bench.agent.summarise("long")
    before = await summaries_of(bench.agent, "long")
    assert any("canary" in summary.lower() for summary in before)
    found = await bench.forget("msg:long/m1")
    assert found["summaries"] == len([summary for summary in before if "canary" in summary.lower()])
    after = " ".join(await summaries_of(bench.agent, "long"))
    assert "vault code" not in after
    assert "Oslo" in after
    assert bench.in_files() == set()


async def test_what_a_session_keeps_besides_is_forgotten_too(bench: Bench) -> None:
    await bench.say(USER, "the source", "m")
    await bench.agent.update(S, title=f"about {WORD}", set_labels={"topic": WORD})
    request = pb.HandoffRequest(session_id=S, to="b", note=f"mind {WORD}")
    await bench.agent.call("Handoff", request, pb.HandoffResponse)
    await bench.agent.agent.put(space(S), "notes/a", f"a fact about {WORD}")
    await bench.agent.agent.put(space(S), "notes/b", "a fact about something else")
    archive = pb.TRANSITION_ACTION_ARCHIVE
    await bench.agent.run(S, keys=["notes/a", "notes/b"], instruction=archive)
    found = await bench.forget(f"msg:{S}/m")
    assert found.keys() >= {"titles", "handoffs", "outbox", "messages"}
    session = await bench.agent.get(S)
    assert (session.title, dict(session.labels)) == (f"about {REDACTED}", {"topic": REDACTED})
    left = await bench.agent.agent.listing(space(S), "_session/outbox/")
    assert [json.loads(record.values[0].value.data)["item"] for record in left] == ["notes/b"]
    (handoff,) = await bench.agent.agent.listing(space(S), "_session/handoffs/")
    assert json.loads(handoff.values[0].value.data)["note"] == f"mind {REDACTED}"
    assert bench.in_files() == set()


async def test_forks_and_what_they_were_forked_from_lose_it_too(bench: Bench) -> None:
    await bench.say(USER, f"remember {WORD}", "old")
    for number in range(70):
        await bench.say(USER, f"message {number}", f"m{number}")
    await bench.say(USER, "the code is in the blue book", "new")
    fork = (await bench.agent.fork(S)).id
    again = (await bench.other.fork(fork)).id
    await bench.say(ASSISTANT, f"in the fork: {WORD}", "own", again)
    # The source is named by the fork, and lies in the parent; the other one is a copy in each.
    await bench.forget(f"msg:{again}/old", f"msg:{fork}/new")
    for session_id in (S, fork, again):
        said_now = {m.id: text_of(m) for m in await bench.agent.messages(session_id)}
        assert said_now["old"] == REDACTED
        assert said_now["m69"] == "message 69"
        if session_id != S:
            assert said_now["new"] == REDACTED
    assert (await bench.text("own", again)) == f"in the fork: {REDACTED}"
    assert bench.in_files() == set()


async def test_sessions_that_mention_words_are_found_and_forgotten_by_name(bench: Bench) -> None:
    for name in ("one", "two", "three"):
        await bench.agent.open(name)
    await bench.say(USER, f"here is {WORD}", "m", "one")
    await bench.tool("c", ["filler"] * 5_000 + [WORD], "three")
    assert await bench.sources.mentions([WORD]) == ("one", "three")
    assert await bench.sources.mentions(["nobody says this"]) == ()
    await bench.forget("session:one", "session:three")
    assert await bench.sources.mentions([WORD]) == ()
    assert bench.in_files() == set()


async def test_many_sessions_are_looked_through_side_by_side_and_told_in_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"many-{number:02}" for number in range(40)]
    for name in names:
        await bench.agent.open(name)
        await bench.say(USER, f"here is {WORD}" if name[-1] == "7" else "here is nothing", "m", name)
    scribe = bench.server.engine.sessions.scribe
    scan, under_way, most = scribe.scan, 0, 0

    async def slow(*args: Any, **kwargs: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(50):
            await asyncio.sleep(0)
        under_way -= 1
        return await scan(*args, **kwargs)

    monkeypatch.setattr(scribe, "scan", slow)
    assert await bench.sources.mentions([WORD]) == ("many-07", "many-17", "many-27", "many-37")
    assert most == 16


async def test_a_closed_session_forgets_and_a_purged_one_leaves_nothing(bench: Bench) -> None:
    await bench.say(USER, f"here is {WORD}", "m")
    await bench.agent.close(S)
    assert await bench.forget(f"msg:{S}/m") == {"messages": 1}
    assert bench.in_files() == set()
    await bench.agent.open("other")
    await bench.say(USER, f"here is {WORD}", "m", "other")
    await bench.agent.close("other")
    await bench.agent.purge("other")
    assert await bench.forget("msg:other/m") == {}
    assert bench.in_files() == set()


async def test_other_sessions_are_left_alone(bench: Bench) -> None:
    await bench.agent.open("other")
    await bench.say(USER, f"here is {WORD}", "m")
    await bench.say(USER, f"here is {WORD}", "m", "other")
    await bench.forget(f"msg:{S}/m", "msg:nowhere/m", "doc:handbook", "session:no/session")
    assert await bench.text("m", "other") == f"here is {WORD}"


@pytest.mark.parametrize(
    ("words", "reason", "named"),
    [
        (("abc",), Reason.INVALID_FIELD, "words[0]"),
        (("fine", "abc"), Reason.INVALID_FIELD, "words[1]"),
        (("x" * 5_000,), Reason.VALUE_TOO_LARGE, "words[0]"),
        (tuple(f"word{n}" for n in range(257)), Reason.VALUE_TOO_LARGE, "words"),
    ],
    ids=["short", "the second", "long", "many"],
)
async def test_words_that_cannot_be_are_refused_before_anything_is_done(
    bench: Bench, words: tuple[str, ...], reason: Reason, named: str
) -> None:
    await bench.say(USER, "fine", "m")
    with pytest.raises(Refusal) as refused:
        await bench.forget(f"msg:{S}/m", words=words)
    assert (refused.value.reason, refused.value.message.startswith(named)) == (reason, True)
    assert await bench.text("m") == "fine"


async def test_a_word_that_is_mostly_white_space_blacks_nothing_out(bench: Bench) -> None:
    await bench.say(USER, "a bc a  bc", "m")
    assert await bench.forget("session:s", words=("    ", "a   ", " \n b")) == {}


async def test_the_mark_itself_can_be_a_word(bench: Bench) -> None:
    await bench.say(USER, "what is forgotten is gone", "m")
    await bench.say(USER, f"it was {WORD}", "n")
    await bench.forget("session:s", words=(WORD, "forgotten"))
    assert texts(await bench.agent.messages(S)) == [f"what is {REDACTED} is gone", f"it was {REDACTED}"]
