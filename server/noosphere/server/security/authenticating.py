"""From a credential to a principal: which kind it is, whether it is valid, and whether it still is later on."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple, Protocol

from noosphere.consistency import Reason, Refusal

from ..ports.grants import Verb
from ..ports.runtime import Clock
from ..ports.tables import Table
from .permissions import Permissions
from .principal import Principal
from .tokens import Found, find, looks_like_token

CREDENTIAL_BYTES_MAX = 8 * 1024
"""Longer ones are refused before anybody looks at them."""

VERIFIED_MAX = 10_000
"""Verified credentials that are remembered; above it the oldest are verified anew."""


class Verified(NamedTuple):
    """A credential that was valid when it was looked at.

    Attributes:
        principal: whom it stands for.
        expires_ms: until when, in milliseconds since 1970; 0 for ever.
        holds: tells whether it was not revoked meanwhile, without waiting.
    """

    principal: Principal
    expires_ms: int
    holds: Callable[[], bool]

    def valid(self, now_ms: int) -> bool:
        """Tells whether it still is."""
        return (not self.expires_ms or now_ms < self.expires_ms) and self.holds()


class Jwts(Protocol):
    """Verifies JSON web tokens."""

    @property
    def version(self) -> int:
        """Counts the sets of keys that there have been."""
        ...

    def verify(self, token: str) -> Verified:
        """Returns whom one stands for.

        Raises:
            Refusal: UNAUTHENTICATED; ENGINE_UNAVAILABLE, while no key is known.
        """
        ...


class Authenticator:
    """Verifies credentials. What was verified is remembered, by a hash, and looked at again with each call.

    Args:
        clock: the source of time.
        tokens: the table of API tokens; None if they are not taken.
        jwts: verifies JSON web tokens; None if they are not taken.
        permissions: decide by grants; None where there are none.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        tokens: Table | None = None,
        jwts: Jwts | None = None,
        permissions: Permissions | None = None,
    ) -> None:
        self._clock = clock
        self._permissions = permissions
        self._tokens = tokens
        self._jwts = jwts
        self._verified: dict[bytes, Verified] = {}

    @property
    def version(self) -> tuple[int, int, int]:
        """As long as this is the same, nothing has been revoked."""
        return (
            self._permissions.version if self._permissions is not None else 0,
            self._tokens.version if self._tokens is not None else 0,
            self._jwts.version if self._jwts is not None else 0,
        )

    def bearer(self, credential: str) -> Verified:
        """Returns whom a token stands for.

        Raises:
            Refusal: UNAUTHENTICATED; ENGINE_UNAVAILABLE, if it cannot be told at present.
        """
        try:
            text = credential.encode("ascii")
        except UnicodeEncodeError:
            raise invalid_credential() from None
        if len(text) > CREDENTIAL_BYTES_MAX:
            raise invalid_credential()
        key = sha256(text).digest()
        verified = self._verified.get(key)
        if verified is not None:
            if verified.valid(self._clock.wall_ms()):
                return verified
            del self._verified[key]
        verified = self._verify(credential)
        if not verified.valid(self._clock.wall_ms()):
            raise expired_credential()
        if len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[key] = verified
        return verified

    def _verify(self, credential: str) -> Verified:
        tokens, jwts = self._tokens, self._jwts
        if looks_like_token(credential):
            found = find(credential, tokens) if tokens is not None else None
            if tokens is None or found is None:
                raise invalid_credential()
            return Verified(found.principal, found.expires_ms, self._holding(found, tokens))
        if jwts is None:
            raise invalid_credential()
        return jwts.verify(credential)

    def _holding(self, found: Found, tokens: Table) -> Callable[[], bool]:
        """Returns what tells whether a token still stands for what it did."""
        (token_id, entry), *above = found.entries
        if not above and not found.by_grant:
            # Most of them, with every call.
            return lambda: tokens.get(token_id) == entry
        name, permissions = found.principal.name, self._permissions

        def granted(agent: str) -> bool:
            return permissions is not None and Verb.ACT in permissions.granted(name, f"agents/{agent}")

        return lambda: (
            all(tokens.get(one) == entry for one, entry in found.entries) and all(map(granted, found.by_grant))
        )


def by_certificate(name: str) -> Verified:
    """Returns whom a client certificate stands for that the handshake has verified."""
    return Verified(Principal(name, credential="mtls"), 0, _always)


def _always() -> bool:
    return True


def missing_credential() -> Refusal:
    """Returns the refusal of a call without any."""
    return Refusal(
        Reason.UNAUTHENTICATED,
        "this server requires a credential: a token in the metadata (authorization: Bearer …), or a client certificate",
    )


def invalid_credential() -> Refusal:
    """Returns the refusal of one that proves nothing; it does not tell which check has failed."""
    return Refusal(Reason.UNAUTHENTICATED, "the credential is not valid")


def expired_credential() -> Refusal:
    """Returns the refusal of one whose time is over."""
    return Refusal(Reason.UNAUTHENTICATED, "the credential has expired")


def ended_credential() -> Refusal:
    """Returns why what goes on for longer ends."""
    return Refusal(Reason.UNAUTHENTICATED, "the credential has expired or was revoked")
