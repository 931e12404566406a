"""What a Redis really holds of a namespace, read past every server."""

from __future__ import annotations

from typing import NamedTuple

from noosphere.server.fleet import FleetError, ask

_EPOCH_BITS = 40
_PAGE = 1_000


class Held(NamedTuple):
    """What was found.

    Attributes:
        revisions: every commit in the namespace's log.
        head: the newest revision.
        floor: nothing up to this revision is in the log any more.
    """

    revisions: frozenset[int]
    head: int
    floor: int


def read_held(address: str, namespace: str) -> Held:
    """Reads a namespace's log.

    Raises:
        FleetError: the namespace is not there.
        RedisError: Redis has refused to tell.
        OSError: Redis does not answer.
    """
    stem = _stem(address, namespace)
    head, floor = ask(address, "HMGET", f"{stem}:h", "h", "fl")
    revisions: set[int] = set()
    start = "-"
    while True:
        entries = ask(address, "XRANGE", f"{stem}:l", start, "+", "COUNT", _PAGE)
        for entry, _ in entries:
            epoch, _, sequence = entry.decode().partition("-")
            revisions.add(int(epoch) << _EPOCH_BITS | int(sequence))
        if len(entries) < _PAGE:
            return Held(frozenset(revisions), int(head, 16), int(floor or b"0", 16))
        start = f"({entries[-1][0].decode()}"


def _stem(address: str, namespace: str) -> str:
    cursor = b"0"
    while True:
        cursor, names = ask(address, "SCAN", cursor.decode(), "MATCH", "noosphere:*:h", "COUNT", _PAGE)
        for name in names:
            if ask(address, "TYPE", name.decode()) == b"hash" and ask(address, "HGET", name.decode(), "n") == (
                namespace.encode()
            ):
                return str(name.decode().removesuffix(":h"))
        if cursor == b"0":
            raise FleetError(f"the Redis at {address} holds nothing of {namespace}")
