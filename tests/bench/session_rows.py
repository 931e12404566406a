"""Rows about sessions: what it takes to assemble a context, and what checkpoints cost on disk."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc

from noosphere.v1 import context_service_pb2 as cs
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import session_service_pb2 as ss
from noosphere.v1 import types_pb2
from noosphere.v1.context_service_pb2_grpc import ContextServiceStub
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub
from noosphere.v1.session_service_pb2_grpc import SessionServiceStub

from .children import START_SECONDS_MAX, BenchError, Child, start_profiled, start_server
from .profiling import Profile, window_profiles
from .rows import Bench, Goal, Row, profile_into
from .stats import percentile, ratios, spread

ASSEMBLE, FLAT, CHECKPOINTS = "assemble", "assemble_flat", "checkpoint_bytes"
NAMES = (ASSEMBLE, FLAT, CHECKPOINTS)
SMALL, LARGE = "small", "large"
_GOALS = {
    ASSEMBLE: Goal(5.0, at_least=False),
    FLAT: Goal(1.2, at_least=False),
    CHECKPOINTS: Goal(2.0, at_least=False),
}
_APPENDED = 16
_SENTENCES = (
    "The flight to Oslo leaves at {n}:15 and costs {n}0 dollars.",
    "Please compare it with the train on day {n}.",
    "The customer {n} prefers a window seat and pays by card {n}{n}.",
    "Nothing has changed since step {n}; the booking is confirmed.",
)


class SessionCaller:
    """One agent's raw calls, so that no client's time is measured."""

    agent = "bench"

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.memory = MemoryServiceStub(channel)
        self.sessions = SessionServiceStub(channel)
        self.contexts = ContextServiceStub(channel)
        self.call = types_pb2.CallContext()

    async def open(self) -> None:
        """Opens the agent."""
        opened = await self.memory.OpenAgent(ms.OpenAgentRequest(agent_id=self.agent))
        self.call.actor.CopyFrom(opened.actor)

    async def session(self, name: str, messages: int, items: int) -> None:
        """Opens a session and fills it."""
        # What the controller lets go is none of the caller's changes.
        settings = ss.SessionSettings(transitions_manual=True)
        await self.sessions.OpenSession(ss.OpenSessionRequest(session_id=name, settings=settings, call=self.call))
        for start in range(0, messages, _APPENDED):
            said = [_message(n) for n in range(start, min(start + _APPENDED, messages))]
            await self.sessions.AppendMessages(ss.AppendMessagesRequest(session_id=name, messages=said, call=self.call))
        await self.put(name, "goals/main", "Book the cheapest trip to Oslo.")
        for n in range(items):
            await self.put(name, f"notes/{n}", _text(n))
        if messages:
            await self.sessions.SummarizeSession(ss.SummarizeSessionRequest(session_id=name, call=self.call))

    async def put(self, name: str, key: str, text: str) -> None:
        value = types_pb2.Value(data=json.dumps(text).encode(), encoding=types_pb2.ENCODING_JSON)
        when = types_pb2.Precondition(blind=True)
        put = ms.PutOperation(key=key, value=value, precondition=when)
        await self.memory.Put(ms.PutRequest(namespace=f"sessions/{name}", put=put, call=self.call))

    async def assemble(self, name: str) -> None:
        """Assembles a context of a session."""
        budget = cs.ContextBudget(tokens=8_000)
        reply = await self.contexts.AssembleContext(
            cs.AssembleContextRequest(session_id=name, input="Which trip is cheapest?", budget=budget, call=self.call)
        )
        if not reply.messages.openai or not 0 < reply.manifest.tokens_used <= 8_000:
            raise BenchError(f"a context of {name} has {reply.manifest.tokens_used} tokens")

    async def bare(self) -> None:
        await self.memory.GetServerInfo(ms.GetServerInfoRequest())


async def measure(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row]:
    """Measures the rows named; ``profiled`` profiles every row, not only those that miss their goal."""
    rows: list[Row] = []
    async with await start_server(bench.work / "session-rows", bench.logs) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = SessionCaller(channel)
            await caller.open()
            if CHECKPOINTS in names:
                rows.append(bench.keep(await _checkpoints(bench, caller)))
            if ASSEMBLE in names or FLAT in names:
                rows += map(bench.keep, await _assembly(bench, caller, names))
        await server.stop()
    for row in rows:
        if row.name != CHECKPOINTS and (profiled or not row.met):
            await profile_into(row, _profile(bench, row))
    return rows


async def _assembly(bench: Bench, caller: SessionCaller, names: Sequence[str]) -> list[Row]:
    plan = bench.plan
    sizes = {SMALL: plan.session_messages, LARGE: plan.session_messages_large}
    for name, messages in sizes.items():
        await caller.session(name, messages, plan.session_items)
    works: dict[str, Callable[[], Awaitable[None]]] = {
        "bare": caller.bare,
        SMALL: lambda: caller.assemble(SMALL),
        LARGE: lambda: caller.assemble(LARGE),
    }
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    for work in works.values():
        await sample(work, plan.warm_calls)
    rounds = bench.rounds(plan.session_pairs)
    for pair in rounds:
        for name in works if pair % 2 == 0 else reversed(works):
            samples[name].append(await sample(works[name], plan.session_calls))
        rounds.note(samples[SMALL][-1]["p50_ms"] / samples["bare"][-1]["p50_ms"])
    p50 = {name: [sample["p50_ms"] for sample in taken] for name, taken in samples.items()}
    figures: dict[str, float] = {
        "calls": plan.session_calls,
        "items": plan.session_items,
        "messages_small": sizes[SMALL],
        "messages_large": sizes[LARGE],
        "bare_ms": spread(p50["bare"]).median,
        "small_ms": spread(p50[SMALL]).median,
        "large_ms": spread(p50[LARGE]).median,
        "small_p99_ms": spread([sample["p99_ms"] for sample in samples[SMALL]]).median,
        "large_p99_ms": spread([sample["p99_ms"] for sample in samples[LARGE]]).median,
    }
    above = spread([ours - bare for ours, bare in zip(p50[SMALL], p50["bare"], strict=True)])
    rows = [
        Row(ASSEMBLE, "AssembleContext, ms above the bare RPC", above, _GOALS[ASSEMBLE], figures, samples),
        Row(FLAT, "AssembleContext, long / short transcript", ratios(p50[LARGE], p50[SMALL]), _GOALS[FLAT], figures),
    ]
    return [row for row in rows if row.name in names]


async def _checkpoints(bench: Bench, caller: SessionCaller) -> Row:
    """Plays turns that change a few items each; the checkpoints say what they cost."""
    plan = bench.plan
    await caller.session("saved", 0, plan.session_items)
    shares: list[float] = []
    changed_bytes = checkpoint_bytes = 0
    for turn in range(plan.session_turns):
        begun = await caller.sessions.BeginTurn(ss.BeginTurnRequest(session_id="saved", call=caller.call))
        changed = 0
        for n in range(_CHANGED):
            key = f"notes/{(turn * _CHANGED + n) % plan.session_items}"
            text = _text(turn * _CHANGED + n)
            changed += len(key) + len(json.dumps(text))
            await caller.put("saved", key, text)
        ended = await caller.sessions.EndTurn(ss.EndTurnRequest(session_id="saved", turn=begun.turn, call=caller.call))
        listed = await caller.sessions.ListCheckpoints(
            ss.ListCheckpointsRequest(session_id="saved", page_size=1, call=caller.call)
        )
        if not ended.checkpoint_id or listed.checkpoints[0].id != ended.checkpoint_id:
            raise BenchError(f"turn {begun.turn} left no checkpoint")
        # The first one holds every item: it has no predecessor that it could differ from.
        if turn:
            shares.append(listed.checkpoints[0].bytes / changed)
            changed_bytes += changed
            checkpoint_bytes += listed.checkpoints[0].bytes
    turns = len(shares)
    figures = {
        "turns": turns,
        "items": plan.session_items,
        "changed_bytes": changed_bytes / turns,
        "checkpoint_bytes": checkpoint_bytes / turns,
        "greatest_share": max(shares),
    }
    row = Row(CHECKPOINTS, "Checkpoint bytes / bytes changed, per turn", spread(shares), _GOALS[CHECKPOINTS], figures)
    told = [(str(n + 2), f"{share:.2f}") for n, share in enumerate(shares[:17])]
    summary = f"{_CHANGED} of {plan.session_items} items change in a turn; every 16th manifest is a full one."
    row.profiles.append(Profile("Bytes of checkpoints", summary, ("turn", "checkpoint / changed"), told))
    return row


_CHANGED = 5


async def sample(work: Callable[[], Awaitable[None]], calls: int) -> dict[str, float]:
    """Times calls of one caller, one after the other."""
    taken: list[float] = []
    for _ in range(calls):
        begun = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - begun) * 1e3)
    return {"p50_ms": percentile(taken, 0.5), "p99_ms": percentile(taken, 0.99), "calls": float(calls)}


async def _profile(bench: Bench, row: Row) -> list[Profile]:
    plan = bench.plan
    messages = plan.session_messages if row.name == ASSEMBLE else plan.session_messages_large
    async with await start_profiled(bench.work / f"profile-{row.name}", bench.logs, "window") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = SessionCaller(channel)
            await caller.open()
            await caller.session(SMALL, messages, plan.session_items)
            await sample(lambda: caller.assemble(SMALL), plan.warm_calls)
            recorded = await window(server, lambda: caller.assemble(SMALL), plan.profile_calls)
        await server.stop()
    return window_profiles(f"Server during AssembleContext, {messages:,} messages", recorded, plan.profile_calls)


async def window(server: Child, work: Callable[[], Awaitable[None]], calls: int) -> dict[str, Any]:
    """Makes calls while a profiled server records, and returns what it has recorded."""
    server.signal(signal.SIGUSR1)
    await sample(work, calls)
    server.signal(signal.SIGUSR2)
    recorded: dict[str, Any] = json.loads(await server.line(START_SECONDS_MAX))
    return recorded


def _message(number: int) -> ss.Message:
    role = ss.ROLE_USER if number % 2 == 0 else ss.ROLE_ASSISTANT
    return ss.Message(role=role, parts=[ss.Part(text=_text(number))])


def _text(number: int) -> str:
    return " ".join(sentence.format(n=number) for sentence in _SENTENCES)
