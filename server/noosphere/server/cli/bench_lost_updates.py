"""`noosphere bench lost-updates`: what agents lose, with Noosphere and with other products."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from .common import JsonOption, common
from .exits import CliError, ExitCode, usage

AGENTS_MIN, AGENTS_MAX = 2, 32
THINK_MS_MAX = 1000.0
_MODULE: Final = "tests.bench.lost_updates"


def lost_updates(
    ctx: typer.Context,
    agents: Annotated[int, typer.Option(metavar="N", help="How many agents, 2 to 32.")] = 16,
    seed: Annotated[int, typer.Option(metavar="N", help="Decides how long each model call takes.")] = 1,
    think_ms: Annotated[
        float, typer.Option(metavar="MS", help="The median of that in milliseconds, above 0 and up to 1000.")
    ] = 20.0,
    peers: Annotated[
        str, typer.Option(metavar="NAMES", help="What to compare with: `all`, `none`, or names with commas between.")
    ] = "all",
    scenarios: Annotated[
        str, typer.Option(metavar="NAMES", help="What to play, with commas between.")
    ] = "plan,notes,tasks,decide,late,failover",
    quick: Annotated[bool, typer.Option("--quick", help="Play less of each.")] = False,
    no_install: Annotated[
        bool, typer.Option("--no-install", help="Leave out products that are not installed yet.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Where the JSON goes; bench-out/lost-updates.json of the clone by default."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what agents lose that share a plan, notes, tasks and decisions. JSON: LostUpdates.

    Agents read, think for as long as a seed says, and write, through Noosphere and through other products, each used
    as its documentation says, by default and at its best. What was acknowledged and is not there at the end, what was
    decided on something that had changed, what was done twice and what a failover has lost is judged by the log of the
    harness. It works in a clone of the repository; products are installed in environments of their own, in a cache
    folder, when they are first needed.

    Exit code 0: Noosphere has reached its gates; 5: not; 2: something was asked that cannot be.
    """
    options = common(ctx, as_json=as_json)
    if not AGENTS_MIN <= agents <= AGENTS_MAX:
        raise usage(f"--agents: {agents} is not between {AGENTS_MIN} and {AGENTS_MAX}")
    if not 0 < think_ms <= THINK_MS_MAX:
        raise usage(f"--think-ms: {think_ms:g} is not above 0 and at most {THINK_MS_MAX:g}")
    root = clone()
    if root is None:
        message = "the comparison needs a clone of the repository (its tests/bench), and this is an installed package"
        raise CliError(ExitCode.USAGE, message, "NO_CLONE")
    words = ["--agents", str(agents), "--seed", str(seed), "--think-ms", str(think_ms)]
    words += ["--peers", peers, "--scenarios", scenarios]
    words += ["--quick"] if quick else []
    words += ["--no-install"] if no_install else []
    words += ["--json"] if options.as_json else []
    words += ["--out", str(out.absolute())] if out is not None else []
    # The harness stands beside the tests, which are no part of the package; a process of its own finds it there.
    code = subprocess.run([sys.executable, "-m", _MODULE, *words], cwd=root, env=dict(os.environ)).returncode
    raise typer.Exit(code)


def clone() -> Path | None:
    """Returns the repository that this code runs from, None if it is an installed package."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "pyproject.toml").is_file() and (folder / "tests" / "bench" / "lost_updates").is_dir():
            return folder
    return None
