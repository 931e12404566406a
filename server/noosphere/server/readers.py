"""Who reads what is printed may go, as `head` does: that ends a command, and is no failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class ReaderGone(Exception):
    """Nobody reads stdout any more; nothing is wrong, but there is nothing left to do."""


@contextmanager
def to_reader() -> Iterator[None]:
    """Surrounds what prints on stdout.

    Raises:
        ReaderGone: instead of :class:`BrokenPipeError`. What is printed from now on goes nowhere.
    """
    try:
        yield
    except BrokenPipeError:
        close_stdout()
        raise ReaderGone from None


def close_stdout() -> None:
    """Sends what is printed from now on nowhere."""
    # The interpreter flushes it once more when it ends.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
