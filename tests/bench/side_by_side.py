"""Ours and peers at the same calls, in turns within one run: ``python -m tests.bench.side_by_side``.

All contestants are open at once, each with as many agents, spread over as many processes as it allows; one at a time is
measured, and in every round all of them, first in one order and then in the other. How many calls a sample has is found
out beforehand, so that samples take about as long whoever is measured. One that fails says so in its place.

Beside them stands a bare gRPC server that answers Get and Put with canned replies, called with raw stubs by one
process.

JSON: ``clients``, ``value_bytes``, ``rounds``; ``contestants``: ``name``, ``label``, ``durability``, ``ours``, or
``why`` there is none; ``operations``: by operation and contestant ``rate`` (median and quartiles of calls a second),
``ratio`` (to ``reference``, of the same rounds), ``p50_ms``, ``p99_ms``, or ``why`` there is none, with ``lacks`` if it
has no such thing. With ``--out`` what is known so far is written after every operation.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .children import ROOT, BenchError, Child, start_floor, start_server, start_worker
from .peers.catalogue import OURS, PEERS, Variant
from .peers.environments import Uninstallable
from .peers.group import Group, PeerError, PeerUnsupported
from .peers.sites import Missing, site
from .peers.timing import KINDS
from .rows import first_line
from .stats import Spread, percentile, ratios, spread

REFERENCE = "noosphere-merge"
FLOOR = "grpc-floor"
_OURS = (REFERENCE, "noosphere-redis-merge")
VALUE_BYTES = 256
_CALLS_MAX = 400
_SAMPLE_SECONDS_MAX = 20.0
"""A sample that takes longer is given up, and so is whoever was measured: its agents are still busy."""
_SLOW_SECONDS = 4.0
"""Who takes longer for one call of each agent is measured once."""
_FLOOR_KINDS = ("get", "put")
_OVER = "the comparison's time was over"
_FAILURES = (Uninstallable, Missing, PeerError, BenchError, OSError, AssertionError)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        clients: agents of each contestant.
        rounds: samples of each.
        sample_seconds: how long one should take.
        kind_seconds: no round of one operation but the first begins later than this.
        seconds: no operation begins later than this.
    """

    clients: int = 16
    rounds: int = 5
    sample_seconds: float = 0.3
    kind_seconds: float = 20.0
    seconds: float = 240.0


FULL, QUICK = Plan(), Plan(rounds=2, sample_seconds=0.1)
VARIANTS = (*(one for one in OURS if one.name in _OURS), *(one for one in PEERS if one.use == "best"))
"""Uses that lose nothing cost more than uses that do: they are compared with each other."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One contestant doing one thing for a while.

    Attributes:
        calls: of all agents.
        rate: calls a second.
        p50_ms: of their lengths.
        p99_ms: likewise.
    """

    calls: int
    rate: float
    p50_ms: float
    p99_ms: float


Timed = Callable[[str, int], Awaitable[Sample]]
"""Has all agents do one thing so many times."""


@dataclass(slots=True)
class Contestant:
    """One that is measured.

    Attributes:
        name: stable, for programs.
        about: what the report says of it.
        timed: how to measure it.
        kinds: what it does.
        samples: by operation.
        whys: by operation, why there are no samples.
        lacks: the operations of which the product has nothing.
        calls: by operation, of one agent in one sample.
        given_up: why it is not asked for anything any more; "" as long as it is.
    """

    name: str
    about: Mapping[str, Any]
    timed: Timed
    kinds: Sequence[str] = KINDS
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    whys: dict[str, str] = field(default_factory=dict)
    lacks: set[str] = field(default_factory=set)
    calls: dict[str, int] = field(default_factory=dict)
    given_up: str = ""

    async def measure(self, kind: str, calls: int) -> Sample | None:
        """Takes one sample; None if that fails, after which it is not asked again."""
        try:
            if self.given_up:
                raise PeerError(self.given_up)
            async with asyncio.timeout(_SAMPLE_SECONDS_MAX):
                return await self.timed(kind, calls)
        except TimeoutError:
            self.whys[kind] = f"more than {_SAMPLE_SECONDS_MAX:.0f} s for {calls} of each agent"
            self.given_up = f"given up, since {kind} took more than {_SAMPLE_SECONDS_MAX:.0f} s"
        except PeerUnsupported as error:
            self.lacks.add(kind)
            self.whys[kind] = first_line(error).removeprefix("time: ")
        except _FAILURES as error:
            self.whys[kind] = first_line(error).removeprefix("time: ")
        self.samples.pop(kind, None)
        return None

    async def calibrate(self, kind: str, plan: Plan) -> None:
        """Finds out how many calls a sample needs."""
        start = time.monotonic()
        sample = await self.measure(kind, 1)
        if sample is None:
            return
        if time.monotonic() - start > _SLOW_SECONDS:
            self.samples[kind] = [sample]
            return
        self.calls[kind] = max(2, min(_CALLS_MAX, round(sample.rate * plan.sample_seconds / plan.clients)))


async def compare(
    plan: Plan,
    variants: Sequence[Variant],
    folder: Path,
    *,
    install: bool,
    partial: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Measures.

    Args:
        plan: how much.
        variants: whom.
        folder: an existing folder for what they keep.
        install: whether peers may be installed.
        partial: takes what is known so far, after each operation.

    Returns:
        What the module says.
    """
    end = time.monotonic() + plan.seconds
    absent: dict[str, Mapping[str, Any]] = {}
    contestants: list[Contestant] = []
    async with contextlib.AsyncExitStack() as stack:
        try:
            contestants.append(await _floor(stack, plan, folder))
        except _FAILURES as error:
            absent[FLOOR] = {**_FLOOR_ABOUT, "why": first_line(error)}
        for variant in variants:
            _say(f"opening {variant.name}")
            # One that does not come up must not take the others' place with it.
            own = contextlib.AsyncExitStack()
            try:
                contestants.append(await _opened(own, variant, plan, folder, install=install))
            except (*_FAILURES, TimeoutError) as error:
                await own.aclose()
                absent[variant.name] = {**_about(variant), "why": first_line(error)}
                _say(f"{variant.name}: {first_line(error)}")
            else:
                stack.push_async_callback(own.aclose)
        order = (FLOOR, *(variant.name for variant in variants))
        for kind in KINDS:
            if time.monotonic() >= end:
                _say(f"{kind}: {_OVER}")
                for one in contestants:
                    one.whys.setdefault(kind, _OVER)
                continue
            _say(f"measuring {kind}")
            await _measure(kind, contestants, plan)
            partial(_found(plan, order, contestants, absent))
    return _found(plan, order, contestants, absent)


def _found(
    plan: Plan, order: Sequence[str], contestants: Sequence[Contestant], absent: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    by_name = {one.name: one for one in contestants}
    return {
        "clients": plan.clients,
        "value_bytes": VALUE_BYTES,
        "rounds": plan.rounds,
        "reference": REFERENCE,
        "contestants": [absent.get(name) or by_name[name].about for name in order],
        "operations": {kind: _operation(kind, contestants) for kind in KINDS},
    }


def _about(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "label": f"{variant.product}: {variant.how}",
        "durability": variant.durability,
        "ours": variant.ours,
    }


_FLOOR_ABOUT: Mapping[str, Any] = {
    "name": FLOOR,
    "label": "bare gRPC server: canned replies, raw stubs",
    "durability": "never: it keeps nothing",
    "ours": False,
}


async def _opened(
    stack: contextlib.AsyncExitStack, variant: Variant, plan: Plan, folder: Path, *, install: bool
) -> Contestant:
    own = folder / variant.name
    place = (await stack.enter_async_context(site(variant, own, install=install))).place
    agents = [f"{variant.name}-{number}" for number in range(plan.clients)]
    group = await stack.enter_async_context(Group(variant, place, agents, own, install=install))
    await group.begin("timed")

    async def timed(kind: str, calls: int) -> Sample:
        found = await group.time(kind, calls, VALUE_BYTES)
        lengths_ns = [length for one in found for length in one["ns"]]
        # The clock is the machine's, so it is the same in all processes.
        seconds = max(one["ended"] for one in found) - min(one["began"] for one in found)
        p50_ms, p99_ms = (percentile(lengths_ns, share) / 1e6 for share in (0.5, 0.99))
        return Sample(len(lengths_ns), len(lengths_ns) / max(seconds, 1e-9), p50_ms, p99_ms)

    return Contestant(variant.name, _about(variant), timed)


async def _floor(stack: contextlib.AsyncExitStack, plan: Plan, folder: Path) -> Contestant:
    work = folder / FLOOR
    await asyncio.to_thread(work.mkdir)
    load = await stack.enter_async_context(await start_worker("load", work))
    replies = await _replies(load, work)
    file = work / "replies.json"
    await asyncio.to_thread(file.write_text, json.dumps(replies))
    floor = await stack.enter_async_context(await start_floor(file, work))
    await load.ask("attach", target=FLOOR, address=floor.address, callers=plan.clients, canned=replies)

    async def timed(kind: str, calls: int) -> Sample:
        taken = await load.ask("run", target=FLOOR, work=kind, calls=calls, callers=plan.clients)
        return Sample(taken["calls"], taken["calls"] / taken["seconds"], taken["p50_ms"], taken["p99_ms"])

    return Contestant(FLOOR, _FLOOR_ABOUT, timed, _FLOOR_KINDS)


async def _replies(load: Child, work: Path) -> Any:
    """Records replies of a server of ours, so that the floor's are of the same size."""
    # No model is loaded: the replies are the same without one.
    async with await start_server(work / "data", work, environment={"NOOSPHERE_EMBEDDER": "none"}) as server:
        await load.ask("attach", target="recorded", address=server.address, callers=1)
        replies = (await load.ask("record", target="recorded"))["replies"]
        await load.ask("detach", target="recorded")
        await server.stop()
    return replies


async def _measure(kind: str, contestants: Sequence[Contestant], plan: Plan) -> None:
    able = [one for one in contestants if kind in one.kinds]
    end = time.monotonic() + plan.kind_seconds
    for one in able:
        await one.calibrate(kind, plan)
    for number in range(plan.rounds):
        if number and time.monotonic() >= end:
            return
        for one in able if number % 2 == 0 else reversed(able):
            if kind in one.calls and kind not in one.whys:
                sample = await one.measure(kind, one.calls[kind])
                if sample is not None:
                    one.samples.setdefault(kind, []).append(sample)


def _operation(kind: str, contestants: Sequence[Contestant]) -> dict[str, Any]:
    reference = next((one.samples.get(kind, []) for one in contestants if one.name == REFERENCE), [])
    return {one.name: _figures(one, kind, reference) for one in contestants if kind in one.kinds}


def _figures(one: Contestant, kind: str, reference: Sequence[Sample]) -> dict[str, Any]:
    samples = one.samples.get(kind)
    if not samples:
        return {"why": one.whys.get(kind, _OVER), **({"lacks": True} if kind in one.lacks else {})}
    rates = [sample.rate for sample in samples]
    found: dict[str, Any] = {
        "rate": _as_json(spread(rates)),
        "p50_ms": spread([sample.p50_ms for sample in samples]).median,
        "p99_ms": spread([sample.p99_ms for sample in samples]).median,
        "calls": sum(sample.calls for sample in samples),
    }
    if len(reference) == len(rates):
        found["ratio"] = _as_json(ratios(rates, [sample.rate for sample in reference]))
    return found


def _as_json(found: Spread) -> dict[str, float]:
    return {"median": found.median, "low": found.low, "high": found.high, "count": found.count}


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} side by side: {text}", file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.side_by_side", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short samples: shows that it works, not how fast it is")
    parser.add_argument("--json", action="store_true", help="print JSON; there is nothing else to print")
    parser.add_argument("--peers", choices=("all", "none"), default="all", help="measure peers, or ours alone")
    parser.add_argument("--no-install", action="store_true", help="leave out peers that are not installed yet")
    parser.add_argument("--only", metavar="NAME,…", help="these contestants alone")
    parser.add_argument("--out", type=Path, help="a file for what is known so far, and at the end")
    arguments = parser.parse_args(argv)
    variants = tuple(one for one in VARIANTS if one.ours or arguments.peers == "all")
    if arguments.only is not None:
        variants = tuple(one for one in variants if one.name in arguments.only.split(","))
    out = ROOT / "bench-out"
    out.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-side-", dir=out))
    plan = QUICK if arguments.quick else FULL

    def partial(result: dict[str, Any]) -> None:
        if arguments.out is not None:
            arguments.out.write_text(json.dumps(result))

    try:
        found = asyncio.run(compare(plan, variants, folder, install=not arguments.no_install, partial=partial))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
