"""`noosphere check` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import JsonOption, common

app = typer.Typer()


@app.command()
def check(
    ctx: typer.Context,
    history: Annotated[Path, typer.Argument(metavar="FILE", help="A recorded history.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Judge a recorded history independently of the server that made it.

    Exit code 0: valid; 5: a violation, or undecided; 2: the file cannot be read.
    """
    from noosphere.server.checking import run_check

    raise typer.Exit(run_check(history, common(ctx, as_json=as_json).as_json))
