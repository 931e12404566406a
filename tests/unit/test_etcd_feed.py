"""The watch of etcd, against a client that does what etcd never should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from noosphere.consistency import Refusal
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.etcd import feed
from noosphere.server.storage.etcd import wire_pb2 as wire
from noosphere.server.storage.etcd.feed import Feed
from noosphere.server.storage.etcd.keys import Layout
from noosphere.server.storage.etcd.view import View


class Client:
    """Tells of one revision, after a failure of its own."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self.watches = 0
        self.tells = asyncio.Event()

    async def read_all(self, prefix: bytes) -> tuple[int, list[wire.KeyValue]]:
        return 1, []

    async def watch(self, prefix: bytes, after: int) -> AsyncIterator[wire.WatchResponse]:
        self.watches += 1
        if self.watches == 1:
            raise RuntimeError("a mistake of ours")
        await self.tells.wait()
        kv = wire.KeyValue(key=self._root + b"else", mod_revision=2)
        yield wire.WatchResponse(events=[wire.Event(kv=kv)])
        await asyncio.Event().wait()

    def check(self) -> None:
        """It is open."""


@pytest.fixture
async def client() -> Client:
    return Client(b"fleet/")


@pytest.fixture
async def watching(client: Client) -> AsyncIterator[Feed]:
    made = Feed(cast("Any", client), b"fleet/", View(Layout("fleet/")), SystemClock())
    await made.start()
    yield made
    await made.close()


async def test_a_failure_that_nobody_has_thought_of_does_not_end_the_watch(client: Client, watching: Feed) -> None:
    client.tells.set()
    await watching.reach(2)
    assert client.watches == 2


async def test_those_who_have_given_up_waiting_are_forgotten_while_nothing_moves(
    watching: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "REACH_SECONDS_MAX", 0.0)
    for revision in (3, 2):
        with pytest.raises(Refusal):
            await watching.reach(revision)
    assert not watching._waiting
