"""Manifests: what went into each context, kept for a day. Ids, versions and reasons; no text."""

from __future__ import annotations

import zlib

import msgspec

from .types import Entry, Fate

ENTRIES_MAX = 2_000
KEPT_MS = 24 * 3600 * 1000
_BYTES_MAX = 8 * 1024 * 1024
RECALLED = ("item:", "fact:", "evidence:", "subagent:")
"""Ids of what was recalled for a context, whose use tells how good the recall is."""


class SectionTokens(msgspec.Struct, frozen=True, array_like=True):
    """A section's tokens, taken and allowed."""

    kind: int
    tokens_used: int
    tokens_max: int


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """What went into a context, what did not, and why.

    Attributes:
        context_id: its id; later ones of a session are greater.
        session_id: the session.
        created_ms: store time of the assembly.
        author: for whom.
        turn: the session's newest turn.
        recipe: the recipe's name.
        tokenizer: the vocabulary that counted.
        exact: whether it counted exactly.
        tokens_max: tokens allowed.
        tokens_used: tokens used.
        sections: in order.
        entries: the candidates, at most 2,000.
        warnings: words.
        revision: the head at which it was read.
        used: ids of entries that were reported, or estimated, as used.
        usage: ``reported``, ``estimated``, or empty if nothing is known about the use.
    """

    context_id: str
    session_id: str
    created_ms: int
    author: str
    turn: int
    recipe: str
    tokenizer: str
    exact: bool
    tokens_max: int
    tokens_used: int
    sections: tuple[SectionTokens, ...]
    entries: tuple[Entry, ...]
    warnings: tuple[str, ...]
    revision: int
    used: tuple[str, ...] = ()
    usage: str = ""

    @property
    def utilization(self) -> float:
        """Tokens used over tokens allowed."""
        return self.tokens_used / self.tokens_max

    def recalled(self) -> tuple[str, ...]:
        """Returns the ids of what was recalled and is in."""
        return tuple(e.id for e in self.entries if e.fate is not Fate.DROPPED and e.id.startswith(RECALLED))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Manifest)


def limited(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Returns at most 2,000 entries; of those that are too many, what was left out goes first."""
    if len(entries) <= ENTRIES_MAX:
        return entries
    inside = [entry for entry in entries if entry.fate is not Fate.DROPPED][:ENTRIES_MAX]
    outside = [entry for entry in entries if entry.fate is Fate.DROPPED][: ENTRIES_MAX - len(inside)]
    kept = {id(entry) for entry in (*inside, *outside)}
    return tuple(entry for entry in entries if id(entry) in kept)


def encode_manifest(manifest: Manifest) -> bytes:
    """Returns a manifest's stored form: a hundred entries are some 2 KiB."""
    return zlib.compress(_encoder.encode(manifest), 1)


def decode_manifest(data: bytes) -> Manifest:
    """Returns a stored manifest."""
    raw = zlib.decompressobj().decompress(data, _BYTES_MAX)
    return _decoder.decode(raw)
