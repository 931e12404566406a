"""The server's own log tells what went wrong, and never what a caller wrote."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
import structlog
from noosphere.server.logs import configure_logging

configure_logging("info", sys.argv[1])


def handle(request: str) -> None:
    raise ValueError("it went wrong")


try:
    handle("".join(("sec", "ret")))
except ValueError as error:
    structlog.get_logger("x").error("internal error", method="Put", exc_info=error)
"""


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_traceback_shows_no_variables(log_format: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, log_format], capture_output=True, text=True, check=True, timeout=60
    )
    assert "ValueError" in done.stderr
    assert "it went wrong" in done.stderr
    assert "secret" not in done.stderr
