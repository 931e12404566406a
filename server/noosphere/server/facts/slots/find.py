"""Finds the slot that a claim in words fills."""

from __future__ import annotations

import re
from typing import NamedTuple

from ...text.characters import UNSPACED
from ..types import Cardinality, Policy
from ..wording import readable, without_end
from .chinese import chinese
from .english import english
from .predicates import named_single, predicate_form, subject_form, usually_single, value_form
from .shape import Found

TEXT_CHARS_MAX = 400
"""Longer claims say more than one thing."""

PART_CHARS_MAX = 200

_QUALIFIED = re.compile(r" (?:on|in|at|with|for|from|during|by|between|per|when|while|as) ")
_ASKS = re.compile(r"[?\u061f][!\s]*$")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]{2,} [A-Za-z]{2,}")


class Slot(NamedTuple):
    """What a claim says of what.

    Attributes:
        subject: what it is about, in canonical form.
        predicate: which property, in canonical form.
        value: the property's value, in canonical form.
        cardinality: how the property's values relate, as far as grammar and known predicates tell.
    """

    subject: str
    predicate: str
    value: str
    cardinality: Cardinality


def find(text: str, policy: Policy) -> Slot | None:
    """Returns the slot that a claim fills, None where rules are not sure of it.

    Two claims are in one slot if they say the same of the same thing but for the value. What is negated, asked,
    supposed, quoted or says more than one thing has no slot.

    Args:
        text: one sentence, English or Chinese.
        policy: names aliases, and predicates with one value.
    """
    words = readable(text, policy.aliases)
    plain = without_end(words)
    # Lines are claims of their own. What ends with "?." states something of a title.
    if not plain or len(plain) > TEXT_CHARS_MAX or "\n" in text.strip() or _ASKS.search(words):
        return None
    found = _found(plain)
    if found is None or any(len(part) > PART_CHARS_MAX for part in found[:3]):
        return None
    subject, predicate = subject_form(found.subject), predicate_form(found.predicate)
    value = value_form(found.value)
    if not subject or not predicate or not value:
        return None
    return Slot(subject, predicate, value, _cardinality(predicate, found, policy))


def _cardinality(predicate: str, found: Found, policy: Policy) -> Cardinality:
    if named_single(predicate, policy):
        return Cardinality.SINGLE
    if found.cardinality is Cardinality.MULTI:
        return Cardinality.MULTI
    if _QUALIFIED.search(found.value):
        # "at 9:00 on Mondays" may be so beside "at 10:00 on Sundays".
        return Cardinality.UNKNOWN
    return Cardinality.SINGLE if usually_single(predicate) else found.cardinality


def _found(text: str) -> Found | None:
    if _HAN.search(text):
        found = chinese(text)
        if found is not None or not _LATIN.search(text) or len(_HAN.findall(text)) > len(text) / 3:
            return found
    if re.search(f"[{UNSPACED}]", text) and not _LATIN.search(text):
        return None
    return english(text)
