"""One form of writing for the same text: Unicode's compatibility form, without letter case."""

from __future__ import annotations

import unicodedata


def normalise(text: str) -> str:
    """Returns a text in NFKC, case-folded. Doing it twice changes nothing.

    Full-width letters, ligatures and composed accents become what people would type; folding may undo the form (it
    takes characters apart), so the form is made again after it, as Unicode's caseless matching has it.
    """
    if text.isascii():
        return text.lower()
    before = unicodedata.normalize("NFKC", text)
    while (after := unicodedata.normalize("NFKC", before.casefold())) != before:
        before = after
    return after


def without_accents(word: str) -> str:
    """Returns a word without marks above and below its letters: ``josé`` is found as ``jose``."""
    if word.isascii():
        return word
    apart = unicodedata.normalize("NFD", word)
    return unicodedata.normalize("NFC", "".join(letter for letter in apart if not unicodedata.combining(letter)))
