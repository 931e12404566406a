"""Who calls: the credential of each call, verified before anything is done, and again for as long as it lasts."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Any

from noosphere.consistency import Reason, Refusal

from ...ports.runtime import Clock
from ...security import calling, peer_identity
from ...security.authenticating import (
    Authenticator,
    Verified,
    by_certificate,
    ended_credential,
    missing_credential,
)
from ..breaking import Breaking
from ..calls import Context
from ..gate import Rpc
from ..requests import waits

HEADER = "authorization"
LOOK_SECONDS = 0.5
"""How often it is looked whether a credential has ended under which something goes on."""

_NOTE = "authentication"
_SCHEME = "bearer "


class AuthenticationStep:
    """See the module. Lives on one event loop.

    Args:
        authenticator: verifies tokens.
        clock: the source of time.
        certificates: whether clients' certificates tell who they are.
    """

    def __init__(self, authenticator: Authenticator, clock: Clock, *, certificates: bool) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._certificates = certificates
        self._lasting: dict[Rpc, tuple[asyncio.Task[Any], Verified]] = {}
        self._breaking = Breaking()
        self._seen: tuple[int, int, int] = (-1, -1, -1)
        self._look_ms: float = 0

    def begin(self, rpc: Rpc) -> None:
        """Finds out who calls; whatever is done for this call then knows.

        Raises:
            Refusal: UNAUTHENTICATED; ENGINE_UNAVAILABLE, if it cannot be told at present.
        """
        if rpc.parent is not None:
            # Its context is a copy of the stream's, so who calls is known in it; but the stream may be old.
            verified: Verified = rpc.parent.notes[_NOTE]
            if not verified.valid(self._clock.wall_ms()):
                raise ended_credential()
            rpc.notes[_NOTE] = verified
            return
        if rpc.context is None:
            raise missing_credential()
        verified = self._verified(rpc.context)
        rpc.notes[_NOTE] = verified
        calling.set(verified.principal)
        if rpc.streams or rpc.message is None or waits(rpc.message):
            task = asyncio.current_task()
            assert task is not None
            self._lasting[rpc] = (task, verified)
            if verified.expires_ms:
                self._look_ms = min(self._look_ms, verified.expires_ms)

    def end(self, rpc: Rpc) -> None:
        """Has nobody look at this call any more."""
        self._lasting.pop(rpc, None)

    async def run(self) -> None:
        """Ends streams, and calls that wait, whose credential has ended, until it is cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Ends the streams, and the calls that wait, whose credential has ended by now."""
        now_ms, version = self._clock.wall_ms(), self._authenticator.version
        if version == self._seen and now_ms < self._look_ms:
            return
        self._seen, self._look_ms = version, math.inf
        for rpc, (task, verified) in list(self._lasting.items()):
            if not verified.valid(now_ms):
                del self._lasting[rpc]
                assert rpc.context is not None
                self._breaking.end(task, rpc.context, ended_credential())
            elif verified.expires_ms:
                self._look_ms = min(self._look_ms, verified.expires_ms)

    def _verified(self, context: Context) -> Verified:
        credential = _bearer(context.invocation_metadata() or ())
        if credential:
            return self._authenticator.bearer(credential)
        if self._certificates:
            name = peer_identity(context.auth_context())
            if name is not None:
                return by_certificate(name)
        raise missing_credential()


def _bearer(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Returns the token among a call's metadata, "" if there is none.

    Raises:
        Refusal: UNAUTHENTICATED, a header that is not of this form, or more than one.
    """
    found = ""
    for key, value in metadata:
        if key == HEADER:
            # Which of two is meant is not for us to guess.
            if found or not isinstance(value, str) or value[: len(_SCHEME)].lower() != _SCHEME:
                raise _malformed()
            found = value[len(_SCHEME) :].strip()
            if not found:
                raise _malformed()
    return found


def _malformed() -> Refusal:
    return Refusal(Reason.UNAUTHENTICATED, "the metadata need one authorization of the form Bearer <token>")
