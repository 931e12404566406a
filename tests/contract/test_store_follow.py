"""Following: whoever follows a namespace hears of every move, counted, and there is a limit."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.build import NS, put, write
from tests.contract.lab import StoreLab

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.store import HeadMoved, NamespaceRef
from noosphere.server.storage import heads

OTHER = NamespaceRef("shared/other")


async def test_a_move_after_follow_has_returned_is_told_also_of_a_namespace_that_does_not_exist_yet(
    lab: StoreLab,
) -> None:
    feed = lab.store.heads()
    await lab.store.follow(NS)
    for _ in range(3):
        revision = await write(lab.store, put("a"))
        assert await anext(feed) == HeadMoved(NS.storage_id, revision)
    await lab.store.drop(NS, None)
    assert await anext(feed) == HeadMoved(NS.storage_id, revision)
    lab.store.unfollow(NS)


async def test_a_namespace_is_told_of_as_long_as_one_follower_is_left(lab: StoreLab) -> None:
    feed = lab.store.heads()
    await asyncio.gather(*(lab.store.follow(NS) for _ in range(3)))
    for _ in range(2):
        lab.store.unfollow(NS)
        revision = await write(lab.store, put("a"))
        assert await anext(feed) == HeadMoved(NS.storage_id, revision)
    lab.store.unfollow(NS)
    await lab.store.follow(NS)
    revision = await write(lab.store, put("a"))
    assert await anext(feed) == HeadMoved(NS.storage_id, revision)
    lab.store.unfollow(NS)


async def test_generations_are_followed_apart(lab: StoreLab) -> None:
    second = NamespaceRef(NS.name, 2, origin=50)
    feed = lab.store.heads()
    await lab.store.follow(NS)
    await lab.store.follow(second)
    lab.store.unfollow(NS)
    revision = await write(lab.store, put("a"), namespace=second)
    while await anext(feed) != HeadMoved(second.storage_id, revision):
        pass
    lab.store.unfollow(second)


async def test_what_is_not_followed_cannot_be_unfollowed(lab: StoreLab) -> None:
    await lab.store.follow(NS)
    lab.store.unfollow(NS)
    for ref in (NS, OTHER):
        with pytest.raises(ValueError, match="not followed"):
            lab.store.unfollow(ref)


async def test_no_more_than_so_many_namespaces_are_followed_at_once(
    lab: StoreLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "FOLLOWED_MAX", 2)
    await lab.store.follow(NS)
    await lab.store.follow(OTHER)
    await lab.store.follow(OTHER)
    with pytest.raises(Refusal, match="2 namespaces") as refused:
        await lab.store.follow(NamespaceRef("shared/third"))
    assert refused.value.reason is Reason.LIMIT_EXCEEDED
    lab.store.unfollow(NS)
    await lab.store.follow(NamespaceRef("shared/third"))


async def test_a_closed_store_lets_go_but_follows_nothing_new(lab: StoreLab) -> None:
    await lab.store.follow(NS)
    await lab.store.close()
    lab.store.unfollow(NS)
    with pytest.raises(Refusal) as refused:
        await lab.store.follow(NS)
    assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
