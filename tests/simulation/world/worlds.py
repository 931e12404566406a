"""The worlds that seeds are run in, by their names."""

from __future__ import annotations

from collections.abc import Mapping

from .course import MakeWorld
from .embedded import EmbeddedWorld
from .fleet import FleetWorld

WORLDS: Mapping[str, MakeWorld] = {"embedded": EmbeddedWorld, "fleet": FleetWorld}
