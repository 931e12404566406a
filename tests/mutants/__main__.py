"""``make mutants``: does a test fail for each deliberate bug?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .mutant import Mutant, ours, read
from .running import Outcome, Verdict, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries mutants and tells of each; returns 0 if every one was caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--patch", type=Path, action="append", default=[], help="try this patch instead of ours")
    parser.add_argument("--only", default="", help="names of ours, with commas; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (1 to 8)")
    chosen = parser.parse_args(arguments)
    if not 1 <= chosen.jobs <= 8:
        parser.error(f"--jobs: {chosen.jobs} is not within 1 to 8")
    try:
        mutants = [read(patch) for patch in chosen.patch] or _chosen(chosen.only)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    with ThreadPoolExecutor(chosen.jobs) as pool:
        verdicts = list(pool.map(_told, mutants))
    caught = sum(verdict.outcome is Outcome.CAUGHT for verdict in verdicts)
    print(f"{caught} of {len(verdicts)} caught")
    return 0 if caught == len(verdicts) else 1


def _chosen(only: str) -> list[Mutant]:
    mutants = {mutant.name: mutant for mutant in ours()}
    names = only.split(",") if only else list(mutants)
    unknown = [name for name in names if name not in mutants]
    if unknown:
        raise ValueError(f"--only: there is no mutant {unknown[0]!r}")
    return [mutants[name] for name in names]


def _told(mutant: Mutant) -> Verdict:
    verdict = run(mutant)
    by = f" by {verdict.failed[0]}" if verdict.failed else ""
    print(f"{verdict.outcome:14} {verdict.seconds:6.1f} s  {mutant.name}{by}", flush=True)
    if verdict.output:
        print(verdict.output, flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
