"""Get, BatchGet, List and ListHistory."""

from __future__ import annotations

import pytest
from tests.support.api import Agent, contents, data, delete, put, scalars
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent()


async def test_a_record_tells_who_wrote_what_when(world: World, agent: Agent) -> None:
    space, before = world.space(), (await world.api.info()).store_time
    applied = await agent.put(space, "k", "v", attributes={"kind": "note", "n": 3, "x": 0.5, "done": False})
    record = await agent.get(space, "k")
    (value,) = record.values
    assert (value.dot, value.actor, value.value.data) == (applied.revision, agent.name, b'"v"')
    assert value.value.encoding == types.ENCODING_JSON
    assert before.ToMilliseconds() <= value.write_time.ToMilliseconds()
    assert not value.HasField("expire_time")
    assert record.version == applied.version == applied.revision
    assert record.context == applied.context == types.CausalContext(prefix=applied.revision)
    assert [(e.actor, e.revision) for e in record.clock.entries] == [(agent.name, applied.revision)]
    assert dict(record.attributes) == scalars({"kind": "note", "n": 3, "x": 0.5, "done": False})
    assert record.create_time == value.write_time
    assert record.change_count == 1


async def test_bytes_come_back_as_they_went(world: World, agent: Agent) -> None:
    space, raw = world.space(), bytes(range(256))
    await agent.put(space, "k", raw, encoding=types.ENCODING_BYTES)
    (value,) = (await agent.get(space, "k")).values
    assert (value.value.data, value.value.encoding) == (raw, types.ENCODING_BYTES)


async def test_an_absent_key_has_no_version_and_a_context_at_the_head(world: World, agent: Agent) -> None:
    space = world.space()
    head = (await agent.put(space, "other", 1)).revision
    response = await world.api.get(pb.GetRequest(namespace=space, key="absent", call=agent.call()))
    assert response.head == head
    assert response.record == types.Record(key="absent", context=types.CausalContext(prefix=head))


async def test_reads_need_no_actor(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "k", 1)
    assert data((await world.api.get(pb.GetRequest(namespace=space, key="k"))).record) == b"1"


@pytest.mark.parametrize("consistency", [level for level in types.ReadConsistency.values()])
async def test_every_level_of_consistency_is_served(world: World, agent: Agent, consistency: int) -> None:
    space = world.space()
    await agent.put(space, "k", 1)
    level = types.ReadConsistency.ValueType(consistency)
    got = await world.api.get(pb.GetRequest(namespace=space, key="k", consistency=level))
    batch = await world.api.batch_get(pb.BatchGetRequest(namespace=space, keys=["k"], consistency=level))
    listed = await world.api.list_records(pb.ListRequest(namespace=space, consistency=level))
    assert [got.record] == list(batch.records) == list(listed.records)


async def test_batch_get_answers_in_the_order_asked_at_one_head(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.transact(space, put("a", 1), put("b", 2), put("c", 3))
    response = await world.api.batch_get(pb.BatchGetRequest(namespace=space, keys=["c", "none", "a", "c"]))
    assert [record.key for record in response.records] == ["c", "none", "a", "c"]
    assert [len(record.values) for record in response.records] == [1, 0, 1, 1]
    assert response.head == response.records[0].version == response.records[1].context.prefix


async def test_list_gives_a_collection_in_key_order_by_pages(world: World, agent: Agent) -> None:
    space = world.space()
    keys = [f"todo/{n:03}" for n in range(7)]
    await agent.transact(space, *(put(key, 1) for key in reversed(keys)), put("todo", 0), put("todo-other", 0))
    assert [record.key for record in await agent.listing(space, "todo/", page_size=3)] == keys
    assert [record.key for record in await agent.listing(space, "todo/", page_size=7)] == keys
    backwards = await agent.listing(space, "todo/", page_size=2, reverse=True)
    assert [record.key for record in backwards] == keys[::-1]
    assert len(await agent.listing(space)) == 9


async def test_list_leaves_out_what_is_deleted_or_expired(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "stays", 1)
    await agent.put(space, "deleted", 1)
    await agent.delete(space, "deleted", blind=True)
    await agent.put(space, "expires", 1, ttl_ms=50)
    await world.elapse(50)
    assert [record.key for record in await agent.listing(space)] == ["stays"]


async def test_list_commits_expiry_before_it_tells_when_the_members_changed(world: World, agent: Agent) -> None:
    space = world.space()
    created = await agent.put(space, "c/expires", 1, ttl_ms=50)
    listed = await world.api.list_records(pb.ListRequest(namespace=space, collection="c/"))
    assert listed.stamp == pb.CollectionStamp(changed=created.revision, members=created.revision)
    await world.elapse(50)
    listed = await world.api.list_records(pb.ListRequest(namespace=space, collection="c/"))
    assert not listed.records
    assert listed.stamp.members > created.revision
    assert listed.stamp.members <= listed.head


async def test_stamps_tell_apart_what_changed_and_who_is_a_member(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "c/d/k", 1)
    changed = await agent.put(space, "c/d/k", 2, context=made.context)
    elsewhere = await agent.put(space, "e/k", 1)
    for collection, members in (("c/d/", made.revision), ("c/", made.revision), ("", elsewhere.revision)):
        stamp = (await world.api.list_records(pb.ListRequest(namespace=space, collection=collection))).stamp
        assert stamp.members == members
        assert stamp.changed == (changed.revision if collection else elsewhere.revision)


async def test_list_filters_by_attributes_which_compare_by_value_not_type(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "int", 1, attributes={"n": 1, "kind": "a"})
    await agent.put(space, "double", 1, attributes={"n": 1.0, "kind": "b"})
    await agent.put(space, "bool", 1, attributes={"n": True})
    await agent.put(space, "text", 1, attributes={"n": "1"})

    async def found(**where: str | int | float | bool) -> list[str]:
        return [record.key for record in await agent.listing(space, where=scalars(where))]

    assert await found(n=1) == await found(n=1.0) == ["double", "int"]
    assert await found(n=1, kind="a") == ["int"]
    assert await found(n=True) == ["bool"]
    assert await found(n="1") == ["text"]
    assert await found(n=2) == await found(other=1) == []


async def test_list_can_leave_values_out_and_show_claimed_tasks_only(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.transact(space, put("t/1", 1), put("t/2", 2))
    task = await agent.claim(space, "t/")
    assert task is not None
    assert [r.key for r in await agent.listing(space, "t/", claimed_only=True)] == ["t/1"]
    (first, _) = await agent.listing(space, "t/", keys_only=True)
    assert first.version == task.version
    assert not first.values[0].HasField("value")
    await agent.release(space, task)
    assert not await agent.listing(space, "t/", claimed_only=True)


async def test_a_page_is_cut_where_it_gets_too_large(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.ensure(space, types.NamespacePolicy(item_bytes_max=65_536))
    value = b'"' + b"x" * 65_000 + b'"'
    for n in range(20):
        await agent.put(space, f"k{n:02}", value)
    page = await world.api.list_records(pb.ListRequest(namespace=space, page_size=1000))
    assert page.next_page_token
    assert page.ByteSize() < 1_200_000
    assert len(await agent.listing(space, page_size=1000)) == 20


async def test_page_tokens_belong_to_their_request(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.transact(space, *(put(f"c/{n}", n) for n in range(3)))
    first = await world.api.list_records(pb.ListRequest(namespace=space, collection="c/", page_size=1))
    await world.api.list_records(
        pb.ListRequest(namespace=space, collection="c/", page_size=2, page_token=first.next_page_token)
    )
    for other in (
        pb.ListRequest(namespace=space, page_token=first.next_page_token),
        pb.ListRequest(namespace=space, collection="c/", reverse=True, page_token=first.next_page_token),
        pb.ListRequest(namespace=world.space(), collection="c/", page_token=first.next_page_token),
        pb.ListRequest(namespace=space, collection="c/", page_token="00ff"),
        pb.ListRequest(namespace=space, collection="c/", page_token="no hex"),
        pb.ListRequest(namespace=space, collection="c/", page_token=first.next_page_token[:-2] + "00"),
    ):
        with refusal(Reason.INVALID_PAGE_TOKEN):
            await world.api.list_records(other)


async def test_history_tells_every_change_of_a_key_and_who_made_it(world: World, agent: Agent) -> None:
    space, other = world.space(), await world.agent("b")
    made = await agent.put(space, "k", 1)
    await agent.put(space, "noise", 1)
    blind = await other.put(space, "k", 2, blind=True)
    gone = await agent.delete(space, "k", context=blind.context)
    batches = await agent.history(space, "k", page_size=1)
    assert [batch.revision for batch in batches] == [made.revision, blind.revision, gone.revision]
    changes = [change for batch in batches for change in batch.changes]
    assert [change.kind for change in changes] == [pb.CHANGE_KIND_PUT, pb.CHANGE_KIND_PUT, pb.CHANGE_KIND_DELETE]
    assert [change.actor for change in changes] == [agent.name, other.name, agent.name]
    assert [dot.dot for dot in changes[1].overwritten] == [made.revision]
    assert changes[2].record.version == 0
    assert len(await agent.history(space)) == 4


async def test_history_shows_a_transaction_whole(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "b", 1)
    applied = await agent.transact(space, put("a", 1), delete("b", blind=True), put("c", 1))
    batch = (await agent.history(space))[-1]
    assert batch.revision == applied.revision
    assert [change.key for change in batch.changes] == ["a", "b", "c"]


async def test_history_page_tokens_belong_to_their_request(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "k", 1)
    await agent.put(space, "l", 1)
    first = await world.api.list_history(pb.ListHistoryRequest(namespace=space, page_size=1))
    assert first.next_page_token
    with refusal(Reason.INVALID_PAGE_TOKEN):
        await world.api.list_history(pb.ListHistoryRequest(namespace=space, key="k", page_token=first.next_page_token))


async def test_every_reply_carries_the_head(world: World, agent: Agent) -> None:
    space = world.space()
    empty = await world.api.get(pb.GetRequest(namespace=space, key="k"))
    applied = await agent.put(space, "k", 1)
    assert empty.head < applied.revision
    heads = [
        (await world.api.get(pb.GetRequest(namespace=space, key="k"))).head,
        (await world.api.batch_get(pb.BatchGetRequest(namespace=space))).head,
        (await world.api.list_records(pb.ListRequest(namespace=space))).head,
        (await world.api.list_history(pb.ListHistoryRequest(namespace=space))).head,
    ]
    assert heads == [applied.revision] * 4
    assert contents(await agent.listing(space)) == {"k": b"1"}
