"""Rows about long-term facts: searches among many, candidates through the pipeline, and calls beside them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc

from noosphere.v1 import fact_service_pb2 as fs
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2
from noosphere.v1.fact_service_pb2_grpc import FactServiceStub

from .children import BenchError, Child, start_profiled, start_server, start_worker
from .facts import OWNERS
from .profiling import Profile, window_profiles
from .rows import Bench, Goal, Row, profile_into
from .session_rows import SessionCaller, sample, window
from .stats import ratios, spread
from .workloads import value_of

SMALL, FILTERED, LARGE = "fact_search_small", "fact_search_filtered", "fact_search_large"
INTAKE, EMBEDDED = "fact_intake", "fact_intake_embedded"
SUBMIT, BACKLOG = "fact_submit", "fact_backlog"
SEARCHES = (SMALL, FILTERED, LARGE)
PIPELINES = (INTAKE, EMBEDDED)
BESIDE = (SUBMIT, BACKLOG)
NAMES = (*SEARCHES, *PIPELINES, *BESIDE)
_GOALS = {
    SMALL: Goal(10.0, at_least=False),
    FILTERED: Goal(25.0, at_least=False),
    LARGE: Goal(100.0, at_least=False),
    INTAKE: Goal(1_000.0, at_least=True),
    EMBEDDED: Goal(250.0, at_least=True),
    SUBMIT: Goal(2.0, at_least=False),
    BACKLOG: Goal(1.5, at_least=False),
}
_WHATS = {
    SMALL: "Search among few facts, ms",
    FILTERED: "Search among many, of which a filter leaves 1 %, ms",
    LARGE: "Search among many, ms",
    INTAKE: "Candidates decided, keywords only",
    EMBEDDED: "Candidates decided, with the bundled embedder",
    SUBMIT: "SubmitCandidates / Put",
    BACKLOG: "AssembleContext while candidates are decided / before",
}
_SESSION = "session"
_PER_CALL = 100


async def measure(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row]:
    """Measures the rows named; ``profiled`` profiles every row, not only those that miss their goal."""
    rows: list[Row] = []
    if searches := [name for name in SEARCHES if name in names]:
        rows += await _searches(bench, searches, profiled)
    for name in PIPELINES:
        if name in names:
            rows.append(bench.keep(await _pipeline(bench, name, profiled)))
    if beside := [name for name in BESIDE if name in names]:
        rows += await _beside(bench, beside)
        for row in rows:
            if row.name in beside and (profiled or not row.met):
                await profile_into(row, _beside_profile(bench, row))
    return rows


async def _searches(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row]:
    plan = bench.plan
    rows: list[Row] = []
    async with await start_worker("facts", bench.logs, "facts searched") as worker:
        await worker.ask("open", data=str(bench.work / "facts-searched"), embedder="auto")
        load_s = 0.0
        for name in names:
            count = plan.facts_small if name == SMALL else plan.facts_large
            load_s += (await worker.ask("load", count=count))["seconds"]
            asked = {"rare": name == FILTERED, "calls": plan.fact_searches}
            await worker.ask("search", **asked)
            samples = [await worker.ask("search", **asked) for _ in range(plan.fact_samples)]
            figures = {
                "facts": count,
                "load_s": load_s,
                "calls": plan.fact_searches,
                "p99_ms": spread([taken["p99_ms"] for taken in samples]).median,
            }
            row = Row(name, _WHATS[name], spread([s["p50_ms"] for s in samples]), _GOALS[name], figures, samples)
            if profiled or not row.met:
                recorded = await worker.ask("profile", work="search", **asked)
                row.profiles += window_profiles(f"{_WHATS[name]}: in process", recorded, plan.fact_searches)
            rows.append(bench.keep(row))
        await worker.ask("close")
    return rows


async def _pipeline(bench: Bench, name: str, profiled: bool) -> Row:
    plan = bench.plan
    candidates, embedder = (plan.fact_candidates, "none") if name == INTAKE else (plan.fact_embedded, "auto")
    async with await start_worker("facts", bench.logs, f"facts {name}") as worker:
        await worker.ask("open", data=str(bench.work / name), embedder=embedder)
        await worker.ask("intake", candidates=candidates)
        samples = [await worker.ask("intake", candidates=candidates) for _ in range(plan.fact_samples)]
        figures = {
            "calls": candidates,
            "cpu_us": spread([taken["cpu_s"] / candidates * 1e6 for taken in samples]).median,
            "queued_rate": spread([candidates / taken["queued_s"] for taken in samples]).median,
        }
        rates = spread([candidates / taken["wall_s"] for taken in samples])
        row = Row(name, _WHATS[name], rates, _GOALS[name], figures, samples)
        if profiled or not row.met:
            recorded = await worker.ask("profile", work="intake", candidates=candidates)
            row.profiles += window_profiles(f"{_WHATS[name]}: in process", recorded, candidates)
        await worker.ask("close")
    return row


class _Caller(SessionCaller):
    """The operator's raw calls: what it says needs no evidence."""

    agent = "cli/bench"

    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__(channel)
        self.facts = FactServiceStub(channel)
        self._count = 0
        self._calls = 0

    async def submit(self, count: int = 1, *, wait: bool = False) -> None:
        """Submits so many candidates of one owner, the next time of another."""
        self._calls += 1
        said = [self._next() for _ in range(count)]
        reply = await self.facts.SubmitCandidates(
            fs.SubmitCandidatesRequest(candidates=said, wait=wait, call=self.call)
        )
        if len(reply.candidate_ids) != count or len(reply.decisions) != (count if wait else 0):
            raise BenchError(f"of {count} candidates {len(reply.candidate_ids)} were taken")

    async def plain_put(self) -> None:
        """Replaces one record."""
        self._count += 1
        value = types_pb2.Value(data=value_of(self._count), encoding=types_pb2.ENCODING_JSON)
        put = ms.PutOperation(key="record", value=value, precondition=types_pb2.Precondition(blind=True))
        reply = await self.memory.Put(ms.PutRequest(namespace="shared/bench", put=put, call=self.call))
        if not reply.applied.revision:
            raise BenchError("a Put was not applied")

    async def waiting(self) -> int:
        """Returns how many candidates nobody has decided about."""
        found = await self.facts.GetFactUpkeep(fs.GetFactUpkeepRequest(call=self.call))
        if found.dead:
            raise BenchError(f"{found.dead} candidates were given up")
        return int(found.waiting + found.leased)

    def _next(self) -> fs.Candidate:
        self._count += 1
        text = f"Parcel {self._count} was sent from the {('harbour', 'station', 'market')[self._count % 3]}"
        owner = f"user/u{self._calls % OWNERS}"
        return fs.Candidate(text=text, owner=owner, channel=fs.CHANNEL_INTERNAL)


async def _beside(bench: Bench, names: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    async with await start_server(bench.work / "facts-beside", bench.logs) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = _Caller(channel)
            await caller.open()
            # Loads the model.
            await caller.submit(wait=True)
            if SUBMIT in names:
                rows.append(bench.keep(await _submit(bench, caller)))
            if BACKLOG in names:
                rows.append(bench.keep(await _contexts(bench, caller)))
        # What waits is not worth waiting for.
        await server.kill()
    return rows


async def _submit(bench: Bench, caller: _Caller) -> Row:
    plan = bench.plan
    works: dict[str, Callable[[], Awaitable[None]]] = {"ours": caller.submit, "base": caller.plain_put}
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    for pair in range(-1, plan.fact_samples):
        for name in works if pair % 2 == 0 else reversed(works):
            taken = await sample(works[name], plan.fact_submits)
            if name == "ours":
                await _drained(caller)
            if pair >= 0:
                samples[name].append(taken)
    return _ratio_row(SUBMIT, samples, plan.fact_submits, (0, 0))


async def _contexts(bench: Bench, caller: _Caller) -> Row:
    plan = bench.plan
    await caller.session(_SESSION, plan.session_messages, plan.session_items)
    samples: dict[str, list[dict[str, float]]] = {"ours": [], "base": []}
    await sample(lambda: caller.assemble(_SESSION), plan.warm_calls)
    for _ in range(plan.fact_samples):
        samples["base"].append(await sample(lambda: caller.assemble(_SESSION), plan.session_calls))
    for _ in range(plan.fact_backlog // _PER_CALL):
        await caller.submit(_PER_CALL)
    first = await caller.waiting()
    for _ in range(plan.fact_samples):
        samples["ours"].append(await sample(lambda: caller.assemble(_SESSION), plan.session_calls))
    return _ratio_row(BACKLOG, samples, plan.session_calls, (first, await caller.waiting()))


async def _drained(caller: _Caller) -> None:
    """Waits until everything is decided."""
    while await caller.waiting():
        pass


def _ratio_row(name: str, samples: dict[str, list[dict[str, float]]], calls: int, waiting: tuple[int, int]) -> Row:
    figures: dict[str, float] = {
        f"{side}_{figure}": spread([taken[figure] for taken in found]).median
        for side, found in samples.items()
        for figure in ("p50_ms", "p99_ms")
    }
    figures |= {"calls": calls, "waiting_first": waiting[0], "waiting_last": waiting[1]}
    p50 = {side: [taken["p50_ms"] for taken in found] for side, found in samples.items()}
    return Row(name, _WHATS[name], ratios(p50["ours"], p50["base"]), _GOALS[name], figures, samples)


async def _beside_profile(bench: Bench, row: Row) -> list[Profile]:
    plan = bench.plan
    async with await start_profiled(bench.work / f"profile-{row.name}", bench.logs, "window") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = _Caller(channel)
            await caller.open()
            await caller.submit(wait=True)
            recorded = await _recorded(bench, row.name, caller, server)
        await server.kill()
    return window_profiles(f"Server during {_WHATS[row.name].partition(' /')[0]}", recorded, plan.profile_calls)


async def _recorded(bench: Bench, name: str, caller: _Caller, server: Child) -> dict[str, Any]:
    plan = bench.plan
    if name == SUBMIT:
        return await window(server, caller.submit, plan.profile_calls)
    await caller.session(_SESSION, plan.session_messages, plan.session_items)
    for _ in range(max(1, plan.fact_backlog // _PER_CALL // 10)):
        await caller.submit(_PER_CALL)
    return await window(server, lambda: caller.assemble(_SESSION), plan.profile_calls)
