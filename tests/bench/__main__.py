"""``make bench``: measures, keeps what it has found after every part, and makes pages and pictures of it."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from pathlib import Path

from .anchors import BadAnchor
from .children import ROOT
from .machine import NotADisk, describe, require_disk
from .peers.environments import install_all
from .plan import FULL, PLANS
from .publish import publish, summary
from .results import NoResults, Results, load, resumed
from .run import NAMES, Run
from .tables import ROW_NAMES

EXIT_FAILED = 1
EXIT_USAGE = 2
MINUTES_MAX = 25.0
FILE = "benchmarks.json"


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 if everything was measured, whether or not the goals are met."""
    arguments = _parser().parse_args(argv)
    known = {*NAMES, *ROW_NAMES}
    wanted = NAMES if arguments.only is None else tuple(arguments.only.split(","))
    if unknown := set(wanted) - known:
        return _fail(f"--only: unknown part or row {sorted(unknown)[0]!r}; {_ONLY_HELP}", EXIT_USAGE)
    file = arguments.out / FILE
    try:
        if arguments.pages:
            publish(load(file))
            return 0
        results = _measured(arguments, argv, wanted, file)
        print(summary(results))
        if arguments.publish:
            publish(results)
    except (NotADisk, NoResults, BadAnchor, OSError) as error:
        return _fail(str(error), EXIT_FAILED)
    failed = [name for name, part in results.parts.items() if part["failed"]]
    return _fail(f"failed: {', '.join(failed)}", EXIT_FAILED) if failed else 0


def _measured(arguments: argparse.Namespace, argv: list[str], wanted: tuple[str, ...], file: Path) -> Results:
    plan = PLANS[arguments.plan]
    arguments.out.mkdir(parents=True, exist_ok=True)
    folder = arguments.data or arguments.out
    machine = describe(folder, require_disk(folder), shlex.join(["python", "-m", "tests.bench", *argv]))
    results = Results(machine.as_json(), plan.name)
    if arguments.resume:
        results = resumed(file, results)
        if arguments.only is None:
            wanted = tuple(name for name in wanted if not results.done(name))
    if {"side-by-side", "lost-updates"} & {*wanted}:
        for name, why in install_all().items():
            print(f"bench: {name} cannot be compared: {why}", file=sys.stderr)
    run = Run(
        plan,
        folder,
        arguments.out,
        results,
        lambda: results.save(file),
        profiled=arguments.profile,
        seconds_max=arguments.minutes * 60,
    )
    asyncio.run(run.measure(wanted))
    return results


_ONLY_HELP = f"parts are {', '.join(NAMES)}; rows are {', '.join(ROW_NAMES)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--publish", action="store_true", help="write docs/benchmarks.json, and pages and pictures of it"
    )
    parser.add_argument("--pages", action="store_true", help="measure nothing: publish what is in --out")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-out", help="folder of the results")
    parser.add_argument("--data", type=Path, help="folder on the disk to measure (default: that of --out)")
    parser.add_argument("--plan", choices=sorted(PLANS), default=FULL.name, help="how much to measure")
    parser.add_argument("--quick", dest="plan", action="store_const", const="quick", help="same as --plan quick")
    parser.add_argument("--only", metavar="NAME,…", help=f"measure only these: {_ONLY_HELP}")
    parser.add_argument(
        "--resume", action="store_true", help="keep what is in --out and measure the rest, or what --only names"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=MINUTES_MAX,
        help="how long it may take; what comes later is left out, or cut off (default: %(default)g)",
    )
    parser.add_argument("--profile", action="store_true", help="profile every row that has a goal, missed or not")
    return parser


def _fail(message: str, code: int) -> int:
    print(f"bench: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
