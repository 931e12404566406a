"""Commands of the simulated Redis for streams and those who share them, with the options that the scripts use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tests.simulation.world.engines.redis_commands import COMMANDS, OK, Command, Reply, Scope
from tests.simulation.world.engines.redis_values import (
    MOST,
    SYNTAX,
    EntryId,
    Group,
    Pending,
    Refused,
    Stream,
    entry_bounds,
    entry_id,
    told,
    whole_number,
)


def _xadd(scope: Scope, args: Sequence[bytes]) -> Reply:
    entry, fields = entry_id(args[1]), list(args[2:])
    if len(fields) % 2:
        raise Refused("ERR wrong number of arguments for 'xadd' command")
    found = scope.keys.to_change(args[0], Stream)
    if entry <= found.last:
        raise Refused("ERR The ID specified in XADD is equal or smaller than the target stream top item")
    found.add(entry, fields)
    return told(entry)


def _xtrim(scope: Scope, args: Sequence[bytes]) -> Reply:
    if args[1].upper() != b"MINID" or len(args) != 3:
        raise Refused(SYNTAX)
    kept = entry_id(args[2])
    return _delete(scope.keys.stream(args[0]), lambda entry: entry < kept)


def _xdel(scope: Scope, args: Sequence[bytes]) -> Reply:
    gone = set(map(entry_id, args[1:]))
    return _delete(scope.keys.stream(args[0]), gone.__contains__)


def _delete(found: Stream | None, goes: Callable[[EntryId], bool]) -> int:
    if found is None:
        return 0
    gone = [entry for entry in found.entries if goes(entry)]
    if gone:
        found.remove(gone)
    return len(gone)


def _xlen(scope: Scope, args: Sequence[bytes]) -> Reply:
    found = scope.keys.stream(args[0])
    return 0 if found is None else len(found)


def _xrange(scope: Scope, args: Sequence[bytes]) -> Reply:
    found = scope.keys.stream(args[0])
    low, high = entry_bounds(args[1], args[2])
    match args[3:]:
        case []:
            count = None
        case [word, most] if word.upper() == b"COUNT":
            count = whole_number(most)
        case _:
            raise Refused(SYNTAX)
    return [] if found is None else _entries(found, found.between(low, high, count))


def _entries(found: Stream, entries: Sequence[EntryId]) -> list[Reply]:
    return [[told(entry), list(found.entries[entry])] for entry in entries]


def _xgroup(scope: Scope, args: Sequence[bytes]) -> Reply:
    match args[0].upper(), args[1:]:
        case b"CREATE", [key, name, since, *options]:
            if scope.keys.stream(key) is None and [option.upper() for option in options] != [b"MKSTREAM"]:
                raise Refused("ERR The XGROUP subcommand requires the key to exist")
            found = scope.keys.to_change(key, Stream)
            if name in found.groups:
                raise Refused("BUSYGROUP Consumer Group name already exists")
            found.groups[name] = Group(found.last if since == b"$" else entry_id(since))
            return OK
        case b"DELCONSUMER", [key, name, consumer]:
            group = _group(scope, key, name)
            gone = [entry for entry, taken in group.pending.items() if taken.consumer == consumer]
            for entry in gone:
                del group.pending[entry]
            group.consumers.pop(consumer, None)
            return len(gone)
        case _:
            raise Refused(SYNTAX)


def _group(scope: Scope, key: bytes, name: bytes) -> Group:
    found = scope.keys.stream(key)
    group = found.groups.get(name) if found is not None else None
    if group is None:
        raise Refused(f"NOGROUP No such key '{key.decode()}' or consumer group '{name.decode()}'")
    return group


def _xinfo(scope: Scope, args: Sequence[bytes]) -> Reply:
    match args[0].upper(), args[1:]:
        case b"CONSUMERS", [key, name]:
            group = _group(scope, key, name)
            holds = Counter(taken.consumer for taken in group.pending.values())
            return [
                [b"name", consumer, b"pending", holds[consumer], b"idle", scope.now_ms - seen_ms, b"inactive", -1]
                for consumer, seen_ms in group.consumers.items()
            ]
        case b"GROUPS", [key]:
            found = scope.keys.stream(key)
            if found is None:
                raise Refused("ERR no such key")
            return [
                [
                    *(b"name", name, b"consumers", len(group.consumers), b"pending", len(group.pending)),
                    *(b"last-delivered-id", told(group.last), b"entries-read", None, b"lag", None),
                ]
                for name, group in found.groups.items()
            ]
        case _:
            raise Refused(SYNTAX)


def _xpending(scope: Scope, args: Sequence[bytes]) -> Reply:
    group = _group(scope, args[0], args[1])
    if len(args) == 2:
        entries = sorted(group.pending)
        holds = Counter(group.pending[entry].consumer for entry in entries)
        # Redis tells of consumers in the order of their names.
        counted = [[consumer, b"%d" % holds[consumer]] for consumer in sorted(holds)]
        return [len(entries), told(entries[0]), told(entries[-1]), counted] if entries else [0, None, None, None]
    if len(args) not in (5, 6):
        raise Refused(SYNTAX)
    low, high = entry_bounds(args[2], args[3])
    found = [
        [told(entry), taken.consumer, scope.now_ms - taken.at_ms, taken.count]
        for entry, taken in ((entry, group.pending[entry]) for entry in group.between(low, high))
        if len(args) == 5 or taken.consumer == args[5]
    ]
    return found[: whole_number(args[4])]


def _xack(scope: Scope, args: Sequence[bytes]) -> Reply:
    found = scope.keys.stream(args[0])
    group = found.groups.get(args[1]) if found is not None else None
    if group is None:
        return 0
    return sum(group.pending.pop(entry_id(text), None) is not None for text in args[2:])


def _xclaim(scope: Scope, args: Sequence[bytes]) -> Reply:
    match args:
        case [key, name, consumer, b"0", text, word, count, last] if (word.upper(), last.upper()) == (
            b"RETRYCOUNT",
            b"JUSTID",
        ):
            pass
        case _:
            raise Refused(SYNTAX)
    group, found, entry = _group(scope, key, name), scope.keys.stream(key), entry_id(text)
    assert found is not None
    group.consumers.setdefault(consumer, scope.now_ms)
    if entry not in group.pending:
        return []
    if entry not in found.entries:
        # Deleted meanwhile: nobody holds it any more.
        del group.pending[entry]
        return []
    group.pending[entry] = Pending(consumer, scope.now_ms, whole_number(count))
    group.consumers[consumer] = scope.now_ms
    return [told(entry)]


def _xreadgroup(scope: Scope, args: Sequence[bytes]) -> Reply:
    match args:
        case [_, name, consumer, _, most, _, key, b">"] if [args[n].upper() for n in (0, 3, 5)] == [
            b"GROUP",
            b"COUNT",
            b"STREAMS",
        ]:
            pass
        case _:
            raise Refused(SYNTAX)
    group, found = _group(scope, key, name), scope.keys.stream(key)
    assert found is not None
    group.consumers[consumer] = scope.now_ms
    ms, number = group.last
    entries = found.between((ms, number + 1), (MOST, MOST), whole_number(most))
    for entry in entries:
        group.pending[entry] = Pending(consumer, scope.now_ms, 1)
        group.last = entry
    return [[key, _entries(found, entries)]] if entries else None


COMMANDS |= {
    b"XADD": Command(_xadd, 4, writes=True, grows=True),
    b"XTRIM": Command(_xtrim, 3, writes=True),
    b"XDEL": Command(_xdel, 2, writes=True),
    b"XLEN": Command(_xlen, 1),
    b"XRANGE": Command(_xrange, 3),
    b"XGROUP": Command(_xgroup, 3, writes=True, grows=True),
    b"XINFO": Command(_xinfo, 2),
    b"XPENDING": Command(_xpending, 2),
    b"XACK": Command(_xack, 3, writes=True),
    b"XCLAIM": Command(_xclaim, 5, writes=True),
    b"XREADGROUP": Command(_xreadgroup, 7, writes=True),
}
