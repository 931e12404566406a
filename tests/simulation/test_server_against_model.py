"""The real server, in process on its real store, answers every call as the model does.

Several agents read, write, merge, claim and transact in three namespaces with whatever they have read at some
time; time passes, values and leases end, the sweeper runs, rules change, agents take over, namespaces are
deleted and opened again, the server is restarted, killed, or loses the end of its log. Replies, reasons,
heads, listings, watches and histories are identical to the model's.

``make test`` runs the same machines every time. ``NOOSPHERE_MACHINES`` runs so many random ones instead, and
``NOOSPHERE_MACHINE_STEPS`` sets how long each is.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from tests.simulation.calls import (
    Add,
    Append,
    Attributes,
    Call,
    Claim,
    Complete,
    Delete,
    Extreme,
    Fields,
    Merge,
    Put,
    Release,
    Renew,
    Update,
)
from tests.simulation.model_world import Transact
from tests.simulation.twins import AGENTS, ITEM_BYTES_MAX, KEYS, POLICIES, SPACES, Twins, Way
from tests.support.statuses import Refused, check_contract

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb

CAMPAIGN = "NOOSPHERE_MACHINES" in os.environ
MACHINES = int(os.environ.get("NOOSPHERE_MACHINES", "120"))
STEPS = int(os.environ.get("NOOSPHERE_MACHINE_STEPS", "50"))
LIVES_MAX = 6
"""Restarts and crashes of one machine: they take a hundred times as long as a call."""

COLLECTIONS = ("", "t/", "s/")
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

    @rule(space=spaces)
    def follow(self, space: str) -> None:
        self.twins.follow(space)

    # -- writes --------------------------------------------------------------------------------

    @rule(
        agent=agents, space=spaces, key=keys, value=values, mode=modes, pick=picks, ttl_ms=endings, tag=tags, way=WAYS
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
    ) -> None:
        when = self.twins.condition(space, key, mode, pick)
        self._make(agent, space, Put(key, value, when, tag, ttl_ms), way)

    @rule(agent=agents, space=spaces, key=keys, mode=modes, pick=picks, way=WAYS)
    def delete(self, agent: str, space: str, key: str, mode: str, pick: int, way: Way) -> None:
        self._make(agent, space, Delete(key, self.twins.condition(space, key, mode, pick)), way)

    @rule(agent=agents, space=spaces, call=merges, pick=picks, way=WAYS)
    def merge(self, agent: str, space: str, call: Merge, pick: int, way: Way) -> None:
        if isinstance(call, Update) and call.remove and pick < 3:
            call = call._replace(seen=self.twins.handle(space, call.key, pick)[0])
        self._make(agent, space, call, way)

    @rule(
        agent=agents,
        space=spaces,
        parts=parts,
        compares=st.lists(st.tuples(keys, picks), max_size=2),
        way=WAYS,
    )
    def transact(
        self,
        agent: str,
        space: str,
        parts: list[tuple[str, str, bytes, str, int]],
        compares: list[tuple[str, int]],
        way: Way,
    ) -> None:
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
        self.twins.transact(space, self.twins.caller(agent, space, way), Transact(versions, tuple(calls)))

    @rule(agent=agents, space=spaces, collection=st.sampled_from(COLLECTIONS), lease_ms=leases, tag=tags, way=WAYS)
    def claim(self, agent: str, space: str, collection: str, lease_ms: int, tag: Attributes, way: Way) -> None:
        self._make(agent, space, Claim(collection, lease_ms, tag), way)

    @precondition(lambda self: self.twins.tasks)
    @rule(
        pick=picks,
        verb=st.sampled_from(("renew", "release", "complete", "complete")),
        by_another=st.booleans(),
        lease_ms=leases,
        way=WAYS,
    )
    def work(self, pick: int, verb: str, by_another: bool, lease_ms: int, way: Way) -> None:
        space, key, actor, fence = self.twins.tasks[-1 - pick % len(self.twins.tasks)]
        agent = actor.partition("#")[0]
        if by_another:
            agent = AGENTS[(AGENTS.index(agent) + 1) % len(AGENTS)]
        choice: dict[str, Call] = {
            "renew": Renew(key, fence, lease_ms),
            "release": Release(key, fence),
            "complete": Complete(key, fence, b"1"),
        }
        self._make(agent, space, choice[verb], way)

    @precondition(lambda self: self.twins.made)
    @rule(pick=picks, twist=st.booleans())
    def repeat(self, pick: int, twist: bool) -> None:
        """Sends a call again, as after a lost reply, or another one under its id."""
        space, caller, call = self.twins.made[-1 - pick % len(self.twins.made)]
        caller = caller._replace(current=self.twins.is_current(caller.actor))
        if isinstance(call, Transact):
            twisted = call._replace(compares=(*call.compares, ("z", 0)))
            self.twins.transact(space, caller, twisted if twist else call)
        else:
            self.twins.make(space, caller, Add("z", 1) if twist else call)

    def _make(self, agent: str, space: str, call: Call, way: Way) -> None:
        self.twins.make(space, self.twins.caller(agent, space, way), call)

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
        self.twins.tick()
        model = self.twins.spaces[space]
        try:
            response = self.twins.run(self.twins.server.api.delete_namespace(space))
        except Refused as refused:
            check_contract(refused)
            wanted = Reason.NAMESPACE_DELETED if model.deleted else Reason.NAMESPACE_NOT_FOUND
            if refused.reason != wanted or (model.exists and not model.deleted):
                raise
            return
        assert (model.exists, model.deleted) == (True, False)
        assert (response.head, response.record_count) == (model.head, len(model.model.state.entries))
        model.delete()

    @rule(space=spaces)
    def ensure(self, space: str) -> None:
        self.twins.tick()
        model = self.twins.spaces[space]
        created = model.deleted or not model.exists
        request = pb.EnsureNamespaceRequest(namespace=space, call=self.twins.reader("a"))
        response = self.twins.run(self.twins.server.api.ensure_namespace(request))
        model.ensure()
        assert (response.generation, response.head, response.created) == (model.generation, model.head, created)

    # -- time and trouble ----------------------------------------------------------------------

    @rule(by_ms=st.sampled_from((1, 300, 1_000, 1_000, 5_000, 130_000, 700_000, 3_700_000)), sweep=st.booleans())
    def elapse(self, by_ms: int, sweep: bool) -> None:
        self.twins.server.clock.advance(by_ms)
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


APPLIED = {"Put", "Delete", "Add", "Claim", "Transact"}
ANSWERS_MIN = 40
"""Different answers (a kind of call and its outcome) that the machines must meet, or they would prove little."""


@pytest.mark.timeout(max(180, MACHINES * 5))
def test_the_server_answers_as_the_model_does() -> None:
    outcomes.clear()
    limits = settings(
        max_examples=MACHINES,
        stateful_step_count=STEPS,
        deadline=None,
        # The same machines every time, unless somebody asks for a campaign.
        derandomize=not CAMPAIGN,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(ServerMachine, settings=limits)
    if not CAMPAIGN:
        assert {f"{call} applied" for call in APPLIED} | {"watch resumed"} <= set(outcomes)
        assert len(outcomes) >= ANSWERS_MIN, sorted(outcomes)
