"""What somebody has seen, and what of it must still hold: the read sets of ``docs/consistency.md``, told again.

A read set is a plain dictionary; nothing in it is ever changed in place. It knows no namespace: what is there
now is asked of :class:`~tests.simulation.model_world.Space`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Sight(NamedTuple):
    """What a key or a collection was like: its version or stamp, and when the first of its values ends."""

    at: int
    ends_ms: int | None = None

    def over(self, now_ms: int) -> bool:
        return self.ends_ms is not None and self.ends_ms <= now_ms


Listed = tuple[str, str]
"""A collection, and what was read of it: its values ("changed") or only which keys it has ("members")."""


class Part(NamedTuple):
    """What was seen of one namespace, all of it at the head ``since`` or later."""

    since: int
    keys: Mapping[str, Sight]
    lists: Mapping[Listed, Sight]

    def knows(self, listed: Listed, at: int) -> bool:
        """Tells whether a collection whose stamp is ``at`` now has not changed since it was read.

        A collection in which nothing is stored may be taken for changed later than it was; but what lies not above
        the oldest reading had happened by then.
        """
        seen = self.lists[listed].at
        return seen <= at <= max(seen, self.since)

    def revisions(self) -> Iterator[int]:
        yield self.since
        yield from (sight.at for sight in (*self.keys.values(), *self.lists.values()))


ReadSet = Mapping[str, Part]
"""By namespace."""


class Guard(NamedTuple):
    """What must not have changed: a key or all of a collection, everything if empty; in one namespace, or in any."""

    prefix: str
    space: str = ""

    def covers(self, space: str, name: str, *, is_list: bool) -> bool:
        """Tells whether a key or a list is guarded. Who guards a part of a list guards all of it."""
        if self.space not in ("", space):
            return False
        inside = name == self.prefix or (self.prefix[-1:] in ("", "/") and name.startswith(self.prefix))
        return inside or (is_list and self.prefix.startswith(name))


class Grounds(NamedTuple):
    """A read set as a call presents it; ``token`` is the same in the real server's form."""

    seen: ReadSet
    token: bytes
    guards: tuple[Guard, ...] = ()
    warn: bool = False
    allow_checked: bool = False

    @property
    def held(self) -> ReadSet:
        """What must still be so."""
        return guarded(self.seen, self.guards)

    def is_over(self, now_ms: int) -> bool:
        """Tells whether anything that must still be so has come to the end that it had when it was seen."""
        return any(
            sight.over(now_ms) for part in self.held.values() for sight in (*part.keys.values(), *part.lists.values())
        )


class Stale(NamedTuple):
    """What is no longer as it was seen. ``changes`` are (key, actor, revision), the newest first."""

    space: str
    name: str
    is_list: bool
    seen: int
    now: int
    changes: tuple[tuple[str, str, int], ...] = ()


def extended(seen: ReadSet, space: str, head: int, keys: Mapping[str, Sight], lists: Mapping[Listed, Sight]) -> ReadSet:
    """Returns the set with what was read at a head. Of what was read twice the earlier reading counts."""
    part = seen.get(space, Part(head, {}, {}))
    twice = {
        name: Sight(part.lists[name].at, first(part.lists[name].ends_ms, sight.ends_ms))
        for name, sight in lists.items()
        if name in part.lists
    }
    now = Part(min(part.since, head), {**keys, **part.keys}, {**part.lists, **lists, **twice})
    return {**seen, space: now}


def guarded(seen: ReadSet, guards: Iterable[Guard]) -> ReadSet:
    """Returns what of a read set is guarded: everything, if no guard is named."""
    guards = tuple(guards) or (Guard(""),)
    parts = {
        space: Part(
            part.since,
            {k: v for k, v in part.keys.items() if any(g.covers(space, k, is_list=False) for g in guards)},
            {k: v for k, v in part.lists.items() if any(g.covers(space, k[0], is_list=True) for g in guards)},
        )
        for space, part in seen.items()
    }
    return {space: part for space, part in parts.items() if part.keys or part.lists}


def advanced(part: Part, before: Part, now: Part, written: Iterable[str]) -> Part:
    """Returns what was seen after its reader's own commit: what was still as it had been seen is so again.

    Args:
        part: what was seen.
        before: the same as it was when the commit was made.
        now: the same as it is after it.
        written: the keys that were written.
    """
    mine = set(written)
    keys = {
        key: now.keys[key] if key in mine and sight.at == before.keys[key].at else sight
        for key, sight in part.keys.items()
    }
    lists = {}
    for name, sight in part.lists.items():
        inside = [key for key in mine if key.startswith(name[0])]
        if inside and part.knows(name, before.lists[name].at):
            sight = Sight(now.lists[name].at, first(sight.ends_ms, *(now.keys[key].ends_ms for key in inside)))
        lists[name] = sight
    return Part(part.since, keys, lists)


def first(*ends_ms: int | None) -> int | None:
    """Returns the first of some ends of life, None if there is none."""
    return min((end for end in ends_ms if end is not None), default=None)
