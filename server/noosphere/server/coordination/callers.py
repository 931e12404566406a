"""What every call of these services is checked for."""

from __future__ import annotations

from noosphere.consistency import actor_name, invalid

from ..memory.admission import require_writer
from ..memory.core import Core
from ..memory.types import Call
from ..ports.coordinator import Incarnation

OWN_MARK = "~"
"""What names of the server's own locks and groups begin with."""


def check_name(field: str, name: str) -> None:
    """Checks that a name is not one of the server's own.

    Raises:
        Refusal: INVALID_FIELD.
    """
    if name.startswith(OWN_MARK):
        raise invalid(field, f"{name!r} begins with {OWN_MARK!r}, as names of the server's own do")


def require_incarnation(core: Core, call: Call) -> Incarnation:
    """Returns who calls to change something, which must not have ended.

    Raises:
        Refusal: INVALID_FIELD, STALE_INCARNATION.
    """
    require_writer(call)
    core.require_current(call)
    assert call.incarnation is not None
    return call.incarnation


def owner_of(life: Incarnation) -> str:
    """Returns how others see who holds something."""
    return actor_name(*life)
