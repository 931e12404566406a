"""The seams of sessions that other services build on: hooks of items, observers, ends of turns, pending calls."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from tests.support.api import Agent, Api, counter, delete, merge, put, span
from tests.support.engine import LocalServer, local_server
from tests.support.sessions import SessionAgent, refusal, space, texts
from tests.support.transport import HandlerTransport

from noosphere.server.memory import Memory
from noosphere.server.memory.types import Call
from noosphere.server.models import TokenizerRegistry
from noosphere.server.ports.coordinator import Incarnation
from noosphere.server.ports.runtime import system_random
from noosphere.server.ports.store import Mutation, StoredEntry
from noosphere.server.rpc.admin import AdminRpc
from noosphere.server.rpc.context import ContextRpc
from noosphere.server.rpc.memory import MemoryRpc
from noosphere.server.rpc.sessions import SessionRpc
from noosphere.server.sessions import SessionRules, Sessions
from noosphere.server.sessions.codec import encode, encode_index
from noosphere.server.sessions.control import Control
from noosphere.server.sessions.draft import Draft, Look
from noosphere.server.sessions.hooks import ItemChange
from noosphere.server.sessions.keys import CALL_IDS, INFO, PENDING, id_key
from noosphere.server.sessions.scribe import Intent, Scribe
from noosphere.server.sessions.sessions import SessionBook
from noosphere.server.sessions.transcript import Transcript
from noosphere.server.sessions.turns import TurnBook
from noosphere.server.sessions.types import SessionStatus, Transition, TransitionAction, TurnOutcome
from noosphere.v1 import memory_service_pb2 as pb

MARK = "\0mark"
KEPT = "\0iv/kept/"
S = "s"


class KeepOverwritten:
    """Keeps the version that an item had while a mark is set, as checkpoints will."""

    keys = (MARK,)

    def changed(self, entries: Mapping[str, StoredEntry | None], change: ItemChange) -> Iterable[Mutation]:
        """Keeps what is overwritten."""
        if entries[MARK] is not None and change.before is not None and change.version:
            yield Mutation(f"{KEPT}{change.key}", change.before.data, 1 << 62, 1 << 62, False, b"")


class Accesses:
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []

    def accessed(self, call: Call, session_id: str, key: str) -> None:
        """Notes an access."""
        self.heard.append((call.actor, session_id, key))


class Ends:
    """Decides something at the end of a turn."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    async def after_turn(self, call: Call, session_id: str, turn: int) -> TurnOutcome:
        """Decides."""
        assert call.request is None
        self.ended.append(turn)
        decided = Transition("notes/x", TransitionAction.RETAIN, "pinned", f"kept in turn {turn}", 0.5, turn=turn)
        return TurnOutcome(f"cp-{turn}", (decided,))


class Seams(NamedTuple):
    """A server whose seams are in use."""

    server: LocalServer
    sessions: Sessions
    agent: SessionAgent
    accesses: Accesses
    ends: Ends

    async def mark(self) -> None:
        """Sets the mark on which the hook decides."""
        await self.write(lambda _, draft: draft.keep(MARK, b""), MARK)

    async def write(self, decide: Callable[[Look, Draft], None], *keys: str) -> None:
        """Writes to the session as a service does."""
        who = self.agent.agent.actor
        call = Call(Incarnation(who.agent_id, who.incarnation))
        await self.sessions.scribe.write(call, S, Intent("test", keys=keys), decide)

    async def kept(self, key: str) -> bytes | None:
        """Returns what the hook kept of an item."""
        store = self.server.engine.store
        ref = await self.sessions.scribe.living(S)
        entry = (await store.read(ref, (f"{KEPT}{key}",))).entries[0]
        return None if entry is None else entry.data


@pytest.fixture
async def seams(tmp_path: Path) -> AsyncIterator[Seams]:
    """A server with a hook, an observer and something that happens at the end of turns."""
    async with local_server(tmp_path) as server:
        accesses, ends = Accesses(), Ends()
        tokenizers = TokenizerRegistry()
        rules = SessionRules(tokenizers, (KeepOverwritten(),), (accesses,))
        core = server.engine.memory.core
        memory = Memory.build(
            server.engine.store,
            core.coordinator,
            clock=server.clock,
            agent_lease_ms=15_000,
            sweep_interval_ms=1_000,
            extension=rules,
        )
        scribe = Scribe(memory.core, rules.hooks)
        sessions = dataclasses.replace(
            server.engine.sessions,
            scribe=scribe,
            book=SessionBook(scribe, tokenizers, system_random()),
            transcript=Transcript(scribe, tokenizers),
            turns=TurnBook(scribe, (ends,)),
            control=Control(scribe),
        )
        rpc = SessionRpc(sessions, server.engine.transitions)
        contexts = ContextRpc(server.engine.contexts)
        api = Api(HandlerTransport(MemoryRpc(memory), AdminRpc(memory, server.clock), rpc, contexts))
        agent = SessionAgent(Agent(api, await api.open_agent("a")))
        await agent.open(S)
        yield Seams(server, sessions, agent, accesses, ends)


async def test_what_a_write_replaces_is_kept_in_the_same_commit_on_every_path(seams: Seams) -> None:
    a = seams.agent.agent
    keys = ("put", "delete", "transacted", "merged", "claimed", "drafted", "dropped")
    for key in keys:
        await (a.add(space(S), key) if key == "merged" else a.put(space(S), key, "old"))
    await a.put(space(S), "put", "older still", blind=True)
    assert await seams.kept("put") is None
    await seams.mark()
    await a.put(space(S), "put", "new", blind=True)
    await a.delete(space(S), "delete", blind=True)
    await a.transact(space(S), put("transacted", "new", blind=True), put("fresh", 1))
    await a.add(space(S), "merged")
    assert await a.claim(space(S), where={}) is not None

    def write(_: Look, draft: Draft) -> None:
        draft.put("drafted", b'"new"')
        draft.remove("dropped")

    await seams.write(write, "drafted", "dropped")
    for key in keys:
        kept = await seams.kept("claimed" if key == "claimed" else key)
        assert kept is not None, key
    assert b"older still" in (await seams.kept("put") or b"")
    assert await seams.kept("fresh") is None


async def test_a_write_that_raced_with_the_hooks_condition_is_decided_again(seams: Seams) -> None:
    a = seams.agent.agent
    await a.put(space(S), "item", "old")
    store = seams.server.engine.store
    commit = store.commit
    raced: list[bool] = []

    async def first_mark(namespace: object, made: object) -> object:
        if not raced:
            raced.append(True)
            await seams.mark()
        return await commit(namespace, made)  # type: ignore[arg-type]

    store.commit = first_mark  # type: ignore[method-assign, assignment]
    await a.put(space(S), "item", "new", blind=True)
    assert raced
    assert b"old" in (await seams.kept("item") or b"")


async def test_explicit_reads_and_writes_of_items_are_heard(seams: Seams) -> None:
    a = seams.agent.agent
    await a.put(space(S), "item", 1)
    await a.get(space(S), "item")
    await a.api.batch_get(pb.BatchGetRequest(namespace=space(S), keys=["item", "other", "_session/info"]))
    await a.listing(space(S))
    await a.get("shared/elsewhere", "item")
    await seams.agent.say(S, "no access")
    await a.delete(space(S), "item", blind=True)
    assert seams.accesses.heard == [(a.name, S, "item"), (a.name, S, "item"), ("", S, "item"), ("", S, "other")]
    seams.accesses.heard.clear()
    await a.transact(space(S), put("one", 1), delete("two"), merge(counter("three")))
    with refusal("PRECONDITION_REQUIRED"):
        await a.put(space(S), "one", 2)
    assert [key for _, _, key in seams.accesses.heard] == ["one", "three"]


async def test_the_end_of_a_turn_tells_what_it_brought_about(seams: Seams) -> None:
    turn = await seams.agent.begin_turn(S)
    call = seams.agent.agent.call(sequence=9)
    for _ in range(2):
        response = await seams.agent.end_turn(S, call=call)
        assert (response.turn, response.checkpoint_id) == (turn, f"cp-{turn}")
        assert [t.explanation for t in response.transitions] == [f"kept in turn {turn}"]
    assert seams.ends.ended == [turn, turn]


async def test_a_decision_waits_for_the_calls_that_it_names(seams: Seams) -> None:
    a = seams.agent.agent

    def start(_: Look, draft: Draft) -> None:
        for number, call_id in enumerate(("c2", "c1")):
            draft.keep(id_key(CALL_IDS, call_id), encode_index(number))
            draft.keep(PENDING + call_id, encode_index(number))

    await seams.write(start)
    assert (await seams.agent.control(S)).pending_calls == ["c2", "c1"]
    read = pb.GetRequest(namespace=space(S), key="goals/one", call=a.call())
    read.call.record_read_set = True
    request = pb.CommitRequest(namespace=space(S), operations=[put("k", 1)], call=a.call())
    request.call.read_set_token = (await a.api.get(read)).call.read_set_token
    request.awaited_calls.extend(["c1", "c2"])
    with refusal("CALLS_PENDING", "2 of 2", "'c1'"):
        await a.api.commit(request)
    await seams.write(lambda _, draft: draft.forget(PENDING + "c2"), PENDING + "c2")
    with refusal("CALLS_PENDING", "1 of 2", "'c1'"):
        await a.api.commit(request)
    await seams.write(lambda _, draft: draft.forget(PENDING + "c1"), PENDING + "c1")
    assert (await a.api.commit(request)).applied.revision
    assert (await seams.agent.control(S)).pending_calls == []


async def test_a_closed_session_can_be_read_and_not_written(seams: Seams) -> None:
    a, agent = seams.agent.agent, seams.agent
    await a.put(space(S), "item", 1)
    await a.put(space(S), "task/one", 1)
    claimed = await a.claim(space(S), "task/")
    assert claimed is not None
    await agent.say(S, "before")
    call = a.call(sequence=4)
    await a.put(space(S), "last", 1, call=call)

    def close(look: Look, draft: Draft) -> None:
        draft.put(
            INFO, encode(msgspec.structs.replace(look.session, status=SessionStatus.CLOSED, closed_ms=look.now_ms))
        )

    await seams.write(close)
    attempts: dict[str, Callable[[], Awaitable[object]]] = {
        "put": lambda: a.put(space(S), "item", 2, blind=True),
        "delete": lambda: a.delete(space(S), "item", blind=True),
        "merge": lambda: a.add(space(S), "count"),
        "transact": lambda: a.transact(space(S), put("new", 1)),
        "claim": lambda: a.claim(space(S), "task/"),
        "renew": lambda: a.renew(space(S), claimed),
        "release": lambda: a.release(space(S), claimed),
        "complete": lambda: a.complete(space(S), claimed),
        "reserve": lambda: a.api.reserve(
            pb.ReserveRequest(namespace=space(S), key="item", lease=span(5_000), call=a.call())
        ),
        "append": lambda: agent.say(S, "after"),
        "begin": lambda: agent.begin_turn(S),
        "end": lambda: agent.end_turn(S),
        "update": lambda: agent.update(S, title="x"),
        "control": lambda: agent.set_control(S),
        "retract": lambda: agent.retract(S, "m"),
        "reopen": lambda: agent.open(S, allow_existing=True),
    }
    for name, attempt in attempts.items():
        with refusal("SESSION_CLOSED", S):
            await attempt()
        assert name
    session = await agent.get(S)
    assert session.HasField("close_time")
    assert [s.id for s in await agent.listed(status=2)] == [S]
    assert texts(await agent.messages(S)) == ["before"]
    assert (await a.get(space(S), "item")).version
    # A retry of what was done before the session closed is answered with what was done.
    assert (await a.put(space(S), "last", 1, call=call)).replayed
