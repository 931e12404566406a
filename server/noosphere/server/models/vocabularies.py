"""The vocabularies that the package toktok-rs carries in its binary, counted exactly and without a network."""

from __future__ import annotations

import unicodedata
from typing import Protocol

# No token of these vocabularies is longer: 128 spaces.
TOKEN_BYTES_MAX = 128
# A beginning that ends in the middle of a longer token may have fewer tokens than that token's end has, so `cut`
# looks this many characters ahead; as many back, it gives up keeping a run of combining marks whole.
_REACH = 32
_TAIL_TOKENS = 16
_ANY_NUMBER = 1 << 40


class _Truncate(Protocol):
    def __call__(self, text: str, max_tokens: int, encoding: str) -> tuple[str, int]: ...


class Vocabulary:
    """One vocabulary of toktok-rs. Loading it takes 0.1 to 0.3 s, during which no other thread runs.

    Attributes:
        name: its name, e.g. ``o200k_base``.
    """

    name: str
    exact = True

    def __init__(self, name: str) -> None:
        # The extension module is of weight only for those who count.
        from toktok import truncate

        self.name = name
        self._truncate: _Truncate = truncate
        self.count("warm")

    def count(self, text: str) -> int:
        """Returns how many tokens ``text`` has: 1 µs for 200 characters, so counts are not kept."""
        return self._cut(text, _ANY_NUMBER)[1]

    def cut(self, text: str, tokens_max: int) -> str:
        """Returns the longest beginning with at most ``tokens_max`` tokens that ends between whole characters.

        A letter and its marks, a flag or a joined emoji stay together, unless more than 32 code points do.
        """
        if tokens_max <= 0:
            return ""
        # So much is more than fits, whatever it is; the rest need not be looked at.
        clean = _without_surrogates(text[: (tokens_max + 1) * TOKEN_BYTES_MAX])
        kept, total = self._cut(clean, tokens_max)
        if total <= tokens_max:
            return text
        # What is before the last tokens is counted once instead of with every candidate, unless it goes on into them.
        before = len(self._cut(kept, max(0, tokens_max - _TAIL_TOKENS))[0])
        counted = self.count(clean[:before])
        if counted + self.count(kept[before:]) != self.count(kept):
            before = counted = 0
        rest = tokens_max - counted
        for end in range(min(len(clean), len(kept) + _REACH), max(0, len(kept) - _REACH), -1):
            if (
                _is_boundary(clean, end)
                and self.count(clean[before:end]) <= rest
                and self.count(clean[:end]) <= tokens_max
            ):
                return text[:end]
        return "" if len(kept) <= _REACH else text[: len(kept)]

    def _cut(self, text: str, tokens_max: int) -> tuple[str, int]:
        try:
            return self._truncate(text, tokens_max, self.name)
        except UnicodeEncodeError:
            return self._truncate(_without_surrogates(text), tokens_max, self.name)


def _without_surrogates(text: str) -> str:
    """Returns text of the same length that has a UTF-8 form; JSON may smuggle in halves of a character."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def _is_boundary(text: str, at: int) -> bool:
    """Returns whether what people see as one character does not lie across ``at``, by the commonest of the rules."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if after < "\u0300":
        return not (before == "\r" and after == "\n")
    if before == "\u200d" or after == "\u200d" or unicodedata.category(after).startswith("M"):
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff":
        return False
    if _is_flag_half(before) and _is_flag_half(after):
        start = at
        while start and _is_flag_half(text[start - 1]) and at - start < 2 * _REACH:
            start -= 1
        return (at - start) % 2 == 0
    return True


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
