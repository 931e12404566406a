"""Facts on Weaviate beside those in a data folder: ``python -m tests.bench.weaviate_facts --facts 100000``.

Prints for each store how long a search for the best ten takes, how many facts a second are written and decided, and how
many of the nearest ten are those of an exact search.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.weaviate import PROGRAM, REASON, WeaviateProcess

from .facts import HITS, Facts


async def measure(facts: int, searches: int, candidates: int, folder: Path) -> dict[str, Any]:
    """Measures both stores.

    Args:
        facts: how many there are to be searched.
        searches: how many searches are timed.
        candidates: how many go through the pipeline.
        folder: where everything is kept.
    """
    server = WeaviateProcess(folder / "weaviate")
    server.start()
    try:
        elsewhere = {"weaviate_url": server.url, "weaviate_grpc": server.grpc}
        exact, measured = await _one(folder / "embedded", facts, searches, candidates, {})
        found, beside = await _one(folder / "beside", facts, searches, candidates, elsewhere)
    finally:
        server.kill()
    same = sum(len({*one} & {*other}) for one, other in zip(exact, found, strict=True))
    return {
        "facts": facts,
        "embedded": measured,
        "weaviate": {**beside, "recall": same / sum(map(len, exact))},
    }


async def _one(
    data: Path, count: int, searches: int, candidates: int, elsewhere: dict[str, str]
) -> tuple[list[list[str]], dict[str, float]]:
    facts = Facts()
    await facts.open(str(data), "auto", **elsewhere)
    try:
        loaded = await facts.load(count)
        await facts.search(False, searches)
        taken = await facts.search(False, searches)
        nearest = await facts.nearest(searches)
        intake = await facts.intake(candidates)
    finally:
        await facts.close()
    return nearest, {
        "search_p50_ms": taken["p50_ms"],
        "search_p99_ms": taken["p99_ms"],
        "written_per_s": count / loaded["seconds"],
        "decided_per_s": candidates / intake["wall_s"],
    }


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=f"Searches for the best {HITS} of many facts on both stores.")
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--searches", type=int, default=40)
    parser.add_argument("--candidates", type=int, default=1_000)
    asked = parser.parse_args()
    if PROGRAM is None:
        sys.exit(REASON)
    with tempfile.TemporaryDirectory(prefix="noosphere-bench-") as folder:
        print(json.dumps(asyncio.run(measure(asked.facts, asked.searches, asked.candidates, Path(folder))), indent=2))


if __name__ == "__main__":
    main()
