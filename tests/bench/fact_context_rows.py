"""The row about contexts that recall facts: what searching among many of them adds."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import grpc

from noosphere.v1 import context_service_pb2 as cs

from .children import BenchError, start_profiled, start_server, start_worker
from .facts import OWNER, id_of, question_of
from .profiling import Profile, window_profiles
from .rows import Bench, Goal, Row, profile_into
from .session_rows import SessionCaller, sample, window
from .stats import spread

NAME = "fact_context"
WHAT = "AssembleContext with a search for facts, ms above the same without"
GOAL = Goal(15.0, at_least=False)
_SESSION = "session"
_TOKENS = 8_000
WITH, WITHOUT = "ours", "base"


class _Caller(SessionCaller):
    """The operator's raw calls: what it recalls is everybody's."""

    agent = "cli/bench"

    def __init__(self, channel: grpc.aio.Channel, facts: int) -> None:
        super().__init__(channel)
        self._numbers = iter(random.Random(0).sample(range(facts), facts))
        self._inputs = itertools.count()

    async def recall(self) -> None:
        """Assembles a context that asks for a fact, another one each time."""
        number = next(self._numbers)
        reply = await self._assemble(question_of(number), [OWNER])
        if f"fact:{id_of(number)}" not in {entry.id for entry in reply.manifest.entries}:
            raise BenchError(f"{question_of(number)!r} does not find its fact")

    async def plain(self) -> None:
        """Assembles the same context without facts."""
        await self._assemble(question_of(next(self._inputs)), [])

    async def _assemble(self, question: str, owners: list[str]) -> cs.AssembleContextResponse:
        request = cs.AssembleContextRequest(
            session_id=_SESSION,
            input=question,
            budget=cs.ContextBudget(tokens=_TOKENS),
            fact_owners=owners,
            call=self.call,
        )
        reply: cs.AssembleContextResponse = await self.contexts.AssembleContext(request)
        if not 0 < reply.manifest.tokens_used <= _TOKENS:
            raise BenchError(f"a context has {reply.manifest.tokens_used} tokens")
        return reply


async def measure(bench: Bench, profiled: bool) -> Row:
    """Measures samples of both in alternation, of a whole server with its bundled embedder."""
    plan = bench.plan
    data = bench.work / "facts-recalled"
    async with await start_worker("facts", bench.logs, "facts recalled") as worker:
        await worker.ask("open", data=str(data), embedder="auto")
        await worker.ask("load", count=plan.facts_small)
        await worker.ask("close")
    samples: dict[str, list[dict[str, float]]] = {WITH: [], WITHOUT: []}
    async with await start_server(data, bench.logs) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = await _opened(bench, channel)
            works = {WITH: caller.recall, WITHOUT: caller.plain}
            # The first pair warms up, and loads the model.
            for pair in range(-1, plan.fact_samples):
                for side in works if pair % 2 == 0 else reversed(works):
                    taken = await sample(works[side], plan.fact_searches)
                    if pair >= 0:
                        samples[side].append(taken)
        await server.stop()
    p50 = {side: [taken["p50_ms"] for taken in found] for side, found in samples.items()}
    figures: dict[str, float] = {
        f"{side}_{figure}": spread([taken[figure] for taken in found]).median
        for side, found in samples.items()
        for figure in ("p50_ms", "p99_ms")
    }
    figures |= {"calls": plan.fact_searches, "facts": plan.facts_small, "messages": plan.session_messages}
    added = spread([ours - base for ours, base in zip(p50[WITH], p50[WITHOUT], strict=True)])
    row = bench.keep(Row(NAME, WHAT, added, GOAL, figures, samples))
    if profiled or not row.met:
        await profile_into(row, _profile(bench, data))
    return row


async def _opened(bench: Bench, channel: grpc.aio.Channel) -> _Caller:
    caller = _Caller(channel, bench.plan.facts_small)
    await caller.open()
    await caller.session(_SESSION, bench.plan.session_messages, bench.plan.session_items)
    return caller


async def _profile(bench: Bench, data: Path) -> list[Profile]:
    plan = bench.plan
    async with await start_profiled(data, bench.logs, "window") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = _Caller(channel, plan.facts_small)
            await caller.open()
            await sample(caller.recall, plan.warm_calls)
            recorded = await window(server, caller.recall, plan.profile_calls)
        await server.stop()
    return window_profiles("Server during AssembleContext with a search for facts", recorded, plan.profile_calls)
