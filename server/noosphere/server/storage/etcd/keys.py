"""Names of keys in etcd, and the parts of transactions.

format                what the layout is
last/<agent>          written with every incarnation, for ever: its revision is the agent's newest number
epoch/<16 hex digits> a record of each epoch
live/                 what every replica watches
    config            the version of all rules
    lease/<agent>     gone when the agent's lease has lapsed
    open/<agent>      not closed; its revision is the present incarnation's number, its value the request's id
    rule/<=|^><text>  the rules of one exact name, or of a prefix
"""

from __future__ import annotations

from noosphere.consistency import NamePattern

from . import wire_pb2 as wire

FORMAT = b"1"
"""Another one is another layout, written by another version of the program."""


class Layout:
    """The keys below one root.

    Args:
        root: ends in a slash; two fleets on one etcd have two roots.
    """

    def __init__(self, root: str) -> None:
        base = root.encode()
        self.format = base + b"format"
        self.epochs = base + b"epoch/"
        self.live = base + b"live/"
        self.config = self.live + b"config"
        self.leases = self.live + b"lease/"
        self.opens = self.live + b"open/"
        self.rules = self.live + b"rule/"
        self._last = base + b"last/"

    def last(self, agent_id: str) -> bytes:
        """Returns the key of an agent's newest number."""
        return self._last + agent_id.encode()

    def lease(self, agent_id: str) -> bytes:
        """Returns the key that lives as long as an agent's lease."""
        return self.leases + agent_id.encode()

    def open(self, agent_id: str) -> bytes:
        """Returns the key of an agent's present incarnation."""
        return self.opens + agent_id.encode()

    def epoch(self, epoch: int) -> bytes:
        """Returns the key of an epoch; keys sort as the epochs do."""
        return self.epochs + f"{epoch:016x}".encode()

    def epoch_of(self, key: bytes) -> int:
        """Returns the epoch of a key."""
        return int(key.removeprefix(self.epochs), 16)

    def rule(self, pattern: NamePattern) -> bytes:
        """Returns the key of a pattern's rules."""
        return self.rules + (b"=" if pattern.exact else b"^") + pattern.text.encode()

    def pattern_of(self, key: bytes) -> NamePattern:
        """Returns the pattern of a key."""
        text = key.removeprefix(self.rules).decode()
        return NamePattern(text[1:], text[0] == "=")


def put(key: bytes, value: bytes = b"", lease: int = 0) -> wire.RequestOp:
    """Returns the operation that writes a key."""
    return wire.RequestOp(request_put=wire.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes) -> wire.RequestOp:
    """Returns the operation that removes a key."""
    return wire.RequestOp(request_delete_range=wire.DeleteRangeRequest(key=key))


def get(key: bytes) -> wire.RequestOp:
    """Returns the operation that reads a key."""
    return wire.RequestOp(request_range=wire.RangeRequest(key=key))


def unchanged(key: bytes, mod_revision: int) -> wire.Compare:
    """Returns the condition that a key was last written at a revision; 0: that it is not there."""
    return wire.Compare(key=key, target=wire.Compare.MOD, result=wire.Compare.EQUAL, mod_revision=mod_revision)


def none_after(prefix: bytes, end: bytes, revision: int) -> wire.Compare:
    """Returns the condition that no key of a range was written after a revision."""
    return wire.Compare(
        key=prefix, range_end=end, target=wire.Compare.MOD, result=wire.Compare.LESS, mod_revision=revision + 1
    )
