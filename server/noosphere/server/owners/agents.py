"""One agent, as an operator sees it: what it does and holds. And what can be done about one that went bad."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from noosphere.consistency import Refusal, check_agent_id

from ..memory import Memory
from ..memory.admission import require_writer
from ..memory.codec import decode_record
from ..memory.directory import SYSTEM_PREFIX
from ..memory.fencing import WHY_CHARS_MAX, Fenced, end_incarnation, fenced, put_fence
from ..memory.reverting import Report, Reverting, Wanted
from ..memory.types import Call
from ..ports.coordinator import Incarnation
from ..ports.runtime import Clock
from ..sessions.keys import CONTEXTS, NAMESPACES, session_of
from ..sessions.scribe import Scan, Scribe

SPREAD_SECONDS = 2.0
"""Twice what a replica takes to learn who is fenced; meanwhile it may open the agent once more."""

LISTED_MAX = 100
LOCKS_MAX = 10_000
RECORDS_MAX = 1_000_000
"""Most records that are looked at for claims, and most sessions; what is beyond is not told."""

_PAGE = 256


class HeldClaim(NamedTuple):
    """A task that an agent has claimed."""

    namespace: str
    key: str
    holder: str
    fence: int
    expires_at_ms: int


class AgentView(NamedTuple):
    """An agent.

    Attributes:
        agent_id: its name.
        incarnation: its newest incarnation; 0 if it was never opened.
        active: whether that has not ended and its lease lives.
        fenced: who has fenced it; None if nobody has.
        claims: tasks that it has claimed, at most 100.
        locks: locks and elections that it holds, at most 100.
        session_ids: sessions that it has opened, at most 100.
        session_count: how many there are.
        context_count: contexts that these sessions hold.
        complete: whether everything was looked at.
    """

    agent_id: str
    incarnation: int
    active: bool
    fenced: Fenced | None
    claims: tuple[HeldClaim, ...]
    locks: tuple[str, ...]
    session_ids: tuple[str, ...]
    session_count: int
    context_count: int
    complete: bool


class FenceReply(NamedTuple):
    """What fencing an agent ended: its incarnation ("" if it had none), and how many claims."""

    actor: str
    released: int


class AgentKeeper:
    """Shows agents, fences them, and takes back what they wrote.

    Args:
        memory: the services of shared memory.
        scribe: reads sessions.
        clock: for pauses.
        shared: whether there are other replicas.
    """

    def __init__(self, memory: Memory, scribe: Scribe, clock: Clock, *, shared: bool) -> None:
        self._core = memory.core
        self._tasks = memory.tasks
        self._scribe = scribe
        self._clock = clock
        self._shared = shared
        self._reverting = Reverting(memory.core, memory.writes)

    async def show(self, agent_id: str) -> AgentView:
        """Returns what there is of an agent.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, ENGINE_UNAVAILABLE.
        """
        check_agent_id(agent_id)
        number = await self._core.coordinator.latest(agent_id)
        claims, all_claims = await self._claims(agent_id)
        sessions, contexts, all_sessions = await self._sessions(agent_id)
        return AgentView(
            agent_id,
            number,
            bool(number) and self._core.coordinator.is_active(Incarnation(agent_id, number)),
            fenced(self._core.coordinator, agent_id),
            tuple(claims[:LISTED_MAX]),
            tuple((await self._locks(agent_id))[:LISTED_MAX]),
            tuple(sessions[:LISTED_MAX]),
            len(sessions),
            contexts,
            all_claims and all_sessions,
        )

    async def fence(self, call: Call, agent_id: str, why: str) -> FenceReply:
        """Ends an agent's incarnation, frees what it holds, and refuses new ones until :meth:`unfence`.

        In force on this server at once, on all others within a second.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED, CONTENTION, ENGINE_UNAVAILABLE.
        """
        require_writer(call)
        self._core.require_current(call)
        check_agent_id(agent_id)
        fence = Fenced(call.agent_id, self._clock.wall_ms(), why[:WHY_CHARS_MAX])
        await put_fence(self._core.coordinator, agent_id, fence)
        actor = await self._end(agent_id)
        if self._shared:
            await self._clock.sleep(SPREAD_SECONDS)
            actor = await self._end(agent_id) or actor
        claims, _ = await self._claims(agent_id)
        released = 0
        for claim in claims:
            released += await self._tasks.free(claim.holder, claim.namespace, claim.key, claim.fence)
        return FenceReply(actor, released)

    async def unfence(self, call: Call, agent_id: str) -> bool:
        """Allows an agent again; returns whether it was fenced.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, CONTENTION, ENGINE_UNAVAILABLE.
        """
        require_writer(call)
        self._core.require_current(call)
        check_agent_id(agent_id)
        was = fenced(self._core.coordinator, agent_id) is not None
        await put_fence(self._core.coordinator, agent_id, None)
        return was

    async def revert(self, call: Call, wanted: Wanted, *, dry_run: bool) -> Report:
        """Takes back what an agent has written; see :class:`~noosphere.server.memory.reverting.Reverting`."""
        return await self._reverting.revert(call, wanted, dry_run=dry_run)

    async def _end(self, agent_id: str) -> str:
        actor = await end_incarnation(self._core.coordinator, agent_id)
        if actor:
            await self._core.store.forget_client(actor)
        return actor

    async def _claims(self, agent_id: str) -> tuple[list[HeldClaim], bool]:
        found: list[HeldClaim] = []
        store, after, looked = self._core.store, "", 0
        while True:
            page = await store.namespaces("", after, _PAGE)
            for summary in page:
                after = summary.ref.name
                if summary.deleted or after.startswith((SYSTEM_PREFIX, "facts/")):
                    continue
                cursor: str | None = None
                more = True
                while more:
                    records = await store.scan(summary.ref, "", after=cursor, limit=_PAGE)
                    more = records.more
                    for entry in records.entries:
                        cursor = entry.key
                        claim = decode_record(entry.data, entry.revision).claim if _is_record(entry.key) else None
                        if claim is None or not claim.active(records.view.now_ms):
                            continue
                        if _agent_of(claim.holder) == agent_id:
                            found.append(HeldClaim(after, entry.key, claim.holder, claim.fence, claim.expires_at_ms))
                    looked += len(records.entries)
                    if looked >= RECORDS_MAX:
                        return found, False
                    await asyncio.sleep(0)
            if len(page) < _PAGE:
                return found, True

    async def _sessions(self, agent_id: str) -> tuple[list[str], int, bool]:
        found: list[str] = []
        contexts = looked = 0
        after = NAMESPACES
        while True:
            page = await self._core.store.namespaces(NAMESPACES, after, _PAGE)
            for summary in page:
                after = summary.ref.name
                session_id = session_of(after)
                if summary.deleted or not session_id:
                    continue
                try:
                    look = await self._scribe.peek(session_id)
                except Refusal:
                    # A namespace with a name that no session has.
                    continue
                if look.info is None or look.info.owner != agent_id:
                    continue
                found.append(session_id)
                held = await self._scribe.scan(await self._scribe.living(session_id), Scan(CONTEXTS, _PAGE))
                contexts += len(held.entries)
            looked += len(page)
            await asyncio.sleep(0)
            if len(page) < _PAGE:
                return found, contexts, True
            if looked >= RECORDS_MAX:
                return found, contexts, False

    async def _locks(self, agent_id: str) -> list[str]:
        found: list[str] = []
        after = ""
        for _ in range(0, LOCKS_MAX, _PAGE):
            page = await self._core.coordinator.locks.held("", after, _PAGE)
            for held in page:
                after = held.name
                if _agent_of(held.owner) == agent_id:
                    found.append(held.name)
            if len(page) < _PAGE:
                break
        return found


def _is_record(key: str) -> bool:
    return not key.startswith("\0")


def _agent_of(actor: str) -> str:
    """Returns the agent of ``agent#incarnation``; "" for whoever is no agent, as a server is none."""
    return actor.rpartition("#")[0]
