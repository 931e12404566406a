"""The keys of an issuer of JSON web tokens, as a JSON Web Key Set (RFC 7517) has them.

Only keys that verify signatures and do not make them are taken: whoever could read a shared secret here could issue
tokens, and a public key must never be taken for one (as the algorithms ``HS…`` would).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWTError

JWKS_BYTES_MAX = 256 * 1024
KEYS_MAX = 100
RSA_BITS_MIN = 2048

_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
ALGORITHMS = _RSA | frozenset(_CURVES.values())
"""Signatures that are verified; all of them are made with a key that is not here."""

_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "oth")


class UnfitKeys(Exception):
    """A key set cannot be used; the message is one line, and has nothing of a key."""


class VerifyingKey(NamedTuple):
    """A key that verifies signatures.

    Attributes:
        kid: its id; "" for none.
        algorithms: those that may be verified with it.
        fingerprint: stands for the key itself.
        key: as the library has it.
    """

    kid: str
    algorithms: frozenset[str]
    fingerprint: bytes
    key: Any


def read_keys(data: bytes) -> tuple[VerifyingKey, ...]:
    """Returns the keys of a set that verify signatures; others of it are left alone.

    Raises:
        UnfitKeys: it is no set, is too large, holds private keys, or has no key of that kind.
    """
    if len(data) > JWKS_BYTES_MAX:
        raise UnfitKeys(f"has more than {JWKS_BYTES_MAX} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise UnfitKeys("is not JSON") from None
    entries = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise UnfitKeys("is not a JSON Web Key Set: it has no list of keys")
    if len(entries) > KEYS_MAX:
        raise UnfitKeys(f"has {len(entries)} keys, the limit is {KEYS_MAX}")
    keys = tuple(key for entry in entries if isinstance(entry, dict) and (key := _key(entry)) is not None)
    if not keys:
        raise UnfitKeys("has no key that verifies signatures (RSA of 2048 bits or more, P-256, P-384, P-521, Ed25519)")
    return keys


def _key(entry: Mapping[str, Any]) -> VerifyingKey | None:
    kind = entry.get("kty")
    if kind == "RSA":
        algorithms = _RSA
    elif kind in ("EC", "OKP") and entry.get("crv") in _CURVES:
        algorithms = frozenset({_CURVES[entry["crv"]]})
    else:
        return None
    if any(name in entry for name in _PRIVATE):
        raise UnfitKeys("holds a private key, which belongs to the issuer alone")
    if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ("verify",)):
        return None
    if "alg" in entry:
        algorithms &= {entry["alg"]}
    if not algorithms:
        return None
    try:
        key = PyJWK(dict(entry), algorithm=min(algorithms)).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        return None
    kid = entry.get("kid")
    public = json.dumps([entry.get(name) for name in ("kty", "crv", "n", "e", "x", "y", "alg", "kid")])
    return VerifyingKey(kid if isinstance(kid, str) else "", algorithms, sha256(public.encode()).digest(), key)
