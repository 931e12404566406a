"""The command line. This module imports nothing of the server, so that it can say what is missing."""

from __future__ import annotations

import sys

__all__ = ["main"]

# Third-party packages of the `server` extra that the commands import.
_EXTRA = frozenset({"grpc_health", "grpc_reflection", "msgspec", "pydantic_settings", "rich", "sortedcontainers",
                    "structlog", "typer", "uvloop"})  # fmt: skip


def main() -> None:
    """Runs the command that the process's arguments name, and ends the process with its exit code."""
    try:
        from .main import run

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        print(f"noosphere: error: {error.name} is missing: install noosphere[server]", file=sys.stderr)
        code = 3
    sys.exit(code)
