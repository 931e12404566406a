"""What ``noosphere demo`` does: runs the demo, prints the figures, and knows the exit code."""

from __future__ import annotations

import asyncio
import json
import sys

from rich.console import Console

from noosphere.client import NoosphereError, Unavailable

from .display import Display, Lines, Screen, Silence, print_figures
from .figures import Figures
from .processes import DemoError, ServerUnreachable
from .run import cancel_on_sigterm, run
from .settings import DemoSettings
from .text import InputError

PLAIN_COLUMNS = 110

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_CANNOT_RUN = 3
EXIT_UNREACHABLE = 4
EXIT_DOES_NOT_HOLD = 5
EXIT_INTERRUPTED = 130


def run_demo(settings: DemoSettings, as_json: bool = False, console: Console | None = None) -> int:
    """Runs the demo and prints on stdout what came of it; errors go to stderr, one line each.

    Args:
        settings: how to run it.
        as_json: print the figures as one JSON object and nothing else.
        console: where tables and progress go; stdout if None.

    Returns:
        0 if everything holds, 5 if something does not (or the contention was not real), 2 if the text
        or the history file cannot be used, 3 if a process failed, 4 if the server cannot be reached,
        1 if it refused a call, 130 if interrupted.
    """
    # Off a terminal nobody's window decides where lines break.
    console = console or Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_COLUMNS)
    try:
        _check_history_file(settings)
        figures = asyncio.run(_run(settings, _display(console, as_json)))
    except (InputError, OSError) as error:
        return _fail(EXIT_USAGE, "UNUSABLE_INPUT", str(error), as_json)
    except ServerUnreachable as error:
        return _fail(EXIT_UNREACHABLE, "UNAVAILABLE", str(error), as_json)
    except DemoError as error:
        return _fail(EXIT_CANNOT_RUN, "DEMO_FAILED", str(error), as_json)
    except NoosphereError as error:
        code = EXIT_UNREACHABLE if isinstance(error, Unavailable) else EXIT_REFUSED
        return _fail(code, error.reason, error.message, as_json)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return _fail(EXIT_INTERRUPTED, "INTERRUPTED", "interrupted; every process of the demo was stopped", as_json)
    if as_json:
        print(json.dumps(figures.as_dict(), ensure_ascii=False), flush=True)
    else:
        print_figures(figures, console)
    return EXIT_DOES_NOT_HOLD if figures.failures else EXIT_OK


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
        raise first from None


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


def _fail(code: int, reason: str, message: str, as_json: bool) -> int:
    if as_json:
        document = {"error": {"reason": reason, "message": message, "exit_code": code}}
        print(json.dumps(document, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"noosphere: error: {message}", file=sys.stderr)
    return code
