"""Commands of the simulated Redis that read or change keys, other than those of streams.

Only what the driver, its scripts and an operator's tools use, with the options that they use: anything else is refused
as an unknown command or a syntax error, so that a driver that begins to use more is not believed by accident.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.simulation.world.engines.redis_values import (
    SYNTAX,
    Keys,
    Refused,
    SortedSet,
    Stream,
    pairs,
    real_number,
    whole_number,
)

Reply = Any
"""bytes for a string, int, None for nil, a list of such, :class:`Status` or :class:`Fault`."""


class Status(NamedTuple):
    """A reply that is no value."""

    text: bytes


OK = Status(b"OK")


class Scope(NamedTuple):
    """What a command is executed in; ``now_ms`` is the clock of whoever got it first."""

    keys: Keys
    now_ms: int


class Command(NamedTuple):
    """How a command is executed, and what it may do.

    Attributes:
        run: executes it, given its arguments.
        least: fewest arguments.
        writes: whether it may change keys, and so goes to replicas and files.
        grows: whether an exhausted Redis refuses it.
    """

    run: Callable[[Scope, Sequence[bytes]], Reply]
    least: int
    writes: bool = False
    grows: bool = False


def _hset(scope: Scope, args: Sequence[bytes]) -> Reply:
    fields = pairs(args[1:])
    found = scope.keys.to_change(args[0], dict)
    before = len(found)
    found.update(fields)
    return len(found) - before


def _hsetnx(scope: Scope, args: Sequence[bytes]) -> Reply:
    found = scope.keys.to_change(args[0], dict)
    if args[1] in found:
        return 0
    found[args[1]] = args[2]
    return 1


def _hdel(scope: Scope, args: Sequence[bytes]) -> Reply:
    found = scope.keys.hash(args[0])
    gone = sum(found.pop(field, None) is not None for field in args[1:])
    scope.keys.settle(args[0])
    return gone


def _hincrby(scope: Scope, args: Sequence[bytes]) -> Reply:
    found = scope.keys.to_change(args[0], dict)
    number = whole_number(found.get(args[1], b"0")) + whole_number(args[2])
    found[args[1]] = b"%d" % number
    return number


def _hgetall(scope: Scope, args: Sequence[bytes]) -> Reply:
    return [part for pair in scope.keys.hash(args[0]).items() for part in pair]


def _hscan(scope: Scope, args: Sequence[bytes]) -> Reply:
    # Redis may tell of all at once, as it does of small hashes.
    return [b"0", _hgetall(scope, args)]


def _zadd(scope: Scope, args: Sequence[bytes]) -> Reply:
    members = [(member, real_number(score)) for score, member in pairs(args[1:])]
    found = scope.keys.to_change(args[0], SortedSet)
    return sum(found.add(member, score) for member, score in members)


def _zrem(scope: Scope, args: Sequence[bytes]) -> Reply:
    found = scope.keys.sorted_set(args[0])
    gone = sum(found.remove(member) for member in args[1:])
    scope.keys.settle(args[0])
    return gone


def _zremrangebylex(scope: Scope, args: Sequence[bytes]) -> Reply:
    found = scope.keys.sorted_set(args[0])
    members = found.by_text(args[1], args[2])
    for member in members:
        found.remove(member)
    scope.keys.settle(args[0])
    return len(members)


def _zrangebylex(scope: Scope, args: Sequence[bytes]) -> Reply:
    return _limited(scope.keys.sorted_set(args[0]).by_text(args[1], args[2]), args[3:])


def _zrevrangebylex(scope: Scope, args: Sequence[bytes]) -> Reply:
    return _limited(scope.keys.sorted_set(args[0]).by_text(args[2], args[1])[::-1], args[3:])


def _zrangebyscore(scope: Scope, args: Sequence[bytes]) -> Reply:
    found = scope.keys.sorted_set(args[0]).by_score(args[1], args[2])
    return _limited([member for _, member in found], args[3:])


def _zrange(scope: Scope, args: Sequence[bytes]) -> Reply:
    found = scope.keys.sorted_set(args[0]).by_rank(whole_number(args[1]), whole_number(args[2]))
    match [option.upper() for option in args[3:]]:
        case []:
            return [member for _, member in found]
        case [b"WITHSCORES"]:
            return [part for score, member in found for part in (member, _score(score))]
        case _:
            raise Refused(SYNTAX)


def _zmscore(scope: Scope, args: Sequence[bytes]) -> Reply:
    scores = scope.keys.sorted_set(args[0]).scores
    return [_score(scores[member]) if member in scores else None for member in args[1:]]


def _score(score: float) -> bytes:
    return b"%d" % score if score.is_integer() and abs(score) < 1e17 else repr(score).encode()


def _limited(found: list[bytes], options: Sequence[bytes]) -> list[bytes]:
    match options:
        case []:
            return found
        case [word, offset, count] if word.upper() == b"LIMIT":
            first, most = whole_number(offset), whole_number(count)
            return found[first:] if most < 0 else found[first : first + most]
        case _:
            raise Refused(SYNTAX)


def _unlink(scope: Scope, args: Sequence[bytes]) -> Reply:
    return sum(scope.keys.remove(key) for key in args)


def _copy(scope: Scope, args: Sequence[bytes]) -> Reply:
    if [option.upper() for option in args[2:]] not in ([], [b"REPLACE"]):
        raise Refused(SYNTAX)
    found = scope.keys.any(args[0])
    if found is None or (len(args) == 2 and scope.keys.any(args[1]) is not None):
        return 0
    scope.keys.put(args[1], found.copy())
    return 1


def _expire(scope: Scope, args: Sequence[bytes]) -> Reply:
    return int(scope.keys.expire(args[0], scope.now_ms + 1_000 * whole_number(args[1])))


def _exists(scope: Scope, args: Sequence[bytes]) -> Reply:
    return sum(scope.keys.any(key) is not None for key in args)


def _type(scope: Scope, args: Sequence[bytes]) -> Reply:
    return Status(_kind(scope.keys, args[0]))


def _kind(keys: Keys, key: bytes) -> bytes:
    match keys.any(key):
        case None:
            return b"none"
        case SortedSet():
            return b"zset"
        case Stream():
            return b"stream"
        case _:
            return b"hash"


def _scan(scope: Scope, args: Sequence[bytes]) -> Reply:
    found = scope.keys.names()
    for word, value in pairs(args[1:]) if len(args) > 1 else ():
        match word.upper():
            case b"MATCH":
                # Braces are no wildcards, and neither side has brackets.
                found = [key for key in found if fnmatch.fnmatchcase(key.decode("latin-1"), value.decode("latin-1"))]
            case b"TYPE":
                found = [key for key in found if _kind(scope.keys, key) == value]
            case b"COUNT":
                pass
            case _:
                raise Refused(SYNTAX)
    return [b"0", found]


def _flushall(scope: Scope, args: Sequence[bytes]) -> Reply:
    scope.keys.clear()
    return OK


COMMANDS: dict[bytes, Command] = {
    b"HGET": Command(lambda s, a: s.keys.hash(a[0]).get(a[1]), 2),
    b"HMGET": Command(lambda s, a: [*map(s.keys.hash(a[0]).get, a[1:])], 2),
    b"HGETALL": Command(_hgetall, 1),
    b"HEXISTS": Command(lambda s, a: int(a[1] in s.keys.hash(a[0])), 2),
    b"HLEN": Command(lambda s, a: len(s.keys.hash(a[0])), 1),
    b"HSTRLEN": Command(lambda s, a: len(s.keys.hash(a[0]).get(a[1], b"")), 2),
    b"HSCAN": Command(_hscan, 2),
    b"HSET": Command(_hset, 3, writes=True, grows=True),
    b"HSETNX": Command(_hsetnx, 3, writes=True, grows=True),
    b"HDEL": Command(_hdel, 2, writes=True),
    b"HINCRBY": Command(_hincrby, 3, writes=True, grows=True),
    b"ZADD": Command(_zadd, 3, writes=True, grows=True),
    b"ZREM": Command(_zrem, 2, writes=True),
    b"ZREMRANGEBYLEX": Command(_zremrangebylex, 3, writes=True),
    b"ZCARD": Command(lambda s, a: len(s.keys.sorted_set(a[0])), 1),
    b"ZCOUNT": Command(lambda s, a: len(s.keys.sorted_set(a[0]).by_score(a[1], a[2])), 3),
    b"ZLEXCOUNT": Command(lambda s, a: len(s.keys.sorted_set(a[0]).by_text(a[1], a[2])), 3),
    b"ZRANGE": Command(_zrange, 3),
    b"ZRANGEBYLEX": Command(_zrangebylex, 3),
    b"ZREVRANGEBYLEX": Command(_zrevrangebylex, 3),
    b"ZRANGEBYSCORE": Command(_zrangebyscore, 3),
    b"ZMSCORE": Command(_zmscore, 2),
    b"UNLINK": Command(_unlink, 1, writes=True),
    b"DEL": Command(_unlink, 1, writes=True),
    b"COPY": Command(_copy, 2, writes=True, grows=True),
    b"EXPIRE": Command(_expire, 2, writes=True),
    b"EXISTS": Command(_exists, 1),
    b"TYPE": Command(_type, 1),
    b"SCAN": Command(_scan, 1),
    b"DBSIZE": Command(lambda s, a: len(s.keys), 0),
    b"FLUSHALL": Command(_flushall, 0, writes=True),
}
