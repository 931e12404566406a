"""Lets pass what whoever calls may do, by the table in ``rpc.rules``. Comes after authentication.

A stream that goes on, or a call that waits, is asked again when grants have changed, and ends if it would no longer be
let pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

from noosphere.consistency import Reason, Refusal

from ...memory.access import Access
from ...ports.runtime import Clock
from ...security import Principal, Unsettled, calling
from ...security.permissions import deciding, denied_acting
from ..breaking import Breaking
from ..gate import Rpc
from ..requests import waits
from ..rules import rule_of

LOOK_SECONDS = 0.25
"""How often it is looked whether grants have changed."""


class _Lasting(NamedTuple):
    task: asyncio.Task[Any]
    principal: Principal


class AuthorizationStep:
    """See the module. Every call is let pass where nobody is asked who they are. Lives on one event loop.

    Args:
        clock: the source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._access: Callable[[], Access | None] = lambda: None
        self._lasting: dict[Rpc, _Lasting] = {}
        self._breaking = Breaking()

    def decide_by(self, access: Access) -> None:
        """Says what decides from now on; it is not kept in memory for that."""
        reference: ReferenceType[Access] = ref(access)
        self._access = reference

    def begin(self, rpc: Rpc) -> None:
        """See ``Step``."""
        principal = calling.get()
        if principal.open:
            return
        access = self._access()
        if access is None:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "what decides who may do what is not open yet; try again")
        deciding.set(access.permissions)
        _check(access, principal, rpc)
        # A call inside a Pipeline has nothing of its own to end by; the services ask again before they write.
        if rpc.message is not None and rpc.parent is None and (rpc.streams or waits(rpc.message)):
            task = asyncio.current_task()
            assert task is not None
            self._lasting[rpc] = _Lasting(task, principal)

    def end(self, rpc: Rpc) -> None:
        """See ``Step``."""
        self._lasting.pop(rpc, None)

    async def run(self) -> None:
        """Ends streams that grants no longer allow, until it is cancelled."""
        seen: tuple[Access | None, int] = (None, 0)
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            access = self._access()
            if access is None or (access, access.permissions.version) == seen:
                continue
            seen = (access, access.permissions.version)
            # A task of its own for each round: what was looked up in one must not count in the next.
            await asyncio.create_task(self._look(access), name="noosphere-grants")

    async def _look(self, access: Access) -> None:
        for rpc, (task, principal) in list(self._lasting.items()):
            refusal = await _refusal(access, principal, rpc)
            if refusal is not None and self._lasting.pop(rpc, None) is not None:
                assert rpc.context is not None
                self._breaking.end(task, rpc.context, refusal)


def _check(access: Access, principal: Principal, rpc: Rpc) -> None:
    """Checks a call.

    Raises:
        Refusal: it is not permitted.
        Unsettled: who uses a session must be looked up.
    """
    rule = rule_of(rpc.method)
    agent_id = rule.agent(rpc.message)
    if agent_id and not access.permissions.may_act_as(principal, agent_id):
        raise denied_acting(principal, agent_id)
    rule.check(access, principal, agent_id, rpc.message)


async def _refusal(access: Access, principal: Principal, rpc: Rpc) -> Refusal | None:
    """Returns why a call that goes on is no longer permitted; None if it is, or cannot be asked about at present."""
    try:
        try:
            _check(access, principal, rpc)
        except Unsettled as unsettled:
            await unsettled.settle()
            _check(access, principal, rpc)
    except Refusal as refusal:
        return refusal if refusal.reason is Reason.PERMISSION_DENIED else None
    return None
