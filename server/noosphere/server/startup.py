"""Why a server does not start."""

from __future__ import annotations


class StartupError(Exception):
    """The server cannot start; the message is one line that says why and what to do."""
