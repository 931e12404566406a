"""Agents that think: read sets, on the server as tokens and in the model as what was seen, and calls upon them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from tests.simulation import model_world
from tests.simulation.calls import Call, Caller
from tests.simulation.calls import Refused as ModelRefused
from tests.simulation.comparing import same, same_stale
from tests.simulation.model_readsets import Grounds, Guard, ReadSet, Stale, extended, first
from tests.simulation.model_world import may_use
from tests.simulation.readings import Readings
from tests.simulation.wire import Answer, do, of_read_set, of_record, of_refusal, of_stale, token_of
from tests.support.meddling import MeddlingStore, once
from tests.support.statuses import Refused, check_contract

from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

MINDS_MAX = 5

T = TypeVar("T")


class Mind(NamedTuple):
    """What somebody has seen: as the model has it, and the server's token."""

    seen: ReadSet
    token: bytes


class How(NamedTuple):
    """How a call presents what was seen: which mind (the newest is 0), guards, and how strictly."""

    pick: int
    guards: tuple[Guard, ...]
    warn: bool
    allow_checked: bool


class Between(NamedTuple):
    """What happens between the moment in which a call is decided and its commit."""

    caller: Caller | None = None
    call: Call | None = None
    elapse_ms: int = 0


class Minds:
    """What agents have seen, newer and older; they hand it to each other as they like.

    Attributes:
        held: every mind, the newest last.
    """

    def __init__(self, pair: Readings) -> None:
        self._pair = pair
        self.held: list[Mind] = []

    def grounds(self, how: How | None) -> Grounds | None:
        """Returns what a call presents; None if it presents nothing."""
        if how is None or not self.held:
            return None
        mind = self.held[-1 - how.pick % len(self.held)]
        return Grounds(mind.seen, mind.token, how.guards, how.warn, how.allow_checked)

    def learn(self, seen: ReadSet, token: bytes) -> None:
        """Holds the server's token of a read set to the model's, and keeps both."""
        same("read set", of_read_set(token), seen)
        if not self.held or self.held[-1] != (seen, token):
            self.held = [*self.held[1 - MINDS_MAX :], Mind(seen, token)]

    # -- reading -------------------------------------------------------------------------------

    def read(self, agent: str, space: str, key: str, pick: int | None) -> None:
        """Reads a key; ``pick`` is the mind that is extended, None for a new one."""
        mind, model = self._begin(pick), self._pair.spaces[space]
        request = pb.GetRequest(namespace=space, key=key, call=self._reader(agent, mind))
        response = self._ask(agent, space, mind, lambda: self._pair.server.api.get(request))
        if response is None:
            return
        same("record", of_record(response.record), model.model.read(key))
        self.learn(extended(mind.seen, space, model.head, {key: model.see(key)}, {}), response.call.read_set_token)

    def list_all(self, agent: str, space: str, collection: str, page_size: int, pick: int | None) -> None:
        """Lists a collection, page by page into one read set."""
        mind, model = self._begin(pick), self._pair.spaces[space]
        listed = collection, "changed"
        page_token = ""
        while True:
            request = pb.ListRequest(
                namespace=space,
                collection=collection,
                page_size=page_size,
                page_token=page_token,
                call=self._reader(agent, mind),
            )
            response = self._ask(agent, space, mind, lambda: self._pair.server.api.list_records(request))  # noqa: B023
            if may_use(agent, space) and not model.deleted:
                # What has ended is swept before the read set is looked at, which may then be refused.
                model.expire(collection)
            if response is None:
                return
            self._pair.same_stamps(space, collection, response.stamp)
            ends = first(*(model.see(record.key).ends_ms for record in response.records))
            sight = model.see_list(listed)._replace(ends_ms=ends)
            self.learn(extended(mind.seen, space, model.head, {}, {listed: sight}), response.call.read_set_token)
            mind = self.held[-1]
            page_token = response.next_page_token
            if not page_token:
                return

    def list_keys(self, agent: str, space: str, collection: str, pick: int | None) -> None:
        """Reads which keys a collection has. No read of shared memory records just that, so a list lends its stamp."""
        mind, model = self._begin(pick), self._pair.spaces[space]
        request = pb.ListRequest(namespace=space, collection=collection, call=self._reader(agent, Mind({}, b"")))
        response = self._ask(agent, space, Mind({}, b""), lambda: self._pair.server.api.list_records(request))
        if response is None:
            return
        model.expire(collection)
        self._pair.same_stamps(space, collection, response.stamp)
        listed = collection, "members"
        seen = extended(mind.seen, space, model.head, {}, {listed: model.see_list(listed)})
        self.held = [*self.held[1 - MINDS_MAX :], Mind(seen, token_of(seen))]

    def refresh(self, agent: str, how: How) -> None:
        """Compares a read set with the present."""
        grounds = self.grounds(how)
        if grounds is None:
            return
        pair = self._pair
        self.catch_up(grounds)
        call = pair.reader(agent)
        call.read_set_token = grounds.token
        call.guards.extend(types.Guard(prefix=guard.prefix, namespace=guard.space) for guard in grounds.guards)
        pair.tick()
        wanted: ModelRefused | None = None
        stale: list[Stale] = []
        seen: ReadSet = {}
        try:
            stale, seen = model_world.refresh(pair.spaces, pair.actors[agent][-1], grounds)
        except ModelRefused as refused:
            wanted = refused
        try:
            response = pair.run(pair.server.api.refresh_read_set(pb.RefreshReadSetRequest(call=call)))
        except Refused as refused:
            check_contract(refused)
            pair.outcomes[f"RefreshReadSet {refused.reason}"] += 1
            got = of_refusal(refused)
            same("outcome", got.reason, wanted and wanted.reply.reason)
            assert wanted is not None
            assert got.space in (wanted.reply.space, "")
            return
        same("outcome", None, wanted and wanted.reply.reason)
        pair.outcomes[f"RefreshReadSet {'stale' if stale else 'current'}"] += 1
        same_stale(of_stale(response.stale), tuple(stale), refused=False, disturbed=False)
        self.learn(seen, response.call.read_set_token)

    def _begin(self, pick: int | None) -> Mind:
        return Mind({}, b"") if pick is None or not self.held else self.held[-1 - pick % len(self.held)]

    def _reader(self, agent: str, mind: Mind) -> types.CallContext:
        call = self._pair.reader(agent)
        call.read_set_token = mind.token
        call.record_read_set = True
        return call

    def _ask(self, agent: str, space: str, mind: Mind, call: Callable[[], Awaitable[T]]) -> T | None:
        """Reads; None if that is refused, as it must be then."""
        pair, model = self._pair, self._pair.spaces[space]
        pair.tick()
        wanted = ""
        try:
            model.check_reader(pair.actors[agent][-1])
            if space in mind.seen:
                model.check_seen(mind.seen[space])
        except ModelRefused as refused:
            wanted = refused.reply.reason
        try:
            response = pair.run(_made(call))
        except Refused as refused:
            check_contract(refused)
            same("outcome", refused.reason, wanted)
            return None
        same("outcome", "", wanted)
        return response

    # -- deciding ------------------------------------------------------------------------------

    def catch_up(self, grounds: Grounds | None) -> None:
        """Asks the server what it says of collections in which nothing is stored, before it is held to it."""
        pair = self._pair
        for space, part in (grounds.seen if grounds is not None else {}).items():
            model = pair.spaces[space]
            for collection in {name for name, _ in part.lists}:
                if not model.deleted and model.is_empty(collection):
                    request = pb.ListRequest(namespace=space, collection=collection, call=pair.reader("a"))
                    response = pair.run(pair.server.api.list_records(request))
                    pair.same_stamps(space, collection, response.stamp)

    def run(self, call: Callable[[], Awaitable[T]], space: str, between: Between | None) -> tuple[T, list[Answer]]:
        """Makes a call; returns its answer, and that of who came in between."""
        pair = self._pair
        if between is None:
            return pair.run(_made(call)), []
        came: list[Answer] = []

        async def come() -> None:
            if between.elapse_ms:
                pair.server.clock.advance(between.elapse_ms)
            else:
                assert between.caller is not None
                assert between.call is not None
                came.append(await do(pair.server.api, space, between.caller, between.call))

        core = pair.server.engine.memory.core
        store = core.store
        core.store = MeddlingStore(store, once(come))
        try:
            return pair.run(_made(call)), came
        finally:
            core.store = store


async def _made(call: Callable[[], Awaitable[T]]) -> T:
    return await call()
