"""Forgetting in sessions: words and sources are gone from every record, log and file, and nothing else is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support import toolcalls
from tests.support.api import Agent
from tests.support.contexts import ContextAgent
from tests.support.engine import LocalServer, local_server
from tests.support.sessions import SessionAgent, said, space, text_of, texts

from noosphere.consistency import Reason, Refusal
from noosphere.server import assembly
from noosphere.server.models.tokenizers import TokenizerRegistry
from noosphere.server.ports.models import SourceMessage, SummaryText, Tokenizer
from noosphere.server.ports.runtime import system_random
from noosphere.server.ports.sources import REDACTED
from noosphere.server.ports.store import Erased, NamespaceRef
from noosphere.server.sessions.draining import OutboxDrain
from noosphere.server.sessions.session_sources import SessionSources
from noosphere.server.sessions.summaries import Summaries
from noosphere.server.sessions.summary_bounds import on_request
from noosphere.v1 import context_service_pb2 as contexts
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

S = "s"
WORD = "zq7-Canary-épée"
SPELLINGS = ("zq7-Canary-épée", "ZQ7-CANARY-ÉPÉE", "zq7-canary-e\u0301pe\u0301e", json.dumps("zq7-Canary-épée")[1:-1])
"""The word as people, models and JSON may write it."""

CUTS = 7
"""How many commits the test of a forgetting that is cut off has, and one."""

USER, ASSISTANT, TOOL = pb.ROLE_USER, pb.ROLE_ASSISTANT, pb.ROLE_TOOL


class Bench(NamedTuple):
    """A server with one open session, and what forgets."""

    server: LocalServer
    agent: SessionAgent
    other: SessionAgent

    @property
    def sources(self) -> SessionSources:
        """What finds and forgets, in the present life."""
        engine = self.server.engine
        hooks: tuple[Callable[[str], None], ...] = (
            lambda _: engine.memory.watches.forget_decoded(),
            engine.contexts.forget,
        )
        return SessionSources(engine.sessions.scribe, TokenizerRegistry(), system_random(), hooks)

    async def forget(self, *references: str, words: tuple[str, ...] = (WORD,)) -> dict[str, int]:
        """Forgets; returns how much of what."""
        return {place: count for place, count in await self.sources.redact(references, words)}

    async def say(self, role: pb.Role.ValueType, text: str, message_id: str, session_id: str = S, **more: Any) -> None:
        """Appends a message."""
        await self.agent.append(session_id, said(text, role=role, id=message_id, **more))

    async def text(self, message_id: str, session_id: str = S) -> str:
        """Returns the text of one message."""
        return next(text_of(m) for m in await self.agent.messages(session_id) if m.id == message_id)

    async def tool(self, call_id: str, result: object, session_id: str = S, **fields: Any) -> str:
        """Makes a call and brings its result; returns its ticket."""
        call = await toolcalls.start(self.agent, session_id, call_id, **fields)
        await toolcalls.finish(self.agent, call.ticket, result)
        return call.ticket

    def in_files(self) -> set[str]:
        """Returns in which files any spelling of the word is, case apart."""
        needles = [spelling.encode().lower() for spelling in SPELLINGS] + [b"canary"]
        files = [path for path in self.server.data.rglob("*") if path.is_file()]
        return {path.name for path in files if any(needle in path.read_bytes().lower() for needle in needles)}


class Resting(OutboxDrain):
    """A drain that leaves entries where they are."""

    async def run(self) -> None:
        """Rests."""
        await asyncio.Event().wait()


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """A server, two agents, and a session that the first has opened; outboxes keep what they have."""
    monkeypatch.setattr(assembly, "OutboxDrain", Resting)
    async with local_server(tmp_path) as server:
        a, b = [SessionAgent(Agent(server.api, await server.api.open_agent(name))) for name in ("a", "b")]
        await a.open(S)
        yield Bench(server, a, b)


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
    before = await _summaries(bench, "long")
    assert any("canary" in summary.lower() for summary in before)
    found = await bench.forget("msg:long/m1")
    assert found["summaries"] == len([summary for summary in before if "canary" in summary.lower()])
    after = " ".join(await _summaries(bench, "long"))
    assert "vault code" not in after
    assert "Oslo" in after
    assert bench.in_files() == set()


class Held:
    """A summariser that has read everything and then waits."""

    name = "held/1"

    def __init__(self) -> None:
        self.has_read, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def summarise(
        self, previous: SummaryText | None, messages: Sequence[SourceMessage], tokens_max: int, tokenizer: Tokenizer
    ) -> SummaryText:
        """Returns the beginning of all that was said."""
        self.has_read.set()
        await self.may_go_on.wait()
        return SummaryText(narrative=" ".join(message.text for message in messages))


@pytest.mark.parametrize("forgotten", ["msg:long/m1", "session:long"], ids=["a source", "words"])
async def test_a_summary_that_is_being_made_meanwhile_does_not_bring_it_back(bench: Bench, forgotten: str) -> None:
    await bench.agent.open("long", settings=pb.SessionSettings(window_turns=1, window_steps=1))
    for number in range(12):
        await bench.say(
            USER, f"the code of number {number} is {WORD if number == 1 else 'unknown'}", f"m{number}", "long"
        )
    held = Held()
    summaries = Summaries(bench.server.engine.sessions.scribe, TokenizerRegistry(), held, held)
    making = asyncio.create_task(summaries.cover("long", on_request))
    await held.has_read.wait()
    await bench.forget(forgotten)
    held.may_go_on.set()
    assert await making
    (summary,) = await _summaries(bench, "long")
    assert "number 2" in summary
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


async def test_contexts_say_no_more_of_it_and_go_on(bench: Bench) -> None:
    await bench.say(USER, f"my code is {WORD}", "m")
    await bench.agent.agent.put(space(S), "notes/code", f"the code is {WORD}")
    context = ContextAgent(bench.agent, S)
    given = [contexts.Evidence(id="e", text="x", source=f"page about {WORD}")]
    assert "canary" in (await context.assemble("what is my code?", evidence=given)).text.lower()
    await bench.server.engine.contexts.book.settle()
    assert (await bench.forget(f"msg:{S}/m"))["contexts"] == 1
    assert "canary" not in (await context.assemble("what is my code?")).text.lower()
    assert bench.in_files() == set()


async def test_who_watches_is_told_what_is_left(bench: Bench) -> None:
    await bench.say(USER, f"remember {WORD}", "m")
    await bench.agent.agent.put(space(S), "notes/a", f"a {WORD}")
    head = (await bench.agent.agent.history(space(S)))[-1].revision
    stream = bench.agent.agent.watch(space(S), after=head)

    async def changed(count: int) -> dict[str, str]:
        seen: dict[str, str] = {}
        while len(seen) < count:
            changes = (await anext(stream)).changes.changes
            seen |= {change.record.key: str(change.record.values) for change in changes}
        return seen

    # Once it has heard of this one it is behind nothing.
    await bench.agent.agent.put(space(S), "notes/a", f"b {WORD}", blind=True)
    await changed(1)
    seen, _ = await asyncio.gather(changed(2), bench.forget(f"msg:{S}/m"))
    await stream.aclose()
    assert all("canary" not in values.lower() and "forgotten" in values for values in seen.values())


async def test_open_turns_and_pending_calls_go_on(bench: Bench) -> None:
    turn = await bench.agent.begin_turn(S)
    await bench.say(USER, f"look up {WORD}", "m")
    call = await toolcalls.start(bench.agent, S, "c", arguments=json.dumps({"q": WORD}), side_effects=True)
    await bench.forget(f"msg:{S}/m")
    done = await toolcalls.finish(bench.agent, call.ticket, "found", append_message=True)
    assert done.tool_call.status == pb.TOOL_CALL_STATUS_DONE
    await bench.say(USER, f"look up {WORD}", "m")
    assert texts(await bench.agent.messages(S)) == [REDACTED, "found"], "an id that is known stays known"
    await bench.agent.end_turn(S, turn)
    assert list((await bench.agent.get(S)).open_turns) == []


async def test_what_is_said_meanwhile_is_not_lost(bench: Bench) -> None:
    for number in range(40):
        await bench.say(USER, f"before {number} {WORD}", f"b{number}")

    async def talk(agent: SessionAgent, name: str) -> None:
        for number in range(30):
            await agent.append(S, said(f"{name} {number}", id=f"{name}{number}"))
            await agent.agent.put(space(S), f"notes/{name}", number, blind=True)

    await asyncio.gather(bench.forget(f"msg:{S}/b0"), talk(bench.agent, "x"), talk(bench.other, "y"))
    found = {m.id: text_of(m) for m in await bench.agent.messages(S)}
    assert len(found) == 100
    assert found["b0"] == REDACTED
    assert all(found[f"b{number}"] == f"before {number} {REDACTED}" for number in range(1, 40))
    assert all(found[f"{name}{number}"] == f"{name} {number}" for name in "xy" for number in range(30))
    assert await bench.agent.items(S) == {"notes/x": b"29", "notes/y": b"29"}
    assert bench.in_files() == set()


@pytest.mark.parametrize("commits", range(CUTS))
async def test_what_was_cut_off_anywhere_is_finished_by_the_same_call(
    bench: Bench, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.say(USER, f"remember {WORD}", "m")
    await bench.agent.agent.put(space(S), "notes/a", f"a {WORD}")
    await bench.agent.checkpoint(S)
    await bench.agent.agent.put(space(S), "notes/a", f"b {WORD}", blind=True)
    ticket = await bench.tool("c", [f"row {number} {WORD}" for number in range(3_000)])
    fork = (await bench.agent.fork(S)).id
    store = bench.server.engine.store
    left = commits
    commit = store.commit

    async def cut_off(*args: Any, **more: Any) -> Any:
        nonlocal left
        if not left:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "cut off")
        left -= 1
        return await commit(*args, **more)

    async def not_erased(namespace: NamespaceRef) -> Erased:
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "cut off")

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", cut_off)
        patch.setattr(store, "erase", not_erased)
        with pytest.raises(Refusal, match="cut off"):
            await bench.forget(f"msg:{S}/m")
    assert (left == 0) is (commits < CUTS - 1), "the last one is after all commits"
    await bench.server.crash()
    await bench.forget(f"msg:{S}/m")
    bench.server.clock.advance(2 * 3_600_000)
    await bench.server.sweep()
    await bench.forget(f"msg:{S}/m")
    assert bench.in_files() == set()
    api = bench.server.api
    agent = SessionAgent(Agent(api, await api.open_agent("c")))
    assert texts(await agent.messages(S))[0] == REDACTED
    assert texts(await agent.messages(fork))[0] == REDACTED
    rows = json.loads(b"".join(await toolcalls.raw(agent, ticket)))
    assert rows == [f"row {number} {REDACTED}" for number in range(3_000)]
    assert json.loads((await agent.items(S))["notes/a"]) == f"b {REDACTED}"


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


async def _summaries(bench: Bench, session_id: str) -> list[str]:
    records = await bench.agent.agent.listing(space(session_id), "_session/summaries/")
    return [record.values[0].value.data.decode() for record in records]
