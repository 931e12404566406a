"""JSON web tokens: whose signature, for whom, until when, and what they say of their holder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jwt
import msgspec

from noosphere.consistency import NamePattern, Reason, Refusal

from ..ports.grants import Verb
from ..ports.runtime import Clock
from .authenticating import Verified, expired_credential, invalid_credential
from .jwks import ALGORITHMS, VerifyingKey
from .minting import LIST_MAX, OWNER_BYTES_MAX, PRINCIPAL_BYTES_MAX
from .principal import Principal

CLAIM = "noosphere"
"""The claim that says more of a token's holder than its name."""
SKEW_SECONDS = 30
"""How far the clocks of an issuer and of a server may be apart."""
CANDIDATES_MAX = 8
"""Keys that are tried for a token that names none."""

_CREDENTIAL_CHARS_MAX = 64
_TIME_MAX = 1e11
_OPTIONS: Any = {
    "require": ["exp", "sub", "iss", "aud"],
    # Looked at here, by the server's clock.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


class Keys(Protocol):
    """The keys of the issuer, as they are known at present."""

    keys: tuple[VerifyingKey, ...]
    version: int

    def has(self, fingerprint: bytes) -> bool:
        """Tells whether a key is among them."""
        ...

    def want(self) -> None:
        """Is told that a token names another one."""
        ...


class Claim(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The claim ``noosphere``; what is not known in it is refused, because it may be meant to narrow.

    Attributes:
        agents: that the holder may act as, beside the agent of its name; ``team/*`` are all that begin so.
        owners: for whom it may act.
        session: the only session that it may touch.
        verbs: at most these.
    """

    agents: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    session: str = ""
    verbs: tuple[Verb, ...] | None = None


class JwtVerifier:
    """Verifies tokens of one issuer.

    Args:
        keys: the issuer's.
        issuer: what ``iss`` must be.
        audience: what must be among ``aud``.
        admins: subjects (``sub``) that may do everything. No claim makes an administrator: whoever could have one put
            into a token at the issuer would be one here.
        clock: the source of time.
    """

    def __init__(self, keys: Keys, issuer: str, audience: str, admins: frozenset[str], clock: Clock) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._admins = admins
        self._clock = clock

    @property
    def version(self) -> int:
        """Counts the sets of keys that there have been."""
        return self._keys.version

    def verify(self, token: str) -> Verified:
        """Returns whom a token stands for.

        Raises:
            Refusal: UNAUTHENTICATED; ENGINE_UNAVAILABLE, while no key is known.
        """
        if not self._keys.keys:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the keys of the issuer of tokens cannot be read at present")
        key, claims = self._claims(token)
        name = claims["sub"]
        if not isinstance(name, str) or not _is_name(name, PRINCIPAL_BYTES_MAX):
            raise invalid_credential()
        expires_ms = self._check_times(claims)
        claim = _claim(claims.get(CLAIM, {}))
        principal = Principal(
            name,
            name in self._admins,
            tuple(NamePattern(f"agents/{one.removesuffix('*')}", not one.endswith("*")) for one in claim.agents),
            claim.owners,
            claim.session,
            None if claim.verbs is None else frozenset(claim.verbs),
            expires_ms,
            _credential(claims),
        )
        keys, fingerprint = self._keys, key.fingerprint
        return Verified(principal, expires_ms, lambda: keys.has(fingerprint))

    def _claims(self, token: str) -> tuple[VerifyingKey, Mapping[str, Any]]:
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kid = header["alg"], header.get("kid", "")
            known = algorithm in ALGORITHMS and "crit" not in header and isinstance(kid, str)
        except Exception:
            # Whatever a hostile text brings about, it is no token.
            raise invalid_credential() from None
        if not known:
            raise invalid_credential()
        fitting = [key for key in self._keys.keys if algorithm in key.algorithms and (not kid or key.kid == kid)]
        if kid and not fitting:
            self._keys.want()
        for key in fitting[:CANDIDATES_MAX]:
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token,
                    key.key,
                    algorithms=[algorithm],
                    audience=self._audience,
                    issuer=self._issuer,
                    options=_OPTIONS,
                )
            except Exception:
                continue
            return key, claims
        raise invalid_credential()

    def _check_times(self, claims: Mapping[str, Any]) -> int:
        """Returns when a token ends, in milliseconds since 1970.

        Raises:
            Refusal: UNAUTHENTICATED, it has ended, or has not begun.
        """
        now_s = self._clock.wall_ms() / 1000
        expires_s, begins_s, made_s = claims["exp"], claims.get("nbf", 0), claims.get("iat", 0)
        for one in (expires_s, begins_s, made_s):
            if isinstance(one, bool) or not isinstance(one, (int, float)) or not -_TIME_MAX < one < _TIME_MAX:
                raise invalid_credential()
        if now_s >= expires_s + SKEW_SECONDS:
            raise expired_credential()
        if now_s < begins_s - SKEW_SECONDS or now_s < made_s - SKEW_SECONDS:
            raise invalid_credential()
        return int((expires_s + SKEW_SECONDS) * 1000)


def _claim(found: object) -> Claim:
    try:
        claim = msgspec.convert(found, Claim)
    except msgspec.ValidationError:
        raise invalid_credential() from None
    texts = (*claim.agents, *claim.owners, *((claim.session,) if claim.session else ()))
    if max(len(claim.agents), len(claim.owners)) > LIST_MAX or not all(_is_name(one, OWNER_BYTES_MAX) for one in texts):
        raise invalid_credential()
    return claim


def _is_name(text: str, bytes_max: int) -> bool:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        # Half a character, which JSON can say.
        return False
    return 0 < size <= bytes_max and not any(ord(one) < 32 or ord(one) == 127 for one in text)


def _credential(claims: Mapping[str, Any]) -> str:
    """Returns what the audit log calls a token: its id, where the issuer gives it one."""
    token_id = claims.get("jti")
    named = isinstance(token_id, str) and token_id.isprintable() and token_id.isascii()
    return f"jwt:{token_id[:_CREDENTIAL_CHARS_MAX]}" if named and isinstance(token_id, str) else "jwt"
