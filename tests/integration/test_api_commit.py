"""Commit: a decision is written if what its model saw still holds, and otherwise says what changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.api import SEEN_NOTHING, Agent, counter, data, delete, merge, put, put_op, span
from tests.support.causality import SIBLINGS, Mind, causal, guard, names_of, resolve
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import NOTHING_READ, Reason, StampMode, encode_read_set
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


# -- one's own writes ------------------------------------------------------------------------------


async def _put(mind: Mind, space: str) -> types.CallReply:
    request = pb.PutRequest(namespace=space, put=put_op("plan/own", 1, blind=True), call=mind.call())
    return (await mind.agent.api.put(request)).call


async def _replace(mind: Mind, space: str) -> types.CallReply:
    request = pb.PutRequest(namespace=space, put=put_op("plan/1", 9, blind=True), call=mind.call())
    return (await mind.agent.api.put(request)).call


async def _delete(mind: Mind, space: str) -> types.CallReply:
    operation = pb.DeleteOperation(key="plan/1", precondition=types.Precondition(blind=True))
    request = pb.DeleteRequest(namespace=space, delete=operation, call=mind.call())
    return (await mind.agent.api.delete(request)).call


async def _merge(mind: Mind, space: str) -> types.CallReply:
    request = pb.MergeRequest(namespace=space, merge=counter("plan/count"), call=mind.call())
    return (await mind.agent.api.merge(request)).call


async def _large_merge(mind: Mind, space: str) -> types.CallReply:
    for shown in (True, False):
        append = pb.MergeOperation(key="plan/log", log_append=pb.LogAppend(entries=['"%s"' % ("x" * 200)]))
        response = await mind.agent.api.merge(pb.MergeRequest(namespace=space, merge=append, call=mind.call()))
        assert response.applied.HasField("version") is shown, "whoever adds to what is large is not shown the result"
        mind.take(response.call)
    return mind.told


async def _transact(mind: Mind, space: str) -> types.CallReply:
    operations = [put("plan/1", 9, blind=True), delete("plan/2", blind=True), merge(counter("plan/count"))]
    request = pb.TransactRequest(namespace=space, operations=operations, call=mind.call())
    return (await mind.agent.api.transact(request)).call


async def _work(mind: Mind, space: str) -> types.CallReply:
    claim = pb.ClaimNextRequest(namespace=space, collection="plan/", lease=span(30_000), call=mind.call())
    claimed = await mind.agent.api.claim_next(claim)
    mind.take(claimed.call)
    task = claimed.record
    assert task.key == "plan/1"
    renew = pb.RenewRequest(namespace=space, key=task.key, fence=task.claim.fence, lease=span(30_000), call=mind.call())
    mind.take((await mind.agent.api.renew(renew)).call)
    release = pb.ReleaseRequest(namespace=space, key=task.key, fence=task.claim.fence, call=mind.call())
    mind.take((await mind.agent.api.release(release)).call)
    claim.call.CopyFrom(mind.call())
    claimed = await mind.agent.api.claim_next(claim)
    mind.take(claimed.call)
    complete = pb.CompleteRequest(namespace=space, key=task.key, fence=claimed.record.claim.fence, call=mind.call())
    return (await mind.agent.api.complete(complete)).call


async def _commit(mind: Mind, space: str) -> types.CallReply:
    await mind.commit(space, put("plan/1", 9), put("plan/new/one", 1), delete("plan/2"))
    return mind.told


OWN = [_put, _replace, _delete, _merge, _large_merge, _transact, _work, _commit]
OwnWrite = Callable[[Mind, str], Awaitable[types.CallReply]]


@pytest.mark.parametrize("write", OWN, ids=lambda write: write.__name__.strip("_"))
async def test_ones_own_writes_never_make_ones_decision_stale(
    world: World, mind: Mind, peer: Agent, write: OwnWrite
) -> None:
    space = world.space()
    for key in ("plan/1", "plan/2"):
        await peer.put(space, key, 1)
        await mind.get(space, key)
    await mind.get(space, "plan/own")
    await mind.page(space, "plan/")
    await mind.page(space)
    mind.take(await write(mind, space))
    await mind.commit(space, put("decision", 1))
    # And somebody else's are still noticed after it.
    await peer.put(space, "plan/2", 7, blind=True)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(space, put("decision", 2))
    assert {c.actor for entry in error.stale().stale for c in entry.changes} == {peer.name}


@pytest.mark.parametrize("write", OWN, ids=lambda write: write.__name__.strip("_"))
async def test_a_write_that_carries_a_stale_read_set_is_refused(
    world: World, mind: Mind, peer: Agent, write: OwnWrite
) -> None:
    space = world.space()
    for key in ("plan/1", "plan/2"):
        await peer.put(space, key, 1)
    await mind.get(space, "goal")
    await peer.put(space, "goal", 1)
    before = await peer.history(space)
    with refusal(Reason.STALE_READ_SET):
        await write(mind, space)
    assert await peer.history(space) == before, "nothing was written"


async def test_ones_own_sibling_is_no_surprise(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    await peer.ensure(space, SIBLINGS)
    first = await peer.put(space, "plan/1", 1)
    await mind.get(space, "plan/1")
    await mind.page(space, "plan/")
    request = pb.PutRequest(namespace=space, put=put_op("plan/1", 2, context=SEEN_NOTHING), call=mind.call())
    response = await mind.agent.api.put(request)
    assert not response.applied.HasField("version")
    mind.take(response.call)
    assert [v.dot for v in (await peer.get(space, "plan/1")).values] == [first.revision, response.applied.revision]
    await mind.commit(space, put("decision", 1))
    # A resolution carries the token too, and what replaces the record replaces both values, which were seen.
    resolved = await resolve(mind.agent, space, await peer.get(space, "plan/1"), "both", call=mind.call())
    mind.take(resolved.call)
    await mind.commit(space, put("plan/1", 4))
    assert data(await peer.get(space, "plan/1")) == b"4"


async def test_advancing_never_hides_what_somebody_else_did(world: World, mind: Mind, peer: Agent) -> None:
    """Neither where it is not guarded nor where the caller wrote the same key without looking."""
    space = world.space()
    await peer.put(space, "notes/1", 1)
    await peer.put(space, "state", 1)
    await mind.page(space, "notes/")
    await mind.get(space, "state")
    await peer.put(space, "notes/2", 1)
    await peer.put(space, "state", 2, blind=True)
    call = mind.call(guards=["unread"])
    request = pb.TransactRequest(
        namespace=space, operations=[put("notes/3", 1), put("state", 3, blind=True)], call=call
    )
    mind.take((await mind.agent.api.transact(request)).call)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(space, put("decision", 1))
    assert {entry.name for entry in error.stale().stale} == {"notes/", "state"}
    assert mind.seen.namespaces[space].keys["state"].version < error.head


async def test_two_thinkers_of_one_plan(world: World, agent: Agent, peer: Agent) -> None:
    """Whoever is faster wins; the other learns of it, and of nothing else."""
    space = world.space()
    await agent.put(space, "plan/1", 1)
    minds = [Mind(agent), Mind(peer)]
    for mind in minds:
        await mind.page(space, "plan/")
    first = await minds[0].commit(space, put("plan/2", 1))
    await minds[0].commit(space, put("plan/3", 1))
    with refusal(Reason.STALE_READ_SET) as error:
        await minds[1].commit(space, put("plan/4", 1))
    changes = names_of(error.stale().stale)["plan/"]
    assert [(key, actor) for key, actor, _ in changes] == [("plan/3", agent.name), ("plan/2", agent.name)]
    assert changes[1][2] == first.revision


# -- other namespaces ------------------------------------------------------------------------------


async def test_what_lies_elsewhere_can_only_be_checked(world: World, mind: Mind, peer: Agent) -> None:
    space, elsewhere = world.space(), world.space("goals")
    await peer.put(elsewhere, "main", 1)
    await mind.get(elsewhere, "main")
    with refusal(Reason.UNCHECKABLE_GUARD) as error:
        await mind.commit(space, put("plan", 1))
    assert elsewhere in error.message
    await mind.commit(space, put("plan", 1), allow_checked=True)
    await mind.commit(space, put("plan", 2, blind=True), guards=[guard("", space)])
    await peer.put(elsewhere, "main", 2, blind=True)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(space, put("plan", 3, blind=True), allow_checked=True)
    (entry,) = error.stale().stale
    assert (entry.namespace, entry.name) == (elsewhere, "main")
    assert error.metadata["namespace"] == space
    await mind.commit(space, put("plan", 3, blind=True), warn=True)
    assert [(e.namespace, e.name) for e in mind.told.stale] == [(elsewhere, "main")]


async def test_nobody_learns_of_a_foreign_namespace_by_a_token(world: World, agent: Agent, peer: Agent) -> None:
    private = f"agents/{peer.actor.agent_id}"
    owner, thief = Mind(peer), Mind(agent)
    await peer.put(private, "secret", 1)
    await owner.get(private, "secret")
    await owner.page(private)
    thief.token = owner.token
    space = world.space()
    for call in (
        lambda: thief.commit(space, put("k", 1), allow_checked=True),
        lambda: thief.commit(space, put("k", 1), warn=True),
        lambda: thief.refresh(),
        lambda: thief.commit(private, put("k", 1)),
    ):
        with refusal(Reason.PERMISSION_DENIED):
            await call()
    # Naming what it may see is still possible, and the rest stays a token that tells nothing.
    await thief.commit(space, put("k", 1), guards=[guard("", space)])


async def test_an_agents_own_namespace_is_guarded_like_any(world: World, agent: Agent, peer: Agent) -> None:
    private = f"agents/{agent.actor.agent_id}"
    mind = Mind(agent)
    await agent.put(private, "state", 1)
    await mind.get(private, "state")
    await mind.commit(private, put("state", 2))
    await agent.put(private, "state", 3)
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(private, put("state", 4))


# -- refreshing ------------------------------------------------------------------------------------


async def test_a_refresh_tells_the_difference_and_returns_the_present(world: World, mind: Mind, peer: Agent) -> None:
    space, elsewhere = world.space(), world.space("goals")
    await peer.put(space, "plan/1", 1)
    await peer.put(elsewhere, "main", 1)
    await mind.page(space, "plan/")
    await mind.get(space, "state")
    await mind.get(elsewhere, "main")
    assert await mind.refresh() == []
    added = await peer.put(space, "plan/2", 1)
    made = await peer.put(space, "state", 1)
    moved = await peer.put(elsewhere, "main", 2, blind=True)
    stale = await mind.refresh()
    assert {(entry.namespace, entry.name, entry.now) for entry in stale} == {
        (space, "plan/", added.revision),
        (space, "state", made.revision),
        (elsewhere, "main", moved.revision),
    }
    assert names_of(stale)["plan/"] == [("plan/2", peer.name, added.revision)]
    assert mind.seen.namespaces[space].collections["plan/", StampMode.CHANGED].stamp == added.revision
    assert await mind.refresh() == []
    await mind.commit(space, put("state", 2), allow_checked=True)


async def test_a_refresh_is_limited_to_what_its_guards_cover(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    for key in ("a", "b"):
        await peer.put(space, key, 1)
        await mind.get(space, key)
    before = mind.seen.namespaces[space]
    for key in ("a", "b"):
        await peer.put(space, key, 2, blind=True)
    assert [entry.name for entry in await mind.refresh("a")] == ["a"]
    after = mind.seen.namespaces[space]
    assert after.keys["b"] == before.keys["b"]
    assert after.revision == before.revision, "what was not looked at is no newer than it was"
    await mind.also().commit(space, put("decision", 1), guards=["a"])
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(space, put("decision", 1))
    assert [entry.name for entry in error.stale().stale] == ["b"]


async def test_a_refresh_needs_a_read_set_and_may_return_a_causal_token(world: World, mind: Mind, peer: Agent) -> None:
    with refusal(Reason.INVALID_FIELD) as error:
        await mind.refresh()
    assert "call.read_set_token" in error.message
    space = world.space()
    made = await peer.put(space, "k", 1)
    await mind.get(space, "k")
    call = mind.call()
    call.return_causal_token = True
    response = await mind.agent.api.refresh_read_set(pb.RefreshReadSetRequest(call=call))
    assert causal(response.call).revisions == {space: made.revision}


# -- retries ---------------------------------------------------------------------------------------


async def test_a_retry_of_an_applied_commit_replays_it(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    await mind.get(space, "k")
    await mind.page(space, "plan/")
    first, token = mind.also(), mind.token
    applied = await first.commit(space, put("k", 1), put("plan/1", 1), sequence=1)
    await peer.put(space, "plan/2", 1)
    again = await mind.commit(space, put("k", 1), put("plan/1", 1), sequence=1)
    assert (again.revision, again.replayed) == (applied.revision, True)
    assert [r.version for r in again.results] == [r.version for r in applied.results]
    # The token does not belong to what the call means, so one that was advanced meanwhile does not matter either.
    third = Mind(mind.agent, first.token)
    assert (await third.commit(space, put("k", 1), put("plan/1", 1), sequence=1)).replayed
    with refusal(Reason.REQUEST_ID_REUSED):
        await Mind(mind.agent, token).commit(space, put("k", 2), put("plan/1", 1), sequence=1)


async def test_a_refused_commit_is_judged_anew(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    await mind.get(space, "k")
    await peer.put(space, "k", 1)
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(space, put("x", 1), sequence=1)
    await mind.refresh()
    assert not (await mind.commit(space, put("x", 1), sequence=1)).replayed


# -- what reads return -----------------------------------------------------------------------------


async def test_reads_extend_a_read_set_only_when_asked(world: World, mind: Mind, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "a", 1)
    await mind.get(space, "a")
    call = mind.call()
    response = await agent.api.get(pb.GetRequest(namespace=space, key="b", call=call))
    assert response.call.read_set_token == mind.token
    response = await agent.api.get(pb.GetRequest(namespace=space, key="b", call=agent.call()))
    assert not response.HasField("call")
    await mind.batch_get(space, "b", "c", "a")
    assert set(mind.seen.namespaces[space].keys) == {"a", "b", "c"}


async def test_a_claim_of_nothing_returns_the_read_set_as_it_was(world: World, mind: Mind) -> None:
    space = world.space()
    await mind.get(space, "k")
    request = pb.ClaimNextRequest(namespace=space, collection="t/", lease=span(9_000), call=mind.call())
    response = await mind.agent.api.claim_next(request)
    assert not response.HasField("record")
    assert response.call.read_set_token == mind.token
