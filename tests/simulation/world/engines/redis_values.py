"""What a key of the simulated Redis can hold: sorted sets and streams; a hash is a plain dictionary."""

from __future__ import annotations

import bisect
import copy
from collections.abc import Collection, Iterable
from typing import TypeVar

EntryId = tuple[int, int]
"""Of an entry of a stream: milliseconds and a count, as Redis calls the two parts."""

MOST = (1 << 64) - 1


class Refused(Exception):
    """What Redis answers instead of executing a command; the first word is the kind."""


WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NO_NUMBER = "ERR value is not an integer or out of range"
NO_FLOAT = "ERR min or max is not a float"
SYNTAX = "ERR syntax error"


class SortedSet:
    """Members with scores, in the order of both.

    Attributes:
        scores: by member.
    """

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self._order: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self.scores)

    def copy(self) -> SortedSet:
        made = SortedSet()
        made.scores, made._order = dict(self.scores), list(self._order)
        return made

    def add(self, member: bytes, score: float) -> bool:
        """Returns whether the member is new."""
        before = self.scores.get(member)
        if before is not None:
            if before == score:
                return False
            del self._order[bisect.bisect_left(self._order, (before, member))]
        self.scores[member] = score
        bisect.insort(self._order, (score, member))
        return before is None

    def remove(self, member: bytes) -> bool:
        score = self.scores.pop(member, None)
        if score is None:
            return False
        del self._order[bisect.bisect_left(self._order, (score, member))]
        return True

    def by_rank(self, start: int, stop: int) -> list[tuple[float, bytes]]:
        """Both ends included, negative ones counted from the end."""
        size = len(self._order)
        first = max(start + size, 0) if start < 0 else start
        last = stop + size if stop < 0 else stop
        return self._order[first : last + 1]

    def by_score(self, low: bytes, high: bytes) -> list[tuple[float, bytes]]:
        return self._order[self._score_index(low, lower=True) : self._score_index(high, lower=False)]

    def _score_index(self, bound: bytes, *, lower: bool) -> int:
        excluded = bound[:1] == b"("
        try:
            score = float(bound[1:] if excluded else bound)
        except ValueError:
            raise Refused(NO_FLOAT) from None
        place = bisect.bisect_left if lower != excluded else bisect.bisect_right
        return place(self._order, score, key=lambda entry: entry[0])

    def by_text(self, low: bytes, high: bytes) -> list[bytes]:
        """Members between two bounds, of a set all of whose scores are the same: of another one Redis promises nothing.

        Raises:
            Refused: not a bound.
        """
        if not self._order:
            return []
        score = self._order[0][0]
        assert self._order[-1][0] == score, "the order of text means nothing among different scores"
        first = self._text_index(score, low, lower=True)
        last = self._text_index(score, high, lower=False)
        return [member for _, member in self._order[first:last]]

    def _text_index(self, score: float, bound: bytes, *, lower: bool) -> int:
        match bound[:1], bound[1:]:
            case b"-", b"":
                return 0
            case b"+", b"":
                return len(self._order)
            case b"[", text:
                place = bisect.bisect_left if lower else bisect.bisect_right
            case b"(", text:
                place = bisect.bisect_right if lower else bisect.bisect_left
            case _:
                raise Refused("ERR min or max not valid string range item")
        return place(self._order, (score, text))


class Pending:
    """An entry that somebody has taken and not acknowledged."""

    __slots__ = ("at_ms", "consumer", "count")

    def __init__(self, consumer: bytes, at_ms: int, count: int) -> None:
        self.consumer = consumer
        self.at_ms = at_ms
        self.count = count


class Group:
    """Consumers that share a stream.

    Attributes:
        last: the newest entry that was given to any of them.
        consumers: when each was last seen.
        pending: what they have taken, by entry.
    """

    def __init__(self, last: EntryId) -> None:
        self.last = last
        self.consumers: dict[bytes, int] = {}
        self.pending: dict[EntryId, Pending] = {}

    def between(self, low: EntryId, high: EntryId) -> list[EntryId]:
        return [entry for entry in sorted(self.pending) if low <= entry <= high]


class Stream:
    """Entries in the order of their ids.

    Attributes:
        last: the highest id there ever was.
        entries: fields and values of each, by id.
        groups: by name.
    """

    def __init__(self) -> None:
        self.last: EntryId = (0, 0)
        self.entries: dict[EntryId, list[bytes]] = {}
        self.groups: dict[bytes, Group] = {}
        self._order: list[EntryId] = []

    def __len__(self) -> int:
        return len(self.entries)

    def copy(self) -> Stream:
        return copy.deepcopy(self)

    def between(self, low: EntryId, high: EntryId, count: int | None = None) -> list[EntryId]:
        first, end = bisect.bisect_left(self._order, low), bisect.bisect_right(self._order, high)
        return self._order[first : end if count is None else min(end, first + count)]

    def add(self, entry: EntryId, fields: list[bytes]) -> None:
        """Adds an entry after all others."""
        self.entries[entry] = fields
        self._order.append(entry)
        self.last = entry

    def remove(self, gone: Collection[EntryId]) -> None:
        for entry in gone:
            del self.entries[entry]
        self._order = list(self.entries)


Value = dict[bytes, bytes] | SortedSet | Stream

V = TypeVar("V", dict[bytes, bytes], SortedSet, Stream)


class Keys:
    """The keys of one Redis and what they hold. A value that has become empty goes with its key, streams excepted."""

    def __init__(self) -> None:
        self._values: dict[bytes, Value] = {}
        self._ends_ms: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._values)

    def names(self) -> list[bytes]:
        return list(self._values)

    def lapse(self, now_ms: int) -> None:
        """Removes what has expired."""
        if self._ends_ms:
            for key in [key for key, ends_ms in self._ends_ms.items() if ends_ms <= now_ms]:
                self.remove(key)

    def expire(self, key: bytes, ends_ms: int) -> bool:
        if key in self._values:
            self._ends_ms[key] = ends_ms
            return True
        return False

    def any(self, key: bytes) -> Value | None:
        return self._values.get(key)

    def hash(self, key: bytes) -> dict[bytes, bytes]:
        """Returns a hash to read; an empty one where there is none."""
        return self._typed(key, dict) or {}

    def sorted_set(self, key: bytes) -> SortedSet:
        """Returns a sorted set to read; an empty one where there is none."""
        return self._typed(key, SortedSet) or SortedSet()

    def stream(self, key: bytes) -> Stream | None:
        return self._typed(key, Stream)

    def to_change(self, key: bytes, kind: type[V]) -> V:
        """Returns a value to change, made if there is none; :meth:`settle` is to follow."""
        found = self._typed(key, kind)
        if found is None:
            found = self._values[key] = kind()
        return found

    def settle(self, key: bytes) -> None:
        found = self._values.get(key)
        if found is not None and not found and not isinstance(found, Stream):
            self.remove(key)

    def put(self, key: bytes, value: Value) -> None:
        self.remove(key)
        self._values[key] = value

    def remove(self, key: bytes) -> bool:
        self._ends_ms.pop(key, None)
        return self._values.pop(key, None) is not None

    def clear(self) -> None:
        self._values.clear()
        self._ends_ms.clear()

    def _typed(self, key: bytes, kind: type[V]) -> V | None:
        found = self._values.get(key)
        if found is None or isinstance(found, kind):
            return found
        raise Refused(WRONG_TYPE)


def entry_id(text: bytes, missing: int = 0) -> EntryId:
    """Returns the id that a text names; ``missing`` stands for a second part that is left out.

    Raises:
        Refused: it names none.
    """
    first, dash, second = text.partition(b"-")
    try:
        return int(first), int(second) if dash else missing
    except ValueError:
        raise Refused("ERR Invalid stream ID specified as stream command argument") from None


def entry_bounds(low: bytes, high: bytes) -> tuple[EntryId, EntryId]:
    """Returns the lowest and the highest id of a range, both included."""
    return _lowest(low), _highest(high)


def _lowest(text: bytes) -> EntryId:
    if text == b"-":
        return 0, 0
    if text[:1] == b"(":
        ms, count = entry_id(text[1:])
        return (ms, count + 1) if count < MOST else (ms + 1, 0)
    return entry_id(text)


def _highest(text: bytes) -> EntryId:
    if text == b"+":
        return MOST, MOST
    if text[:1] == b"(":
        ms, count = entry_id(text[1:], MOST)
        return (ms, count - 1) if count else (ms - 1, MOST)
    return entry_id(text, MOST)


def told(entry: EntryId) -> bytes:
    return b"%d-%d" % entry


def whole_number(text: bytes) -> int:
    """Returns a number.

    Raises:
        Refused: it is none.
    """
    try:
        return int(text)
    except ValueError:
        raise Refused(NO_NUMBER) from None


def real_number(text: bytes) -> float:
    """Returns a score.

    Raises:
        Refused: it is none.
    """
    try:
        return float(text)
    except ValueError:
        raise Refused("ERR value is not a valid float") from None


def pairs(parts: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Returns parts two by two.

    Raises:
        Refused: one is left over.
    """
    listed = list(parts)
    if not listed or len(listed) % 2:
        raise Refused("ERR wrong number of arguments")
    return list(zip(listed[::2], listed[1::2], strict=True))
