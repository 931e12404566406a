"""What ``noosphere demo`` does: runs the demo and prints the figures."""

from __future__ import annotations

import asyncio
import json

from rich.console import Console

from noosphere.server.consoles import StdoutConsole
from noosphere.server.fleet import FleetError
from noosphere.server.readers import to_reader

from .display import Display, Lines, Screen, Silence, print_figures
from .figures import Figures
from .processes import DemoError, DemoInterrupted
from .run import cancel_on_sigterm, run
from .settings import DemoSettings
from .text import InputError

PLAIN_COLUMNS = 110


def run_demo(settings: DemoSettings, as_json: bool = False, console: Console | None = None) -> bool:
    """Runs the demo and prints on stdout what came of it.

    Args:
        settings: how to run it.
        as_json: print the figures as one JSON object and nothing else.
        console: where tables and progress go; stdout if None.

    Returns:
        Whether everything holds and the contention was real.

    Raises:
        InputError: the text or the history file cannot be used.
        OSError: likewise.
        DemoError: a process failed, the server cannot be reached, or somebody interrupted.
        NoosphereError: the server refused a call.
        ReaderGone: nobody reads stdout; every process of the demo was stopped.
    """
    console = console or StdoutConsole(PLAIN_COLUMNS)
    _check_history_file(settings)
    try:
        figures = asyncio.run(_run(settings, _display(console, as_json)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise DemoInterrupted("interrupted; every process of the demo was stopped") from None
    if as_json:
        with to_reader():
            print(json.dumps(figures.as_dict(), ensure_ascii=False), flush=True)
    else:
        print_figures(figures, console)
    return not figures.failures


async def _run(settings: DemoSettings, display: Display) -> Figures:
    cancel_on_sigterm()
    with display:
        return await _grouped(settings, display)


async def _grouped(settings: DemoSettings, display: Display) -> Figures:
    try:
        return await run(settings, display)
    except BaseExceptionGroup as group:
        # The first failure of an agent cancels the others; it alone is the cause.
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if isinstance(first, FleetError):
            raise DemoError(str(first)) from None
        raise first from None
    except FleetError as error:
        raise DemoError(str(error)) from None


def _display(console: Console, as_json: bool) -> Display:
    if as_json:
        return Silence()
    return Screen(console) if console.is_terminal else Lines(console)


def _check_history_file(settings: DemoSettings) -> None:
    """Fails at once rather than after the work."""
    if settings.history is None:
        return
    if settings.history.is_dir():
        raise InputError(f"{settings.history}: is a folder")
    if not settings.history.parent.is_dir():
        raise InputError(f"{settings.history.parent}: no such folder")
