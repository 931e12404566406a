"""Statements with another verb than "to be"."""

from __future__ import annotations

import re

from ...types import Cardinality
from ...vocabulary import words
from ..shape import Found
from .complements import counted, is_number, kind_and_value, timed
from .words import EVENTS, PARTICLES, SAME_VERB, SEVERAL_VERBS, SINGLE_VERBS, VERBS

SUBJECT_WORDS_MAX = 8

_SPEAKER = re.compile(r"^(?:[Ii]|[Ww]e|(?:[Tt]he |[Tt]his )?[Uu]ser)$")
_IN_NAMES = words("of and the de von van der di da la le al bin")
_NO_VERBS = words("is are was were am does did do has have had been being this his its as us plus")
_COPULAS = words("is are was were")
_ARTICLES = words("The the A a An an This this That that")
_PURPOSE = re.compile(r"^(?P<value>.+?) (?P<prep>for|as|when|during|while) (?P<what>[a-z].*)$")
_BETWEEN = re.compile(r"^(?P<value>.+?) (?:over|to|rather than|instead of) (?P<other>.+)$")
_WHERE = re.compile(r"^(?P<value>.+?) (?P<where>(?:in|on|at|with|from|by) .+)$")
_NO_KIND = words("to the a an her his my their our its your")


def verb(text: str) -> Found | None:
    """X plays the position of Y; I prefer Y for Z; X lives in Y; X has 3 Z."""
    tokens = text.split(" ")
    at = verb_at(tokens)
    if at is None or at + 1 >= len(tokens) or tokens[at + 1] in _COPULAS:
        return None
    subject, rest = " ".join(tokens[:at]), " ".join(tokens[at + 1 :])
    past = tokens[at] in EVENTS or (tokens[at] not in VERBS and tokens[at].endswith("ed"))
    base = tokens[at] if past else _base(tokens[at])
    if base == "prefer":
        return _preference(subject, rest)
    preposition = ""
    if tokens[at + 1] in PARTICLES and len(tokens) > at + 2:
        preposition, rest = tokens[at + 1], " ".join(tokens[at + 2 :])
    predicate = f"{base} {preposition}".strip()
    predicate = SAME_VERB.get(predicate, predicate)
    if is_number(rest) and not preposition:
        return counted(subject, predicate, rest, Cardinality.MULTI if past else Cardinality.SINGLE)
    purpose = _PURPOSE.match(rest) if not preposition else None
    if purpose is not None:
        predicate, rest = f"{predicate} {purpose['prep']} {purpose['what']}", purpose["value"]
    kind, value = kind_and_value(rest)
    cardinality = Cardinality.UNKNOWN
    if predicate in SINGLE_VERBS:
        cardinality = Cardinality.SINGLE
    elif not kind and not rest.startswith("the ") and (past or predicate in SEVERAL_VERBS):
        cardinality = Cardinality.MULTI
    return Found(subject, timed(f"{predicate} {kind}".strip(), value), value, cardinality)


def _preference(subject: str, rest: str) -> Found:
    """Of preferences for the same purpose, between the same things or of the same kind of thing, one holds."""
    purpose = _PURPOSE.match(rest)
    where = "" if purpose is None else f"{purpose['prep']} {purpose['what']}"
    value = rest if purpose is None else purpose["value"]
    between = _BETWEEN.match(value)
    if between is not None and where:
        value = between["value"]
    elif between is not None:
        both = sorted((between["value"].casefold(), between["other"].casefold()))
        return Found(subject, f"prefer of {both[0]} and {both[1]}", between["value"], Cardinality.SINGLE)
    if where:
        return Found(subject, f"prefer {where}", value, Cardinality.SINGLE)
    if (placed := _WHERE.match(rest)) is not None:
        value, where = placed["value"], placed["where"]
    tokens = value.split(" ")
    of_a_kind = 2 <= len(tokens) <= 4 and tokens[-1].islower() and tokens[-1].isalpha()
    if of_a_kind and tokens[0] not in _NO_KIND and not tokens[0].endswith("ing"):
        return Found(subject, f"prefer {tokens[-1]} {where}".strip(), value, Cardinality.SINGLE)
    return Found(subject, "prefer", rest, Cardinality.UNKNOWN)


def verb_at(tokens: list[str]) -> int | None:
    """Returns where the verb stands: the first known one, or what looks like one after names or who speaks."""
    for at in range(1, min(len(tokens), SUBJECT_WORDS_MAX + 1)):
        token, before = tokens[at], tokens[:at]
        if token in _COPULAS:
            return None
        speaks = _SPEAKER.match(" ".join(before)) is not None
        if token in VERBS or token in EVENTS or (speaks and before[0] in ("I", "i", "We", "we") and token == "have"):
            return at
        if not (token.islower() and token.isalpha()) or token in PARTICLES | _IN_NAMES | _NO_VERBS:
            continue
        looks = len(token) > 3 and token.endswith(("s", "ed")) and not token.endswith(("ss", "us", "is"))
        if speaks:
            return at if looks or before[0] in ("I", "i", "We", "we") else None
        if before[-1] in _ARTICLES or any(word.islower() and word not in _IN_NAMES for word in before):
            continue
        return at if looks and before[0] not in _ARTICLES else None
    return None


def _base(verb: str) -> str:
    if verb in VERBS:
        return VERBS[verb]
    if verb.endswith("ies") and len(verb) > 4:
        return verb[:-3] + "y"
    if verb.endswith(("shes", "ches", "xes", "sses", "oes")):
        return verb[:-2]
    return verb[:-1] if verb.endswith("s") and not verb.endswith("ss") else verb
