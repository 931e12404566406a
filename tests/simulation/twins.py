"""A real server in process and its model, asked the same; whatever differs is an AssertionError."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections import Counter, defaultdict
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.simulation import wire
from tests.simulation.calls import Call, Caller, Condition, Put, Release, Renew, Reply, Request, Seen, View
from tests.simulation.model_world import Kept, Space, Transact
from tests.simulation.wire import actor_of, context_of, of_applied, of_record, of_refusal, operation_of
from tests.support.api import Agent
from tests.support.engine import LocalServer
from tests.support.statuses import Refused, check_contract
from tests.support.watching import watching

from noosphere.consistency import Reason
from noosphere.server.memory.watches import BOOKMARK_MS
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

T = TypeVar("T")

AGENTS = ("a", "b", "c")
SPACES = ("shared/one", "shared/two", "agents/a")
KEYS = ("r/a", "s/a", "t/1", "l/a", "t/2")
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


class Twins:
    """The server and the model.

    Attributes:
        server: the real one.
        spaces: the model, by namespace.
        actors: every incarnation of each agent, oldest first.
        closed: incarnations that were closed.
        made: calls that can be repeated.
        tasks: ``(namespace, key, holder, fence)`` of claims, whatever became of them.
        outcomes: how often each answer was seen.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory()
        self.server = LocalServer(Path(self._folder.name))
        self.run(self.server.start())
        self.spaces = {name: Space(name, 1, private=name.startswith("agents/")) for name in SPACES}
        self._epoch = 1
        self.actors: dict[str, list[str]] = defaultdict(list)
        self.closed: set[str] = set()
        self._sequences: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        self.made: list[Made] = []
        self._handles: dict[tuple[str, str], list[tuple[Seen, int | None]]] = defaultdict(list)
        self.tasks: list[tuple[str, str, str, int]] = []
        self._image: tuple[Path, dict[str, Kept]] | None = None
        self._tokens: dict[str, tuple[bytes, int, int]] = {}
        self.outcomes: Counter[str] = Counter()
        for agent in AGENTS:
            self.open(agent)
        for name in SPACES:
            self.configure(name, POLICIES, ITEM_BYTES_MAX)
            for key in KEYS[:SEEDED]:
                # Something to conflict with: each handle but the last of a key is out of date.
                for value in (b"0", b"1"):
                    self.make(name, self.caller("a", name, BY_THE_WAY), Put(key, value, Condition(blind=True)))

    def close(self) -> None:
        """Compares everything that is there and ends the server."""
        try:
            for name in SPACES:
                for key in KEYS:
                    self.look(name, key, "a")
                self.compare_history(name)
        finally:
            self.run(self.server.stop())
            self._runner.close()
            self._folder.cleanup()

    # -- surroundings --------------------------------------------------------------------------

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Runs a call to its end."""
        return self._runner.run(call)

    def tick(self) -> None:
        """Tells the model what time it is."""
        now_ms = self.server.engine.store.now_ms()
        for space in self.spaces.values():
            space.model.now_ms = now_ms

    def sweep(self) -> None:
        """Runs a round of the sweeper."""
        self.tick()
        for name in SPACES:
            # Loads it: the log of a namespace that is not in memory is left to the driver.
            self.look(name, KEYS[0], "a")
        self.run(self.server.sweep())
        for space in self.spaces.values():
            space.sweep()

    def keep_image(self) -> None:
        """Remembers everything, to fall back to."""
        self._image = self.server.image(), self._kept()

    def crash(self, *, lose_the_end: bool) -> None:
        """Kills the server; with ``lose_the_end`` what was written since the last image is lost."""
        image, kept = None, self._kept()
        if lose_the_end and self._image is not None:
            (image, kept), self._image = self._image, None
        self.run(self.server.crash(image))
        self._epoch += 1
        assert self.server.engine.store.epoch == self._epoch
        ended = [actor for actors in self.actors.values() for actor in actors if not self.is_current(actor)]
        for name, space in self.spaces.items():
            space.fall_back(kept[name], self._epoch)
            for actor in ended:
                # Which incarnations have ended is known to the coordinator, which lost nothing.
                space.model.forget_client(actor)

    def _kept(self) -> dict[str, Kept]:
        return {name: space.keep() for name, space in self.spaces.items()}

    # -- agents and rules ----------------------------------------------------------------------

    def open(self, agent: str) -> None:
        """Begins the agent's next incarnation."""
        actor = self.run(self.server.api.open_agent(agent, takeover=True))
        numbers = [int(name.partition("#")[2]) for names in self.actors.values() for name in names]
        assert actor.incarnation > max(numbers, default=0)
        for old in self.actors[agent]:
            for space in self.spaces.values():
                space.model.forget_client(old)
        self.actors[agent].append(f"{agent}#{actor.incarnation}")

    def end(self, agent: str) -> None:
        """Closes the agent's incarnation, if it is open."""
        actor = self.actors[agent][-1]
        if actor not in self.closed:
            self.run(self.server.api.close_agent(actor_of(actor)))
            self.closed.add(actor)
            for space in self.spaces.values():
                space.model.forget_client(actor)

    def is_current(self, actor: str) -> bool:
        """Tells whether this is the agent's living incarnation."""
        return self.actors[actor.partition("#")[0]][-1] == actor and actor not in self.closed

    def reader(self, agent: str) -> types.CallContext:
        """Returns who reads; an agent that was closed opens again for it."""
        if self.actors[agent][-1] in self.closed:
            self.open(agent)
        return types.CallContext(actor=actor_of(self.actors[agent][-1]))

    def configure(self, space: str, policies: dict[str, str], item_bytes_max: int) -> None:
        """Sets a namespace's rules."""
        number = {name: types.ConflictPolicy.Value(f"CONFLICT_POLICY_{policy}") for name, policy in policies.items()}
        rules = types.NamespacePolicy(
            conflict_policy=number[""],
            prefix_policies=[types.PrefixPolicy(prefix=p, conflict_policy=n) for p, n in number.items() if p],
            item_bytes_max=item_bytes_max,
        )
        self.run(self.server.api.set_policy(types.NamePattern(exact=space), rules))
        model = self.spaces[space].model
        model.policies, model.item_bytes_max = policies, item_bytes_max

    def caller(self, agent: str, space: str, way: Way) -> Caller:
        """Returns who makes a call."""
        names = self.actors[agent]
        actor = names[0] if way.old_self else names[-1]
        permitted = not space.startswith("agents/") or space == f"agents/{agent}"
        request = None
        if way.request == "uuid":
            request = Request(uuid=str(uuid.uuid4()))
        elif way.request == "sequence":
            self._sequences[actor] += 1
            if way.answered:
                self._answered[actor] = self._sequences[actor] - 1
            request = Request(self._sequences[actor], self._answered[actor])
        fences = (("lock", way.token),) if way.token else ()
        return Caller(actor, request, fences, self.is_current(actor), permitted)

    # -- calls ---------------------------------------------------------------------------------

    def make(self, space: str, caller: Caller, call: Call) -> None:
        """Makes a call on one key."""
        self.tick()
        model = self.spaces[space]
        wanted = model.do(caller, call)
        got, record, head = self.run(wire.do(self.server.api, space, caller, call))
        if isinstance(call, Renew | Release) and (got.outcome, wanted.outcome) == ("applied", "replayed"):
            # Their responses do not tell a replay from an execution; that nothing was executed shows in the head.
            got = wanted
        self.outcomes[f"{type(call).__name__} {got.reason or got.outcome}"] += 1
        self._keep_call(space, caller, call)
        _same("outcome", (got.outcome, got.reason), (wanted.outcome, wanted.reason))
        if got.outcome == "refused":
            _same("unseen", got.unseen, wanted.unseen)
            assert (got.lost or (0,))[0] == (wanted.lost or (0,))[0]
            assert wanted.reason in ("PERMISSION_DENIED", "VALUE_TOO_LARGE") or head == model.head
            return
        assert head == model.head
        if record is not None:
            assert record.key == wanted.key
            _same("record", of_record(record), model.model.read(record.key))
            if got.outcome == "applied":
                self.tasks = [*self.tasks[1 - TASKS_MAX :], (space, record.key, caller.actor, record.claim.fence)]
                self.hold(space, record.key, Seen(record.version), record.version)
        elif got.outcome != "none":
            _same("acknowledgement", _told(got), _told(wanted))
            self.hold(space, call.key, got.seen, got.version)  # type: ignore[union-attr] # a claim has a record

    def transact(self, space: str, caller: Caller, call: Transact) -> None:
        """Makes a transaction."""
        self.tick()
        model = self.spaces[space]
        wanted = model.transact(caller, call)
        self._keep_call(space, caller, call)
        request = pb.TransactRequest(
            namespace=space,
            operations=[operation_of(part) for part in call.calls],
            compares=[pb.Compare(key=key, expected_version=version) for key, version in call.compares],
            call=context_of(caller),
        )
        try:
            response = self.run(self.server.api.transact(request))
        except Refused as refused:
            check_contract(refused)
            self.outcomes[f"Transact {refused.reason}"] += 1
            got = of_refusal(refused)
            _same("outcome", ("refused", got.reason), (wanted.outcome, wanted.reason))
            assert (got.lost or (0,))[0] == (wanted.lost or (0,))[0]
            if wanted.failures:
                failures = refused.transaction().failures
                found = tuple((f.index, f.is_operation, f.key, f.reason) for f in failures)
                _same("failed parts", found, wanted.failures)
            return
        applied = response.applied
        outcome = "replayed" if applied.replayed else "applied" if applied.revision else "unchanged"
        self.outcomes[f"Transact {outcome}"] += 1
        _same("outcome", (outcome, applied.revision), (wanted.outcome, wanted.revision))
        assert response.head == model.head
        for part, result, reply in zip(call.calls, applied.results, wanted.replies, strict=True):
            got = of_applied(part.key, result)
            if outcome != "replayed":
                _same("acknowledgement", _told(got), _told(reply._replace(revision=got.revision)))
            else:
                # What is kept of a large answer may say less, but never allows more.
                assert got.version in (reply.version, None)
                assert got.seen.prefix <= reply.seen.prefix
            self.hold(space, part.key, got.seen, got.version)

    def _keep_call(self, space: str, caller: Caller, call: Call | Transact) -> None:
        if caller.request is not None and len(self.made) < MADE_MAX:
            self.made.append(Made(space, caller, call))

    def look(self, space: str, key: str, agent: str) -> View | None:
        """Reads a key; None if that is refused."""
        self.tick()
        model = self.spaces[space]
        permitted = not space.startswith("agents/") or space == f"agents/{agent}"
        try:
            response = self.run(self.server.api.get(pb.GetRequest(namespace=space, key=key, call=self.reader(agent))))
        except Refused as refused:
            if permitted:
                self._check_deleted(space, refused)
            elif refused.reason != Reason.PERMISSION_DENIED:
                raise
            return None
        assert permitted
        assert not model.deleted
        view = of_record(response.record)
        _same("record", view, model.model.read(key))
        assert response.head == model.head
        return view

    def listing(self, space: str, collection: str, *, reverse: bool) -> None:
        """Lists a collection."""
        self.tick()
        model = self.spaces[space]
        request = pb.ListRequest(namespace=space, collection=collection, reverse=reverse, call=self.reader("a"))
        try:
            response = self.run(self.server.api.list_records(request))
        except Refused as refused:
            self._check_deleted(space, refused)
            return
        assert not model.deleted
        model.expire(collection)
        found = {key: model.model.read(key) for key in model.model.state.entries if key.startswith(collection)}
        living = sorted((key for key, view in found.items() if view.version), reverse=reverse)
        _same("keys", [record.key for record in response.records], living)
        assert all(of_record(record) == found[record.key] for record in response.records)
        assert response.head == model.head

    def _check_deleted(self, space: str, refused: Refused) -> None:
        check_contract(refused)
        _same("deleted", (refused.reason, refused.head), (Reason.NAMESPACE_DELETED, self.spaces[space].head))
        assert self.spaces[space].deleted

    def compare_history(self, space: str) -> None:
        """Reads the whole log."""
        self.tick()
        model = self.spaces[space]
        request = pb.ListHistoryRequest(namespace=space, page_size=1000, call=self.reader("a"))
        try:
            response = self.run(self.server.api.list_history(request))
        except Refused as refused:
            self._check_deleted(space, refused)
            return
        assert not model.deleted
        got = [
            (
                batch.revision,
                batch.commit_time.ToMilliseconds(),
                [(c.key, pb.ChangeKind.Name(c.kind).removeprefix("CHANGE_KIND_"), c.actor) for c in batch.changes],
            )
            for batch in response.batches
        ]
        # A sweep takes what is due in the order of time; which expiry of one commit comes first says nothing.
        wanted = [(batch.revision, batch.time_ms, _in_order(list(batch.events))) for batch in model.log]
        _same("history", [(r, t, _in_order(events)) for r, t, events in got], wanted)
        _same("head and floor", (response.head, response.floor), (model.head, model.floor))

    def follow(self, space: str) -> None:
        """Begins a watch, or resumes it from where it was left, or is told why that cannot be."""
        self.tick()
        model, who = self.spaces[space], Agent(self.server.api, self.reader("a").actor)
        if space not in self._tokens:
            if not model.deleted:
                self._tokens[space] = self.run(_begin_watch(who, space)), model.generation, model.head
            return
        token, generation, position = self._tokens.pop(space)
        outcome = self.run(_resume_watch(self.server, who, space, token))
        self.outcomes[f"watch {outcome if isinstance(outcome, str) else 'resumed'}"] += 1
        wanted: str | list[int] = [batch.revision for batch in model.log if batch.revision > position]
        if model.deleted:
            wanted = Reason.NAMESPACE_DELETED
        elif generation != model.generation:
            wanted = Reason.COMPACTED
        elif any(cut < position <= end for cut, end in model.model.lost):
            wanted = "EPOCH"
        elif position < model.floor:
            wanted = Reason.COMPACTED
        _same("watch", outcome, wanted)

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


async def _begin_watch(who: Agent, space: str) -> bytes:
    async with watching(who, space) as watch:
        await watch.bookmark()
        return watch.resume


async def _resume_watch(server: LocalServer, who: Agent, space: str, token: bytes) -> str | list[int]:
    """Returns the revisions that are told up to the first bookmark, or why none are."""
    seen: list[int] = []
    async with watching(who, space, resume=token) as watch:
        while True:
            reading = asyncio.create_task(watch.message())
            while not reading.done():
                # Loading takes real time; once everything is told, the bookmark takes the server's.
                await asyncio.wait([reading], timeout=0.01)
                server.clock.advance(BOOKMARK_MS)
            try:
                message = reading.result()
            except Refused as refused:
                check_contract(refused)
                return refused.reason
            match message.WhichOneof("event"):
                case "epoch":
                    return "EPOCH"
                case "bookmark":
                    return seen
                case _:
                    seen.append(message.changes.revision)


def _same(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise AssertionError(f"{what}: the server says {got}, the model {wanted}")


def _told(reply: Reply) -> tuple[object, ...]:
    """What a single write's acknowledgement tells."""
    return (
        reply.revision,
        reply.version,
        reply.seen,
        reply.overwritten,
        reply.concurrent_delete,
        reply.merged,
        reply.trimmed,
    )


def _in_order(events: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    return sorted(events) if all(kind == "EXPIRE" for _, kind, _ in events) else events
