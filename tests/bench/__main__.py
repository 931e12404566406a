"""``make bench``: measures, prints the report, and writes it where it is told to."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
import time
from pathlib import Path

from .children import ROOT, BenchError
from .machine import NotADisk, describe, require_disk
from .plan import FULL, PLANS
from .report import NoMarkers, as_json, markdown, write_page
from .run import run
from .tables import ROW_NAMES

EXIT_FAILED = 1
EXIT_USAGE = 2


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 if everything was measured, whether or not the goals are met."""
    arguments = _parser().parse_args(argv)
    names = ROW_NAMES if arguments.only is None else tuple(arguments.only.split(","))
    if unknown := set(names) - set(ROW_NAMES):
        return _fail(f"--only: unknown row {sorted(unknown)[0]!r}; rows are {', '.join(ROW_NAMES)}", EXIT_USAGE)
    if arguments.write is not None and arguments.only is not None:
        return _fail("--write: a part of the rows (--only) is no report", EXIT_USAGE)
    plan = PLANS[arguments.plan]
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
        folder = arguments.data or arguments.out
        mount = require_disk(folder)
        machine = describe(folder, mount, shlex.join(["python", "-m", "tests.bench", *argv]))
        start = time.monotonic()
        rows = asyncio.run(run(plan, folder, names, arguments.profile))
        seconds = time.monotonic() - start
        report = markdown(machine, plan, rows, seconds)
        (arguments.out / "benchmarks.json").write_text(as_json(machine, plan, rows, seconds))
        (arguments.out / "benchmarks.md").write_text(report)
        if arguments.write is not None:
            write_page(arguments.write, report)
    except (BenchError, NotADisk, NoMarkers, OSError) as error:
        return _fail(str(error), EXIT_FAILED)
    print(report)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the report between the markers of this page")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-out", help="folder for the JSON file and the report")
    parser.add_argument("--data", type=Path, help="folder on the disk to measure (default: that of --out)")
    parser.add_argument("--plan", choices=sorted(PLANS), default=FULL.name, help="how much to measure")
    parser.add_argument("--quick", dest="plan", action="store_const", const="quick", help="same as --plan quick")
    parser.add_argument("--only", metavar="ROW,…", help=f"measure only these rows: {', '.join(ROW_NAMES)}")
    parser.add_argument("--profile", action="store_true", help="profile every row that has a goal, missed or not")
    return parser


def _fail(message: str, code: int) -> int:
    print(f"bench: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
