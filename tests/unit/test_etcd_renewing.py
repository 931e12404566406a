"""Renewal of agents' leases, against a client that does what etcd never should."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.etcd import renewing
from noosphere.server.storage.etcd.keys import Layout
from noosphere.server.storage.etcd.renewing import Renewer

LEASE = 7


class Client:
    """Renews leases, after a failure of its own."""

    def __init__(self) -> None:
        self.rounds = 0
        self.renewed = asyncio.Event()

    async def renew(self, leases: Sequence[int]) -> set[int]:
        self.rounds += 1
        if self.rounds == 1:
            raise RuntimeError("a mistake of ours")
        self.renewed.set()
        return set(leases)


async def test_a_failure_that_nobody_has_thought_of_does_not_end_the_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewing, "PAUSE_SECONDS", 0.0)
    client = Client()
    view = SimpleNamespace(leases={"a": LEASE}, agents={"a": None})
    renewer = Renewer(cast("Any", client), Layout("fleet/"), cast("Any", view), SystemClock(), lease_ms=3)
    renewer.start()
    try:
        renewer.note("a")
        async with asyncio.timeout(60):
            await client.renewed.wait()
        assert client.rounds == 2, "who was noted is noted still"
    finally:
        await renewer.close()
