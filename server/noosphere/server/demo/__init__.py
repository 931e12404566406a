"""The demo: several agent processes on one job under deliberate contention, compared with the serial result."""

from __future__ import annotations

from .causality import run_causality
from .command import run_demo
from .facts import run_facts
from .processes import DemoError, DemoInterrupted, ServerUnreachable
from .session import run_session
from .settings import FLEET_DEFAULT, LOSE_DEFAULT, DemoSettings
from .text import InputError

__all__ = [
    "FLEET_DEFAULT",
    "LOSE_DEFAULT",
    "DemoError",
    "DemoInterrupted",
    "DemoSettings",
    "InputError",
    "ServerUnreachable",
    "run_causality",
    "run_demo",
    "run_facts",
    "run_session",
]
