"""Exit codes, and how every way to fail becomes one line on stderr."""

from __future__ import annotations

import json
import sys
from enum import IntEnum
from typing import Any

from .output import one_line
from .shapes import ErrorShape


class ExitCode(IntEnum):
    """What a command's exit code means; part of the interface for programs."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    CANNOT_SERVE = 3
    UNREACHABLE = 4
    CHECK_FAILED = 5
    BUG = 70
    INTERRUPTED = 130


# The first line keeps the lines below it as they are.
EXIT_CODES_HELP = """\b
Exit codes:
  0    done
  1    refused by the server: conflict, precondition, not found, limit
  2    wrong usage or configuration
  3    the server cannot start or had to stop
  4    no answer from a server in time; a write may or may not have happened
  5    a check found a violation, or could not decide
  70   a bug in noosphere
  130  interrupted
"""


class CliError(Exception):
    """A command that failed for a reason that its user can act on.

    Attributes:
        code: the exit code.
        message: what to print, one line.
        reason: a constant for programs, e.g. an ``ErrorInfo.reason`` or ``USAGE``.
        details: fields of the error for programs that differ from these or from null.
    """

    def __init__(self, code: ExitCode, message: str, reason: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.details = details or {}


def usage(message: str) -> CliError:
    """Returns the error of a command that was called wrongly."""
    return CliError(ExitCode.USAGE, message, "USAGE")


def report(error: CliError, *, as_json: bool) -> ExitCode:
    """Prints an error to stderr, as one line for people or one JSON document for programs.

    Returns:
        The exit code.
    """
    if as_json:
        document: ErrorShape = {
            "reason": error.reason,
            "message": error.details.get("message", error.message),
            "exit_code": int(error.code),
            "outcome": error.details.get("outcome"),
            "request_id": error.details.get("request_id"),
            "conflict": error.details.get("conflict"),
        }
        print(json.dumps({"error": document}, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"noosphere: error: {one_line(error.message)}", file=sys.stderr)
    return error.code
