"""Records that the services keep for themselves in a namespace, out of the users' sight.

Their keys begin with NUL, which no user's key may contain. They are committed without an event, so they
appear in no log and move no collection; only lists of a whole namespace have to step over them.
"""

from __future__ import annotations

INTERNAL = "\0"
FIRST_USER_KEY_AFTER = "\0\U0010ffff"
"""An exclusive lower bound below every user's key and above every internal one."""

CONFLICTS = "\0conflicts/"
RESERVATIONS = "\0reservations/"


def before_first(collection: str) -> str | None:
    """Returns the exclusive lower bound from which a scan of ``collection`` begins; None for its start."""
    return None if collection else FIRST_USER_KEY_AFTER


def is_internal(key: str) -> bool:
    """Tells whether a key belongs to the services."""
    return key.startswith(INTERNAL)
