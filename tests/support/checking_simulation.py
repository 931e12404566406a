"""A small server in memory and clients that call it at random, to generate histories for the checkers.

Calls overlap: each takes effect at one random moment between its start and its return. The server
follows the rules of the data model; each of its `faults` breaks one of them.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from noosphere.server.checking import (
    Call,
    Compare,
    Context,
    History,
    Op,
    Outcome,
    Reply,
    Result,
    Seen,
    Write,
    WriteKind,
    new_header,
)

NAMESPACE = "shared/simulated"
MS = 1_000_000
EPOCH = 3
PLAIN = ("a", "b", "c")
TASKS = ("todo/1", "todo/2")

FAULTS = (
    "lost update",
    "stale read",
    "stale head",
    "torn transaction",
    "resurrected delete",
    "two holders",
    "double completion",
    "executed twice",
    "forgotten merge",
    "ignored expected version",
)
FAILOVER_FAULTS = ("resurrected loss", "unsignalled loss", "more lost than told")
"""What only a server can do wrong that has failed over."""


class Refused(Exception):
    def __init__(self, reason: str, key: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.key = key


@dataclass(frozen=True)
class Entry:
    """One key as the server stores it."""

    stored: int = 0
    dots: dict[int, str | None] = field(default_factory=dict)
    kind: str = ""
    content: Any = None
    fence: int = 0
    holder: str = ""
    expires_ms: int = 0
    done: bool = False

    @property
    def live(self) -> bool:
        return any(value is not None for value in self.dots.values())

    def seen(self, key: str, at: int = 0) -> Seen:
        if not self.live:
            return Seen(key)
        values = tuple(value for value in self.dots.values() if value is not None)
        dots = tuple(dot for dot, value in self.dots.items() if value is not None)
        content = sorted(self.content) if self.kind == "set" else self.content
        return Seen(
            key,
            self.stored,
            values=() if self.kind else values,
            dots=() if dots == (self.stored,) else dots,
            kind=self.kind,
            content=content,
            fence=self.fence,
            done=self.done,
            at=at,
        )


class Server:
    """The rules, once more, and ways to break them."""

    def __init__(self, chance: random.Random, faults: frozenset[str]) -> None:
        self.epoch = EPOCH
        self.head = EPOCH << 40
        self.cuts: list[tuple[int, int]] = []
        self.chance = chance
        self.faults = faults
        self.entries: dict[str, Entry] = {}
        self.past: list[tuple[int, dict[str, Entry]]] = [(self.head, {})]

    def fail_over(self) -> None:
        """Goes back by a few commits, in a new epoch."""
        cut, entries = self.past[-self.chance.randint(1, min(4, len(self.past)))]
        lost = self.entries
        self.epoch += 1
        self.cuts.append((self.epoch, cut))
        if self.past[0][0] < cut and self.breaks("more lost than told"):
            entries = self.past[0][1]
        if lost != entries and self.breaks("resurrected loss"):
            key = next(key for key in lost if lost[key] != entries.get(key))
            entries = {**entries, key: lost[key]}
        self.head, self.entries = cut, entries
        self.past = [(cut, entries)]

    def _refuse_lost(self, call: Call) -> None:
        """Whoever presents what was lost is told."""
        presented = {call.fence, *(compare.expected for compare in call.compares)}
        for write in call.writes:
            presented |= {write.expected or 0, *((write.context.prefix,) if write.context is not None else ())}
        lost = any(cut < revision <= epoch << 40 for epoch, cut in self.cuts for revision in presented)
        if lost and not self.breaks("unsignalled loss"):
            raise Refused("ACKED_WRITES_LOST")

    def _next(self) -> int:
        return max(self.head, self.epoch << 40) + 1

    def breaks(self, fault: str) -> bool:
        return fault in self.faults and self.chance.random() < 0.4

    def execute(self, call: Call, now_ms: int) -> Reply:
        reply = Reply(call.process, call.call, 0, Outcome.OK)
        try:
            self._refuse_lost(call)
            match call.op:
                case Op.GET | Op.LIST:
                    return self._read(call, reply)
                case Op.CLAIM | Op.RENEW | Op.RELEASE | Op.COMPLETE:
                    return self._claim(call, reply, now_ms)
                case _:
                    return self._write(call, reply)
        except Refused as refused:
            current = (self.entry(refused.key).seen(refused.key),) if refused.key else ()
            return replace(reply, outcome=Outcome.REFUSED, reason=refused.reason, head=self.head, seen=current)

    def entry(self, key: str) -> Entry:
        return self.entries.get(key, Entry())

    def _read(self, call: Call, reply: Reply) -> Reply:
        head, entries = self.head, self.entries
        if len(self.past) > 3 and self.breaks("stale head"):
            head, entries = self.past[-3]
        elif len(self.past) > 3 and self.breaks("stale read"):
            entries = self.past[-3][1]
        keys = call.keys
        if call.op is Op.LIST:
            keys = tuple(key for key in sorted(entries) if key.startswith(call.collection) and entries[key].live)
        seen = tuple(entries.get(key, Entry()).seen(key) for key in keys)
        return replace(reply, head=head, seen=seen, whole=call.op is Op.LIST)

    def _write(self, call: Call, reply: Reply) -> Reply:
        for compare in call.compares:
            entry = self.entry(compare.key)
            if (entry.stored if entry.live else 0) != compare.expected:
                raise Refused("VERSION_MISMATCH")
        revision = self._next()
        fresh = {write.key: self._decided(write, revision) for write in call.writes}
        if all(entry is self.entry(key) for key, entry in fresh.items()):
            return replace(reply, head=self.head, results=(Result(0),) * len(call.writes))
        if len(fresh) > 1 and self.breaks("torn transaction"):
            fresh.popitem()
        self._commit(fresh)
        if call.op is Op.MERGE and self.breaks("executed twice"):
            revision = self._next()
            self._commit({write.key: self._decided(write, revision) for write in call.writes})
        if call.op is Op.MERGE and self.breaks("forgotten merge"):
            self._commit({write.key: replace_entry(self.past[-2][1].get(write.key)) for write in call.writes})
            self.head -= 1
            self.past.pop()
        results = tuple(Result(0 if write.kind is WriteKind.DELETE else revision) for write in call.writes)
        seen: tuple[Seen, ...] = ()
        if call.op is Op.MERGE and call.writes[0].kind is WriteKind.ADD:
            seen = (self.entry(call.writes[0].key).seen(call.writes[0].key, revision),)
        return replace(reply, head=self.head, revision=revision, results=results, seen=seen)

    def _decided(self, write: Write, revision: int) -> Entry:
        before = self.entry(write.key)
        if write.kind not in (WriteKind.PUT, WriteKind.DELETE):
            return self._merged(write, before, revision)
        version = before.stored if before.live else 0
        if write.expected not in (None, version) and not self.breaks("ignored expected version"):
            raise Refused("VERSION_MISMATCH", write.key)
        if write.kind is WriteKind.DELETE and not before.live:
            return before
        if write.context is not None:
            unseen = [dot for dot in before.dots if not write.context.covers(dot)]
            dead = all(before.dots[dot] is None for dot in unseen)
            if unseen and not self.breaks("resurrected delete" if dead else "lost update"):
                raise Refused("CONFLICT", write.key)
        elif write.expected is None and not write.blind and before.live:
            raise Refused("PRECONDITION_REQUIRED", write.key)
        if write.kind is WriteKind.DELETE:
            return Entry(revision, {revision: None})
        if not before.live:
            return Entry(revision, {revision: write.value})
        return replace_entry(before, stored=revision, dots={revision: write.value})

    def _merged(self, write: Write, before: Entry, revision: int) -> Entry:
        content = before.content
        match write.kind:
            case WriteKind.ADD:
                content = (content or 0) + write.merge
            case WriteKind.SET:
                content = (frozenset(content or ()) | set(write.merge["add"])) - set(write.merge["remove"])
            case WriteKind.MAX:
                content = write.merge if content is None else max(content, write.merge)
            case WriteKind.MAP:
                content = {**(content or {}), **write.merge["set"]}
        return Entry(revision, {revision: "merged"}, write.kind, content)

    def _claim(self, call: Call, reply: Reply, now_ms: int) -> Reply:
        revision = self._next()
        if call.op is Op.CLAIM:
            for key in TASKS:
                entry = self.entry(key)
                held = entry.holder and entry.expires_ms > now_ms and not self.breaks("two holders")
                if entry.live and not entry.done and not held:
                    expires_ms = now_ms + call.lease_ms
                    fresh = replace_entry(
                        entry, stored=revision, fence=revision, holder=call.process, expires_ms=expires_ms
                    )
                    self._commit({key: fresh})
                    seen = (fresh.seen(key, revision),)
                    return replace(reply, head=self.head, revision=revision, seen=seen, expires_ms=expires_ms)
            return replace(reply, head=self.head)
        entry = self.entry(call.key)
        lost = entry.fence != call.fence or entry.expires_ms <= now_ms or not entry.live or not entry.holder
        if (lost or entry.done) and not (call.op is Op.COMPLETE and entry.live and self.breaks("double completion")):
            raise Refused("CLAIM_LOST")
        expires_ms = 0
        match call.op:
            case Op.RENEW:
                expires_ms = now_ms + call.lease_ms
                fresh = replace_entry(entry, stored=revision, expires_ms=expires_ms)
            case Op.RELEASE:
                fresh = replace_entry(entry, stored=revision, holder="")
            case _:
                fresh = replace_entry(entry, stored=revision, holder="", done=True)
        self._commit({call.key: fresh})
        seen = (fresh.seen(call.key, revision),)
        return replace(reply, head=self.head, revision=revision, seen=seen, expires_ms=expires_ms)

    def _commit(self, fresh: dict[str, Entry]) -> None:
        self.head = self._next()
        self.entries = {**self.entries, **fresh}
        self.past = [*self.past[-3:], (self.head, self.entries)]


def replace_entry(entry: Entry | None, **changes: Any) -> Entry:
    return Entry(**{**(vars(entry) if entry is not None else {}), **changes})


class View(NamedTuple):
    """What a client knows of a key."""

    version: int
    context: Context
    values: tuple[str, ...]


class Client:
    """Makes random calls, one after the other."""

    def __init__(self, name: str, chance: random.Random, values: itertools.count[int]) -> None:
        self.name = name
        self._chance = chance
        self._values = values
        self._numbers = itertools.count(1)
        self._views: dict[str, View] = {}
        self._claims: dict[str, int] = {}

    def next_call(self, start_ns: int) -> Call:
        kind, arguments = self._choose()
        return Call(self.name, next(self._numbers), kind, NAMESPACE, start_ns, **arguments)

    def learn(self, call: Call, reply: Reply) -> None:
        if reply.reason == "ACKED_WRITES_LOST":
            for key in (*call.written_keys, *(compare.key for compare in call.compares)):
                self._views.pop(key, None)
        for seen in reply.seen:
            prefix = seen.version or seen.at or reply.head
            self._views[seen.key] = View(seen.version, Context(prefix), seen.values)
            if call.op is Op.CLAIM:
                self._claims[seen.key] = seen.fence
        if reply.outcome is Outcome.OK and reply.revision:
            for write in call.writes:
                alive = write.kind is not WriteKind.DELETE
                values = (write.value,) if alive else ()
                self._views[write.key] = View(reply.revision if alive else 0, Context(reply.revision), values)

    def _choose(self) -> tuple[Op, dict[str, Any]]:
        chance = self._chance
        options: list[Callable[[], tuple[Op, dict[str, Any]]]] = [
            lambda: (Op.GET, {"keys": (chance.choice((*PLAIN, *TASKS, "tally", "names", "peak", "index")),)}),
            lambda: (Op.GET, {"keys": ("a", "b")}),
            lambda: (Op.LIST, {"collection": chance.choice(("", "todo/"))}),
            lambda: (Op.PUT, {"writes": (self._put(chance.choice(PLAIN)),)}),
            lambda: (Op.PUT, {"writes": (self._put(chance.choice(PLAIN)),)}),
            lambda: (Op.DELETE, {"writes": (self._delete(chance.choice(PLAIN)),)}),
            self._merge,
            self._transact,
            self._task,
            self._task,
        ]
        return chance.choice(options)()

    def _fresh(self) -> str:
        return f"v{next(self._values)}"

    def _put(self, key: str) -> Write:
        view = self._views.get(key)
        if view is None or self._chance.random() < 0.1:
            return Write(key, WriteKind.PUT, self._fresh(), blind=self._chance.random() < 0.3)
        if self._chance.random() < 0.4:
            return Write(key, WriteKind.PUT, self._fresh(), expected=view.version, base=view.values)
        return Write(key, WriteKind.PUT, self._fresh(), context=view.context, base=view.values)

    def _delete(self, key: str) -> Write:
        view = self._views.get(key)
        if view is None:
            return Write(key, WriteKind.DELETE, blind=True)
        return Write(key, WriteKind.DELETE, context=view.context, base=view.values)

    def _merge(self) -> tuple[Op, dict[str, Any]]:
        chance = self._chance
        number = chance.randrange(1, 9)
        write = chance.choice(
            [
                Write("tally", WriteKind.ADD, merge=number - 2),
                Write("tally", WriteKind.ADD, merge=number),
                Write("names", WriteKind.SET, merge={"add": [f"n{number}"], "remove": []}),
                Write("names", WriteKind.SET, merge={"add": [], "remove": [f"n{number}"]}),
                Write("peak", WriteKind.MAX, merge=next(self._values)),
                Write("index", WriteKind.MAP, merge={"set": {f"f{number % 3}": next(self._values)}, "remove": []}),
            ]
        )
        return Op.MERGE, {"writes": (write,)}

    def _transact(self) -> tuple[Op, dict[str, Any]]:
        compares: tuple[Compare, ...] = ()
        if (view := self._views.get("c")) is not None:
            compares = (Compare("c", view.version, view.values),)
        return Op.TRANSACT, {"writes": (self._put("a"), self._put("b")), "compares": compares}

    def _task(self) -> tuple[Op, dict[str, Any]]:
        chance = self._chance
        if self._claims and chance.random() < 0.7:
            key = chance.choice(sorted(self._claims))
            op = chance.choice((Op.RENEW, Op.RELEASE, Op.COMPLETE, Op.COMPLETE))
            lease = {"lease_ms": 8} if op is Op.RENEW else {}
            fence = self._claims[key] if op is Op.RENEW else self._claims.pop(key)
            return op, {"key": key, "fence": fence, **lease}
        if chance.random() < 0.4:
            return Op.PUT, {"writes": (self._put(chance.choice(TASKS)),)}
        return Op.CLAIM, {"collection": "todo/", "lease_ms": 8}


def simulate(
    seed: int,
    *,
    clients: int = 4,
    calls: int = 120,
    faults: tuple[str, ...] = (),
    unanswered: float = 0.03,
    failovers: int = 0,
) -> History:
    """Returns a history.

    Args:
        seed: decides everything.
        clients: how many call at once.
        calls: how many calls in all.
        faults: what the server does wrong, see `FAULTS`.
        unanswered: share of calls whose reply never arrives; half of them take effect.
        failovers: how often some of the newest commits are lost.
    """
    chance = random.Random(seed)
    server = Server(chance, frozenset(faults))
    values = itertools.count(1)
    order = itertools.count()
    events: list[tuple[int, int, Callable[[int], None]]] = []
    recorded: list[Call] = []

    def later(now_ns: int, action: Callable[[int], None]) -> None:
        heapq.heappush(events, (now_ns + chance.randrange(MS // 10, 2 * MS), next(order), action))

    def start(client: Client) -> Callable[[int], None]:
        def begin(now_ns: int) -> None:
            if len(recorded) >= calls:
                return
            call = client.next_call(now_ns)
            recorded.append(call)
            index = len(recorded) - 1
            fate = chance.random()
            if fate < unanswered / 2:
                later(now_ns, start(client))
            else:
                later(now_ns, take_effect(client, index, fate < unanswered))

        return begin

    def take_effect(client: Client, index: int, dropped: bool) -> Callable[[int], None]:
        def execute(now_ns: int) -> None:
            reply = server.execute(recorded[index], now_ns // MS)
            if dropped:
                later(now_ns, start(client))
            else:
                later(now_ns, give_back(client, index, reply))

        return execute

    def give_back(client: Client, index: int, reply: Reply) -> Callable[[int], None]:
        def answer(now_ns: int) -> None:
            answered = replace(reply, return_ns=now_ns)
            recorded[index] = replace(recorded[index], reply=answered)
            client.learn(recorded[index], answered)
            later(now_ns, start(client))

        return answer

    for number in range(clients):
        later(0, start(Client(f"agent-{number}", chance, values)))
    for _ in range(failovers):
        at_ns = chance.randrange(3 * MS * calls // clients)
        heapq.heappush(events, (at_ns, next(order), lambda _: server.fail_over()))
    last_ns = 0
    while events:
        last_ns, _, action = heapq.heappop(events)
        action(last_ns)
    recorded.append(_final_read(server, last_ns + MS, sorted(server.entries)))
    return History(new_header(complete=[NAMESPACE], cuts={NAMESPACE: server.cuts}), tuple(recorded))


def _final_read(server: Server, now_ns: int, keys: list[str]) -> Call:
    call = Call("observer", 1, Op.GET, NAMESPACE, now_ns, keys=tuple(keys))
    honest = Server(random.Random(0), frozenset())
    honest.head, honest.entries = server.head, server.entries
    return replace(call, reply=replace(honest.execute(call, now_ns // MS), return_ns=now_ns + MS))
