"""What ``noosphere demo causality`` does: tells the story and prints it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from functools import partial
from pathlib import Path

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from noosphere.server.consoles import StdoutConsole
from noosphere.server.readers import to_reader

from ..processes import DemoInterrupted, delete_namespace, own_server, require_server
from ..run import cancel_on_sigterm
from .story import tell
from .telling import Account, Line, Quote, Sights, Step

PLAIN_COLUMNS = 110
_INDENT = 3


def run_causality(server: str | None = None, as_json: bool = False, console: Console | None = None) -> bool:
    """Tells the story and prints it on stdout.

    Args:
        server: ``host:port`` of a running server; None starts one for the time of the demo.
        as_json: print one JSON object and nothing else.
        console: where it goes; stdout if None.

    Returns:
        Whether every line holds.

    Raises:
        DemoError: the server could not be started or does not answer, or somebody interrupted.
        NoosphereError: the server refuses the agents, or went away.
        ReaderGone: nobody reads stdout.
    """
    try:
        account = asyncio.run(_run(server))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise DemoInterrupted("interrupted; every process of the demo was stopped") from None
    if as_json:
        with to_reader():
            print(json.dumps(account.as_dict(), ensure_ascii=False), flush=True)
    else:
        print_account(account, console or StdoutConsole(PLAIN_COLUMNS))
    return not account.failures


async def _run(server: str | None) -> Account:
    cancel_on_sigterm()
    if server is not None:
        await require_server(server)
        # One's own server goes with its folder; somebody else's is left as it was.
        return await tell(server, tidy=partial(delete_namespace, server))
    with tempfile.TemporaryDirectory(prefix="noosphere-demo-") as folder:
        async with own_server(Path(folder)) as address:
            return await tell(address)


def print_account(account: Account, console: Console) -> None:
    """Prints the story for people."""
    for number, step in enumerate(account.steps, start=1):
        console.print(Text(f"{number}. {step.title}", style="bold"))
        _print_step(step, console)
        console.print()
    if account.failures:
        for failure in account.failures:
            console.print(Text(f"FAILED: {failure}", style="bold red"))
        if account.missing:
            console.print(Text(f"not reached: {', '.join(account.missing)}", style="red"))
    else:
        console.print(Text(f"All of it holds ({account.seconds:.1f} s).", style="bold green"))


def _print_step(step: Step, console: Console) -> None:
    for part in step.parts:
        match part:
            case Line(text, holds):
                line = Table.grid(padding=(0, 2))
                line.add_column(no_wrap=True)
                line.add_column(overflow="fold")
                line.add_row(Text("ok", style="green") if holds else Text("NO", style="bold red"), Text(text))
                _print_indented(line, console)
            case Quote(title, text):
                _print_indented(Text(title, style="italic"), console)
                _print_indented(Text(text), console, _INDENT)
            case Sights(rows):
                table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
                for column in ("agent", "holds", "has seen the writes of", "compared with now"):
                    table.add_column(column)
                for row in rows:
                    table.add_row(*map(Text, row))
                _print_indented(table, console)


def _print_indented(what: RenderableType, console: Console, more: int = 0) -> None:
    console.print(Padding(what, (0, 0, 0, _INDENT + more), expand=False))
