"""Records as large as they can be: answers stay within what a client takes, and nothing gets stuck."""

from __future__ import annotations

import pytest
from tests.support.api import SEEN_NOTHING, Agent, Api, PutOptions, put
from tests.support.engine import LocalServer
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason, encode_page, fingerprint, too_large
from noosphere.server.ports.store import NamespaceSummary
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

SIBLINGS = 15
VALUE_BYTES = 60_000
LARGE = types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS, item_bytes_max=65_536)
CLIENT_BYTES_MAX = 4 * 1024 * 1024
"""What gRPC clients take by default."""


async def fill(agent: Agent, space: str, key: str, *, first_ends_ms: int = 0) -> None:
    """Gives a record fifteen siblings, nearly a MiB; the first of them may end."""
    for number in range(SIBLINGS):
        value = bytes([65 + number]) * VALUE_BYTES
        options = PutOptions(context=SEEN_NOTHING, encoding=types.ENCODING_BYTES)
        if first_ends_ms and not number:
            options["ttl_ms"] = first_ends_ms
        await agent.put(space, key, value, **options)


@pytest.fixture
async def large(world: World) -> tuple[Api, Agent, str]:
    """A namespace with one large record ``k``."""
    agent, space = await world.agent(), world.space()
    await agent.ensure(space, LARGE)
    await fill(agent, space, "k")
    return world.api, agent, space


async def test_siblings_that_would_no_longer_fit_are_a_conflict_that_can_be_resolved(world: World) -> None:
    agent, space = await world.agent(), world.space()
    await agent.ensure(space, LARGE)
    value = b"x" * 65_536
    for _ in range(14):
        await agent.put(space, "k", value, context=SEEN_NOTHING, encoding=types.ENCODING_BYTES)
    with refusal(Reason.SIBLING_LIMIT) as error:
        await agent.put(space, "k", value, context=SEEN_NOTHING, encoding=types.ENCODING_BYTES)
    assert len(error.conflict().unseen) == 14
    record = await agent.get(space, "k")
    assert len(record.values) == 14
    await agent.put(space, "k", value, context=record.context, encoding=types.ENCODING_BYTES)


async def test_a_transaction_that_would_leave_too_much_behind_says_so(world: World) -> None:
    agent, space = await world.agent(), world.space()
    await agent.ensure(space, LARGE)
    operations = [put(f"k{n}", "x" * 30_000, context=SEEN_NOTHING) for n in range(8)]
    for _ in range(3):
        await agent.transact(space, *operations)
    with refusal(Reason.VALUE_TOO_LARGE) as error:
        await agent.transact(space, *operations)
    assert error.message == "operations has 960064 bytes in the records that they leave behind, the limit is 786432"
    assert [len((await agent.get(space, f"k{n}")).values) for n in range(8)] == [3] * 8
    # One by one they may all be written.
    for number in range(8):
        await agent.put(space, f"k{number}", "x" * 30_000, context=SEEN_NOTHING)


async def test_values_that_end_at_once_end_however_large_what_remains(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    await agent.ensure("shared/a", LARGE)
    for key in ("k1", "k2", "k3"):
        await fill(agent, "shared/a", key, first_ends_ms=1_000)
    await agent.put("shared/b", "k", 1, ttl_ms=1_000)
    local.clock.advance(1_001)
    await local.sweep()
    for space, keys in (("shared/a", ("k1", "k2", "k3")), ("shared/b", ("k",))):
        ended = {
            change.key
            for batch in await agent.history(space)
            for change in batch.changes
            if change.kind == pb.CHANGE_KIND_EXPIRE
        }
        assert ended == set(keys)


async def test_a_namespace_that_cannot_be_swept_keeps_no_other_from_it(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await local.api.agent("a")
    for space in ("shared/a", "shared/b"):
        await agent.put(space, "k", 1, ttl_ms=1_000)
    local.clock.advance(1_001)
    upkeep = local.engine.memory.upkeep
    look_at = upkeep._look_at

    async def look(summary: NamespaceSummary) -> None:
        if summary.ref.name == "shared/a":
            raise too_large("commit.mutations", 2, 1)
        await look_at(summary)

    monkeypatch.setattr(upkeep, "_look_at", look)
    await local.sweep()
    kinds = [change.kind for batch in await agent.history("shared/b") for change in batch.changes]
    assert kinds == [pb.CHANGE_KIND_PUT, pb.CHANGE_KIND_EXPIRE]


async def test_a_batch_read_that_no_answer_holds_is_refused(large: tuple[Api, Agent, str]) -> None:
    api, agent, space = large
    few = await api.batch_get(pb.BatchGetRequest(namespace=space, keys=["k"] * 3, call=agent.call()))
    assert [len(record.values) for record in few.records] == [SIBLINGS] * 3
    with refusal(Reason.LIMIT_EXCEEDED) as refused:
        await api.batch_get(pb.BatchGetRequest(namespace=space, keys=["k"] * 256, call=agent.call()))
    assert "keys: too many bytes for one answer, ask for fewer keys" in refused.message


async def test_a_page_of_a_history_is_cut_by_its_bytes(large: tuple[Api, Agent, str]) -> None:
    api, agent, space = large
    seen: list[int] = []
    token = ""
    while not seen or token:
        page = await api.list_history(
            pb.ListHistoryRequest(namespace=space, page_size=1_000, page_token=token, call=agent.call())
        )
        assert page.ByteSize() < CLIENT_BYTES_MAX
        seen += [len(batch.changes[0].record.values) for batch in page.batches]
        token = page.next_page_token
    assert seen == list(range(1, SIBLINGS + 1))


async def test_a_transaction_that_failed_shows_its_records_unless_they_are_too_large(
    large: tuple[Api, Agent, str],
) -> None:
    api, agent, space = large

    def request(compares: int) -> pb.TransactRequest:
        return pb.TransactRequest(
            namespace=space,
            compares=[pb.Compare(key="k", expected_version=0)] * compares,
            operations=[pb.Operation(delete=pb.DeleteOperation(key="other"))],
            return_current=True,
            call=agent.call(),
        )

    shown = await api.transact(request(2))
    assert [len(failure.detail.current.values) for failure in shown.not_applied.failures] == [SIBLINGS] * 2
    with refusal(Reason.VERSION_MISMATCH):
        await api.transact(request(60))


@pytest.mark.parametrize("position", ["", "k", "-5", "9" * 20, "9" * 5_000, "١٢", "1_000", " 1"])
async def test_a_history_token_that_was_made_elsewhere_is_refused(world: World, position: str) -> None:
    agent, space = await world.agent(), world.space()
    await agent.put(space, "k", 1)
    token = encode_page(fingerprint("history", space, ""), position)
    with refusal(Reason.INVALID_PAGE_TOKEN):
        await world.api.list_history(pb.ListHistoryRequest(namespace=space, page_token=token, call=agent.call()))
