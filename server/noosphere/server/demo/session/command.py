"""What ``noosphere demo session`` does: plays a session, prints it, and leaves it to be read back."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from noosphere.client import HealthFigure

from ..staging import Stage, perform, print_checks, print_commands
from .play import Played, play
from .script import default_script, read_script

PLAIN_COLUMNS = 110
_SHOWN_CHARS = 44


def run_session(
    server: str | None = None,
    data: Path | None = None,
    script: Path | None = None,
    as_json: bool = False,
    console: Console | None = None,
) -> bool:
    """Plays a session and prints it on stdout.

    Args:
        server: ``host:port`` of a running server; None starts one for the time of the demo.
        data: where that one keeps its data, which stay; None means ``./noosphere-demo``.
        script: a script of one's own; None plays the one that comes with the demo.
        as_json: print one JSON object and nothing else.
        console: where it goes; stdout if None.

    Returns:
        Whether everything is as it must be.

    Raises:
        InputError: the script or the folder cannot be used.
        DemoError: the server could not be started or does not answer, or somebody interrupted.
        NoosphereError: the server refuses something, or went away.
    """
    stage = Stage(server, data, as_json, console, PLAIN_COLUMNS)

    def tell(played: Played, serve: str | None, console: Console) -> None:
        print_played(played, serve, server, console)

    return perform(stage, lambda: default_script() if script is None else read_script(script), play, tell)


def print_played(played: Played, serve: str | None, server: str | None, console: Console) -> None:
    """Prints a session for people."""
    console.print(Text(f"{played.title}: session {played.session_id}", style="bold"))
    console.print(_turns(played))
    console.print(Text("Health", style="bold"))
    console.print(_health(played))
    print_checks(played, console)
    console.print("The session stays. Read it back from another shell:")
    commands = (("session", "show", played.session_id), ("context", "explain", played.session_id))
    print_commands(serve, server, commands, console)


def _turns(played: Played) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("turn", justify="right")
    table.add_column("user")
    table.add_column("context", justify="right")
    table.add_column("items", justify="right")
    table.add_column("what happened", overflow="fold")
    for told in played.turns:
        user = told.user if len(told.user) <= _SHOWN_CHARS else told.user[: _SHOWN_CHARS - 1] + "…"
        context = f"{told.tokens_used}/{told.tokens_max}"
        table.add_row(str(told.number), Text(user), context, str(told.items), Text("\n".join(told.events)))
    return table


def _health(played: Played) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("figure", "value", "bounds", "verdict", "source"):
        table.add_column(column)
    table.add_column("advice", overflow="fold")
    assert played.health is not None
    for figure in played.health.figures:
        value = "unknown" if figure.value is None else f"{figure.value:.2f}"
        style = {"good": "green", "unknown": "dim"}.get(figure.verdict, "bold red")
        table.add_row(
            figure.metric.replace("_", " "),
            value,
            _bounds(figure),
            Text(figure.verdict.replace("_", " "), style=style),
            figure.source,
            Text(figure.advice),
        )
    return table


def _bounds(figure: HealthFigure) -> str:
    low = "" if figure.low < 0 else f"{figure.low:g}"
    return f"{low}…{figure.high:g}"
