"""Causal tokens: how far somebody has seen each namespace, to be handed from agent to agent.

A token orders reads: "answer from at least here". It authorises nothing, above all no overwrite: what a
writer has seen of one key is the business of that record's own context.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from .errors import invalid
from .limits import CAUSAL_ENTRIES_MAX, NAMESPACE_BYTES_MAX
from .revision import REVISION_MAX
from .tokens import TokenKind, seal, unseal


class CausalToken(NamedTuple):
    """What has been seen, by namespace.

    Attributes:
        revisions: the newest revision seen of each namespace, the most recently seen last.
        incomplete: older entries were dropped; a namespace that is missing must then be read
            linearizably.
    """

    revisions: Mapping[str, int] = MappingProxyType({})
    incomplete: bool = False

    def seen(self, namespace: str, revision: int) -> CausalToken:
        """Returns the token after seeing ``revision`` of ``namespace``."""
        return merge_tokens((self, CausalToken({namespace: revision})))

    def needed(self, namespace: str) -> int | None:
        """Returns the revision that a read must reflect, None if only a linearizable read will do."""
        found = self.revisions.get(namespace)
        if found is None:
            return None if self.incomplete else 0
        return found

    def without(self, namespace: str) -> CausalToken:
        """Returns the token after an entry was found to name lost revisions."""
        return self._replace(revisions={n: r for n, r in self.revisions.items() if n != namespace})


NOTHING_SEEN = CausalToken()


def merge_tokens(tokens: Iterable[CausalToken]) -> CausalToken:
    """Returns one token that demands what all of ``tokens`` demand, in at most 64 entries."""
    merged: dict[str, int] = {}
    incomplete = False
    for token in tokens:
        incomplete = incomplete or token.incomplete
        for namespace, revision in token.revisions.items():
            # Moves to the end: what was seen last is dropped last.
            merged[namespace] = max(merged.pop(namespace, 0), revision)
    while len(merged) > CAUSAL_ENTRIES_MAX:
        del merged[next(iter(merged))]
        incomplete = True
    return CausalToken(merged, incomplete)


def encode_causal(token: CausalToken) -> bytes:
    """Returns the token's bytes."""
    parts = [bytes((token.incomplete,))]
    for namespace, revision in token.revisions.items():
        name = namespace.encode()
        parts.append(struct.pack(">HQ", len(name), revision) + name)
    return seal(TokenKind.CAUSAL, b"".join(parts))


def decode_causal(data: bytes, field: str = "causal_token") -> CausalToken:
    """Returns the token in ``data``.

    Raises:
        Refusal: INVALID_FIELD (damaged, not a causal token, of a newer format, or over a bound).
    """
    payload = unseal(TokenKind.CAUSAL, data, field)
    if not payload or payload[0] > 1:
        raise invalid(field, "is damaged or not a token")
    revisions: dict[str, int] = {}
    at = 1
    while at < len(payload):
        if at + 10 > len(payload):
            raise invalid(field, "is damaged or not a token")
        size, revision = struct.unpack_from(">HQ", payload, at)
        at += 10
        name = payload[at : at + size]
        at += size
        if len(name) < size or size > NAMESPACE_BYTES_MAX or revision > REVISION_MAX:
            raise invalid(field, "is damaged or not a token")
        try:
            revisions[name.decode()] = revision
        except UnicodeDecodeError:
            raise invalid(field, "is damaged or not a token") from None
    if len(revisions) > CAUSAL_ENTRIES_MAX:
        raise invalid(field, f"has {len(revisions)} entries, the limit is {CAUSAL_ENTRIES_MAX}")
    return CausalToken(revisions, bool(payload[0]))
