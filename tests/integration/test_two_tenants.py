"""Two tenants at full concurrency on one server: nothing of one ever reaches the other, nor errors, logs or metrics."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from tests.support.closed import bearer, mint_offline, open_channel, serving

from noosphere.client import Client, PermissionDenied, connect
from noosphere.server.security.minting import Wanted
from noosphere.v1 import admin_grants_pb2 as grants_pb
from noosphere.v1 import types_pb2
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

TENANTS = ("acme", "acme2")
"""One's name begins like the other's."""

CANARIES = {"acme": "quokka-7f3a", "acme2": "numbat-91bc"}
NAMES = ("a_b", "a%b", "a*b", "a-b", "a|b", "a:b", "a{b}", "a..b", "مرحبا", "שלום", "日本語", "🦉")
AGENTS = 4
PATIENCE = 60
"""Seconds: facts of many are embedded one after the other."""


class Tenant:
    """The agents of one tenant, what they see, and what they try to see of the other.

    Args:
        name: the tenant's.
        client: of one of its agents.
        seed: of its choices.
    """

    def __init__(self, name: str, client: Client, seed: int) -> None:
        self.name = name
        self.client = client
        self.other = next(other for other in TENANTS if other != name)
        self.canary = CANARIES[name]
        self.seen: list[str] = []
        self.denied = 0
        self.done = 0
        self._rng = random.Random(seed)
        self._numbers = itertools.count()

    async def work(self, enough: asyncio.Event) -> None:
        """Writes, reads, watches and searches until it is enough."""
        async with self.client.session() as session:
            shared = self.client.shared(f"{self.name}/{self._rng.choice(NAMES)}")
            async with shared.watch(snapshot=True) as batches:
                following = asyncio.create_task(self._follow(batches))
                try:
                    while not enough.is_set():
                        await self._round(session, shared)
                        self.done += 1
                finally:
                    following.cancel()
                    await asyncio.wait((following,))

    async def _round(self, session: Any, shared: Any) -> None:
        text, name = f"{self.canary} {next(self._numbers)}", self._rng.choice(NAMES)
        match self._rng.choice((0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 5)):
            case 0:
                await self.client.private.put(name, text, blind=True)
                self._see(await self.client.private.get(name))
            case 1:
                await shared.put(name, text, blind=True)
                self._see(await shared.get(name))
                self._see([record async for record in shared.list()])
            case 2:
                await session.append({"role": "user", "content": text})
                self._see([message async for message in session.messages()])
            case 3:
                await self.client.facts.remember(text, owner=f"user/{self.name}", pinned=True, timeout=PATIENCE)
                self._see(await self.client.facts.search(self.canary, owner=f"user/{self.name}", timeout=PATIENCE))
            case 4:
                self._see([one async for one in self.client.sessions()])
            case _:
                await self._trespass(name)

    async def _trespass(self, name: str) -> None:
        """Asks for what is the other's by its name: every answer is the same denial."""
        theirs = self.client.shared(f"{self.other}/{name}")
        attempts: tuple[Awaitable[object], ...] = (
            theirs.get(name),
            theirs.put(name, "x", blind=True),
            self.client.namespace(f"agents/{self.other}/0").get(name),
            self.client.facts.search(CANARIES[self.other], owner=f"user/{self.other}"),
            self.client.facts.remember("x", owner=f"user/{self.other}"),
        )
        for attempt in attempts:
            with pytest.raises(PermissionDenied) as refused:
                await attempt
            self._see(str(refused.value).replace(name, ""))
            self.denied += 1

    async def _follow(self, batches: AsyncIterator[Any]) -> None:
        async for batch in batches:
            self._see(batch)

    def _see(self, what: object) -> None:
        text = repr(what)
        if CANARIES[self.other] in text:
            self.seen.append(text)


async def together(data: Path, seconds: float, capfd: pytest.CaptureFixture[str]) -> None:
    owners = {name: (f"user/{name}",) for name in TENANTS}
    *minted, root = await mint_offline(
        data, *(Wanted(name, owners=owners[name]) for name in TENANTS), Wanted("root", admin=True)
    )
    enough = asyncio.Event()
    async with serving(data, tokens=True, embedder="none") as address:
        async with open_channel(address) as channel:
            for name in TENANTS:
                grant = grants_pb.Grant(
                    principal=types_pb2.NamePattern(exact=name),
                    resource=types_pb2.NamePattern(prefix=f"shared/{name}/"),
                    verbs=["read", "write", "watch"],
                )
                request = grants_pb.SetGrantRequest(grant=grant)
                await AdminServiceStub(channel).SetGrant(request, metadata=bearer(root.text))
        tenants: list[Tenant] = []
        clients: list[Any] = []
        try:
            for number, (name, made) in itertools.product(range(AGENTS), zip(TENANTS, minted, strict=True)):
                clients.append(connect(address, agent=f"{name}/{number}", token=made.text))
                tenants.append(Tenant(name, await clients[-1].__aenter__(), number))
            working = [asyncio.create_task(tenant.work(enough)) for tenant in tenants]
            until = time.monotonic() + seconds
            while time.monotonic() < until and not any(task.done() for task in working):
                await asyncio.wait(working, timeout=0.1)
            enough.set()
            await asyncio.gather(*working)
        finally:
            for client in clients:
                await client.__aexit__(None, None, None)
    assert all(tenant.done for tenant in tenants)
    assert sum(tenant.denied for tenant in tenants), "nobody has tried"
    assert not [text for tenant in tenants for text in tenant.seen]
    told = capfd.readouterr()
    for canary in CANARIES.values():
        assert canary not in told.out + told.err, "a value is in the log"
    for made in (*minted, root):
        assert made.text not in told.out + told.err


async def test_nothing_crosses_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    await together(tmp_path / "data", 1, capfd)


@pytest.mark.campaign
async def test_nothing_crosses_over_in_a_minute(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    await together(tmp_path / "data", 60, capfd)
