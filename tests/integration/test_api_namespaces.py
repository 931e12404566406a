"""EnsureNamespace, GetServerInfo and AdminService."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.api import SEEN_NOTHING, Agent, contents, put, span
from tests.support.engine import LocalServer
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import admin_service_pb2 as admin
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

SIBLINGS = types.CONFLICT_POLICY_SIBLINGS
REJECT = types.CONFLICT_POLICY_REJECT


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent()


# -- making live -----------------------------------------------------------------------------------


async def test_a_write_makes_a_namespace_live(world: World, agent: Agent) -> None:
    space = world.space()
    with refusal(Reason.NAMESPACE_NOT_FOUND):
        await world.api.get_namespace(space)
    made = await agent.put(space, "k", 1)
    info = await world.api.get_namespace(space)
    assert (info.namespace, info.generation, info.deleted, info.head) == (space, 1, False, made.revision)
    assert (info.record_count, info.log_count) == (1, 1)
    assert info.record_bytes > 0
    assert info.log_bytes > 0
    assert info.policy.item_bytes_max == 1024


async def test_ensuring_twice_changes_nothing(world: World, agent: Agent) -> None:
    space = world.space()
    first = await agent.ensure(space)
    again = await agent.ensure(space)
    assert (first.created, again.created) == (True, False)
    assert (first.generation, first.head, first.policy) == (again.generation, again.head, again.policy)
    assert (await world.api.get_namespace(space)).head == first.head


async def test_reading_does_not_make_a_namespace(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.get(space, "k")
    await agent.listing(space)
    with refusal(Reason.NAMESPACE_NOT_FOUND):
        await world.api.get_namespace(space)


async def test_a_deleted_namespace_answers_so_until_it_is_opened_again(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    gone = await world.api.delete_namespace(space, made.revision)
    assert (gone.head, gone.record_count) == (made.revision, 1)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: agent.get(space, "k"),
        lambda: world.api.batch_get(pb.BatchGetRequest(namespace=space, keys=["k"])),
        lambda: agent.listing(space),
        lambda: agent.history(space),
        lambda: agent.put(space, "k", 2),
        lambda: agent.delete(space, "k"),
        lambda: agent.add(space, "n"),
        lambda: agent.transact(space, put("k", 2)),
        lambda: agent.claim(space),
    ]
    for call in calls:
        with refusal(Reason.NAMESPACE_DELETED) as error:
            await call()
        assert error.head == made.revision
    info = await world.api.get_namespace(space)
    assert (info.deleted, info.head, info.record_count) == (True, made.revision, 0)
    opened = await agent.ensure(space)
    assert (opened.generation, opened.created) == (2, True)
    assert not await agent.listing(space)
    newer = await agent.put(space, "k", 2)
    assert newer.revision > made.revision


async def test_what_was_read_before_the_deletion_is_no_licence_after_it(world: World, agent: Agent) -> None:
    space = world.space()
    older = await agent.put(space, "k", 1)
    newest = await agent.put(space, "k", 2, context=older.context)
    absent = await agent.get(space, "other")
    await world.api.delete_namespace(space)
    await agent.ensure(space)
    # Everything was deleted since, unseen by whoever holds these.
    for context in (older.context, newest.context, absent.context):
        with refusal(Reason.CONTEXT_TOO_OLD, Reason.CONFLICT):
            await agent.put(space, "k", 3, context=context)
    with refusal(Reason.VERSION_MISMATCH):
        await agent.put(space, "k", 3, expected=newest.version)
    fresh = await agent.get(space, "k")
    await agent.put(space, "k", 3, context=fresh.context)


async def test_deletion_can_be_conditional(world: World, agent: Agent) -> None:
    space = world.space()
    old = await agent.put(space, "k", 1)
    new = await agent.put(space, "k", 2, blind=True)
    with refusal(Reason.VERSION_MISMATCH):
        await world.api.delete_namespace(space, old.revision)
    await world.api.delete_namespace(space, new.revision)
    with refusal(Reason.NAMESPACE_DELETED):
        await world.api.delete_namespace(space)
    with refusal(Reason.NAMESPACE_NOT_FOUND):
        await world.api.delete_namespace(world.space())


async def test_deletions_and_writes_at_the_same_time_leave_one_story(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.ensure(space)

    async def write(number: int) -> str:
        try:
            await agent.put(space, f"k{number}", number)
        except Exception as error:  # the reason is what is compared
            return getattr(error, "reason", repr(error))
        return "applied"

    async def drop() -> str:
        try:
            return str((await world.api.delete_namespace(space)).record_count)
        except Exception as error:  # the reason is what is compared
            return getattr(error, "reason", repr(error))

    outcomes = await asyncio.gather(*(write(n) for n in range(20)), drop(), drop(), *(write(n) for n in range(20, 40)))
    writes, drops = [*outcomes[:20], *outcomes[22:]], outcomes[20:22]
    assert sorted(drops)[1] == Reason.NAMESPACE_DELETED
    assert int(sorted(drops)[0]) == writes.count("applied")
    assert writes.count("applied") + writes.count(Reason.NAMESPACE_DELETED) == 40


async def test_concurrent_ensures_agree_on_one_generation(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "k", 1)
    await world.api.delete_namespace(space)
    replies = await asyncio.gather(*(agent.ensure(space) for _ in range(8)))
    assert {reply.generation for reply in replies} == {2}
    assert sum(reply.created for reply in replies) >= 1


@pytest.mark.parametrize(
    "namespace", ["", "plan", "other/plan", "shared", "shared/", "/shared/x", "shared//x", "shared/x/", "shared/\x01"]
)
async def test_names_of_namespaces_are_checked(world: World, agent: Agent, namespace: str) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: agent.ensure(namespace),
        lambda: agent.get(namespace, "k"),
        lambda: agent.put(namespace, "k", 1),
        lambda: agent.claim(namespace),
        lambda: world.api.get_namespace(namespace),
        lambda: world.api.delete_namespace(namespace),
    ]
    for call in calls:
        with refusal(Reason.INVALID_FIELD):
            await call()


async def test_a_name_of_a_namespace_has_a_limit(world: World, agent: Agent) -> None:
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.ensure("shared/" + "n" * 250)


async def test_the_systems_own_names_are_out_of_reach(world: World, agent: Agent) -> None:
    with refusal(Reason.INVALID_FIELD):
        await agent.get("system/namespaces", "k")
    listed = await world.api.list_namespaces(admin.ListNamespacesRequest(prefix="system/", show_deleted=True))
    assert not listed.namespaces


async def test_ensuring_needs_permission(world: World, agent: Agent) -> None:
    other = await world.agent("b")
    with refusal(Reason.PERMISSION_DENIED):
        await other.ensure(f"agents/{agent.actor.agent_id}")
    with refusal(Reason.INVALID_FIELD):
        await world.api.ensure_namespace(pb.EnsureNamespaceRequest(namespace=world.space()))


# -- rules by pattern ------------------------------------------------------------------------------


async def test_a_pattern_gives_rules_to_every_name_that_matches(world: World, agent: Agent) -> None:
    space = world.space()
    family = space.rsplit("/", 1)[0] + "/"
    prefix = types.NamePattern(prefix=family)
    rules = types.NamespacePolicy(conflict_policy=SIBLINGS, item_bytes_max=2048)
    version = await world.api.set_policy(prefix, rules)
    await agent.put(space, "k", 1, context=SEEN_NOTHING)
    await agent.put(space, "k", "x" * 1500, context=SEEN_NOTHING)
    assert len((await agent.get(space, "k")).values) == 2
    in_force = (await world.api.get_namespace(space)).policy
    assert (in_force.conflict_policy, in_force.item_bytes_max) == (SIBLINGS, 2048)
    # The longer prefix wins over the shorter, the exact name over both.
    assert (
        await world.api.set_policy(types.NamePattern(prefix=space), types.NamespacePolicy(item_bytes_max=100)) > version
    )
    assert (await world.api.get_namespace(space)).policy.item_bytes_max == 100
    await world.api.set_policy(types.NamePattern(exact=space), types.NamespacePolicy(item_bytes_max=50))
    assert (await world.api.get_namespace(space)).policy.item_bytes_max == 50
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.put(space, "l", "x" * 50)
    patterns = [entry.pattern for entry in await world.api.policies()]
    assert prefix in patterns
    assert types.NamePattern(exact=space) in patterns
    last = await world.api.set_policy(types.NamePattern(exact=space), None)
    assert (await world.api.list_policies()).config_version >= last
    assert (await world.api.get_namespace(space)).policy.item_bytes_max == 100


async def test_ensuring_with_rules_sets_them_for_the_name(world: World, agent: Agent) -> None:
    space = world.space()
    rules = types.NamespacePolicy(conflict_policy=SIBLINGS, records_max=7, log_revisions_max=9, log_bytes_max=10_000)
    rules.tombstone_retention.CopyFrom(span(7_200_000))
    rules.log_age_max.CopyFrom(span(5_000))
    rules.item_bytes_max = 77
    assert (await agent.ensure(space, rules)).policy == rules
    assert (await agent.ensure(space)).policy == rules
    assert (await world.api.get_namespace(space)).policy == rules


async def test_rules_are_in_force_with_the_next_call(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "k", 1, context=SEEN_NOTHING)
    with refusal(Reason.CONFLICT):
        await agent.put(space, "k", 2, context=SEEN_NOTHING)
    await agent.ensure(space, types.NamespacePolicy(conflict_policy=SIBLINGS))
    await agent.put(space, "k", 2, context=SEEN_NOTHING)
    await agent.ensure(space, types.NamespacePolicy(conflict_policy=REJECT))
    with refusal(Reason.CONFLICT):
        await agent.put(space, "k", 3, context=SEEN_NOTHING)


@pytest.mark.parametrize(
    ("pattern", "policy"),
    [
        (types.NamePattern(), types.NamespacePolicy()),
        (types.NamePattern(exact="plan"), types.NamespacePolicy()),
        (types.NamePattern(prefix="plan"), types.NamespacePolicy()),
        (types.NamePattern(prefix="shared/x"), types.NamespacePolicy(item_bytes_max=65_537)),
        (types.NamePattern(prefix="shared/x"), types.NamespacePolicy(records_max=10_000_001)),
        (types.NamePattern(prefix="shared/x"), types.NamespacePolicy(tombstone_retention=span(1_000))),
        (types.NamePattern(prefix="shared/x"), types.NamespacePolicy(log_age_max=span(10))),
        (types.NamePattern(prefix="shared/x"), types.NamespacePolicy(log_bytes_max=1 << 40)),
        (
            types.NamePattern(prefix="shared/x"),
            types.NamespacePolicy(prefix_policies=[types.PrefixPolicy(prefix="a", conflict_policy=REJECT)]),
        ),
        (
            types.NamePattern(prefix="shared/x"),
            types.NamespacePolicy(conflict_policy=9),  # type: ignore[arg-type] # a newer client's policy
        ),
    ],
)
async def test_rules_are_checked(
    world: World, agent: Agent, pattern: types.NamePattern, policy: types.NamespacePolicy
) -> None:
    with refusal(Reason.INVALID_FIELD):
        await world.api.set_policy(pattern, policy)


# -- listing ---------------------------------------------------------------------------------------


async def test_namespaces_are_listed_by_name_and_pages(world: World, agent: Agent) -> None:
    family = world.space("family")
    names = [f"{family}/{letter}" for letter in "abcde"]
    for name in reversed(names):
        await agent.put(name, "k", 1)
    await world.api.delete_namespace(names[1])

    async def listed(*, show_deleted: bool) -> list[str]:
        found: list[str] = []
        token = ""
        while True:
            page = await world.api.list_namespaces(
                admin.ListNamespacesRequest(prefix=family, page_size=2, page_token=token, show_deleted=show_deleted)
            )
            found += [info.namespace for info in page.namespaces]
            assert all(info.deleted == (info.namespace == names[1]) for info in page.namespaces)
            token = page.next_page_token
            if not token:
                return found

    assert await listed(show_deleted=False) == [names[0], *names[2:]]
    assert await listed(show_deleted=True) == names
    first = await world.api.list_namespaces(admin.ListNamespacesRequest(prefix=family, page_size=2))
    with refusal(Reason.INVALID_PAGE_TOKEN):
        await world.api.list_namespaces(admin.ListNamespacesRequest(prefix="shared/", page_token=first.next_page_token))
    for size in (-1, 1001):
        with refusal(Reason.INVALID_FIELD):
            await world.api.list_namespaces(admin.ListNamespacesRequest(page_size=size))


def _rules(number: int) -> types.NamespacePolicy:
    return types.NamespacePolicy(item_bytes_max=1000 + number)


async def test_rules_are_listed_by_pattern_and_pages(world: World) -> None:
    family = world.space("family")
    # One text twice: as a name, and as what names begin with.
    patterns = [
        types.NamePattern(prefix=f"{family}/a"),
        types.NamePattern(exact=f"{family}/a"),
        types.NamePattern(prefix=f"{family}/b/"),
        types.NamePattern(exact=f"{family}/c"),
        types.NamePattern(exact=f"{family}/ÿ"),
    ]
    for number, pattern in reversed(list(enumerate(patterns))):
        version = await world.api.set_policy(pattern, _rules(number))
    for size in (1, 2, 3, 1000):
        entries = await world.api.policies(size)
        own = [entry for entry in entries if family in str(entry.pattern)]
        assert [entry.pattern for entry in own] == patterns, f"pages of {size}"
        assert [entry.policy.item_bytes_max for entry in own] == [1000, 1001, 1002, 1003, 1004]
        texts = [entry.pattern.exact or entry.pattern.prefix for entry in entries]
        assert texts == sorted(texts)
    page = await world.api.list_policies(2)
    assert len(page.entries) == 2
    assert page.config_version >= version
    # What is taken away between two pages disturbs nobody: the page begins after it.
    await world.api.set_policy(page.entries[-1].pattern, None)
    following = await world.api.list_policies(2, page.next_page_token)
    assert not {str(entry.pattern) for entry in page.entries} & {str(entry.pattern) for entry in following.entries}
    assert following.config_version > page.config_version
    await world.api.set_policy(page.entries[-1].pattern, page.entries[-1].policy)


async def test_pages_of_rules_end_before_they_are_too_large(local: LocalServer) -> None:
    large = types.NamespacePolicy(
        prefix_policies=[
            types.PrefixPolicy(prefix=f"{number:x}{'é' * 250}/", conflict_policy=REJECT) for number in range(16)
        ]
    )
    for number in range(160):
        await local.api.set_policy(types.NamePattern(exact=f"shared/{number:03}"), large)
    page = await local.api.list_policies(1000)
    assert 100 < len(page.entries) < 160
    assert page.ByteSize() < 1024 * 1024 + large.ByteSize() + 1024
    assert len(await local.api.policies(1000)) == 160


@pytest.mark.parametrize("listing", ["policies", "epochs"])
async def test_pages_of_rules_and_epochs_are_checked(world: World, agent: Agent, listing: str) -> None:
    read: Callable[[int, str], Awaitable[object]] = getattr(world.api, f"list_{listing}")
    for size in (-1, 1001):
        with refusal(Reason.INVALID_FIELD):
            await read(size, "")
    namespaces = [f"{world.space()}/{letter}" for letter in "ab"]
    for name in namespaces:
        await agent.put(name, "k", 1)
    elsewhere = await world.api.list_namespaces(admin.ListNamespacesRequest(page_size=1))
    for token in ("damaged", elsewhere.next_page_token):
        with refusal(Reason.INVALID_PAGE_TOKEN):
            await read(0, token)


# -- about the server ------------------------------------------------------------------------------


async def test_a_server_tells_what_it_is(world: World) -> None:
    info = await world.api.info()
    assert info.api_version == "noosphere.v1"
    assert info.version.count(".") == 2
    assert (info.engine, info.durability) == world.kept
    epochs = await world.api.epochs()
    assert info.epoch == epochs[-1].epoch
    assert [epoch.epoch for epoch in epochs] == sorted(epoch.epoch for epoch in epochs)
    assert epochs[0].cause
    assert epochs[0].start_time.ToMilliseconds() <= info.store_time.ToMilliseconds()


async def test_statistics_count_what_happens(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    before = await local.api.stats()
    await agent.put("shared/s", "k", 1)
    with refusal(Reason.PRECONDITION_REQUIRED):
        await agent.put("shared/s", "k", 2)
    after = await local.api.stats()
    assert after.commit_count == before.commit_count + 1
    assert after.sync_count > before.sync_count
    assert after.record_count == before.record_count + 1
    assert after.namespace_count == before.namespace_count + 1
    assert after.refusals[Reason.PRECONDITION_REQUIRED] == 1
    assert after.resident_bytes > 1_000_000
    assert after.epoch == 1
    await local.elapse(2_500)
    assert (await local.api.stats()).uptime_seconds == after.uptime_seconds + 2.5
    assert contents(await agent.listing("shared/s")) == {"k": b"1"}


async def test_epochs_and_cuts_tell_what_survived(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    made = await agent.put("shared/s", "k", 1)
    image = local.image()
    lost = await agent.put("shared/s", "k", 2, blind=True)
    await local.crash(image)
    epochs = await local.api.epochs()
    assert [epoch.epoch for epoch in epochs] == [1, 2]
    assert epochs[0].cause != epochs[1].cause
    assert epochs[1].recovered
    info = await local.api.get_namespace("shared/s")
    assert info.head == made.revision
    assert lost.revision > info.head
    assert (info.cuts[-1].epoch, info.cuts[-1].cut) == (2, made.revision)
    for size in (1, 2):
        assert await local.api.epochs(size) == epochs, f"pages of {size}"
    assert (await local.api.list_epochs(1)).next_page_token
    # An orderly restart loses nothing and begins no epoch.
    await local.restart()
    assert [epoch.epoch for epoch in await local.api.epochs()] == [1, 2]
