"""``noosphere bench lost-updates``: plays, prints what was found, and writes it as JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.children import ROOT
from tests.bench.peers.catalogue import ALL, OURS, PEERS, Variant

from noosphere.server.cli.lost_updates_shapes import LostUpdatesShape

from .run import SCENARIOS, Comparison, compare
from .tables import text

EXIT_OK, EXIT_USAGE, EXIT_MISSED = 0, 2, 5


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 if all gates are reached, 5 if not."""
    arguments = _parser().parse_args(argv)
    variants = _variants(arguments.peers)
    scenarios = tuple(name for name in SCENARIOS if name in arguments.scenarios.split(","))
    if unknown := set(arguments.scenarios.split(",")) - set(SCENARIOS):
        return _fail(f"--scenarios: unknown {sorted(unknown)[0]!r}; there are {', '.join(SCENARIOS)}")
    if variants is None:
        names = ", ".join(variant.name for variant in PEERS)
        return _fail(f"--peers: {arguments.peers!r} is neither all nor none, and not of these: {names}")
    if not 2 <= arguments.agents <= 32:
        return _fail(f"--agents: {arguments.agents} is not between 2 and 32")
    if not 0 < arguments.think_ms <= 1000:
        return _fail(f"--think-ms: {arguments.think_ms:g} is not above 0 and at most 1000")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)

    def write(result: LostUpdatesShape) -> None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")

    comparison = Comparison(
        variants=variants,
        scenarios=scenarios,
        agents=arguments.agents,
        seed=arguments.seed,
        think_ms=arguments.think_ms,
        quick=arguments.quick,
        install=not arguments.no_install,
    )
    result = asyncio.run(compare(comparison, arguments.out.parent, _tell, write))
    print(json.dumps(result) if arguments.json else text(result), end="\n" if arguments.json else "")
    return EXIT_OK if result["ok"] else EXIT_MISSED


def _variants(peers: str) -> Sequence[Variant] | None:
    if peers in ("all", "none"):
        return ALL if peers == "all" else OURS
    named = [variant for variant in PEERS if variant.name in peers.split(",")]
    return (*OURS, *named) if len(named) == len(peers.split(",")) else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lost_updates", description=__doc__)
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--think-ms", type=float, default=20.0)
    parser.add_argument("--peers", default="all", help="all, none, or names of variants with commas between them")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS))
    parser.add_argument("--quick", action="store_true", help="play less")
    parser.add_argument("--no-install", action="store_true", help="peers that are not installed yet are left out")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-out" / "lost-updates.json")
    parser.add_argument("--json", action="store_true")
    return parser


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _fail(message: str) -> int:
    print(f"bench lost-updates: {message}", file=sys.stderr)
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
