"""Consoles of rich for stdout."""

from __future__ import annotations

import sys
from typing import NoReturn

from rich.console import Console

from .readers import ReaderGone, close_stdout


class StdoutConsole(Console):
    """A console whose lines break as the terminal's window wants, and off a terminal at a width of our own.

    Args:
        columns: that width.

    Its methods raise :class:`ReaderGone` once nobody reads. Rich's own answer, to exit, would end an event loop
    in the middle of its tasks.
    """

    def __init__(self, columns: int) -> None:
        super().__init__(highlight=False, width=None if sys.stdout.isatty() else columns)

    def on_broken_pipe(self) -> NoReturn:
        """Is called by rich when a write has failed."""
        close_stdout()
        raise ReaderGone
