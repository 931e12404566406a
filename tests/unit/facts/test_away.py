"""The fact store of a server that has none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.factstore import NO_STORE, FactFilter, FactKey, FactStore
from noosphere.server.storage.facts import AwayFactStore

WHERE = FactFilter(("shared/launch",), ("ada",))
KEY = FactKey("shared/launch", "f", 1)


async def first_version(store: FactStore) -> FactKey:
    return await anext(aiter(store.versions("shared/launch")))


async def first_of_everything(store: FactStore) -> None:
    await anext(aiter(store.everything()))


CALLS: dict[str, Callable[[FactStore], Awaitable[object]]] = {
    "write": lambda store: store.write(()),
    "read": lambda store: store.read((KEY,)),
    "by_keywords": lambda store: store.by_keywords(("tea",), WHERE, 1),
    "by_vector": lambda store: store.by_vector((1.0,), WHERE, 1),
    "near": lambda store: store.near((1.0,), (KEY,)),
    "statistics": lambda store: store.statistics(("tea",), WHERE),
    "matching": lambda store: store.matching(WHERE, None, 1),
    "watermark": lambda store: store.watermark(),
    "remove": lambda store: store.remove((KEY,)),
    "versions": first_version,
    "everything": first_of_everything,
    "stats": lambda store: store.stats(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_every_call_is_refused_with_the_reason(name: str) -> None:
    store: FactStore = AwayFactStore("there is none here")
    with pytest.raises(Refusal) as caught:
        await CALLS[name](store)
    assert (caught.value.reason, caught.value.message) == (Reason.ENGINE_UNAVAILABLE, "there is none here")


async def test_it_says_that_there_is_none_and_closes() -> None:
    store: FactStore = AwayFactStore("there is none here")
    assert store.engine == NO_STORE
    await store.close()


def test_no_call_of_a_fact_store_is_left_out() -> None:
    public = {name for name, value in vars(FactStore).items() if callable(value) and not name.startswith("_")}
    assert public == {*CALLS, "close"}
