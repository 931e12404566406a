"""What the model keeps. Nothing in it is ever changed in place, so a snapshot is a reference."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.simulation.calls import Attributes, Call, Reply, Task


class Value(NamedTuple):
    """A live value, or (content None) the end of one. The content is what the value's kind makes of it."""

    dot: int
    writer: str
    written_ms: int
    content: Any
    ends_ms: int | None = None

    def at(self, now_ms: int) -> Value:
        """Returns the value, or its end if its time is over. The end keeps the dot."""
        over = self.content is not None and self.ends_ms is not None and self.ends_ms <= now_ms
        return self._replace(content=None, ends_ms=None) if over else self


class Wait(NamedTuple):
    """Since when a key has had several values: the revision, its place among those of the same one, store time."""

    since: int
    order: int
    since_ms: int


class Entry(NamedTuple):
    """Everything known of one key. ``writers`` maps every actor to its last write here since ``reaped_through``."""

    changed: int
    values: tuple[Value, ...]
    kind: str
    attributes: Attributes
    claim: Task | None
    born_ms: int
    ended_ms: int
    changes: int
    writers: dict[str, int]
    reaped_through: int
    waits: Wait | None


def fits(entry: Entry, where: Attributes) -> bool:
    """Tells whether a record's attributes equal all of ``where``; true is not 1, but 1 is 1.0."""
    held = dict(entry.attributes)
    return all(
        name in held and held[name] == wanted and isinstance(held[name], bool) == isinstance(wanted, bool)
        for name, wanted in where
    )


class State(NamedTuple):
    """What survives as a whole or is lost as a whole. Nothing in it is ever changed in place."""

    head: int
    entries: dict[str, Entry]
    floor: int
    requests: dict[tuple[str, int | str], tuple[Call, Reply, int]]
    answered: dict[str, int]
    fences: dict[str, int]
