"""An agent's incarnation: opened with the client, kept alive while it is idle, closed with it."""

from __future__ import annotations

import uuid

from noosphere.consistency import Refusal, check_agent_id
from noosphere.v1 import memory_service_pb2 as ms

from ._errors import NoosphereError, StaleIncarnation
from ._transport import LOG, Transport
from ._wire import local_refusal, span_seconds

_CLOSE_TIMEOUT = 2.0
_LEASE_MIN = 1.0


def random_agent() -> str:
    """Returns a name that nobody else has."""
    return f"client/{uuid.uuid4().hex[:12]}"


def check_agent(agent: str) -> None:
    """Checks an agent's name.

    Raises:
        InvalidArgument: it is malformed or too long.
    """
    try:
        check_agent_id(agent, "agent")
    except Refusal as refusal:
        raise local_refusal(refusal) from None


async def open_agent(transport: Transport, agent: str, *, takeover: bool) -> float:
    """Begins an incarnation; from then on the transport calls as it.

    Returns:
        How long the lease lasts without a call, in seconds.

    Raises:
        AgentActive: another incarnation is alive.
        NoosphereError: anything else, see the tree.
    """
    # One id for all attempts: a retry after a lost reply finds its own incarnation, not a rival's.
    request = ms.OpenAgentRequest(agent_id=agent, takeover=takeover, request_id=str(uuid.uuid4()))
    reply: ms.OpenAgentResponse = await transport.invoke(transport.stub.OpenAgent, request, timeout=transport.timeout)
    transport.actor.CopyFrom(reply.actor)
    return span_seconds(reply.lease)


async def keep_agent(transport: Transport, lease: float) -> None:
    """Renews the lease whenever a third of it passed without any call; ends when the incarnation has.

    Calls renew it too, so a busy client sends nothing here.
    """
    # A server that names no lease must not make this a busy loop.
    pause = max(lease, _LEASE_MIN) / 3
    while True:
        idle = transport.clock() - transport.renewed_at
        if idle < pause:
            await transport.sleep(pause - idle)
            continue
        request = ms.KeepAgentRequest(actor=transport.actor)
        try:
            await transport.invoke(transport.stub.KeepAgent, request, timeout=pause)
        except StaleIncarnation:
            LOG.debug("the incarnation %s has ended", transport.actor_name)
            return
        except NoosphereError as error:
            LOG.debug("could not renew the lease of %s: %s", transport.actor_name, error)
            await transport.sleep(pause / 4)


async def close_agent(transport: Transport) -> None:
    """Ends the incarnation, as far as the server can be reached; otherwise its lease runs out."""
    request = ms.CloseAgentRequest(actor=transport.actor)
    try:
        await transport.invoke(transport.stub.CloseAgent, request, timeout=min(_CLOSE_TIMEOUT, transport.timeout))
    except NoosphereError as error:
        LOG.debug("could not close %s: %s", transport.actor_name, error)
