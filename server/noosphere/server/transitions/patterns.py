"""Which calls of tools recur, in the same order, across an owner's sessions. Pure: equal input, equal answer.

A *step* is one tool with the names of its arguments, as a number; the same step several times in a row is one. A
*pattern* is two or more steps that follow each other and have all succeeded: whatever has not is a gap, and no pattern
reaches over a gap. A pattern *recurs* once it was seen in 3 sessions, places inside a longer pattern that recurs not
counted: so the longest stands for its parts, unless a part recurs by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

SESSIONS_MIN = 3
"""A pattern that was seen in so many sessions recurs."""

STEPS_MAX = 16
"""Of one turn the newest steps are remembered, so many; no pattern is longer."""

RUNS_MAX = 48
"""So many turns of an owner are remembered; one more takes the oldest one's place."""

RUNS_PER_SESSION_MAX = 4
"""Of these, the turns of one session, so that a long one leaves room for others."""

GAP = 0
"""Stands for calls that have not succeeded."""

Pattern = tuple[int, ...]


class CallStep(NamedTuple):
    """A call, as far as patterns go.

    Attributes:
        call_id: its id in its session.
        step: what it does, as a number above 0; :data:`GAP` if it has not succeeded.
    """

    call_id: str
    step: int


class Run(msgspec.Struct, array_like=True, frozen=True):
    """The steps of one turn. ``steps``, ``call_ids`` and ``times`` go together.

    Attributes:
        session: which session.
        turn: which turn of it.
        steps: the steps in the order of their calls, gaps included.
        call_ids: the first call of each step; empty for a gap.
        times: how many calls in a row each step is.
    """

    session: str
    turn: int
    steps: Pattern
    call_ids: tuple[str, ...]
    times: tuple[int, ...]

    @property
    def has_patterns(self) -> bool:
        """Whether any two steps follow each other."""
        return any(GAP not in pair for pair in pairwise(self.steps))


class Place(NamedTuple):
    """Where a pattern was seen: which run, and at which of its steps it begins."""

    run: int
    start: int


def run_of(session: str, turn: int, calls: Iterable[CallStep]) -> Run:
    """Returns the steps of a turn's calls, which are given in the order in which they were started."""
    merged: list[tuple[int, str, int]] = []
    for call in calls:
        if merged and merged[-1][0] == call.step:
            merged[-1] = (call.step, merged[-1][1], merged[-1][2] + 1)
        else:
            merged.append((call.step, call.call_id if call.step != GAP else "", 1))
    newest = merged[-STEPS_MAX:]
    return Run(session, turn, tuple(m[0] for m in newest), tuple(m[1] for m in newest), tuple(m[2] for m in newest))


def with_run(runs: tuple[Run, ...], run: Run) -> tuple[Run, ...]:
    """Returns the runs with one more; it takes the place of what was known of its turn, unless that was more.

    What a session has done before, step by step, says nothing new and takes no place.

    Args:
        runs: the oldest first.
        run: with patterns.
    """
    known = next((r for r in runs if (r.session, r.turn) == (run.session, run.turn)), None)
    if known is not None and len(known.steps) >= len(run.steps):
        return runs
    others = [r for r in runs if r is not known]
    own = [r for r in others if r.session == run.session]
    if any(r.steps == run.steps for r in own):
        return tuple(others)
    if len(own) >= RUNS_PER_SESSION_MAX:
        others.remove(own[0])
    return (*others, run)[-RUNS_MAX:]


def recurring(runs: Sequence[Run], known: Collection[Pattern] = frozenset()) -> dict[Pattern, tuple[Place, ...]]:
    """Returns the patterns that recur and are not known, with the places that count.

    Args:
        runs: what was seen, at most :data:`RUNS_MAX`.
        known: patterns that were found before; they stand for their parts wherever they are seen.

    Returns:
        Patterns, the longest first, those of equal length by their first place; places by ascending run and start.
    """
    # What was done in the same way in many turns is looked through once.
    members: dict[Pattern, list[int]] = {}
    for n, run in enumerate(runs):
        members.setdefault(run.steps, []).append(n)
    ways = [_Way(steps, frozenset(runs[n].session for n in where)) for steps, where in members.items()]
    levels, told = _levels(ways), _places_of(ways, known)
    ends = [[0] * len(way.steps) for way in ways]  # where the longest ends that begins at a step or before it
    found: dict[Pattern, tuple[Place, ...]] = {}
    for length in range(max((*levels, *told), default=0), 1, -1):
        standing = list(told.get(length, ()))
        for pattern, places in levels.get(length, {}).items():
            free = [place for place in places if ends[place.run][place.start] < place.start + length]
            if _sessions(ways, free) >= SESSIONS_MIN and pattern not in known:
                expanded = (Place(n, start) for way, start in free for n in members[ways[way].steps])
                found[pattern] = tuple(sorted(expanded))
                standing += places
        # Only now: patterns of one length are no parts of each other.
        for place in standing:
            _extend(ends[place.run], place.start, place.start + length)
    return dict(sorted(found.items(), key=lambda item: (-len(item[0]), item[1])))


class _Way(NamedTuple):
    """Steps in the order in which they were done, and in which sessions; places say which of these."""

    steps: Pattern
    sessions: frozenset[str]


def _levels(ways: Sequence[_Way]) -> dict[int, Mapping[Pattern, list[Place]]]:
    """Returns by length what was seen in enough sessions, with all its places.

    A longer pattern is looked for only where both its parts, without the first and without the last step, were found.
    """
    levels: dict[int, Mapping[Pattern, list[Place]]] = {}
    length, candidates = 2, list(_pairs(ways))
    while candidates:
        seen: dict[Pattern, list[Place]] = {}
        for place in candidates:
            seen.setdefault(ways[place.run].steps[place.start : place.start + length], []).append(place)
        levels[length] = {
            pattern: places for pattern, places in seen.items() if _sessions(ways, places) >= SESSIONS_MIN
        }
        kept = {place for places in levels[length].values() for place in places}
        candidates = sorted(place for place in kept if Place(place.run, place.start + 1) in kept)
        length += 1
    return levels


def _places_of(ways: Sequence[_Way], known: Collection[Pattern]) -> dict[int, list[Place]]:
    """Returns by length where known patterns were seen."""
    beginnings: dict[Pattern, list[Pattern]] = {}
    for pattern in known:
        beginnings.setdefault(pattern[:2], []).append(pattern)
    places: dict[int, list[Place]] = {}
    for place in _pairs(ways):
        steps = ways[place.run].steps[place.start :]
        for pattern in beginnings.get(steps[:2], ()):
            if steps[: len(pattern)] == pattern:
                places.setdefault(len(pattern), []).append(place)
    return places


def _pairs(ways: Sequence[_Way]) -> Iterator[Place]:
    """Yields where two steps follow each other."""
    for n, way in enumerate(ways):
        for start, pair in enumerate(pairwise(way.steps)):
            if GAP not in pair:
                yield Place(n, start)


def _sessions(ways: Sequence[_Way], places: Iterable[Place]) -> int:
    return len(frozenset[str]().union(*(ways[place.run].sessions for place in places)))


def _extend(ends: list[int], start: int, end: int) -> None:
    for n in range(start, len(ends)):
        if ends[n] >= end:
            break
        ends[n] = end
