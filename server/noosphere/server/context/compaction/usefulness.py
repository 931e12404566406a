"""How likely a value of a tool result is to be needed later, by its looks, its name and the past.

The weights say what holds for tool results in general: identifiers are what later calls are made of, prices, dates
and states are what answers are made of, bookkeeping is neither. They are compared with the tokens that a value costs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .document import Node, Number
from .past import Past
from .words import terms_of_name

_TOKEN = re.compile(r"[A-Za-z]{1,5}|\d{1,3}|[^\sA-Za-z\d]")

_LOOKS: tuple[tuple[re.Pattern[str], float], ...] = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*"), 0.6),
    (re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}"), 1.3),
    (re.compile(r"\d{1,2}:\d\d(?::\d\d)?\S{0,8}"), 1.3),
    # Digests and UUIDs before identifiers: whole pages of them are common, and few are ever used.
    (re.compile(r"[a-z]+://\S+|\S+@\S+\.\S+"), 0.6),
    (re.compile(r"[0-9a-f]{24,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9+/_=-]{40,}"), 0.6),
    # Digits that were not written as a number, codes in capitals, and other identifiers.
    (re.compile(r"\d{3,16}"), 1.4),
    (re.compile(r"[A-Z]{2,5}"), 1.0),
    (re.compile(r"(?=\S*\d)(?=\S*[^\W\d])\S{3,40}"), 1.5),
)
_NUMBER = 0.8
_OTHER_TEXT = 0.8
_TRUTH = 0.4
_NOTHING = 0.1

_WORDS = re.compile(r"\w+")
_NEEDED = frozenset(
    _WORDS.findall(
        """
        account amount availability available balance code cost count deadline due error errors fee id ids key limit
        message no number order price prices priority quantity rating reason ref reference remaining result score
        severity sku slug state status symbol ticket total type
        """
    )
)
_LABELS = frozenset(("label", "name", "subject", "title"))
_BOOKKEEPING = frozenset(
    _WORDS.findall(
        """
        avatar checksum class created css cursor digest encoding etag hash href html icon image images link links locale
        logo meta metadata modified revision signature span thumbnail timestamp token trace updated uri url version
        """
    )
)
_FACTOR_NEEDED = 1.3
# By these people tell one thing from another, and they cost more than a number does.
_FACTOR_LABEL = 1.7
_FACTOR_BOOKKEEPING = 0.4
# Where somebody lives is needed only where it is what the task is about, and then its name was heard before.
_FACTOR_ADDRESS = 0.5
_HEARD = 0.5
_FACTOR_HEARD = 1.5
_FACTOR_KNOWN = 0.6


def tokens(text: str) -> int:
    """Returns about how many tokens a text has, whatever the vocabulary."""
    return len(_TOKEN.findall(text))


def of_value(node: Node) -> float:
    """Returns how useful a scalar is by its looks alone, 0.1 to 1.5."""
    if isinstance(node, Number):
        return _NUMBER
    if not isinstance(node, str):
        return _NOTHING if node is None else _TRUTH
    if not node:
        return _NOTHING
    return next((weight for pattern, weight in _LOOKS if pattern.fullmatch(node)), _OTHER_TEXT)


def of_place(names: Sequence[str], past: Past) -> float:
    """Returns the factor of the names that lead to a value, outermost first: 0.4 to 1.7, times what the past adds."""
    if not names:
        return 1.0
    words = terms_of_name(names[-1])
    heard = 1.0 + _FACTOR_HEARD * past.names(names[-1])
    if not _BOOKKEEPING.isdisjoint(words):
        return _FACTOR_BOOKKEEPING * heard
    if any("address" in terms_of_name(name) for name in names) and past.names("address") < _HEARD:
        return _FACTOR_ADDRESS * heard
    if not _LABELS.isdisjoint(words):
        return _FACTOR_LABEL * heard
    return heard if _NEEDED.isdisjoint(words) else _FACTOR_NEEDED * heard


def of_past(text: str, past: Past) -> float:
    """Returns the factor of what came before, 1 to 1.6: a value that the task was about will be needed again."""
    return 1.0 + _FACTOR_KNOWN * past.knows(text)
