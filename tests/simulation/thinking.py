"""Random histories of agents that think: they look, ponder while others write and values end, decide, and resolve.

The state machine of :mod:`tests.simulation.machine` does everything once in a while. These histories do what depends
on having seen something again and again, in little room, so that it meets: they are about read sets, about what
comes between a decision and its commit, and about the conflict queue. A history is repeated by its seed.
"""

from __future__ import annotations

import random
from collections import Counter

from tests.simulation.calls import (
    Add,
    Call,
    Caller,
    Claim,
    Complete,
    Condition,
    Delete,
    Merge,
    Put,
    Release,
    Renew,
    Resolve,
    Seen,
)
from tests.simulation.minds import Between, How
from tests.simulation.model_readsets import Guard
from tests.simulation.model_world import HOUR_MS, Transact
from tests.simulation.twins import AGENTS, BY_THE_WAY, ITEM_BYTES_MAX, KEYS, POLICIES, SPACES, Twins, Way

COLLECTIONS = ("", "t/", "t/", "s/", "l/")
GUARDS: tuple[tuple[Guard, ...], ...] = (
    (),
    (),
    (),
    (Guard("t/"),),
    (Guard("t/1"),),
    (Guard("s/a"), Guard("l/")),
    (Guard("", SPACES[0]),),
    (Guard("t/", SPACES[0]), Guard("", SPACES[2])),
    (Guard("unread"),),
)
VALUES = (b"1", b"2", b'"text"', b'"%s"' % (b"x" * 130))
PAUSES_MS = (1, 300, 700, 1_000, 1_000, 2_000)
VERBS = {
    "see": 14,
    "see_list": 12,
    "see_keys": 8,
    "put": 14,
    "delete": 6,
    "add": 4,
    "transact": 3,
    "commit": 26,
    "resolve": 8,
    "collide": 8,
    "ponder": 8,
    "refresh": 8,
    "list_conflicts": 7,
    "claim": 3,
    "work": 4,
    "repeat": 4,
    "pause": 9,
    "sweep": 4,
    "hours": 1,
    "keep": 3,
    "lose": 2,
    "restart": 1,
    "take_over": 1,
    "configure": 1,
    "reopen": 1,
}


class Thinking:
    """One history, from its seed.

    Attributes:
        twins: the server and the model.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._chance = random.Random(seed)
        self.twins = Twins()

    def run(self, steps: int) -> Counter[str]:
        """Runs so many steps; returns how often each answer was seen.

        Raises:
            AssertionError: the server answers differently from the model.
        """
        verbs, weights = zip(*VERBS.items(), strict=True)
        done: list[str] = []
        try:
            for verb in self._chance.choices(verbs, weights, k=steps):
                done.append(verb)
                getattr(self, f"_{verb}")()
            self.twins.compare_all()
        except AssertionError as error:
            raise AssertionError(f"seed {self._seed}, step {len(done)}, {done[-1:]}: {error}") from error
        finally:
            self.twins.stop()
        return self.twins.outcomes

    # -- looking -------------------------------------------------------------------------------

    def _see(self) -> None:
        agent, space = self._who()
        self.twins.minds.read(agent, space, self._key(), self._mind())

    def _see_list(self) -> None:
        agent, space = self._who()
        page_size = self._chance.choice((0, 0, 1))
        self.twins.minds.list_all(agent, space, self._chance.choice(COLLECTIONS), page_size, self._mind())

    def _see_keys(self) -> None:
        agent, space = self._who()
        self.twins.minds.list_keys(agent, space, self._chance.choice(COLLECTIONS), self._mind())

    def _refresh(self) -> None:
        if self.twins.minds.held:
            self.twins.minds.refresh(self._chance.choice(AGENTS), self._how())

    def _list_conflicts(self) -> None:
        self.twins.conflicts(self._space(), self._chance.choice(COLLECTIONS), self._chance.choice((0, 0, 1, 2)))

    # -- writing -------------------------------------------------------------------------------

    def _put(self) -> None:
        agent, space = self._who()
        key = self._key()
        when = self.twins.condition(space, key, self._mode(), self._chance.randrange(6))
        self._make(agent, space, Put(key, self._chance.choice(VALUES), when, ttl_ms=self._ttl_ms()))

    def _delete(self) -> None:
        agent, space = self._who()
        key = self._key()
        self._make(agent, space, Delete(key, self.twins.condition(space, key, self._mode(), self._chance.randrange(6))))

    def _add(self) -> None:
        agent, space = self._who()
        self._make(agent, space, Add(self._key(), 1))

    def _transact(self) -> None:
        agent, space = self._who()
        self.twins.transact(space, self._caller(agent, space), self._together(space, implied=False))

    def _commit(self) -> None:
        if not self.twins.minds.held:
            return
        agent, space = self._who()
        caller = self.twins.caller(agent, space, self._way(), self._how())
        call = self._together(space, implied=self._chance.random() < 0.7)._replace(commit=True)
        self.twins.transact(space, caller, call, self._between(space))

    def _collide(self) -> None:
        """Several write without having seen each other, one key each or two at once."""
        space = self._chance.choice(SPACES[:2])
        keys = self._chance.choice((("s/a",), ("s/b",), ("s/a", "s/b")))
        for agent in self._chance.sample(AGENTS, 2):
            calls = tuple(Put(key, b"3", Condition(seen=Seen()), ttl_ms=self._ttl_ms()) for key in keys)
            if len(calls) == 1:
                self._make(agent, space, calls[0])
            else:
                self.twins.transact(space, self._caller(agent, space), Transact((), calls))

    def _resolve(self) -> None:
        agent, space = self._who()
        waiting = [key for key, _ in self.twins.spaces[space].model.conflicts("")]
        key = self._chance.choice(waiting or [self._key()])
        view = self.twins.spaces[space].model.read(key)
        seen = view.seen
        if self._chance.random() < 0.3:
            seen = self.twins.handle(space, key, self._chance.randrange(6))[0]
        call = Resolve(key, seen)
        match self._chance.choice(("value", "keep", "delete")):
            case "value":
                call = call._replace(data=self._chance.choice(VALUES))
            case "keep":
                call = call._replace(keep=self._chance.choice([v.dot for v in view.values] or [view.seen.prefix]))
        self._make(agent, space, call)

    def _claim(self) -> None:
        agent, space = self._who()
        caller = self._caller(agent, space)
        self.twins.make(space, caller, Claim(self._chance.choice(COLLECTIONS), self._chance.choice((1_000, 30_000))))

    def _work(self) -> None:
        if not self.twins.tasks:
            return
        space, key, actor, fence = self.twins.tasks[-1]
        choice: tuple[Call, ...] = (Renew(key, fence, 2_000), Release(key, fence), Complete(key, fence, b"1"))
        self._make(actor.partition("#")[0], space, self._chance.choice(choice))

    def _repeat(self) -> None:
        """Sends a call once more, as after a lost reply."""
        if not self.twins.made:
            return
        space, caller, call = self._chance.choice(self.twins.made[-6:])
        caller = caller._replace(current=self.twins.is_current(caller.actor))
        if isinstance(call, Transact):
            self.twins.transact(space, caller, call)
        else:
            self.twins.make(space, caller, call)

    def _ponder(self) -> None:
        """Somebody looks, is interrupted at the worst moment, and decides twice: the second time by what came back."""
        chance, twins = self._chance, self.twins
        space = chance.choice(SPACES[:2])
        agent, peer = chance.sample(AGENTS, 2)
        collection, keys = chance.choice((("t/", ("t/1", "t/2")), ("s/", ("s/a", "s/b"))))
        call = Put(keys[0], b"5", Condition(blind=True), ttl_ms=chance.choice((None, 1_000, 2_000)))
        twins.make(space, twins.caller(peer, space, BY_THE_WAY), call)
        match chance.choice(("key", "values", "members")):
            case "key":
                twins.minds.read(agent, space, keys[0], None)
            case "values":
                twins.minds.list_all(agent, space, collection, 0, None)
            case _:
                twins.minds.list_keys(agent, space, collection, None)
        between: Between | None = Between(elapse_ms=self._until_something_ends())
        if chance.random() < 0.6:
            disturbs = chance.choice((Put(chance.choice(keys), b"6", Condition(blind=True)), Delete(keys[0])))
            between = Between(twins.caller(peer, space, BY_THE_WAY), disturbs)
        for _ in range(2):
            write = Put(chance.choice((*keys, "r/a")), b"7", Condition(blind=True), ttl_ms=self._ttl_ms())
            guards = chance.choice(((), (), (Guard(keys[0]),), (Guard("unread"),)))
            caller = twins.caller(agent, space, self._way(), How(0, guards, chance.random() < 0.2, allow_checked=True))
            twins.transact(space, caller, Transact((), (write,), commit=True), between)
            between = None

    # -- time and trouble ----------------------------------------------------------------------

    def _pause(self) -> None:
        self.twins.elapse(self._chance.choice(PAUSES_MS))

    def _sweep(self) -> None:
        self.twins.sweep()

    def _hours(self) -> None:
        """Long enough for tombstones to be reaped and for what is empty to be forgotten."""
        self.twins.elapse(HOUR_MS + 1)
        self.twins.sweep()
        self.twins.elapse(1)

    def _keep(self) -> None:
        self.twins.keep_image()

    def _lose(self) -> None:
        self.twins.crash(lose_the_end=self._chance.random() < 0.8)

    def _restart(self) -> None:
        self.twins.run(self.twins.server.restart())

    def _take_over(self) -> None:
        self.twins.open(self._chance.choice(AGENTS))

    def _configure(self) -> None:
        policy = self._chance.choice(("REJECT", "SIBLINGS", "SIBLINGS", "LAST_WRITER_WINS"))
        space = self._space()
        policies = self.twins.spaces[space].model.policies | {self._chance.choice(tuple(POLICIES)): policy}
        self.twins.configure(space, policies, ITEM_BYTES_MAX)

    def _reopen(self) -> None:
        """A namespace is deleted, perhaps used in vain, and opened again."""
        space = self._space()
        self.twins.delete_namespace(space)
        if self._chance.random() < 0.3:
            self._commit()
        self.twins.ensure(space)

    # -- how -----------------------------------------------------------------------------------

    def _who(self) -> tuple[str, str]:
        """Returns an agent and a namespace, rarely one that is closed to it."""
        space = self._space()
        agents = AGENTS if space in SPACES[:2] else ("a", "a", "a", "b")
        return self._chance.choice(agents), space

    def _space(self) -> str:
        return self._chance.choices(SPACES, (7, 2, 1))[0]

    def _key(self) -> str:
        return self._chance.choice(KEYS)

    def _mode(self) -> str:
        return self._chance.choice(("seen", "seen", "version", "neither", "blind", "blind"))

    def _ttl_ms(self) -> int | None:
        return self._chance.choice((None, None, None, 700, 1_000))

    def _mind(self) -> int | None:
        """Returns the mind to extend: mostly the newest, sometimes a new one."""
        return self._chance.choice((None, 0, 0, 0, 1, 2))

    def _way(self) -> Way:
        chance = self._chance
        return Way(
            chance.choice(("none", "none", "none", "sequence", "uuid")),
            answered=chance.random() < 0.5,
            old_self=chance.random() < 0.03,
            token=0,
        )

    def _how(self) -> How:
        chance = self._chance
        return How(
            chance.choice((0, 0, 0, 1, 2, 3)), chance.choice(GUARDS), chance.random() < 0.3, chance.random() < 0.7
        )

    def _caller(self, agent: str, space: str) -> Caller:
        return self.twins.caller(agent, space, self._way(), self._how() if self._chance.random() < 0.4 else None)

    def _make(self, agent: str, space: str, call: Call) -> None:
        self.twins.make(space, self._caller(agent, space), call, self._between(space))

    def _together(self, space: str, *, implied: bool) -> Transact:
        calls: list[Put | Delete | Merge] = []
        for key in self._chance.sample(KEYS, self._chance.choice((1, 1, 2, 3))):
            mode = "neither" if implied else self._mode()
            when = self.twins.condition(space, key, mode, self._chance.randrange(6))
            data = self._chance.choice(VALUES)
            calls.append(
                self._chance.choices(
                    (Put(key, data, when, ttl_ms=self._ttl_ms()), Delete(key, when), Add(key, 1)), (6, 2, 1)
                )[0]
            )
        compares: tuple[tuple[str, int], ...] = ()
        if self._chance.random() < 0.1:
            key = self._key()
            compares = ((key, self.twins.handle(space, key, 0)[1] or 0),)
        return Transact(compares, tuple(calls))

    def _until_something_ends(self) -> int:
        """Returns a time after which the newest of what was seen may be over."""
        now_ms = self.twins.server.engine.store.now_ms()
        seen = self.twins.minds.held[-1].seen if self.twins.minds.held else {}
        sights = [sight for part in seen.values() for sight in (*part.keys.values(), *part.lists.values())]
        ends = [sight.ends_ms - now_ms for sight in sights if sight.ends_ms is not None and sight.ends_ms > now_ms]
        return self._chance.choice((*ends, *PAUSES_MS[:2]))

    def _between(self, space: str) -> Between | None:
        chance = self._chance
        if chance.random() < 0.6:
            return None
        if chance.random() < 0.4:
            return Between(elapse_ms=self._until_something_ends())
        key = self._key()
        condition = self.twins.condition(space, key, chance.choice(("seen", "blind")), 0)
        call = chance.choices((Put(key, b"4", condition), Delete(key, Condition(blind=True)), Add(key, 1)), (3, 1, 1))[
            0
        ]
        agent = "a" if space == SPACES[2] else chance.choice(AGENTS)
        return Between(self.twins.caller(agent, space, BY_THE_WAY), call)


def run_thinking(seed: int, *, steps: int = 60) -> Counter[str]:
    """Runs one history; see :meth:`Thinking.run`."""
    return Thinking(seed).run(steps)
