"""A real server in process and its model, asked the same; whatever differs is an AssertionError."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from typing import Any, NamedTuple, TypeVar

from tests.simulation import wire
from tests.simulation.calls import Call, Caller, Condition, Put, Reply, Request, Seen
from tests.simulation.comparing import same, same_stale, told
from tests.simulation.minds import Between, How, Minds
from tests.simulation.model_world import Together, Transact, may_use
from tests.simulation.readings import Readings
from tests.simulation.wire import (
    Answer,
    context_of,
    of_applied,
    of_record,
    of_refusal,
    of_stale,
    operation_of,
)
from tests.support.statuses import Refused, check_contract

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1.errors_pb2 import TransactionDetail

T = TypeVar("T")

AGENTS = ("a", "b", "c")
SPACES = ("shared/one", "shared/two", "agents/a")
KEYS = ("r/a", "s/a", "t/1", "l/a", "s/b", "t/2")
POLICIES = {"": "REJECT", "r/": "REJECT", "s/": "SIBLINGS", "l/": "LAST_WRITER_WINS"}
ITEM_BYTES_MAX = 160
SEEDED = 3
"""How many of the keys are there from the beginning."""

MADE_MAX = 500
TASKS_MAX = 6
HANDLES_MAX = 6


class Way(NamedTuple):
    """How a call is made: under which kind of id, by which incarnation, with which token of a lock (0: none)."""

    request: str
    answered: bool
    old_self: bool
    token: int


BY_THE_WAY = Way("none", answered=False, old_self=False, token=0)


class Made(NamedTuple):
    """A call that was made under an id, to be repeated."""

    space: str
    caller: Caller
    call: Call | Transact


class Twins(Readings):
    """The server and the model, asked the same.

    Attributes:
        made: calls that can be repeated.
        tasks: ``(namespace, key, holder, fence)`` of claims, whatever became of them.
        minds: what agents have seen.
    """

    def __init__(self) -> None:
        super().__init__(SPACES)
        self.minds = Minds(self)
        self._sequences: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        self.made: list[Made] = []
        self._handles: dict[tuple[str, str], list[tuple[Seen, int | None]]] = defaultdict(list)
        self.tasks: list[tuple[str, str, str, int]] = []
        for agent in AGENTS:
            self.open(agent)
        for name in SPACES:
            self.configure(name, POLICIES, ITEM_BYTES_MAX)
            for key in KEYS[:SEEDED]:
                # Something to conflict with: each handle but the last of a key is out of date.
                for value in (b"0", b"1"):
                    self.make(name, self.caller("a", name, BY_THE_WAY), Put(key, value, Condition(blind=True)))

    def compare_all(self) -> None:
        """Compares everything that is there."""
        for name in SPACES:
            for key in KEYS:
                self.look(name, key, "a")
            self.conflicts(name, "", 0)
            self.compare_history(name)

    def close(self) -> None:
        """Compares everything that is there and ends the server."""
        try:
            self.compare_all()
        finally:
            self.stop()

    def sweep(self) -> None:
        """Runs a round of the sweeper."""
        self.tick()
        for name in SPACES:
            # Loads it: the log of a namespace that is not in memory is left to the driver.
            self.look(name, KEYS[0], "a")
        self.run(self.server.sweep())
        for space in self.spaces.values():
            space.sweep()

    def caller(self, agent: str, space: str, way: Way, how: How | None = None) -> Caller:
        """Returns who makes a call."""
        names = self.actors[agent]
        actor = names[0] if way.old_self else names[-1]
        request = None
        if way.request == "uuid":
            request = Request(uuid=str(uuid.uuid4()))
        elif way.request == "sequence":
            self._sequences[actor] += 1
            if way.answered:
                self._answered[actor] = self._sequences[actor] - 1
            request = Request(self._sequences[actor], self._answered[actor])
        fences = (("lock", way.token),) if way.token else ()
        return Caller(actor, request, fences, self.is_current(actor), may_use(actor, space), self.minds.grounds(how))

    # -- calls ---------------------------------------------------------------------------------

    def make(self, space: str, caller: Caller, call: Call, between: Between | None = None) -> None:
        """Makes a call on one key."""
        between = self._prepare(space, caller, between, call)
        answer, came = self.minds.run(lambda: wire.do(self.server.api, space, caller, call), space, between)
        self._note_peer(space, between, came)
        self._keep_call(space, caller, call)
        wanted = self.spaces[space].do(caller, call)
        self._compare(space, caller, call, answer, wanted, disturbed=bool(came))

    def _prepare(self, space: str, caller: Caller, between: Between | None, call: Call | Transact) -> Between | None:
        """Gets ready for a call; returns what is to happen in between, if that can be told from its happening before.

        Time moves the moment of a write, so it passes only where the call's grounds come to their end by it.
        """
        self.minds.catch_up(caller.grounds)
        self.tick()
        if between is None or not between.elapse_ms:
            return between
        model = self.spaces[space]
        kept = model.keep()
        self.tick(between.elapse_ms)
        over = caller.grounds is not None and caller.grounds.is_over(model.model.now_ms)
        reply = model.transact(caller, call) if isinstance(call, Transact) else model.do(caller, call)
        model.put_back(kept)
        self.tick()
        return between if over and reply.reason == Reason.STALE_READ_SET else None

    def _note_peer(self, space: str, between: Between | None, came: list[Answer]) -> None:
        """Has the model serve who came in between, which counts as before."""
        self.tick()
        for answer in came:
            assert between is not None
            assert between.caller is not None
            assert between.call is not None
            wanted = self.spaces[space].do(between.caller, between.call)
            self.outcomes["came in between"] += 1
            self._compare(space, between.caller, between.call, answer, wanted, disturbed=False)

    def _compare(
        self, space: str, caller: Caller, call: Call, answer: Answer, wanted: Reply, *, disturbed: bool
    ) -> None:
        model, got = self.spaces[space], answer.reply
        self._count(type(call).__name__, caller, got)
        same("outcome", (got.outcome, got.reason), (wanted.outcome, wanted.reason))
        same_stale(got.stale, wanted.stale, refused=got.outcome == "refused", disturbed=disturbed)
        if got.outcome == "refused":
            same("unseen", got.unseen, wanted.unseen)
            assert (got.lost or (0,))[0] == (wanted.lost or (0,))[0]
            about = wanted.space or space
            if wanted.reason not in ("PERMISSION_DENIED", "VALUE_TOO_LARGE", "INVALID_FIELD"):
                same("head", (got.space, answer.head), (about, self.spaces[about].head))
            return
        assert answer.head == model.head
        self._learn(caller, wanted, answer.token)
        if answer.record is not None:
            key = answer.record.key
            assert key == wanted.key
            same("record", of_record(answer.record), model.model.read(key))
            if got.outcome == "applied":
                fence = answer.record.claim.fence
                self.tasks = [*self.tasks[1 - TASKS_MAX :], (space, key, caller.actor, fence)]
                self.hold(space, key, Seen(answer.record.version), answer.record.version)
        elif got.outcome != "none":
            same("acknowledgement", told(got), told(wanted))
            self.hold(space, call.key, got.seen, got.version)  # type: ignore[union-attr] # a claim has a record

    def _learn(self, caller: Caller, wanted: Reply | Together, token: bytes) -> None:
        if caller.grounds is not None:
            assert wanted.seen_now is not None
            self.minds.learn(wanted.seen_now, token)

    def _count(self, call: str, caller: Caller, got: Reply | Together) -> None:
        self.outcomes[f"{call} {got.reason or got.outcome}"] += 1
        if got.stale and got.outcome != "refused":
            self.outcomes["overruled"] += 1
        if caller.grounds is not None and got.outcome == "applied":
            self.outcomes["applied on grounds"] += 1

    def transact(self, space: str, caller: Caller, call: Transact, between: Between | None = None) -> None:
        """Makes a transaction, or a commit."""
        between = self._prepare(space, caller, between, call)
        answer, came = self.minds.run(lambda: self._ask_together(space, caller, call), space, between)
        self._note_peer(space, between, came)
        self._keep_call(space, caller, call)
        model = self.spaces[space]
        wanted = model.transact(caller, call)
        response, got = answer
        name = "Commit" if call.commit else "Transact"
        self._count(name, caller, got)
        same("outcome", (got.outcome, got.reason), (wanted.outcome, wanted.reason))
        same_stale(got.stale, wanted.stale, refused=got.outcome == "refused", disturbed=bool(came))
        if response is None:
            same("failed parts", got.failures, wanted.failures)
            assert (got.lost or (0,))[0] == (wanted.lost or (0,))[0]
            return
        same("revision", got.revision, wanted.revision)
        assert response.head == model.head
        self._learn(caller, wanted, response.call.read_set_token)
        for part, result, reply in zip(call.calls, response.applied.results, wanted.replies, strict=True):
            found = of_applied(part.key, result)
            if got.outcome != "replayed":
                same("acknowledgement", told(found), told(reply._replace(revision=found.revision)))
            else:
                # What is kept of a large answer may say less, but never allows more.
                assert found.version in (reply.version, None)
                assert found.seen.prefix <= reply.seen.prefix
            self.hold(space, part.key, found.seen, found.version)

    async def _ask_together(self, space: str, caller: Caller, call: Transact) -> tuple[Any, Together]:
        parts: dict[str, Any] = {
            "namespace": space,
            "operations": [operation_of(part) for part in call.calls],
            "compares": [pb.Compare(key=key, expected_version=version) for key, version in call.compares],
            "call": context_of(caller),
        }
        response: Any
        try:
            if call.commit:
                response = await self.server.api.commit(pb.CommitRequest(**parts))
            else:
                response = await self.server.api.transact(pb.TransactRequest(**parts))
        except Refused as refused:
            check_contract(refused)
            found = of_refusal(refused)
            failures = refused.transaction().failures if isinstance(refused.detail, TransactionDetail) else ()
            failed = tuple((f.index, f.is_operation, f.key, f.reason) for f in failures)
            return None, Together("refused", found.reason, failures=failed, lost=found.lost, stale=found.stale)
        applied = response.applied
        outcome = "replayed" if applied.replayed else "applied" if applied.revision else "unchanged"
        return response, Together(outcome, revision=applied.revision, stale=of_stale(response.call.stale))

    def _keep_call(self, space: str, caller: Caller, call: Call | Transact) -> None:
        if caller.request is not None and len(self.made) < MADE_MAX:
            self.made.append(Made(space, caller, call))

    # -- what callers hold ---------------------------------------------------------------------

    def hold(self, space: str, key: str, seen: Seen, version: int | None) -> None:
        """Keeps what a read or an acknowledgement gave."""
        held = self._handles[space, key]
        held.append((seen, version))
        del held[:-HANDLES_MAX]

    def handle(self, space: str, key: str, pick: int) -> tuple[Seen, int | None]:
        """Returns something that was kept, new or old."""
        held = self._handles[space, key]
        return held[-1 - pick % len(held)] if held else (Seen(), 0)

    def condition(self, space: str, key: str, mode: str, pick: int) -> Condition:
        """Returns a precondition from something that was kept."""
        seen, version = self.handle(space, key, pick)
        match mode:
            case "seen":
                return Condition(seen=seen)
            case "version":
                return Condition(version=version or 0)
            case "both":
                return Condition(version=version or 0, seen=seen)
            case "blind":
                return Condition(blind=True)
            case _:
                return Condition()
