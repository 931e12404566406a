"""Groups of agents: who is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import NamedTuple

from noosphere.consistency import Reason, Refusal, exhausted

from ..memory.core import Core, draining
from ..memory.reads import check_page_size
from ..memory.signals import HeadSignals
from ..memory.types import Call
from ..ports.locks import Member
from .callers import check_name, require_incarnation

NAME = "group"
WATCHES_MAX = 1_000
CHANGES_PER_MESSAGE_MAX = 500
"""With 4 KiB of data each they make 2 MiB."""

LOOK_SECONDS = 5.0
"""How often a watch makes sure that its caller has not ended, which also keeps the agent's lease alive."""


class MemberPage(NamedTuple):
    """Members by name, and the name after which the next page begins; None on the last one."""

    members: tuple[Member, ...]
    following: str | None


class MembersChanged(NamedTuple):
    """Who has come, or come anew, and who has gone; ``more`` of the same change follows."""

    joined: tuple[Member, ...]
    left: tuple[str, ...]
    more: bool


class GroupService:
    """Keeps agents in groups and tells who is there.

    Args:
        core: knows who calls, and the coordinator.
        signals: tell of the shutdown, which ends all watches.
    """

    def __init__(self, core: Core, signals: HeadSignals) -> None:
        self._core = core
        self._presence = core.coordinator.presence
        self._signals = signals
        self._watches = 0

    async def join(self, call: Call, group: str, *, lease_ms: int, data: bytes) -> Member:
        """Enters a group as the calling agent.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, STALE_INCARNATION, LIMIT_EXCEEDED, ENGINE_UNAVAILABLE.
        """
        life = require_incarnation(self._core, call)
        check_name(NAME, group)
        return await self._presence.join(group, life.agent_id, lease_ms, data, life=life)

    async def keep(self, call: Call, group: str, number: int) -> None:
        """Begins the lease of the calling agent's membership anew.

        Raises:
            Refusal: INVALID_FIELD, STALE_INCARNATION, STALE_FENCE, ENGINE_UNAVAILABLE.
        """
        life = require_incarnation(self._core, call)
        check_name(NAME, group)
        await self._presence.keep(group, life.agent_id, number)

    async def leave(self, call: Call, group: str, number: int) -> bool:
        """Ends the calling agent's membership; returns whether it was still there.

        Raises:
            Refusal: INVALID_FIELD, STALE_INCARNATION, ENGINE_UNAVAILABLE.
        """
        life = require_incarnation(self._core, call)
        check_name(NAME, group)
        return await self._presence.leave(group, life.agent_id, number)

    async def list(self, call: Call, group: str, *, page_size: int, after: str) -> MemberPage:
        """Returns who is there, by agent.

        Raises:
            Refusal: INVALID_FIELD, STALE_INCARNATION, ENGINE_UNAVAILABLE.
        """
        self._core.require_current(call)
        check_name(NAME, group)
        size = check_page_size(page_size)
        there = [member for member in await self._presence.members(group) if member.name > after]
        return MemberPage(tuple(there[:size]), there[size - 1].name if len(there) > size else None)

    async def watch(self, call: Call, group: str) -> AsyncGenerator[MembersChanged, None]:
        """Yields who is there, at first everybody, then who comes and goes.

        Raises:
            Refusal: INVALID_FIELD, STALE_INCARNATION, LIMIT_EXCEEDED, DRAINING, ENGINE_UNAVAILABLE.
        """
        self._core.require_current(call)
        check_name(NAME, group)
        if self._watches >= WATCHES_MAX:
            raise exhausted("group", self._watches + 1, WATCHES_MAX, "too many groups are watched")
        self._watches += 1
        try:
            known: Mapping[str, Member] = {}
            first = True
            async with aclosing(self._states(call, group)) as states:
                async for there in states:
                    joined = [member for name, member in there.items() if known.get(name) != member]
                    left = [name for name in known if name not in there]
                    for message in _messages(joined, left, first):
                        yield message
                    known, first = there, False
        finally:
            self._watches -= 1

    async def _states(self, call: Call, group: str) -> AsyncGenerator[Mapping[str, Member], None]:
        """Yields who is there after each change, as long as the caller has not ended and the process goes on."""
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        unsubscribe = self._signals.on_drain(lambda: None if drained.done() else drained.set_result(None))
        async with aclosing(self._presence.watch(group)) as changes:
            following = asyncio.ensure_future(anext(changes))
            try:
                while True:
                    await asyncio.wait((following, drained), timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    if drained.done():
                        raise draining()
                    if not following.done():
                        if not self._core.renew(call):
                            raise Refusal(Reason.STALE_INCARNATION, f"{call.actor} has ended")
                        continue
                    there = following.result()
                    yield there
                    following = asyncio.ensure_future(anext(changes))
            finally:
                unsubscribe()
                following.cancel()
                with suppress(asyncio.CancelledError, Refusal, StopAsyncIteration):
                    await following


def _messages(joined: list[Member], left: list[str], first: bool) -> list[MembersChanged]:
    """Returns a change in messages of a bounded size; a first one is told even if nobody is there."""
    size = CHANGES_PER_MESSAGE_MAX
    parts = [(tuple(joined[at : at + size]), ()) for at in range(0, len(joined), size)]
    rest = [((), tuple(left[at : at + size])) for at in range(0, len(left), size)]
    whole: list[tuple[tuple[Member, ...], tuple[str, ...]]] = [*parts, *rest]
    if not whole and first:
        whole = [((), ())]
    return [MembersChanged(came, gone, at < len(whole)) for at, (came, gone) in enumerate(whole, 1)]
