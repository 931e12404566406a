"""The state machine that asks a server and its model the same: what is done, by whom, with what they know."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from tests.simulation.calls import (
    Add,
    Append,
    Attributes,
    Call,
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
    Resolve,
    Update,
)
from tests.simulation.minds import Between, How
from tests.simulation.model_readsets import Guard
from tests.simulation.model_world import Transact
from tests.simulation.twins import AGENTS, BY_THE_WAY, ITEM_BYTES_MAX, KEYS, POLICIES, SPACES, Twins, Way

LIVES_MAX = 6
"""Restarts and crashes of one machine: they take a hundred times as long as a call."""

COLLECTIONS = ("", "t/", "s/", "l/")
GUARDS: tuple[tuple[Guard, ...], ...] = (
    (),
    (),
    (Guard("t/"),),
    (Guard("s/a"), Guard("l/")),
    (Guard("", SPACES[0]),),
    (Guard("t/1", SPACES[0]), Guard("", SPACES[2])),
    (Guard("unread"),),
)
VALUES = (b"1", b"2", b'"text"', b"[1,1.0]", b'{"a":1}', b'"%s"' % (b"x" * 130), b'"%s"' % (b"x" * 160))
TAGS: tuple[Attributes, ...] = ((), (), (("kind", "crawl"),), (("n", 1),), (("n", True),))
WAYS = st.builds(
    Way,
    request=st.sampled_from(("none", "none", "sequence", "sequence", "uuid")),
    answered=st.booleans(),
    old_self=st.sampled_from((False, False, False, False, True)),
    token=st.sampled_from((0, 0, 0, 0, 1, 2)),
)
agents, keys = st.sampled_from(AGENTS), st.sampled_from((*KEYS, *KEYS[:2]))
# Mostly in one namespace, so that what is done there meets.
spaces = st.sampled_from((*SPACES, SPACES[0], SPACES[0]))
values, tags, picks = st.sampled_from(VALUES), st.sampled_from(TAGS), st.integers(0, 5)
modes = st.sampled_from(("seen", "seen", "seen", "version", "version", "both", "neither", "blind"))
leases = st.sampled_from((1_000, 2_000, 30_000))
endings = st.sampled_from((None, None, None, 1, 700, 5_000))
elements = st.lists(st.sampled_from(("1", "1.0", "true", '"a"', '{"b":2,"a":1}')), max_size=2).map(tuple)
numbers = st.sampled_from(("0", "-1", "1.5", '"a"'))
merges: st.SearchStrategy[Any] = st.one_of(
    st.builds(Add, keys, st.integers(-3, 3)),
    st.builds(Update, keys, elements, elements, st.none()),
    st.builds(Extreme, keys, numbers, st.booleans()),
    st.builds(Fields, keys, numbers.map(lambda value: (("f", value),)), st.just(("g",))),
    st.builds(Append, keys, numbers.map(lambda value: (value,)), st.integers(0, 2)),
)
grounds = st.builds(How, picks, st.sampled_from(GUARDS), st.sampled_from((False, False, True)), st.booleans())
# Many calls are made without having seen anything that they depend on.
hows = st.one_of(st.none(), st.none(), grounds)
peers = st.tuples(agents, keys, st.sampled_from(("put", "delete", "add", "claim")), st.booleans())
pauses = st.sampled_from((1, 700, 1_000, 5_000))
betweens: st.SearchStrategy[Any] = st.one_of(st.none(), st.none(), st.none(), peers, pauses)
minds = st.one_of(st.none(), picks, picks)
parts = st.lists(
    st.tuples(keys, st.sampled_from(("put", "delete", "add")), values, modes, picks),
    min_size=1,
    max_size=3,
    unique_by=lambda part: part[0],
)

outcomes: Counter[str] = Counter()


class ServerMachine(RuleBasedStateMachine):
    """Asks the server and the model the same; :class:`Twins` compares the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.twins = Twins()
        self.lives = 1

    def teardown(self) -> None:
        """Compares what is left."""
        outcomes.update(self.twins.outcomes)
        self.twins.close()

    # -- reads ---------------------------------------------------------------------------------

    @rule(agent=agents, space=spaces, key=keys)
    def read(self, agent: str, space: str, key: str) -> None:
        view = self.twins.look(space, key, agent)
        if view is not None:
            self.twins.hold(space, key, view.seen, view.version)

    @rule(space=spaces, collection=st.sampled_from(COLLECTIONS), reverse=st.booleans())
    def list_records(self, space: str, collection: str, reverse: bool) -> None:
        self.twins.listing(space, collection, reverse=reverse)

    @rule(space=spaces)
    def read_history(self, space: str) -> None:
        self.twins.compare_history(space)

    @rule(space=spaces, collection=st.sampled_from(COLLECTIONS), page_size=st.sampled_from((0, 1, 2)))
    def list_conflicts(self, space: str, collection: str, page_size: int) -> None:
        self.twins.conflicts(space, collection, page_size)

    @rule(space=spaces)
    def follow(self, space: str) -> None:
        self.twins.follow(space)

    # -- writes --------------------------------------------------------------------------------

    @rule(
        agent=agents,
        space=spaces,
        key=keys,
        value=values,
        mode=modes,
        pick=picks,
        ttl_ms=endings,
        tag=tags,
        way=WAYS,
        how=hows,
        between=betweens,
    )
    def put(
        self,
        agent: str,
        space: str,
        key: str,
        value: bytes,
        mode: str,
        pick: int,
        ttl_ms: int | None,
        tag: Attributes,
        way: Way,
        how: How | None,
        between: Any,
    ) -> None:
        when = self.twins.condition(space, key, mode, pick)
        self._make(agent, space, Put(key, value, when, tag, ttl_ms), way, how, between)

    @rule(agent=agents, space=spaces, key=keys, mode=modes, pick=picks, way=WAYS, how=hows)
    def delete(self, agent: str, space: str, key: str, mode: str, pick: int, way: Way, how: How | None) -> None:
        self._make(agent, space, Delete(key, self.twins.condition(space, key, mode, pick)), way, how)

    @rule(agent=agents, space=spaces, call=merges, pick=picks, way=WAYS, how=hows, between=betweens)
    def merge(self, agent: str, space: str, call: Merge, pick: int, way: Way, how: How | None, between: Any) -> None:
        if isinstance(call, Update) and call.remove and pick < 3:
            call = call._replace(seen=self.twins.handle(space, call.key, pick)[0])
        self._make(agent, space, call, way, how, between)

    @rule(
        agent=agents,
        space=spaces,
        parts=parts,
        compares=st.lists(st.tuples(keys, picks), max_size=2),
        way=WAYS,
        how=hows,
    )
    def transact(
        self,
        agent: str,
        space: str,
        parts: list[tuple[str, str, bytes, str, int]],
        compares: list[tuple[str, int]],
        way: Way,
        how: How | None,
    ) -> None:
        call = self._together(space, parts, compares)
        self.twins.transact(space, self.twins.caller(agent, space, way, how), call)

    def _together(
        self, space: str, parts: list[tuple[str, str, bytes, str, int]], compares: list[tuple[str, int]]
    ) -> Transact:
        calls: list[Put | Delete | Merge] = []
        for key, kind, value, mode, pick in parts:
            when = self.twins.condition(space, key, mode, pick)
            choice: dict[str, Put | Delete | Merge] = {
                "put": Put(key, value, when),
                "delete": Delete(key, when),
                "add": Add(key, 1),
            }
            calls.append(choice[kind])
        versions = tuple((key, self.twins.handle(space, key, pick)[1] or 0) for key, pick in compares)
        return Transact(versions, tuple(calls))

    @rule(
        agent=agents,
        space=spaces,
        key=keys,
        mode=st.sampled_from(("value", "keep", "delete")),
        pick=picks,
        way=WAYS,
        how=hows,
        between=betweens,
    )
    def resolve(
        self, agent: str, space: str, key: str, mode: str, pick: int, way: Way, how: How | None, between: Any
    ) -> None:
        waiting = [found for found, _ in self.twins.spaces[space].model.conflicts("")]
        if waiting and pick:
            key = waiting[pick % len(waiting)]
        view = self.twins.spaces[space].model.read(key)
        seen = view.seen if pick < 4 else self.twins.handle(space, key, pick)[0]
        call = Resolve(key, seen)
        if mode == "value":
            call = call._replace(data=VALUES[pick])
        elif mode == "keep":
            dots = [value.dot for value in view.values] or [view.seen.prefix]
            call = call._replace(keep=dots[pick % len(dots)])
        self._make(agent, space, call, way, how, between)

    # -- decisions -----------------------------------------------------------------------------

    @rule(agent=agents, space=spaces, key=keys, mind=minds)
    def see(self, agent: str, space: str, key: str, mind: int | None) -> None:
        self.twins.minds.read(agent, space, key, mind)

    @rule(
        agent=agents,
        space=spaces,
        collection=st.sampled_from(COLLECTIONS),
        page_size=st.sampled_from((0, 0, 1)),
        mind=minds,
    )
    def see_list(self, agent: str, space: str, collection: str, page_size: int, mind: int | None) -> None:
        self.twins.minds.list_all(agent, space, collection, page_size, mind)

    @rule(agent=agents, space=spaces, collection=st.sampled_from(COLLECTIONS), mind=minds)
    def see_keys(self, agent: str, space: str, collection: str, mind: int | None) -> None:
        self.twins.minds.list_keys(agent, space, collection, mind)

    @precondition(lambda self: self.twins.minds.held)
    @rule(
        agent=agents,
        space=spaces,
        parts=parts,
        compares=st.lists(st.tuples(keys, picks), max_size=1),
        implied=st.booleans(),
        way=WAYS,
        how=grounds,
        between=betweens,
    )
    def commit(
        self,
        agent: str,
        space: str,
        parts: list[tuple[str, str, bytes, str, int]],
        compares: list[tuple[str, int]],
        implied: bool,
        way: Way,
        how: How,
        between: Any,
    ) -> None:
        if implied:
            parts = [(key, kind, value, "neither", pick) for key, kind, value, _, pick in parts]
        call = self._together(space, parts, compares)._replace(commit=True)
        caller = self.twins.caller(agent, space, way, how)
        self.twins.transact(space, caller, call, self._between(space, between))

    @precondition(lambda self: self.twins.minds.held)
    @rule(agent=agents, how=grounds)
    def refresh(self, agent: str, how: How) -> None:
        self.twins.minds.refresh(agent, how)

    # -- tasks ---------------------------------------------------------------------------------

    @rule(
        agent=agents,
        space=spaces,
        collection=st.sampled_from(COLLECTIONS),
        lease_ms=leases,
        tag=tags,
        way=WAYS,
        how=hows,
        # A task that appears while another one is being claimed may as well have come after.
        pause=st.one_of(st.none(), pauses),
    )
    def claim(
        self,
        agent: str,
        space: str,
        collection: str,
        lease_ms: int,
        tag: Attributes,
        way: Way,
        how: How | None,
        pause: int | None,
    ) -> None:
        self._make(agent, space, Claim(collection, lease_ms, tag), way, how, pause)

    @precondition(lambda self: self.twins.tasks)
    @rule(
        pick=picks,
        verb=st.sampled_from(("renew", "release", "complete", "complete")),
        by_another=st.booleans(),
        lease_ms=leases,
        way=WAYS,
        how=hows,
    )
    def work(self, pick: int, verb: str, by_another: bool, lease_ms: int, way: Way, how: How | None) -> None:
        space, key, actor, fence = self.twins.tasks[-1 - pick % len(self.twins.tasks)]
        agent = actor.partition("#")[0]
        if by_another:
            agent = AGENTS[(AGENTS.index(agent) + 1) % len(AGENTS)]
        choice: dict[str, Call] = {
            "renew": Renew(key, fence, lease_ms),
            "release": Release(key, fence),
            "complete": Complete(key, fence, b"1"),
        }
        self._make(agent, space, choice[verb], way, how)

    @precondition(lambda self: self.twins.made)
    @rule(pick=picks, twist=st.booleans(), forget=st.booleans())
    def repeat(self, pick: int, twist: bool, forget: bool) -> None:
        """Sends a call again, as after a lost reply, or another one under its id."""
        space, caller, call = self.twins.made[-1 - pick % len(self.twins.made)]
        caller = caller._replace(current=self.twins.is_current(caller.actor))
        if isinstance(call, Transact):
            if forget and not call.commit:
                # What was seen is no part of what a call means.
                caller = caller._replace(grounds=None)
            twisted = call._replace(compares=(*call.compares, ("z", 0)))
            self.twins.transact(space, caller, twisted if twist else call)
        else:
            self.twins.make(space, caller, Add("z", 1) if twist else call)

    def _make(self, agent: str, space: str, call: Call, way: Way, how: How | None = None, between: Any = None) -> None:
        caller = self.twins.caller(agent, space, way, how)
        self.twins.make(space, caller, call, self._between(space, between))

    def _between(self, space: str, between: Any) -> Between | None:
        if between is None:
            return None
        if isinstance(between, int):
            return Between(elapse_ms=between)
        agent, key, kind, seen = between
        choice: dict[str, Call] = {
            "put": Put(key, b"3", self.twins.condition(space, key, "seen" if seen else "blind", 0)),
            "delete": Delete(key, Condition(blind=True)),
            "add": Add(key, 1),
            "claim": Claim("", 1_000),
        }
        return Between(self.twins.caller(agent, space, BY_THE_WAY), choice[kind])

    # -- agents, rules, life -------------------------------------------------------------------

    @rule(agent=agents, close_first=st.booleans())
    def take_over(self, agent: str, close_first: bool) -> None:
        if close_first:
            self.twins.end(agent)
        self.twins.open(agent)

    @rule(
        space=spaces,
        prefix=st.sampled_from(tuple(POLICIES)),
        policy=st.sampled_from(("REJECT", "SIBLINGS", "LAST_WRITER_WINS")),
        item_bytes_max=st.sampled_from((ITEM_BYTES_MAX, ITEM_BYTES_MAX, 20)),
    )
    def configure(self, space: str, prefix: str, policy: str, item_bytes_max: int) -> None:
        policies = self.twins.spaces[space].model.policies | {prefix: policy}
        self.twins.configure(space, policies, item_bytes_max)

    @rule(space=spaces)
    def delete_namespace(self, space: str) -> None:
        self.twins.delete_namespace(space)

    @rule(space=spaces)
    def ensure(self, space: str) -> None:
        self.twins.ensure(space)

    # -- time and trouble ----------------------------------------------------------------------

    @rule(by_ms=st.sampled_from((1, 300, 1_000, 1_000, 5_000, 130_000, 700_000, 3_700_000)), sweep=st.booleans())
    def elapse(self, by_ms: int, sweep: bool) -> None:
        self.twins.elapse(by_ms)
        if sweep:
            self.twins.sweep()

    @precondition(lambda self: self.lives < LIVES_MAX)
    @rule()
    def restart(self) -> None:
        self.lives += 1
        self.twins.run(self.twins.server.restart())

    @rule()
    def keep_image(self) -> None:
        self.twins.keep_image()

    @precondition(lambda self: self.lives < LIVES_MAX)
    @rule(lose_the_end=st.booleans())
    def crash(self, lose_the_end: bool) -> None:
        self.lives += 1
        self.twins.crash(lose_the_end=lose_the_end)
