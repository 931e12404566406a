"""Forms of a text: the one that people read, and the one by which claims are compared."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from ..text import normalise
from ..text.characters import PICTURES, UNSPACED
from .measures import plain_measures

ALIAS_ROUNDS_MAX = 8

_SPACES = re.compile(r"[\s\u2028\u2029\u0085]+")
_FLAG_TAGS = re.compile("(\U0001f3f4[\U000e0020-\U000e007f]{1,7})|[\U000e0000-\U000e007f]")
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001]"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]"
)
# Joins pictures to one, and shapes letters; between anything else it is nothing.
_JOINER_OF_NOTHING = re.compile(f"(?<![{PICTURES}\ufe0f\U0001f3fb-\U0001f3ff])\u200d|\u200d(?![{PICTURES}])")
_VARIANTS = re.compile("[\u200c\ufe00-\ufe0f]")
# NFKC would make 52 of 5 squared.
_RAISED = re.compile("[\u00b2\u00b3\u00b9\u2070\u2074-\u2079]+")
_FRACTIONS = re.compile("(\\d?)([\u00bc-\u00be\u2150-\u215e\u2189])")
_QUOTES = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u02bc\uff07`\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f", '"'),
    }
)
_END = re.compile(r"[\s.!;:,\u3002\uff61\u3001\u2026\u06d4\u0964]+$")
_OPENING = {"'": "'", '"': '"', "(": ")", "[": "]", "《": "》", "〈": "〉"}


def readable(text: str, aliases: Mapping[str, str] | None = None) -> str:
    """Returns a text as it is kept and shown: NFKC, single spaces, nothing unseen, aliases replaced.

    Emoji, and what joins them, stay as they are. Doing it twice changes nothing.
    """
    plain = _replaced(_clean(text), aliases) if aliases else _clean(text)
    return _clean(plain)


def comparable(text: str) -> str:
    """Returns a text as it is compared: without letter case, variants of quotes, and the punctuation at its end.

    Numbers, dates, times and quantities have one form where it is sure what they mean. What is left of nothing but
    punctuation is the text itself, so the form of something is never empty.
    """
    plain = plain_measures(folded(text))
    return without_end(plain) or plain or _clean(text) or text


def folded(text: str) -> str:
    """Returns a text without letter case and variants of quotes, joiners and emoji."""
    plain = normalise(_clean(text))
    if not plain.isascii():
        # Folding may have taken characters apart that are spaces or unseen.
        plain = _clean(_VARIANTS.sub("", _JOINER_OF_NOTHING.sub("", plain)).translate(_QUOTES))
    return plain.replace("`", "'")


def without_end(text: str) -> str:
    """Returns a text without the punctuation at its end; a question mark is more than that, and stays."""
    return _END.sub("", text)


def unquoted(text: str) -> str:
    """Returns a text without the quotes or brackets around the whole of it."""
    while len(text) > 2 and _OPENING.get(text[0]) == text[-1] and text.count(text[-1], 1) == 1:
        text = text[1:-1].strip()
    return text


def _clean(text: str) -> str:
    if text.isascii():
        # Most texts are, and there is little to be done about them.
        return " ".join((text if text.isprintable() else _UNSEEN.sub("", text)).split())
    raised = _RAISED.sub(lambda found: "^" + unicodedata.normalize("NFKC", found.group()), text)
    apart = _FRACTIONS.sub(lambda found: found[1] + (" " if found[1] else "") + _fraction(found[2]), raised)
    normal = unicodedata.normalize("NFKC", apart)
    seen = _UNSEEN.sub("", _FLAG_TAGS.sub(lambda found: found[1] or "", normal))
    # Without what stood between them, characters may join.
    return _SPACES.sub(" ", unicodedata.normalize("NFKC", seen)).strip()


def _fraction(character: str) -> str:
    return unicodedata.normalize("NFKC", character).replace("\u2044", "/")


def _replaced(text: str, aliases: Mapping[str, str]) -> str:
    pattern, targets = _table(tuple(sorted(aliases.items())))
    if pattern is None:
        return text
    for _ in range(ALIAS_ROUNDS_MAX):
        after = pattern.sub(lambda found: targets[normalise(found.group())], text)
        if after == text:
            break
        text = after
    return text


@lru_cache(256)
def _table(aliases: tuple[tuple[str, str], ...]) -> tuple[re.Pattern[str] | None, Mapping[str, str]]:
    """Returns what finds aliases, and what each of them stands for.

    What they stand for is found, too, and stays: so ``Ubuntu`` for ``Ubuntu Linux`` replaces nothing twice.
    """
    direct = {normalise(_clean(alias)): _clean(target) for alias, target in aliases if _clean(alias) and _clean(target)}
    targets = {alias: _resolved(alias, direct) for alias in direct}
    for target in list(targets.values()):
        targets.setdefault(normalise(target), target)
    if not targets:
        return None, {}
    written = {alias: alias for alias in targets} | {normalise(_clean(a)): _clean(a) for a, _ in aliases if _clean(a)}
    words = sorted(set(written.values()) | set(targets.values()), key=lambda word: (-len(word), word))
    return re.compile("|".join(map(_whole, words)), re.IGNORECASE), _Folded(targets)


class _Folded(dict[str, str]):
    """Targets by alias. What matched without being known as folded (there are odd letters) stays what it is."""

    def __missing__(self, key: str) -> str:
        return key


def _resolved(alias: str, direct: Mapping[str, str]) -> str:
    """Follows aliases of aliases; a circle stands for its smallest member."""
    passed = [alias]
    target = direct[alias]
    while (following := normalise(target)) in direct:
        if following in passed:
            circle = passed[passed.index(following) :]
            return min(direct[member] for member in circle)
        passed.append(following)
        target = direct[following]
    return target


def _whole(word: str) -> str:
    """Returns a pattern for a word that stands alone; where a script has no spaces, anywhere."""
    unspaced = re.compile(f"[{UNSPACED}]")
    before = "" if unspaced.match(word[0]) or not word[0].isalnum() else rf"(?<!(?![{UNSPACED}])\w)"
    after = "" if unspaced.match(word[-1]) or not word[-1].isalnum() else rf"(?!(?![{UNSPACED}])\w)"
    return before + re.escape(word) + after
