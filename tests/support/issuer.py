"""An issuer of JSON web tokens, honest or not."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "noosphere"


@cache
def private_key(kind: str, number: int = 0) -> Any:
    """Returns a key of an algorithm, the same one for the same number: some take long to make."""
    match kind[:2], kind:
        case _, "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case _, "ES384":
            return ec.generate_private_key(ec.SECP384R1())
        case _, "ES512":
            return ec.generate_private_key(ec.SECP521R1())
        case _, "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        case _, "weak":
            return rsa.generate_private_key(public_exponent=65537, key_size=1024)
        case _:
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwk(kind: str, kid: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """Returns the public part of a key."""
    key = private_key(kind, number).public_key()
    maker: Any = {"ES": ECAlgorithm, "Ed": OKPAlgorithm}.get(kind[:2], RSAAlgorithm)
    found: dict[str, Any] = json.loads(maker.to_jwk(key))
    return found | {"kid": kid} | more


def key_set(*keys: Mapping[str, Any]) -> bytes:
    """Returns a JSON Web Key Set."""
    return json.dumps({"keys": keys}).encode()


def claims(now_s: float, **more: Any) -> dict[str, Any]:
    """Returns the claims of a token that is valid for five minutes; None takes a claim away."""
    found = {"iss": ISSUER, "aud": AUDIENCE, "sub": "planner", "exp": now_s + 300, "iat": now_s} | more
    return {name: value for name, value in found.items() if value is not None}


def signed(found: Mapping[str, Any], kind: str = "RS256", kid: str | None = "k", number: int = 0, **header: Any) -> str:
    """Returns a token of an honest issuer."""
    headers = ({} if kid is None else {"kid": kid}) | header
    return jwt.encode(dict(found), private_key(kind, number), algorithm=kind, headers=headers)


def crafted(header: Mapping[str, Any] | bytes, payload: Mapping[str, Any] | bytes, signature: bytes = b"") -> str:
    """Returns a token that no library would make."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature))


def signed_with_the_public_key(found: Mapping[str, Any], kind: str = "RS256") -> str:
    """Returns a token whose signature takes the public key for a shared secret."""
    pem = (
        private_key(kind)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    unsigned = crafted({"alg": "HS256", "kid": "k"}, found).rpartition(".")[0]
    signature = hmac.digest(pem, unsigned.encode(), "sha256")
    return f"{unsigned}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
