"""Runs seeds: ``python -m tests.simulation.world --seeds 1000``. Prints those that fail, and how to run one again."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from typing import Any, cast

from .course import Size, simulate
from .worlds import WORLDS

FLEET_EACH = 3
"""One seed of so many is run on several servers, which takes longer."""
COLLECT_SEEDS = 20
"""After so many runs their garbage is collected, which none of them does by itself."""


def main() -> int:
    """Runs the seeds that the command line asks for; returns how many have failed, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.world")
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--world", choices=tuple(WORLDS), help="only this world; by default each seed has its own")
    parser.add_argument("--seconds", type=float, default=Size().fault_seconds, help="virtual seconds of faults, about")
    parser.add_argument("--trace", action="store_true", help="print every event")
    asked = parser.parse_args()
    gc.freeze()
    gc.disable()
    # Whoever waits for many seeds sees those that fail at once.
    cast("Any", sys.stdout).reconfigure(line_buffering=True)
    failed: list[int] = []
    steps: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(asked.seed, asked.seed + asked.seeds):
        world = asked.world or world_of(seed)
        outcome = simulate(seed, WORLDS[world], Size(fault_seconds=asked.seconds), shows=asked.trace)
        steps.update(outcome.steps)
        if asked.seeds == 1:
            print(f"seed {seed} ({world}): {outcome.digest}")
        if outcome.problems:
            failed.append(seed)
            again = f"--world {world} --seed {seed} --seeds 1 --seconds {asked.seconds:g} --trace"
            print(f"seed {seed} ({world}) fails; again with: python -m tests.simulation.world {again}")
            for problem in outcome.problems:
                print(f"    {problem}")
        if (seed - asked.seed) % COLLECT_SEEDS == COLLECT_SEEDS - 1:
            gc.collect()
    for what, count in sorted(steps.items()):
        print(f"{count:8} {what}")
    print(f"{asked.seeds} seeds, {len(failed)} failed, {time.monotonic() - began:.1f} s")
    return min(1, len(failed))


def world_of(seed: int) -> str:
    """Returns the world that a seed is run in unless one is asked for."""
    return "fleet" if seed % FLEET_EACH == FLEET_EACH - 1 else "embedded"


if __name__ == "__main__":
    sys.exit(main())
