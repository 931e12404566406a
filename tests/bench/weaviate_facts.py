"""Facts on Weaviate beside those in a data folder: ``python -m tests.bench.weaviate_facts``.

Tells for each store how long a search for the best ten takes, how many facts a second are written, and how many
candidates a second are decided (each is embedded by the bundled embedder); for Weaviate also how many of the nearest
ten of an exact search it finds. Weaviate is first: as many facts as it takes in the time for loading, the data folder
has.

JSON: ``wanted``, ``facts``, ``searches``, ``candidates``, ``version``; ``weaviate`` and ``embedded``:
``search_p50_ms``, ``search_p99_ms``, ``written_per_s``, ``decided_per_s``, each as far as it is known; ``weaviate``
also ``recall``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from tests.support.weaviate import PROGRAM, REASON, WeaviateProcess

from .children import ROOT
from .facts import HITS, Facts

_STEP = 1_024
"""Facts between two looks at the clock."""


class Plan(NamedTuple):
    """How much is measured.

    Attributes:
        facts: to be searched, if they are loaded in time.
        searches: that are timed, after as many that are not.
        candidates: through the pipeline.
        load_seconds: no more facts are loaded after so long.
    """

    facts: int
    searches: int
    candidates: int
    load_seconds: float


FULL, QUICK = Plan(20_000, 40, 300, 60.0), Plan(2_048, 10, 40, 30.0)


async def measure(plan: Plan, folder: Path, partial: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measures both stores.

    Args:
        plan: how much.
        folder: where everything is kept.
        partial: takes what is known so far.
    """
    found: dict[str, Any] = {"wanted": plan.facts, "searches": plan.searches, "candidates": plan.candidates}
    server = WeaviateProcess(folder / "weaviate")
    await asyncio.to_thread(server.start)
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            found["version"] = (await client.get(f"{server.url}/v1/meta")).json()["version"]
        beside: dict[str, float] = {}
        found["weaviate"] = beside
        where = {"weaviate_url": server.url, "weaviate_grpc": server.grpc}
        count, nearest = await _one(folder / "beside", plan, where, beside, lambda: partial(found))
    finally:
        server.kill()
    found |= {"facts": count, "embedded": {}}
    exactly = plan._replace(facts=count, load_seconds=float("inf"))
    _, exact = await _one(folder / "embedded", exactly, {}, found["embedded"], lambda: partial(found))
    same = sum(len({*one} & {*other}) for one, other in zip(exact, nearest, strict=True))
    beside["recall"] = same / sum(map(len, exact))
    partial(found)
    return found


async def _one(
    data: Path, plan: Plan, elsewhere: dict[str, str], found: dict[str, float], known: Callable[[], None]
) -> tuple[int, Sequence[Sequence[str]]]:
    """Measures one store into ``found``; returns how many facts it holds, and those nearest to questions."""
    facts = Facts()
    await facts.open(str(data), "auto", **elsewhere)
    try:
        count, begun = 0, time.monotonic()
        while count < plan.facts and (count == 0 or time.monotonic() - begun < plan.load_seconds):
            count = min(count + _STEP, plan.facts)
            await facts.load(count)
        found["written_per_s"] = count / (time.monotonic() - begun)
        _say(f"{data.name}: {count:,} facts are loaded")
        await facts.search(False, plan.searches)
        taken = await facts.search(False, plan.searches)
        found |= {"search_p50_ms": taken["p50_ms"], "search_p99_ms": taken["p99_ms"]}
        nearest = await facts.nearest(plan.searches)
        known()
        intake = await facts.intake(plan.candidates)
        found["decided_per_s"] = plan.candidates / intake["wall_s"]
        known()
    finally:
        await facts.close()
    return count, nearest


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} facts on Weaviate: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=f"Searches for the best {HITS} of many facts on both stores.")
    parser.add_argument("--quick", action="store_true", help="few facts: shows that it works, not how fast it is")
    parser.add_argument("--facts", type=int, help=f"how many (default: {FULL.facts:,})")
    parser.add_argument("--json", action="store_true", help="print JSON; there is nothing else to print")
    parser.add_argument("--out", type=Path, help="a file for what is known so far, and at the end")
    asked = parser.parse_args()
    if PROGRAM is None:
        sys.exit(REASON)
    plan = QUICK if asked.quick else FULL
    plan = plan._replace(facts=asked.facts or plan.facts)

    def partial(found: dict[str, Any]) -> None:
        if asked.out is not None:
            asked.out.write_text(json.dumps(found))

    place = ROOT / "bench-out"
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-weaviate-", dir=place) as folder:
        print(json.dumps(asyncio.run(measure(plan, Path(folder), partial))))


if __name__ == "__main__":
    main()
