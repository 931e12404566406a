"""Fenced agents: whose incarnations have ended, and who gets no new one until an operator allows it.

Who is fenced stands in a table of the coordinator, which every replica knows within a second. An agent that another
replica has opened in that second is closed a moment later.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from noosphere.consistency import Reason, Refusal, actor_name

from ..ports.coordinator import Coordinator, Incarnation

TABLE = "fenced"
WHY_CHARS_MAX = 500


class Fenced(msgspec.Struct, frozen=True):
    """Who has fenced an agent, when, and why."""

    by: str
    time_ms: Annotated[int, msgspec.Meta(ge=0)]
    why: str = ""


class FencedAgent(NamedTuple):
    """A fenced agent."""

    agent_id: str
    fenced: Fenced


def fenced(coordinator: Coordinator, agent_id: str) -> Fenced | None:
    """Returns who has fenced an agent, as this process knows it; None if nobody has. Never waits.

    Whoever has an entry is fenced, also if another version of the program wrote it in a way that this one cannot read.
    """
    data = coordinator.table(TABLE).get(agent_id)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Fenced)
    except msgspec.MsgspecError:
        return Fenced("", 0, "written by another version of noosphere, which this one cannot read")


def require_unfenced(coordinator: Coordinator, agent_id: str) -> None:
    """Checks that an agent may begin an incarnation.

    Raises:
        Refusal: PERMISSION_DENIED.
    """
    if agent_id in coordinator.table(TABLE):
        raise Refusal(
            Reason.PERMISSION_DENIED, f"agent {agent_id!r} is fenced by the operator, who may allow it again (unfence)"
        )


async def put_fence(coordinator: Coordinator, agent_id: str, fence: Fenced | None) -> None:
    """Fences an agent, or (None) allows it again.

    Raises:
        Refusal: LIMIT_EXCEEDED, CONTENTION, ENGINE_UNAVAILABLE.
    """
    await coordinator.put_entry(TABLE, agent_id, None if fence is None else msgspec.json.encode(fence))


async def end_incarnation(coordinator: Coordinator, agent_id: str) -> str:
    """Ends an agent's present incarnation, and with it the locks and memberships that it holds.

    Returns:
        The incarnation, as ``agent#number``; "" if there was none.

    Raises:
        Refusal: ENGINE_UNAVAILABLE.
    """
    number = await coordinator.latest(agent_id)
    if not number:
        return ""
    try:
        await coordinator.close_agent(Incarnation(agent_id, number))
    except Refusal as refusal:
        if refusal.reason is not Reason.STALE_INCARNATION:
            raise
        return ""
    return actor_name(agent_id, number)
