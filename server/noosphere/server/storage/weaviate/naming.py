"""How names, words and times are written down in Weaviate, so that none of them is syntax there.

Weaviate's tokenizers split at white space, and some fold letters; its filters compare what a tokenizer has left. So
whatever is not a plain word is written in hexadecimal digits, which keep the order of code points, too.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable

from noosphere.consistency import NEVER_MS

from ...ports.factstore import FactKey

_SPACE = uuid.UUID("5d4c3f0e-6f0b-5d0e-9d0b-6e6f6f737068")
_PLAIN = re.compile(r"[a-z0-9]+", re.ASCII)
_CODED = "="
_KEY_END = "!"
"""Less than any hexadecimal digit, so that of two names the one that the other begins with comes first."""

_FAR_MS = (1 << 53) - 1
SLICES = 1_024
"""Versions are dealt out to so many slices, evenly and whatever they say, for samples."""


def object_id(key: FactKey) -> str:
    """Returns the id of a version's object. Parts are led by their lengths: no two keys are one name."""
    scope, fact_id, version = key
    return str(uuid.uuid5(_SPACE, f"{len(scope)}:{scope}{len(fact_id)}:{fact_id}{version}"))


def slice_of(id: str) -> int:
    """Returns the slice of an object, 0 to 1,023."""
    # The last bits of such an id are those of a digest.
    return int(id[-3:], 16) % SLICES


def bucket_of(scope: str, buckets: int) -> str:
    """Returns the tenant that has a scope."""
    return bucket_name(int.from_bytes(hashlib.sha256(scope.encode()).digest()[:8], "big") % buckets)


def bucket_name(number: int) -> str:
    """Returns the name of a tenant."""
    return f"bucket{number:03}"


def word(text: str) -> str:
    """Returns a text as one token that stands for it alone; an empty one stays empty."""
    return text if not text or _PLAIN.fullmatch(text) else _CODED + text.encode().hex()


def text_of(word: str) -> str:
    """Returns the text that a token stands for."""
    return bytes.fromhex(word[1:]).decode() if word.startswith(_CODED) else word


def words(texts: Iterable[str]) -> list[str]:
    """Returns texts as tokens, each once."""
    return [word(text) for text in dict.fromkeys(texts)]


def key_text(key: FactKey) -> str:
    """Returns a key as a text; texts are ordered as the keys are."""
    return f"{scope_text(key.scope)}{key.fact_id.encode().hex()}{_KEY_END}{key.version:019}"


def scope_text(scope: str) -> str:
    """Returns what the texts of all keys of a scope begin with."""
    return scope.encode().hex() + _KEY_END


def key_of(text: str) -> FactKey:
    """Returns the key of a text."""
    scope, fact_id, version = text.split(_KEY_END)
    return FactKey(bytes.fromhex(scope).decode(), bytes.fromhex(fact_id).decode(), int(version))


def moment(time_ms: int) -> int:
    """Returns a time as it is compared: numbers travel as doubles, so what lies beyond 2^53 and is not never, is one.

    The times themselves are kept apart from these, to the millisecond.
    """
    return _FAR_MS + 1 if time_ms == NEVER_MS else min(time_ms, _FAR_MS)
