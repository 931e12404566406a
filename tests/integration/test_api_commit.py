"""Commit: a decision is written if what its model saw still holds, and otherwise says what changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.api import Agent, data, delete, put
from tests.support.causality import Mind, guard, names_of
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import NOTHING_READ, Reason, encode_read_set
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent("thinker")


@pytest.fixture
async def peer(world: World) -> Agent:
    return await world.agent("peer")


@pytest.fixture
def mind(agent: Agent) -> Mind:
    return Mind(agent)


async def test_a_decision_is_written_if_nothing_changed(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    await peer.put(space, "goals/main", "win")
    await peer.put(space, "plan/1", "one")
    assert data(await mind.get(space, "goals/main")) == b'"win"'
    assert len((await mind.page(space, "plan/")).records) == 1
    applied = await mind.commit(space, put("plan/2", "two"), put("plan/3", "three"))
    assert applied.revision
    assert [result.version for result in applied.results] == [applied.revision] * 2
    assert data(await peer.get(space, "plan/2")) == b'"two"'


async def test_a_changed_key_is_named_with_who_changed_it(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    seen = await peer.put(space, "goals/main", "win")
    await mind.get(space, "goals/main")
    first = await peer.put(space, "goals/main", "draw", expected=seen.version)
    second = await mind.agent.put(space, "goals/main", "lose", expected=first.version)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(space, put("plan/1", "attack"))
    (entry,) = error.stale().stale
    assert (entry.namespace, entry.name, entry.is_collection) == (space, "goals/main", False)
    assert (entry.seen, entry.now) == (seen.version, second.version)
    assert names_of([entry]) == {
        "goals/main": [
            ("goals/main", mind.agent.name, second.revision),
            ("goals/main", peer.name, first.revision),
        ]
    }
    assert "goals/main" in error.message
    assert peer.name in error.message
    assert error.head == second.revision
    assert (await peer.get(space, "plan/1")).version == 0, "nothing was written"


async def _appears(peer: Agent, space: str) -> object:
    return await peer.put(space, "plan/0", "new")


async def _vanishes(peer: Agent, space: str) -> object:
    return await peer.delete(space, "plan/1", blind=True)


async def _changes(peer: Agent, space: str) -> object:
    return await peer.put(space, "plan/1", "changed", blind=True)


async def _appears_below(peer: Agent, space: str) -> object:
    return await peer.put(space, "plan/deep/down", "new")


async def _is_added_to(peer: Agent, space: str) -> object:
    return await peer.add(space, "plan/count")


async def _is_claimed(peer: Agent, space: str) -> object:
    return await peer.claim(space, "plan/")


async def _comes_and_goes(peer: Agent, space: str) -> object:
    await peer.put(space, "plan/0", "new")
    return await peer.delete(space, "plan/0", blind=True)


Change = Callable[[Agent, str], Awaitable[object]]
PHANTOMS: list[Change] = [
    _appears,
    _vanishes,
    _changes,
    _appears_below,
    _is_added_to,
    _is_claimed,
    _comes_and_goes,
]


@pytest.mark.parametrize("change", PHANTOMS, ids=lambda change: change.__name__.strip("_"))
async def test_nothing_appears_changes_or_vanishes_unnoticed_in_a_listed_collection(
    world: World, mind: Mind, peer: Agent, change: Change
) -> None:
    space = world.space()
    for number in range(1, 4):
        await peer.put(space, f"plan/{number}", number)
    await mind.page(space, "plan/")
    await change(peer, space)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(space, put("decision", 1))
    (entry,) = error.stale().stale
    assert (entry.name, entry.is_collection) == ("plan/", True)
    assert entry.now > entry.seen
    assert {actor for _, actor, _ in names_of([entry])["plan/"]} == {peer.name}


async def test_an_empty_collection_and_an_absent_key_are_something_that_was_seen(
    world: World, mind: Mind, peer: Agent
) -> None:
    space = world.space()
    await peer.put(space, "other", 1)
    assert not (await mind.page(space, "plan/")).records
    assert not (await mind.get(space, "goal")).values
    await mind.also().commit(space, put("elsewhere", 1))
    for name, key in (("plan/", "plan/x"), ("goal", "goal")):
        thinker = mind.also()
        made = await peer.put(space, key, 1)
        with refusal(Reason.STALE_READ_SET) as error:
            await thinker.commit(space, put("more", 1), guards=[name])
        assert names_of(error.stale().stale) == {name: [(key, peer.name, made.revision)]}
        assert error.stale().stale[0].seen < made.revision


@pytest.mark.parametrize("reverse", [False, True])
async def test_a_list_read_in_pages_is_guarded_from_its_first_page_on(
    world: World, mind: Mind, peer: Agent, reverse: bool
) -> None:
    space = world.space()
    for number in range(6):
        await peer.put(space, f"plan/{number}", number)
    token, pages = "", 0
    while token or not pages:
        page = await mind.page(space, "plan/", page_size=2, page_token=token, reverse=reverse)
        token, pages = page.next_page_token, pages + 1
    assert pages == 3
    await mind.also().commit(space, put("decision", 1))
    late = Mind(mind.agent)
    first = await late.page(space, "plan/", page_size=2, reverse=reverse)
    # Behind the page that was read: the model will never be shown it, whatever the later pages say.
    await peer.put(space, "plan/5a" if reverse else "plan/0a", 1)
    token = first.next_page_token
    while token:
        page = await late.page(space, "plan/", page_size=2, page_token=token, reverse=reverse)
        token = page.next_page_token
    with refusal(Reason.STALE_READ_SET):
        await late.commit(space, put("decision", 2, blind=True))


async def test_a_filtered_list_depends_on_the_whole_collection(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    await peer.put(space, "task/1", 1, attributes={"state": "open"})
    await peer.put(space, "task/2", 1, attributes={"state": "done"})
    page = await mind.page(space, "task/", where={"state": "open"})
    assert [record.key for record in page.records] == ["task/1"]
    await mind.also().commit(space, put("decision/1", 1))
    await peer.put(space, "task/2", 1, attributes={"state": "open"}, blind=True)
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(space, put("decision/2", 1))


# -- guards ----------------------------------------------------------------------------------------


async def test_only_what_is_guarded_must_hold(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    for key in ("goals/main", "goals/side", "notes/1", "state"):
        await peer.put(space, key, 1)
        await mind.get(space, key)
    await mind.page(space, "notes/")
    await peer.put(space, "notes/1", 2, blind=True)
    for guards in (["goals/main"], ["goals/"], ["state", "goals/side"], [guard("", "shared/elsewhere")], ["unread"]):
        await mind.also().commit(space, put("decision", 1, blind=True), guards=guards)
    for guards in ([], ["notes/1"], ["notes/"], ["state", "notes/1"], [guard("", space)], [guard("notes/", space)]):
        with refusal(Reason.STALE_READ_SET) as error:
            await mind.also().commit(space, put("decision", 1, blind=True), guards=guards)
        assert {entry.name for entry in error.stale().stale} <= {"notes/1", "notes/"}


async def test_a_guard_on_a_key_covers_the_list_in_which_it_was_seen(world: World, mind: Mind, peer: Agent) -> None:
    """Otherwise a guard would silently protect nothing where the model has read the key by a list."""
    space = world.space()
    await peer.put(space, "goals/main", 1)
    await mind.page(space, "goals/")
    await mind.also().commit(space, put("decision", 1), guards=["goals/main"])
    await peer.put(space, "goals/main", 2, blind=True)
    for guards in (["goals/main"], ["goals/main/deeper"], ["goals/"]):
        with refusal(Reason.STALE_READ_SET):
            await mind.commit(space, put("decision", 2, blind=True), guards=guards)
    await mind.commit(space, put("decision", 2, blind=True), guards=["other/"])


async def test_guards_without_a_read_set_are_refused(world: World, agent: Agent) -> None:
    space = world.space()
    for call in (
        types.CallContext(actor=agent.actor, guards=[guard("k")]),
        types.CallContext(actor=agent.actor, guard_mode=types.GUARD_MODE_WARN),
        types.CallContext(actor=agent.actor, allow_checked=True),
        types.CallContext(actor=agent.actor, guards=[guard("k")], return_causal_token=True),
    ):
        with refusal(Reason.INVALID_FIELD) as error:
            await agent.put(space, "k", 1, call=call)
        assert "call.guards" in error.message


async def test_malformed_guards_are_refused_by_name(world: World, mind: Mind) -> None:
    space = world.space()
    await mind.get(space, "k")
    for wrong, field in (
        (guard("a//b"), "guards.prefix"),
        (guard("\0conflicts/"), "guards.prefix"),
        (guard("k", "x"), ""),
    ):
        with refusal(Reason.INVALID_FIELD) as error:
            await mind.commit(space, put("k", 1), guards=[wrong])
        assert field in error.message
    with refusal(Reason.VALUE_TOO_LARGE) as error:
        await mind.commit(space, put("k", 1), guards=["k"] * 33)
    assert (error.limit().field, error.limit().actual, error.limit().limit) == ("guards", 33, 32)
    call = mind.call()
    call.guard_mode = 7  # type: ignore[assignment] # a mode of a later version
    with refusal(Reason.INVALID_FIELD):
        await mind.agent.put(space, "k", 1, call=call)


async def test_a_commit_needs_a_read_set(world: World, agent: Agent) -> None:
    request = pb.CommitRequest(namespace=world.space(), operations=[put("k", 1)], call=agent.call())
    with refusal(Reason.INVALID_FIELD) as error:
        await agent.api.commit(request)
    assert "call.read_set_token" in error.message
    request.call.read_set_token = encode_read_set(NOTHING_READ)
    assert (await agent.api.commit(request)).applied.revision


# -- warnings --------------------------------------------------------------------------------------


async def test_a_warning_writes_all_the_same_and_says_what_was_overruled(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    await peer.put(space, "goal", 1)
    await peer.put(space, "plan/1", 1)
    await mind.get(space, "goal")
    await mind.page(space, "plan/")
    moved = await peer.put(space, "goal", 2, blind=True)
    applied = await mind.commit(space, put("decision", 1), warn=True)
    assert applied.revision == moved.revision + 1
    assert names_of(mind.told.stale) == {"goal": [("goal", peer.name, moved.revision)]}
    # What was overruled stays stale: the model has not seen it.
    with refusal(Reason.STALE_READ_SET):
        await mind.also().commit(space, put("decision", 2, blind=True))
    await mind.commit(space, put("decision", 2, blind=True), guards=["plan/"])


async def test_a_warning_about_nothing_says_nothing(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    await peer.put(space, "goal", 1)
    await mind.get(space, "goal")
    await mind.commit(space, put("decision", 1), warn=True)
    assert not mind.told.stale
    await mind.commit(space, put("decision", 2, blind=True))


async def test_a_commit_that_is_warned_replaces_what_it_has_not_seen_and_says_so(
    world: World, mind: Mind, peer: Agent
) -> None:
    space = world.space()
    await peer.put(space, "goal", 1)
    await mind.get(space, "goal")
    moved = await peer.put(space, "goal", 2, blind=True)
    with refusal(Reason.STALE_READ_SET):
        await mind.also().commit(space, put("goal", 3))
    applied = await mind.commit(space, put("goal", 3), warn=True)
    assert [dot.dot for dot in applied.results[0].overwritten] == [moved.revision]
    assert data(await peer.get(space, "goal")) == b"3"
    quiet = Mind(mind.agent)
    await quiet.get(space, "goal")
    applied = await quiet.commit(space, put("goal", 4), warn=True)
    assert not applied.results[0].overwritten, "what was seen is replaced, not overwritten unseen"


# -- implied preconditions -------------------------------------------------------------------------


async def test_a_put_or_delete_without_a_condition_replaces_what_was_seen(
    world: World, mind: Mind, peer: Agent
) -> None:
    space = world.space()
    for key in ("a", "b", "c"):
        await peer.put(space, key, 1)
        await mind.get(space, key)
    await mind.get(space, "absent")
    await mind.commit(space, put("a", 2), delete("b"), put("absent", 1))
    assert [data(r) if r.values else None for r in await mind.batch_get(space, "a", "b", "absent")] == [
        b"2",
        None,
        b"1",
    ]
    # Unguarded, so that the read set does not refuse it first: the version does.
    await peer.put(space, "c", 2, blind=True)
    with refusal(Reason.VERSION_MISMATCH):
        await mind.commit(space, put("c", 3), guards=["a"])
    with refusal(Reason.PRECONDITION_REQUIRED):
        unread = Mind(mind.agent, encode_read_set(NOTHING_READ))
        await unread.commit(space, put("c", 3))


async def test_a_condition_that_is_given_is_the_one_that_counts(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    made = await peer.put(space, "k", 1)
    await mind.get(space, "k")
    moved = await peer.put(space, "k", 2, blind=True)
    await mind.commit(space, put("k", 3, expected=moved.version), guards=["other"])
    with refusal(Reason.CONFLICT):
        await mind.commit(space, put("k", 4, context=made.context), guards=["other"])


async def test_compares_and_parts_are_told_as_in_a_transaction(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    await peer.put(space, "k", 1)
    with refusal(Reason.VERSION_MISMATCH) as error:
        await Mind(mind.agent, encode_read_set(NOTHING_READ)).commit(space, put("x", 1), put("k", 2), compares={"k": 0})
    assert [(f.index, f.is_operation, f.reason) for f in error.transaction().failures] == [
        (0, False, "VERSION_MISMATCH"),
        (1, True, "PRECONDITION_REQUIRED"),
    ]
    with refusal(Reason.INVALID_FIELD):
        await mind.commit(space)
