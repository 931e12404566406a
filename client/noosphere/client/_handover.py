"""Takes over what another agent has seen: so that what it wrote is there, or its loss is told at once."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from noosphere.consistency import CausalToken, encode_causal
from noosphere.v1 import memory_service_pb2 as ms

from ._causal import entries_of, from_text
from ._errors import (
    AckedWritesLost,
    FutureRevision,
    InvalidArgument,
    LostRevisions,
    NamespaceDeleted,
    PermissionDenied,
)
from ._transport import Transport

ENVELOPE_CHARS_MAX = 1 << 20
VERIFIED_AT_ONCE = 8
_EPHEMERAL = "sessions/~"


async def observe(transport: Transport, text: str, timeout: float | None) -> None:
    """Takes over a token; see ``Client.observe``."""
    token = token_of(text)
    gate = asyncio.Semaphore(VERIFIED_AT_ONCE)
    accepted: dict[str, int] = {}

    async def verify(namespace: str, revision: int) -> None:
        async with gate:
            # Where it is of no use here, others may yet get it from this client.
            try:
                with suppress(NamespaceDeleted, PermissionDenied):
                    await _present(transport, namespace, token, timeout)
            except FutureRevision:
                if not namespace.startswith(_EPHEMERAL):
                    raise
                # It ended with the process that kept it in memory: nobody reads of it what has been seen there.
                return
        accepted[namespace] = revision

    entries = token.revisions.items()
    outcomes = await asyncio.gather(*(verify(*entry) for entry in entries), return_exceptions=True)
    transport.progress.causal.take(CausalToken(accepted, token.incomplete))
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    losses = [failure for failure in failures if isinstance(failure, AckedWritesLost)]
    if losses:
        raise _joined(losses)
    if failures:
        raise failures[0]


def token_of(text: str) -> CausalToken:
    """Returns the token in a text, or in a JSON object that has it in its member ``causal_token``.

    Raises:
        InvalidArgument: there is none.
    """
    if not isinstance(text, str):
        raise InvalidArgument(f"token: expected text, got {type(text).__name__}")
    if len(text) > ENVELOPE_CHARS_MAX:
        raise InvalidArgument(f"token: {len(text)} characters, the limit is {ENVELOPE_CHARS_MAX}")
    if not text.lstrip().startswith("{"):
        return from_text(text)
    try:
        envelope: Any = json.loads(text)
        found = envelope["causal_token"]
    except (ValueError, KeyError, RecursionError):
        raise InvalidArgument("token: the envelope has no causal_token") from None
    if not isinstance(found, str):
        raise InvalidArgument(f"token: causal_token is {type(found).__name__}, not text")
    return from_text(found)


async def _present(transport: Transport, namespace: str, token: CausalToken, timeout: float | None) -> None:
    """Presents one entry, exactly as it was handed over: merged with newer ones it would hide a loss.

    Raises:
        NoosphereError: the server does not accept it.
    """
    request = ms.BatchGetRequest(namespace=namespace)
    part = entries_of(token, namespace)
    assert part is not None
    request.call.causal_tokens.append(encode_causal(part))
    await transport.read(transport.stub.BatchGet, request, timeout=timeout, namespace=namespace)


def _joined(losses: list[AckedWritesLost]) -> AckedWritesLost:
    first, *others = losses
    if others:
        first.message += f" (and so were others of {', '.join(repr(loss.namespace) for loss in others)})"
        first.own_writes = tuple(write for loss in losses for write in loss.own_writes)
        first.others = tuple(LostRevisions(one.namespace, one.lost_after, one.lost_through) for one in others)
    return first
