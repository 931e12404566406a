"""Who uses a session is looked up anew where the call was not checked for it when it began."""

from __future__ import annotations

import asyncio

import pytest

from noosphere.consistency import Reason, Refusal
from noosphere.server.memory.access import USERS_MS_MAX, Access, SessionUsers
from noosphere.server.memory.types import Call
from noosphere.server.ports.coordinator import Incarnation, PolicyTable
from noosphere.server.ports.grants import Verb
from noosphere.server.security import Permissions, Principal, Unsettled
from noosphere.testing import ManualClock

ALICE = Call(Incarnation("alice", 1), principal=Principal("alice"))


async def test_a_session_under_a_name_that_was_free_again_is_not_for_whoever_had_it_before() -> None:
    owners, clock = {"s": "alice"}, ManualClock()
    access = Access(Permissions(lambda: PolicyTable(1, {}, {})), clock)

    async def find(session_id: str) -> SessionUsers | None:
        return SessionUsers(owners[session_id])

    async def asked() -> bool:
        return await access.may_in_session(ALICE, "s", Verb.READ)

    async def required() -> None:
        try:
            access.require(ALICE, "sessions/s", lately=True)
        except Unsettled as unsettled:
            await unsettled.settle()
            access.require(ALICE, "sessions/s", lately=True)

    access.find_users = find
    # A task each, as for calls: what one has looked up is nothing to the next.
    assert await asyncio.create_task(asked())
    owners["s"] = "bob"
    clock.advance(USERS_MS_MAX)
    with pytest.raises(Refusal) as refused:
        await asyncio.create_task(required())
    assert refused.value.reason is Reason.PERMISSION_DENIED
    owners["s"] = "alice"
    assert await asyncio.create_task(asked())
    owners["s"] = "bob"
    clock.advance(USERS_MS_MAX)
    assert not await asyncio.create_task(asked())
