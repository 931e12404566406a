"""Who a client is by its certificate, once the TLS handshake has verified that certificate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

IDENTITY_BYTES_MAX = 255
"""Longest name that a certificate may give."""

_SPIFFE = re.compile(rb"spiffe://[a-z0-9._-]+(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]+)*")
_DNS = re.compile(rb"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")


def peer_identity(auth_context: Mapping[str, Iterable[bytes]]) -> str | None:
    """Returns the one name that a verified client certificate gives its holder, or None.

    That is its SPIFFE id, or else the first of its DNS names, in small letters. The common name says nothing: nobody
    has to check it. Where it is open what a certificate means, it means nobody: several URIs of which one is a SPIFFE
    id, names with a wildcard, names that are not of the form of one.

    Args:
        auth_context: what gRPC knows of the connection (``ServicerContext.auth_context()``): lists of bytes by the
            name of a property. Empty, or without names, for connections without a client certificate.
    """
    uris = tuple(auth_context.get("peer_uri", ()))
    if any(uri[:9].lower() == b"spiffe://" for uri in uris):
        return _checked(_SPIFFE, uris[0]) if len(uris) == 1 else None
    for name in auth_context.get("peer_dns", ()):
        return _checked(_DNS, name.lower())
    return None


def _checked(form: re.Pattern[bytes], name: bytes) -> str | None:
    return name.decode() if len(name) <= IDENTITY_BYTES_MAX and form.fullmatch(name) else None
