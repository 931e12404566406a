"""Arguments that no server could understand: each entrance names what is wrong before it sends anything."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from pydantic import BaseModel
from tests.unit.client_support import ScriptedServer, live_record, scripted_server

from noosphere.client import (
    CausalContext,
    Claim,
    Client,
    Compare,
    ConflictPolicy,
    Delete,
    Guard,
    Increment,
    InvalidArgument,
    KeepMax,
    KeepMin,
    LogAppend,
    MapUpdate,
    Namespace,
    NamespacePolicy,
    Put,
    SetUpdate,
    View,
    connect,
)
from noosphere.client._arguments import checked_address, shown
from noosphere.v1 import memory_service_pb2 as ms

HALF = "half a \ud83d pair"
"""Text that UTF-8 cannot say: Python allows a lone surrogate, nothing else does."""
TOO_LONG = 1 << 64
VERY_LONG = timedelta.max


class Note(BaseModel):
    text: str


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with connect(server.address, agent="a") as found:
        yield found


Entrance = Callable[[Namespace], Any]


def entrances(table: dict[str, tuple[str, Entrance]]) -> pytest.MarkDecorator:
    """Parametrises by name, with the field that the error has to begin with."""
    return pytest.mark.parametrize(("field", "entrance"), list(table.values()), ids=list(table))


async def run(result: Any) -> None:
    """Goes through with a call, an iteration or a block."""
    if hasattr(result, "__aenter__"):
        async with result as entered:
            if hasattr(entered, "__anext__"):
                await anext(entered)
    elif hasattr(result, "__anext__"):
        await anext(result)
    elif asyncio.iscoroutine(result):
        await result


def put(**changes: Any) -> Entrance:
    return lambda space: space.put("k", 1, **changes)


def decides(*writes: Any) -> Entrance:
    async def think(view: View) -> Any:
        return writes

    return lambda space: space.decide(think)


def policy(**changes: Any) -> Entrance:
    return lambda space: Client(space._space.transport).ensure_namespace("shared/x", NamespacePolicy(**changes))


def client_of(space: Namespace) -> Client:
    return Client(space._space.transport)


NOT_TEXT: dict[str, tuple[str, Entrance]] = {
    "namespace": ("namespace", lambda space: client_of(space).namespace(f"shared/{HALF}")),
    "shared": ("namespace", lambda space: client_of(space).shared(HALF)),
    "ensure_namespace": ("namespace", lambda space: client_of(space).ensure_namespace(HALF)),
    "policy prefix": ("policy.prefix", policy(prefix_policies=((f"{HALF}/", ConflictPolicy.REJECT),))),
    "observe": ("token", lambda space: client_of(space).observe(HALF)),
    "observe envelope": ("token", lambda space: client_of(space).observe('{"causal_token": "\\ud83d"}')),
    "key": ("key", lambda space: space.key(HALF)),
    "get": ("key", lambda space: space.get(HALF)),
    "get_many": ("key", lambda space: space.get_many(["k", HALF])),
    "list": ("collection", lambda space: space.list(f"{HALF}/")),
    "where name": ("where", lambda space: space.list(where={HALF: 1})),
    "where value": ("where['a']", lambda space: space.list(where={"a": HALF})),
    "history": ("key", lambda space: space.history(HALF)),
    "conflicts": ("collection", lambda space: space.conflicts(f"{HALF}/")),
    "watch": ("collection", lambda space: space.watch(f"{HALF}/")),
    "put key": ("key", lambda space: space.put(HALF, 1)),
    "put value": ("value", lambda space: space.put("k", HALF)),
    "put value inside": ("value", lambda space: space.put("k", {"a": ["b", {"c": HALF}]})),
    "put value name": ("value", lambda space: space.put("k", {HALF: 1})),
    "put model": ("value", lambda space: space.put("k", Note(text=HALF))),
    "put as model": ("value", lambda space: space.put("k", Note(text=HALF), model=Note)),
    "attribute name": ("attributes", put(attributes={HALF: 1})),
    "attribute value": ("attributes['a']", put(attributes={"a": HALF})),
    "request_id": ("request_id", put(request_id=HALF)),
    "delete": ("key", lambda space: space.delete(HALF)),
    "set_add": ("add", lambda space: space.key("k").set_add(1, HALF)),
    "set_remove": ("remove", lambda space: space.key("k").set_remove({"a": HALF})),
    "keep_max": ("value", lambda space: space.key("k").keep_max(HALF)),
    "keep_min": ("value", lambda space: space.key("k").keep_min(HALF)),
    "map_set name": ("set", lambda space: space.key("k").map_set({HALF: 1})),
    "map_set value": ("set['a']", lambda space: space.key("k").map_set({"a": HALF})),
    "map_remove": ("remove", lambda space: space.key("k").map_remove(HALF)),
    "log_append": ("entries", lambda space: space.key("k").log_append(HALF)),
    "compare": ("key", lambda space: space.transact([Compare(HALF, 1)])),
    "transact put": ("value", lambda space: space.transact(operations=[Put("k", HALF)])),
    "transact delete": ("key", lambda space: space.transact(operations=[Delete(HALF)])),
    "transact map": ("remove", lambda space: space.transact(operations=[MapUpdate("k", remove=[HALF])])),
    "transact attributes": (
        "attributes['a']",
        lambda space: space.transact(operations=[Put("k", 1, attributes={"a": HALF})]),
    ),
    "decide": ("entries", decides(LogAppend("k", [HALF]))),
    "guard": ("guard", lambda space: committed(space, guard=HALF)),
    "guard of a collection": ("guard", lambda space: committed(space, guard=f"{HALF}/")),
    "guard in a namespace": ("guard", lambda space: committed(space, guard=Guard("", HALF))),
    "view's key": ("key", lambda space: viewed(space, lambda view: view.get(HALF))),
    "view's namespace": ("namespace", lambda space: viewed(space, lambda view: view.namespace(HALF).get("k"))),
    "resume_view": ("token", lambda space: space.resume_view(HALF)),
    "board": ("prefix", lambda space: space.board(f"{HALF}/")),
    "board key": ("key", lambda space: space.board("b/").add(1, HALF)),
    "board value": ("value", lambda space: space.board("b/").add({"kind": HALF})),
    "board attributes": ("attributes['a']", lambda space: space.board("b/").add(1, attributes={"a": HALF})),
    "claim where": ("where['a']", lambda space: space.board("b/").claim({"a": HALF})),
    "complete": ("result", lambda space: completed(space, HALF)),
    "reserve": ("key", lambda space: space.key(HALF).reserve()),
}


async def committed(space: Namespace, **terms: Any) -> None:
    async with space.reading() as view:
        await view.commit(Put("k", 1), **terms)


async def viewed(space: Namespace, act: Callable[[View], Awaitable[object]]) -> None:
    async with space.reading() as view:
        await act(view)


async def completed(space: Namespace, result: Any) -> None:
    async with space.board("b/").claim() as claim:
        assert isinstance(claim, Claim)
        await claim.complete(result)


@entrances(NOT_TEXT)
async def test_text_that_is_none_is_named(
    server: ScriptedServer, client: Client, field: str, entrance: Entrance
) -> None:
    server.forget("ClaimNext")
    record = live_record("b/k", b"1")
    record.claim.holder = client.actor
    server.script("ClaimNext", ms.ClaimNextResponse(record=record, head=7))
    await refused(client, field, entrance)


OUT_OF_RANGE: dict[str, tuple[str, Entrance]] = {
    "watch after -1": ("after: -1", lambda space: space.watch(after=-1)),
    "watch after 2^64": (f"after: {TOO_LONG}", lambda space: space.watch(after=TOO_LONG)),
    "watch after text": ("after: 'now'", lambda space: space.watch(after=cast("int", "now"))),
    "watch after true": ("after: True", lambda space: space.watch(after=True)),
    "watch patience": ("patience: nan", lambda space: space.watch(patience=float("nan"))),
    "watch snapshot_records_max": ("snapshot_records_max: -1", lambda space: space.watch(snapshot_records_max=-1)),
    "expected_version -1": ("expected_version: -1", put(expected_version=-1)),
    "expected_version 2^64": (f"expected_version: {TOO_LONG}", put(expected_version=TOO_LONG)),
    "delete": ("expected_version: -1", lambda space: space.delete("k", expected_version=-1)),
    "compare -1": ("expected_version: -1", lambda space: space.transact([Compare("k", -1)])),
    "compare 2^64": (f"expected_version: {TOO_LONG}", lambda space: space.transact([Compare("k", TOO_LONG)])),
    "view's compare": ("expected_version: -1", lambda space: committed(space, compares=[Compare("k", -1)])),
    "seen -1": ("seen: -1", put(seen=CausalContext(-1))),
    "seen 2^64": (f"seen: {TOO_LONG}", put(seen=CausalContext(0, (TOO_LONG,)))),
    "seen of a set": ("seen: -1", lambda space: space.key("k").set_remove(1, seen=CausalContext(-1))),
    "seen of a delete": ("seen: -1", lambda space: space.transact(operations=[Delete("k", seen=CausalContext(-1))])),
    "seen text": ("seen: 'k'", put(seen=cast("CausalContext", "k"))),
    "ttl 0": ("ttl: 0", put(ttl=0)),
    "ttl too long": ("ttl: ", put(ttl=VERY_LONG)),
    "ttl far too long": ("ttl: 1e+300", put(ttl=1e300)),
    "ttl whole": ("ttl: ", put(ttl=10**400)),
    "expires_at naive": ("expires_at: 2030", put(expires_at=datetime(2030, 1, 1))),
    "expires_at text": ("expires_at: '2030'", put(expires_at=cast("datetime", "2030"))),
    "increment": (f"by: {TOO_LONG}", lambda space: space.key("k").increment(TOO_LONG)),
    "transact increment": ("by: ", lambda space: space.transact(operations=[Increment("k", -TOO_LONG)])),
    "keep": ("keep: -1", lambda space: space.key("k").log_append(1, keep=-1)),
    "keep_max": ("value: nan", lambda space: space.key("k").keep_max(float("nan"))),
    "keep_min in a transaction": ("value: inf", lambda space: space.transact(operations=[KeepMin("k", float("inf"))])),
    "keep_max in a decision": ("value: inf", decides(KeepMax("k", float("inf")))),
    "set": ("add: nan", lambda space: space.transact(operations=[SetUpdate("k", add=[float("nan")])])),
    "attribute 2^64": ("attributes['a']: ", put(attributes={"a": TOO_LONG})),
    "attribute nan": ("attributes['a']: nan", put(attributes={"a": float("nan")})),
    "attribute none": ("attributes['a']: ", put(attributes={"a": cast("Any", None)})),
    "attribute name": ("attributes: ", put(attributes={cast("Any", 1): "a"})),
    "attributes list": ("attributes: ", put(attributes=cast("Any", ["a"]))),
    "where name": ("where: ", lambda space: space.list(where={cast("Any", None): 1})),
    "page_size": ("page_size: 0", lambda space: space.list(page_size=0)),
    "timeout": ("timeout: -1", lambda space: space.get("k", timeout=-1)),
    "lease": ("lease: ", lambda space: space.board("b/").claim(lease=VERY_LONG)),
    "wait": ("wait: ", lambda space: space.board("b/").claim(wait=1e300)),
    "reserve lease": ("lease: nan", lambda space: space.key("k").reserve(lease=float("nan"))),
    "reserve wait": ("wait: ", lambda space: space.key("k").reserve(wait=-1)),
    "update attempts": ("attempts: 0", lambda space: space.key("k").update(lambda value, conflict: value, attempts=0)),
    "decide attempts": ("attempts: 0", lambda space: space.decide(lambda view: None, attempts=0)),
    "bytes_max": ("bytes_max: 0", lambda space: space.cached(bytes_max=0)),
    "policy item_bytes_max": ("policy.item_bytes_max: -1", policy(item_bytes_max=-1)),
    "policy records_max": (f"policy.records_max: {TOO_LONG}", policy(records_max=TOO_LONG)),
    "policy tombstone_retention": ("policy.tombstone_retention: ", policy(tombstone_retention_ms=TOO_LONG)),
    "policy log_age_max": ("policy.log_age_max: ", policy(log_age_ms_max=0)),
    "policy log_revisions_max": ("policy.log_revisions_max: -1", policy(log_revisions_max=-1)),
    "policy log_bytes_max": ("policy.log_bytes_max: ", policy(log_bytes_max=1 << 40)),
    "policy text": (
        "policy: 'siblings' is str, not a NamespacePolicy",
        lambda space: client_of(space).ensure_namespace("shared/x", cast("NamespacePolicy", "siblings")),
    ),
    "policy conflict_policy": ("policy.conflict_policy: 9", policy(conflict_policy=9)),
    "policy of a prefix": ("policy.prefix_policies", policy(prefix_policies=(("a/", TOO_LONG),))),
    "request_id": ("request_id: 5", put(request_id=5)),
    "map_remove": ("remove: 1", lambda space: space.key("k").map_remove(cast("str", 1))),
    "map_set name": ("set: 1", lambda space: space.key("k").map_set({cast("str", 1): 1})),
    "key": ("key: ", lambda space: space.key(cast("str", 1))),
    "namespace": ("namespace: ", lambda space: client_of(space).namespace(cast("str", 1))),
    "collection": ("collection: ", lambda space: space.list(cast("str", 1))),
    "prefix": ("prefix: ", lambda space: space.board(cast("str", 1))),
    "guard": ("guard: ", lambda space: committed(space, guard=cast("str", 1))),
    "resume": ("resume: ", lambda space: space.watch(resume=cast("bytes", "text"))),
}


@entrances(OUT_OF_RANGE)
async def test_numbers_and_kinds_that_make_no_sense_are_named(client: Client, field: str, entrance: Entrance) -> None:
    await refused(client, field, entrance)


async def refused(client: Client, field: str, entrance: Entrance) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await run(entrance(client.shared("x")))
    error = caught.value
    assert error.message.startswith(field), error.message
    assert error.outcome == "not_applied"
    assert error.message.isprintable(), "the message can be printed and logged anywhere"
    assert len(error.message) < 1_000


@pytest.mark.parametrize(
    "arguments",
    [
        {"agent": HALF},
        {"server": f"{HALF}:1"},
        {"server": ""},
        {"server": "127.0.0.1:70000"},
        {"timeout": 0},
        {"timeout": 10**400},
    ],
    ids=["agent", "server", "no server", "port", "timeout", "long timeout"],
)
async def test_a_client_that_cannot_connect_says_which_argument_is_wrong(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f": {next(iter(arguments))}: "):
        async with connect(**{"server": "127.0.0.1:1", **arguments}):
            pass


async def test_what_was_refused_has_used_no_number(server: ScriptedServer, client: Client) -> None:
    with pytest.raises(InvalidArgument):
        await client.shared("x").put("k", 1, request_id=str(uuid.UUID(int=0)) + "x")
    assert client._transport.sequencer.answered_through == 0


def test_the_farthest_time_that_python_knows_is_none_too_far() -> None:
    assert Put("k", 1, expires_at=datetime.max.replace(tzinfo=UTC)).expires_at is not None


@pytest.mark.parametrize(
    "address", ["memory.example:7443", "[::1]:1", "[fe80::1%eth0]:7443", "unix:/run/noosphere.sock", "dns:///a:1"]
)
def test_addresses_that_name_a_server(address: str) -> None:
    assert checked_address("server", address) == address


@pytest.mark.parametrize("value", [10**5_000, "x" * 10_000, "a\nb", HALF], ids=["number", "text", "line", "surrogate"])
def test_what_a_message_shows_is_short_and_printable(value: object) -> None:
    assert len(shown(value)) < 100
    assert shown(value).isprintable()
