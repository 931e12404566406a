"""The fourth demo: what is remembered beyond sessions, why, what was refused, and what was forgotten."""

from __future__ import annotations

from .command import run_facts
from .script import Script, default_script, read_script

__all__ = ["Script", "default_script", "read_script", "run_facts"]
