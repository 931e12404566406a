"""What may stand after a verb: a value, what kind of value it is, and whether it is a time, a number or a name."""

from __future__ import annotations

import re

from ...measures import has_quantity, plain_measures
from ...types import Cardinality
from ..shape import Found
from .words import ADJECTIVES, EVENTS, KINDS, MULTI_LINKS, MULTI_ROLES, QUALITY_ROLES, SINGLE_VERBS, VALUE_ROLES

_PREP = "in|of|by|to|with|for|at|as|on|from|under|near|into|about|against"
_LOWER = r"[a-z][a-z'-]*"

# a citizen of X; married to X; located in X
_LINK = re.compile(
    rf"^(?P<article>an? )?(?P<link>{_LOWER}(?: (?!(?:{_PREP}|the|an?) ){_LOWER}){{0,3}}?) (?P<prep>{_PREP}) "
    r"(?P<value>\S.*)$"
)
_PLACE = re.compile(r"^(?P<prep>in|at|on|from|under|near) (?P<value>\S.*)$")
_KIND = re.compile(r"^the (?P<kind>[a-z]+) of (?P<value>\S.*)$")
_CALENDAR = re.compile(
    r"(?:\d{1,2}(?:st|nd|rd|th)? (?:of )?)?(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|january|february|march|april"
    r"|may|june|july|august|september|october|november|december|spring|summer|autumn|winter|noon|midnight)"
    r"(?:,? (?:the )?\d\w*)*(?: (?:morning|afternoon|evening|night)s?)?",
    re.IGNORECASE,
)
_OF_TIMES = ("in", "on", "at", "from", "by")
_CLOCK = re.compile(r"(?:\d{4}-\d\d-\d\d|\d{1,2}:\d\d|(?:1\d|20)\d\d$)")
_COUNT = re.compile(
    r"^(?P<number>[$€£¥]?\d[\d.,:-]*)(?: (?P<unit>ms|day|month|mm|mile|mg|kb|mb|gb|tb|%|°c|°f|eur))?(?: (?P<rest>.+))?$"
)
_COUNTED = re.compile(r"(?:[^\W\d_]+(?: [^\W\d_]+){0,2})?")
_IDENTITY = re.compile(r"^(?:[^\W_a-z]|[\"'$€£¥]|the |an? )|^\S*(?:\w[.:/@]\w|\d)")
_QUALITY = ("ful", "ous", "able", "ible", "ish", "less", "est", "ing", "ed")


def linked(subject: str, be: str, complement: str) -> Found | None:
    """X is married to Y; X was born in the city of Y; X is in Y."""
    matched = _LINK.match(complement)
    if matched is None:
        place = _PLACE.match(complement)
        if place is None or not (is_identity(place["value"]) or is_time(place["value"])):
            return None
        predicate = timed(tensed(f"be {place['prep']}", be), place["value"])
        return Found(subject, predicate, place["value"], Cardinality.UNKNOWN)
    kind, value = kind_and_value(matched["value"])
    predicate = f"{matched['link']} {matched['prep']}"
    happens_once = matched["link"] in EVENTS
    cardinality = Cardinality.UNKNOWN
    if predicate in MULTI_LINKS:
        cardinality = Cardinality.MULTI
    elif predicate in SINGLE_VERBS and (happens_once or not was(be)):
        cardinality = Cardinality.SINGLE
    if not happens_once:
        predicate = tensed(predicate, be)
    return Found(subject, timed(f"{predicate} {kind}".strip(), value), value, cardinality)


def is_linked(complement: str) -> bool:
    """Tells whether a complement has a preposition that leads to its value."""
    return _LINK.match(complement) is not None or _PLACE.match(complement) is not None


def counted(subject: str, predicate: str, value: str, cardinality: Cardinality) -> Found | None:
    """30 seconds; 34 years old; 3 cats: the number is the value, what is counted belongs to the predicate."""
    matched = _COUNT.match(plain_measures(value.casefold()))
    if matched is None or not _COUNTED.fullmatch(matched["rest"] or ""):
        return None
    predicate = " ".join(filter(None, (predicate, "number", matched["rest"])))
    return Found(subject, predicate, " ".join(filter(None, (matched["number"], matched["unit"]))), cardinality)


def kind_and_value(text: str) -> tuple[str, str]:
    """Returns what kind of thing a value is said to be, and the value: ``the city of X`` is a city, X."""
    matched = _KIND.match(text)
    return (matched["kind"], matched["value"]) if matched is not None and matched["kind"] in KINDS else ("", text)


def was(be: str) -> bool:
    """Tells whether a form of "to be" is of the past."""
    return be in ("was", "were")


def tensed(predicate: str, be: str) -> str:
    """What was is not what is: the past holds beside the present."""
    return f"was {predicate}" if was(be) else predicate


def timed(predicate: str, value: str) -> str:
    """Where something is says nothing of when."""
    return f"{predicate} time" if predicate.rpartition(" ")[2] in _OF_TIMES and is_time(value) else predicate


def is_time(value: str) -> bool:
    """Tells whether a value is a date, a time of day, a weekday, month or year."""
    return _CALENDAR.fullmatch(value) is not None or _CLOCK.match(plain_measures(value.casefold())) is not None


def is_number(value: str) -> bool:
    """Tells whether a value begins with a number or an amount."""
    return has_quantity(plain_measures(value.casefold()))


def is_identity(value: str) -> bool:
    """Tells whether a value begins like a name, a number, an address or with an article."""
    return _IDENTITY.match(value) is not None


def names_one(role: str, value: str) -> bool:
    """Tells whether a value says which one it is, rather than what it is like."""
    if is_identity(value) or QUALITY_ROLES.intersection(_ends(role)):
        return True
    return " " in value or not (value in ADJECTIVES or value.endswith(_QUALITY))


def of_description(role: str, value: str, be: str) -> Cardinality:
    """A definite description has one value, if it is one of something that there usually is one of."""
    ends = _ends(role)
    if be != "is" or MULTI_ROLES.intersection(ends):
        return Cardinality.UNKNOWN
    if VALUE_ROLES.intersection(ends) or QUALITY_ROLES.intersection(ends):
        return Cardinality.SINGLE
    named = is_identity(value) and not value.startswith(("a ", "an "))
    return Cardinality.SINGLE if named else Cardinality.UNKNOWN


def _ends(role: str) -> tuple[str, str]:
    words = role.casefold().split(" ")
    return words[0], words[-1]
