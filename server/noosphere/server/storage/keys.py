"""Keys as every driver sees them: how long they are, and which collections contain them."""

from __future__ import annotations

from functools import lru_cache

from noosphere.consistency import ancestors


def text_bytes(text: str) -> int:
    """Returns the length of ``text`` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def above(key: str) -> tuple[str, ...]:
    """Returns every collection that contains ``key``, as ``ancestors`` does; keys of one collection share it."""
    end = key.rfind("/")
    return _ancestors(key[: end + 1]) if end >= 0 else _TOP


_TOP = ("",)
_ancestors = lru_cache(maxsize=16_384)(ancestors)
