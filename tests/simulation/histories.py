"""Random histories of one namespace, served by the real rules and (unless told not to) by the model.

Several clients read, write, merge and claim with what they read at some time; time passes, values and
leases end, tombstones are reaped, acknowledged commits are lost in failovers, requests are repeated late
or under another meaning. Every reply is compared, and the oracle watches.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.calls import (
    Add,
    Append,
    Attributes,
    Call,
    Caller,
    Claim,
    Complete,
    Condition,
    Delete,
    Extreme,
    Fields,
    Merge,
    Put,
    Release,
    Renew,
    Reply,
    Request,
    Resolve,
    Seen,
    Update,
    View,
)
from tests.simulation.model import Model
from tests.simulation.model_state import State
from tests.simulation.oracle import Dots, Oracle, Past
from tests.simulation.rules import Rules, Snapshot

ITEM_BYTES_MAX = 160
RETENTION_MS = 40
NOTHING: Dots = frozenset()


class Mismatch(AssertionError):
    """The real rules and the model answer differently."""


class Profile(NamedTuple):
    """What a kind of history is about. Weights are relative, chances between 0 and 1."""

    name: str
    clients: int
    keys: tuple[str, ...]
    verbs: dict[str, int]
    ttl: float = 0.1
    unread: float = 0.1
    reread: float = 0.3
    requests: float = 0.3


_UPKEEP = {"sweep": 3, "reap": 3, "advance": 8, "snapshot": 3, "rollback": 2, "configure": 1}

PROFILES = (
    Profile("values", 4, ("r/a", "s/a"), {"read": 30, "put": 45, "delete": 15, "resolve": 10, **_UPKEEP}),
    Profile("endings", 4, ("r/a", "s/a", "l/a"), {"read": 25, "put": 40, "delete": 15, **_UPKEEP, "advance": 20}, 0.6),
    Profile(
        "crowd",
        24,
        ("s/a",),
        {"read": 10, "put": 70, "delete": 4, "resolve": 3, **_UPKEEP, "advance": 2},
        0.02,
        0.7,
        0.02,
    ),
    Profile("types", 4, ("r/a", "s/a"), {"read": 20, "put": 20, "delete": 10, "merge": 50, **_UPKEEP}, 0.3),
    Profile(
        "board", 4, ("r/a", "r/b", "s/a"), {"read": 15, "put": 25, "delete": 8, "claim": 15, "work": 25, **_UPKEEP}, 0.3
    ),
    Profile(
        "everything",
        6,
        ("r/a", "s/a", "l/a", "l/deep/a"),
        {
            "read": 25,
            "put": 30,
            "delete": 12,
            "resolve": 6,
            "merge": 20,
            "claim": 8,
            "work": 10,
            "reopen": 1,
            **_UPKEEP,
        },
        0.3,
        0.2,
        0.2,
        0.6,
    ),
)

VALUES = (b"1", b"2", b'"text"', b"[1,1.0,true]", b'{"a":1}', b"-7", b"[1e15,1e15,1e15]", b'"%s"' % (b"x" * 130))
TOO_LARGE = b'"%s"' % (b"x" * ITEM_BYTES_MAX)
ELEMENTS = ("1", "1.0", "true", '"a"', '{"a":1,"b":2}', '{"b":2,"a":1}', f'"{"y" * 60}"')
NUMBERS = ("0", "-1", "1.5", "12345678901234567890", '"a"', '"b"')
CRAWL = ("kind", "crawl")
ATTRIBUTES: tuple[Attributes, ...] = ((), (CRAWL,), (CRAWL, ("n", 1)), (("n", True),), (("n", 1.0),))


class Handle(NamedTuple):
    """What a client holds of a key: from a read or an acknowledgement, with the dots that it knows by it."""

    seen: Seen
    version: int | None
    known: Dots


@dataclass
class Client:
    """A caller. It holds up to three handles of a key, so it also writes with old ones."""

    actor: str
    handles: dict[str, list[Handle]] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    sequence: int = 0
    unanswered: dict[int, Call] = field(default_factory=dict)
    answered: list[tuple[Request, Call]] = field(default_factory=list)

    def hold(self, key: str, handle: Handle) -> None:
        held = self.handles.setdefault(key, [])
        held.append(handle)
        del held[:-3]


class Kept(NamedTuple):
    """A state to fall back to."""

    rules: Snapshot
    model: State
    past: Past


class History:
    """One history, from its seed."""

    def __init__(self, seed: int, *, compare: bool = True) -> None:
        self.seed = seed
        self.compare = compare
        self.chance = random.Random(seed)
        self.profile = PROFILES[seed % len(PROFILES)]
        self.outcomes: Counter[str] = Counter()
        private = self.chance.random() < 0.1
        policies = {"": "REJECT", "r/": "REJECT", "s/": "SIBLINGS", "l/": "LAST_WRITER_WINS", "l/deep/": "REJECT"}
        epoch = self.chance.choice((1, 9_000))
        self.rules = Rules(
            epoch=epoch,
            private=private,
            policies=policies,
            item_bytes_max=ITEM_BYTES_MAX,
            retention_ms=RETENTION_MS,
        )
        self.model = Model(
            epoch=epoch,
            private=private,
            policies=policies,
            item_bytes_max=ITEM_BYTES_MAX,
            retention_ms=RETENTION_MS,
        )
        self.oracle = Oracle()
        self.clients = [Client(f"agent-{n}#1") for n in range(self.profile.clients)]
        self.kept: list[Kept] = []
        self.tokens = 0

    def run(self, steps: int) -> Counter[str]:
        """Runs so many steps; returns how often each outcome was seen.

        Raises:
            Mismatch: a reply, view, head or clock differs from the model's.
            SafetyViolation: the oracle objects.
        """
        verbs, weights = zip(*self.profile.verbs.items(), strict=True)
        for step, verb in enumerate(self.chance.choices(verbs, weights, k=steps)):
            try:
                getattr(self, f"_{verb}")()
            except AssertionError as error:
                where = f"seed {self.seed} ({self.profile.name}), step {step}: {verb}"
                raise type(error)(f"{where}: {error}") from error
        for key in self.profile.keys:
            self._look(key)
        return self.outcomes

    # -- steps -----------------------------------------------------------------------------------

    def _read(self) -> None:
        self._read_by(self.chance.choice(self.clients), self._any_key())

    def _read_by(self, client: Client, key: str) -> None:
        view = self._look(key)
        client.hold(key, Handle(view.seen, view.version, self.oracle.everything(key)))

    def _put(self) -> None:
        client, key = self.chance.choice(self.clients), self._any_key()
        when, known = self._condition(client, key)
        chance = self.chance
        data = TOO_LARGE if chance.random() < 0.02 else chance.choice(VALUES)
        ttl_ms = chance.randint(1, 30) if chance.random() < self.profile.ttl else None
        until_ms = self.rules.now_ms + chance.randint(-1, 20) if ttl_ms is None and chance.random() < 0.05 else None
        self._write(client, Put(key, data, when, chance.choice(ATTRIBUTES), ttl_ms, until_ms), known)

    def _delete(self) -> None:
        client, key = self.chance.choice(self.clients), self._any_key()
        when, known = self._condition(client, key)
        self._write(client, Delete(key, when), known)

    def _resolve(self) -> None:
        """Somebody puts one value in the place of several, knowing what was there at some time."""
        client, key = self.chance.choice(self.clients), self._any_key()
        if self.chance.random() < self.profile.reread:
            self._read_by(client, key)
        handles = client.handles.get(key) or [Handle(Seen(), 0, NOTHING)]
        handle = handles[-1] if self.chance.random() < 0.7 else self.chance.choice(handles)
        call = Resolve(key, handle.seen)
        match self.chance.choice(("value", "keep", "delete")):
            case "value":
                call = call._replace(data=self.chance.choice((*VALUES, TOO_LARGE)))
            case "keep":
                live = [value.dot for value in self.rules.read(key).values]
                call = call._replace(keep=self.chance.choice((*live, self.rules.head)))
        self._write(client, call, handle.known)

    def _merge(self) -> None:
        client, key = self.chance.choice(self.clients), self._any_key()
        call = self._any_merge(client, key)
        known = NOTHING
        if isinstance(call, Update) and call.seen is not None:
            known = self._covered(key, call.seen)
        self._write(client, call, known)

    def _claim(self) -> None:
        client = self.chance.choice(self.clients)
        where: Attributes = self.chance.choice(((), (), (), (CRAWL,), (("n", 1),)))
        self._write(
            client, Claim(self.chance.choice(("", "", "r/", "s/")), self.chance.randint(1, 120), where), NOTHING
        )

    def _work(self) -> None:
        workers = [client for client in self.clients if client.fences] or self.clients
        client = self.chance.choice(workers)
        key = next(reversed(client.fences)) if client.fences else self._any_key()
        fence = client.fences.get(key, 0)
        if self.chance.random() < 0.1:
            fence = self.chance.choice([*client.fences.values(), self.rules.head])
        call: Call = self.chance.choice(
            (
                Renew(key, fence, self.chance.randint(1, 120)),
                Release(key, fence),
                Complete(key, fence, self.chance.choice((None, b'"result"', TOO_LARGE))),
            )
        )
        self._write(client, call, NOTHING)

    def _sweep(self) -> None:
        for key in self.profile.keys:
            self._settle(key, self.rules.sweep(key), self.model.sweep(key) if self.compare else None)

    def _reap(self) -> None:
        self._pass(self.chance.choice((0, RETENTION_MS - 1, RETENTION_MS)))
        self._sweep()
        for key in self.profile.keys:
            self._settle(key, self.rules.reap(key), self.model.reap(key) if self.compare else None)

    def _settle(self, key: str, reply: Reply | None, wanted: Reply | None) -> None:
        self._same("upkeep", reply, wanted)
        if reply is not None:
            self.outcomes["swept" if reply.events else "reaped"] += 1
            self.oracle.ended(key, reply, self._look(key))

    def _advance(self) -> None:
        pause_ms = self.chance.choice((0, 1, 2, 5, 10, 25, 50, 50))
        if self.chance.random() < 0.02:
            pause_ms = 600_000
        self._pass(pause_ms)

    def _pass(self, pause_ms: int) -> None:
        self.rules.now_ms += pause_ms
        self.model.now_ms += pause_ms

    def _configure(self) -> None:
        collection = self.chance.choice([c for c in self.rules.policies if c])
        policy = self.chance.choice(("REJECT", "SIBLINGS", "LAST_WRITER_WINS"))
        self.rules.policies = self.model.policies = self.rules.policies | {collection: policy}

    def _reopen(self) -> None:
        """A client ends its incarnation and begins the next one, with the handles that it holds."""
        client = self.chance.choice(self.clients)
        self.rules.forget_client(client.actor)
        self.model.forget_client(client.actor)
        agent, _, incarnation = client.actor.partition("#")
        client.actor = f"{agent}#{int(incarnation) + 1}"
        client.sequence = 0
        client.unanswered.clear()
        client.answered.clear()

    def _snapshot(self) -> None:
        self.kept.append(Kept(self.rules.state, self.model.state, self.oracle.snapshot()))
        del self.kept[:-2]

    def _rollback(self) -> None:
        if self.kept:
            kept = self.kept.pop()
            self.rules.rollback(kept.rules)
            self.model.rollback(kept.model)
            self.oracle.rollback(kept.past)
            self.outcomes["rolled back"] += 1

    # -- what to write -----------------------------------------------------------------------------

    def _any_key(self) -> str:
        return self.chance.choice(self.profile.keys)

    def _condition(self, client: Client, key: str) -> tuple[Condition, Dots]:
        """Returns a precondition, and the dots that the client knows by what it presents."""
        chance = self.chance
        mode = chance.choices(("version", "context", "both", "neither", "blind", "made up"), (25, 40, 12, 12, 5, 4))[0]
        if mode == "neither":
            return Condition(), NOTHING
        if mode == "blind":
            return Condition(blind=True), NOTHING
        if mode == "made up":
            return self._made_up_condition(key)
        if chance.random() < self.profile.reread:
            self._read_by(client, key)
        handles = client.handles.get(key)
        if not handles or chance.random() < self.profile.unread:
            handle = Handle(Seen(), 0, NOTHING)
        else:
            handle = handles[-1] if chance.random() < 0.7 else chance.choice(handles)
        if mode == "version" and handle.version is not None:
            return Condition(handle.version), handle.known
        if mode == "both" and handle.version is not None:
            return Condition(handle.version, handle.seen), handle.known
        return Condition(seen=handle.seen), handle.known

    def _made_up_condition(self, key: str) -> tuple[Condition, Dots]:
        """A precondition out of nowhere: what it says to have seen is taken for seen."""
        chance = self.chance
        seen = Seen(
            self._any_revision(key), tuple(sorted({self._any_revision(key) for _ in range(chance.randrange(3))}))
        )
        version = self._any_revision(key) if chance.random() < 0.5 else None
        if version is not None and chance.random() < 0.5:
            return Condition(version), self._covered(key, Seen(version))
        return Condition(version, seen), self._covered(key, seen) | self._covered(key, Seen(version or 0))

    def _any_revision(self, key: str) -> int:
        dots = self.oracle.past.events.get(key, [])
        head = self.rules.head
        return self.chance.choice((0, head, head, head + 1, *dots[-4:], *(dot - 1 for dot in dots[-2:])))

    def _covered(self, key: str, seen: Seen) -> Dots:
        return frozenset(dot for dot in self.oracle.past.events.get(key, ()) if seen.covers(dot))

    def _any_merge(self, client: Client, key: str) -> Merge:
        chance = self.chance
        kind = self.rules.read(key).kind
        if not kind or chance.random() < 0.1:
            kind = chance.choice(("COUNTER", "SET", "MAX", "MIN", "MAP", "LOG"))
        match kind:
            case "COUNTER":
                return Add(key, chance.choice((1, -2, 1_000, 2**62, -(2**63))))
            case "SET":
                add = tuple(chance.sample(ELEMENTS, chance.randrange(3)))
                remove = tuple(chance.sample(ELEMENTS, chance.randrange(3)))
                return Update(key, add, remove, self._any_prefix(client, key))
            case "MAX" | "MIN":
                return Extreme(key, chance.choice(NUMBERS), kind == "MAX")
            case "MAP":
                fields = tuple((f, chance.choice(ELEMENTS)) for f in chance.sample("abc", chance.randrange(3)))
                return Fields(key, fields, tuple(chance.sample("abc", chance.randrange(2))))
            case _:
                entries = tuple(chance.choice(ELEMENTS) for _ in range(chance.randrange(4)))
                return Append(key, entries, chance.choice((0, 0, 0, 2)))

    def _any_prefix(self, client: Client, key: str) -> Seen | None:
        """A context for a removal. Adds of a set are named by prefixes alone: no reply gives them as extras."""
        handles = client.handles.get(key)
        if not handles or self.chance.random() < 0.3:
            return None
        return Seen(self.chance.choice(handles).seen.prefix)

    # -- writing -----------------------------------------------------------------------------------

    def _write(self, client: Client, call: Call, known: Dots) -> None:
        """Sends a call, with or without a request id; some repeat an earlier call instead, or reuse its id."""
        chance = self.chance
        request: Request | None = None
        repeats = False
        if chance.random() < self.profile.requests:
            answered_through = min(client.unanswered, default=client.sequence + 1) - 1
            kind = chance.choices(("new", "retry", "reuse", "late", "uuid"), (70, 12, 3, 8, 7))[0]
            if kind == "retry" and client.unanswered:
                sequence, call = chance.choice(list(client.unanswered.items()))
                request, repeats = Request(sequence, answered_through), True
            elif kind == "reuse" and client.unanswered:
                request = Request(chance.choice(list(client.unanswered)), answered_through)
            elif kind == "late" and client.answered:
                request, call = chance.choice(client.answered)
                repeats = True
            elif kind == "uuid":
                request = Request(uuid=f"{client.actor}/{chance.randrange(3)}")
                repeats = True
            else:
                client.sequence += 1
                request = Request(client.sequence, answered_through)
        fences: tuple[tuple[str, int], ...] = ()
        if chance.random() < 0.05:
            self.tokens += chance.choice((-1, 0, 1, 2))
            fences = (("lock", self.tokens),)
        trouble = chance.random()
        caller = Caller(client.actor, request, fences, current=trouble > 0.01, permitted=trouble < 0.995)
        # Who repeats an old call presents what it presented then, whatever it has learnt since.
        self._send(client, caller, call, known if not repeats else self._known_by(call))

    def _known_by(self, call: Call) -> Dots:
        if isinstance(call, Resolve):
            return self._covered(call.key, call.seen)
        if isinstance(call, Put | Delete):
            seen = call.when.seen or Seen()
            return self._covered(call.key, seen) | self._covered(call.key, Seen(call.when.version or 0))
        return NOTHING

    def _send(self, client: Client, caller: Caller, call: Call, known: Dots) -> None:
        now_ms = self.rules.now_ms
        before = {key: self.rules.read(key) for key in self.profile.keys}
        reply = self.rules.do(caller, call)
        if self.compare:
            self._same(f"{caller} {call}", reply, self.model.do(caller, call))
        self.outcomes[reply.reason or f"{type(call).__name__} {reply.outcome}"] += 1
        key = reply.key or getattr(call, "key", self.profile.keys[0])
        after = self._look(key)
        policy = self.model.policy(key)
        knows = self.oracle.wrote(caller, call, reply, before[key], after, known, policy, now_ms)
        self._answer(client, caller, call, reply)
        if reply.outcome in ("applied", "unchanged"):
            client.hold(key, Handle(reply.seen, reply.version, knows))
            if isinstance(call, Claim):
                client.fences.pop(key, None)
                client.fences[key] = reply.revision

    def _answer(self, client: Client, caller: Caller, call: Call, reply: Reply) -> None:
        """Delivers the answer, or loses it: then the call stays to be retried."""
        request = caller.request
        if request is None or request.uuid:
            return
        if request.sequence not in client.unanswered and reply.outcome == "applied" and self.chance.random() < 0.4:
            client.unanswered[request.sequence] = call
        elif client.unanswered.get(request.sequence) == call:
            del client.unanswered[request.sequence]
            client.answered.append((request, call))

    # -- comparing -----------------------------------------------------------------------------------

    def _look(self, key: str) -> View:
        view = self.rules.read(key)
        self.oracle.saw(view, self.rules.now_ms)
        if self.compare:
            self._same(f"read {key}", view, self.model.read(key))
            self._same("head", self.rules.head, self.model.state.head)
            self._same("floor", self.rules.floor, self.model.state.floor)
            self._same_clock(key)
        return view

    def _same(self, what: str, real: object, wanted: object) -> None:
        if self.compare and real != wanted:
            raise Mismatch(f"{what}\n  rules: {real}\n  model: {wanted}")

    def _same_clock(self, key: str) -> None:
        """The real clock is folded; unfolded it must be the model's."""
        record, entry = self.rules.records.get(key), self.model.state.entries.get(key)
        self._same("stored", record is None, entry is None)
        if record is None or entry is None:
            return
        self._same("stored", record.stored, entry.changed)
        clock, writers = record.clock, sorted(entry.writers.items(), key=lambda write: write[1])
        self._same("newest writers", clock.entries, tuple(writers[-16:]))
        self._same("folded writers", all(clock.includes(*write) for write in writers), True)
        self._same("reaped writers", clock.base >= entry.reaped_through, True)
        self._same("the writers to come", clock.base < writers[-1][1], True)


def run_history(seed: int, *, steps: int = 120, compare: bool = True) -> Counter[str]:
    """Runs one history; see :meth:`History.run`."""
    return History(seed, compare=compare).run(steps)
