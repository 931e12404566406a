"""Forgetting through both clients: what is gone, what stays, and what is told of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.process import ServerProcess
from tests.support.threaded import Connect

from noosphere.client import Candidate, Client, EntryNotFound, PermissionDenied, new_request_id


@pytest.fixture
async def operator(emptier: ServerProcess, connect: Connect) -> AsyncIterator[Client]:
    async with connect(emptier.address, agent=f"cli/{new_request_id()}", timeout=60) as connected:
        yield connected


@pytest.fixture
def user() -> str:
    return f"user/{new_request_id()}"


async def known(client: Client, owner: str, *claims: str, producer: str = "form/1", scope: str = "") -> tuple[str, ...]:
    """Makes facts of claims, each with evidence of its own; returns their ids."""
    decisions = await client.facts.remember_many(
        *(
            Candidate(claim, owner, said_by="internal", evidence=[f"doc:{claim}"], producer=producer, scope=scope)
            for claim in claims
        )
    )
    assert all(decision.known for decision in decisions), [decision.explain() for decision in decisions]
    return tuple(decision.fact_id for decision in decisions)


async def texts(client: Client, owner: str) -> list[str]:
    return sorted([fact.text async for fact in client.facts.list(owner)])


async def test_a_fact_goes_and_the_words_go_from_its_source(operator: Client, user: str) -> None:
    async with operator.session(new_request_id()) as session:
        (said,) = await session.append({"role": "user", "content": "The alarm code is 4711 at home"})
        decision = await operator.facts.remember(
            "The alarm code is 4711", owner=user, said_by="user", evidence=said, session=session
        )
        if not decision.known:
            decision = await operator.facts.review(decision.candidate_id, accept=True)
        planned = await operator.facts.forget(decision.fact_id, dry_run=True)
        assert (planned.fact_ids, planned.dry_run) == ((decision.fact_id,), True)
        assert await texts(operator, user) == ["The alarm code is 4711"]
        done = await operator.facts.forget(decision.fact_id)
        assert (done.fact_ids, done.dry_run) == ((decision.fact_id,), False)
        assert done.places["facts"] == 1
        assert done.places["messages"] == 1
        assert done.remaining
        assert "4711" not in "".join([message.text async for message in session.messages()])
        with pytest.raises(EntryNotFound):
            await operator.facts.get(decision.fact_id)
        assert not await operator.facts.search("alarm code", owner=user)
        again = await operator.facts.remember(
            "The alarm code is 4711", owner=user, said_by="internal", evidence=f"msg:{session.id}/{said.id}"
        )
        assert again.status == "suppressed", "the same evidence does not teach it again"
        (said,) = await session.append({"role": "user", "content": "The alarm code is 4711, remember it"})
        anew = await operator.facts.remember(
            "The alarm code is 4711", owner=user, said_by="internal", evidence=said, session=session
        )
        assert anew.status != "suppressed", "a new statement does"


async def test_what_a_search_finds_is_forgotten_of_one_owner(operator: Client, user: str) -> None:
    other = f"{user}-2"
    await known(operator, user, "The password of the wifi is long", "Owns a cat")
    await known(operator, other, "The password of the wifi is short")
    planned = await operator.facts.forget(query="wifi password", owner=user, dry_run=True)
    done = await operator.facts.forget(query="wifi password", owner=user)
    assert planned.fact_ids == done.fact_ids
    assert await texts(operator, user) == ["Owns a cat"]
    assert await texts(operator, other) == ["The password of the wifi is short"]


async def test_all_of_a_producer_goes_and_nothing_else(operator: Client, user: str) -> None:
    poisoned = await known(operator, user, "The moon is green", "The sun is blue", producer="crawler/1")
    await known(operator, user, "Owns a cat")
    done = await operator.facts.forget(producer="crawler/1", scope=user)
    assert set(done.fact_ids) == set(poisoned)
    assert await texts(operator, user) == ["Owns a cat"]


async def test_everything_of_an_owner_goes_in_its_scope_only(operator: Client, user: str) -> None:
    shared = f"shared/{new_request_id()}"
    await known(operator, user, "Owns a cat", "Owns a dog")
    await known(operator, user, "Owns a boat", scope=shared)
    assert len((await operator.facts.forget(everything=True, owner=user)).fact_ids) == 2
    assert await texts(operator, user) == []
    assert await texts(operator, shared) == ["Owns a boat"]


async def test_nobody_forgets_for_another_agent(operator: Client, emptier: ServerProcess, connect: Connect) -> None:
    name = f"planner-{new_request_id()}"
    (fact_id,) = await known(operator, f"agent/{name}", "The build takes an hour")
    async with connect(emptier.address, timeout=60) as stranger:
        with pytest.raises(PermissionDenied):
            await stranger.facts.forget(fact_id)
        with pytest.raises(PermissionDenied):
            await stranger.facts.forget(everything=True, owner=f"agent/{name}")
    async with connect(emptier.address, agent=name, timeout=60) as itself:
        assert (await itself.facts.forget(everything=True)).fact_ids == (fact_id,)
