"""`noosphere doctor`: what is wrong, and what to do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from .common import ConfigOption, JsonOption, common
from .exits import ExitCode
from .output import print_json, print_line
from .settings_options import FLAGS, SettingsCommand

if TYPE_CHECKING:
    from pathlib import Path

    from .backup_shapes import FindingShape

app = typer.Typer()


@app.command(cls=SettingsCommand)
def doctor(ctx: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Say what is wrong with what a server needs, and what to do. JSON: a Finding per line.

    Takes the options of `serve`, and looks at the configuration, the data folder, Redis and etcd, disk, clock,
    addresses, certificates and permissions. Changes nothing, and works whether a server runs or not.

    Exit code 0: nothing is wrong, apart from warnings; 5: there is a problem.
    """
    as_json = common(ctx, as_json=as_json).as_json
    problems = asyncio.run(_report(config, ctx.meta[FLAGS], as_json))
    raise typer.Exit(ExitCode.CHECK_FAILED if problems else ExitCode.OK)


async def _report(config: Path | None, flags: dict[str, object], as_json: bool) -> int:
    from noosphere.server.doctor import Severity, examine

    count = problems = 0
    async for found in examine(config, flags):
        count += 1
        problems += found.severity is Severity.PROBLEM
        if as_json:
            shape: FindingShape = {
                "name": found.name,
                "severity": found.severity.value,
                "what": found.what,
                "evidence": found.evidence,
                "advice": found.advice,
            }
            print_json(shape)
        else:
            print_line(f"{found.severity.value} {found.name}: {found.what}")
            print_line(f"  seen: {found.evidence}")
            print_line(f"  do:   {found.advice}")
    if not count and not as_json:
        print_line("nothing is wrong")
    return problems
