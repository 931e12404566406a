"""A process that runs a module of the test support, talks over its standard streams, and may be stopped by a signal."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator

from tests.support.workers import ROOT


@contextlib.contextmanager
def child_process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs ``python -m tests.support.MODULE`` for the length of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.support.{module}", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def goes_back(tokens: list[int]) -> bool:
    """Tells whether an earlier holder of a lock has written after a later one; each writes its token."""
    return any(later < earlier for earlier, later in itertools.pairwise(tokens))
