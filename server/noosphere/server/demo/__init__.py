"""The demo: several agent processes on one job under deliberate contention, compared with the serial result."""

from __future__ import annotations

from .command import run_demo
from .settings import DemoSettings

__all__ = ["DemoSettings", "run_demo"]
