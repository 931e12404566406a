"""Grants: who may do what in which namespaces, as the coordinator keeps them."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from noosphere.consistency import NamePattern


class Verb(StrEnum):
    """What can be granted."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    WATCH = "watch"
    RESOLVE = "resolve"
    ADMIN = "admin"
    ACT = "act"
    """Calling in the name of an agent, whose own namespace the grant is about."""


class GrantKey(NamedTuple):
    """To whom something is granted, and where; there is one grant for each pair.

    Attributes:
        principal: names of principals.
        namespace: names of namespaces.
    """

    principal: NamePattern
    namespace: NamePattern


def read_verbs(data: bytes | str) -> frozenset[Verb] | None:
    """Returns what a driver has kept of a grant; None if it is not readable here, and then nothing is granted.

    Another version of the program may know more verbs. What the others of such a grant mean nobody knows here.
    """
    try:
        return msgspec.json.decode(data, type=frozenset[Verb])
    except msgspec.MsgspecError:
        return None
