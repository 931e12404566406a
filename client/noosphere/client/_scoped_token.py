"""Tokens that may do less than the credential by which they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from noosphere.v1 import admin_tokens_pb2 as pb
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

from ._arguments import checked_text, shown
from ._errors import InvalidArgument
from ._transport import Transport
from ._wire import to_time

TTL_MAX = 24 * 3600


@dataclass(frozen=True, slots=True)
class ScopedToken:
    """A token for whom less is enough.

    Attributes:
        token: what its holder connects with.
        token_id: its public part.
        expires: until when it is valid, in UTC.
    """

    token: str = field(repr=False)
    token_id: str
    expires: datetime


async def scoped_token(
    transport: Transport,
    agent: str,
    owner: str,
    session: str,
    verbs: Sequence[str],
    ttl: timedelta | float | None,
    timeout: float | None,
) -> ScopedToken:
    """Makes one; see ``Client.scoped_token``."""
    if isinstance(verbs, str):
        raise InvalidArgument(f"verbs: {shown(verbs)} is text, not a sequence of verbs")
    request = pb.CreateScopedTokenRequest(
        agent=checked_text("agent", agent),
        owner=checked_text("owner", owner),
        session=checked_text("session", session),
        verbs=[checked_text("verbs", verb) for verb in verbs],
    )
    if ttl is not None:
        seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= TTL_MAX:
            raise InvalidArgument(f"ttl: {shown(ttl)} is not a number of seconds between 0 and {TTL_MAX}")
        request.ttl.FromMicroseconds(int(seconds * 1_000_000))
    # A repetition after a lost answer makes one that nobody knows, and that ends by itself.
    stub = AdminServiceStub(transport.channel)
    reply: pb.CreateScopedTokenResponse = await transport.invoke(
        stub.CreateScopedToken, request, timeout=transport.deadline(timeout)
    )
    return ScopedToken(reply.token, reply.info.token_id, to_time(reply.info.expire_time))
