"""The state transition controller: archives, compresses or drops what a session no longer needs, with reasons."""

from __future__ import annotations

from dataclasses import dataclass

from .basis import RecordedBasis
from .controller import Controller, PendingBasis
from .learning import Learner
from .noting import Notes
from .reporting import HealthReporter
from .watching import SessionWatch

__all__ = [
    "Controller",
    "HealthReporter",
    "Learner",
    "Notes",
    "PendingBasis",
    "RecordedBasis",
    "SessionWatch",
    "Transitions",
]


@dataclass(frozen=True)
class Transitions:
    """What one process has of this, wired together."""

    watch: SessionWatch
    notes: Notes
    controller: Controller
    health: HealthReporter
