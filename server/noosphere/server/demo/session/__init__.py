"""The third demo: one long session, what it keeps, what it lets go, and how to read it back."""

from __future__ import annotations

from .command import run_session
from .script import Script, default_script, read_script

__all__ = ["Script", "default_script", "read_script", "run_session"]
