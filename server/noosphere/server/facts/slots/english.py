"""Slots of English claims, by rules of grammar; the words that these need are in `english_words`."""

from __future__ import annotations

import re

from ..measures import has_quantity, plain_measures
from ..types import Cardinality
from ..vocabulary import words
from .english_words import (
    ADJECTIVES,
    EVENTS,
    KINDS,
    MULTI_LINKS,
    MULTI_ROLES,
    PARTICLES,
    PRONOUNS,
    QUALITY_ROLES,
    SAME_VERB,
    SEVERAL_VERBS,
    SINGLE_VERBS,
    UNSURE,
    VALUE_ROLES,
    VERBS,
)
from .shape import Found

_SINGLE, _UNKNOWN, _MULTI = Cardinality.SINGLE, Cardinality.UNKNOWN, Cardinality.MULTI

_END = re.compile(r"[\s.!;:,]+$")
_START = re.compile(
    r"^(?:currently|now|today|actually|note that|fyi|presently|at present|as of now),?:? +(?=\S)", re.IGNORECASE
)
_NOW = re.compile(
    r",? (?:now|currently|these days|nowadays|at the moment|right now|at present|as of now|as of today"
    r"|(?:since|as of) (?:\w+ )?(?:\d{1,2}, )?\d{4}(?:-\d\d){0,2})$"
)
_ADVERBS = re.compile(
    r"(?<= )(?:now|currently|presently|actually|really|officially|mostly|mainly|usually|primarily) (?=\S)"
)
_SENTENCES = re.compile(r"[^\W\d_A-Z]{4,}\. +[A-Z]|[!?] +[A-Z]|\n|; ")
_SHORT_FORMS = (
    (re.compile(r"\u2019"), "'"),
    (re.compile(r"\bI'm\b"), "I am"),
    (re.compile(r"\b([Ww]e|[Tt]hey|[Yy]ou)'re\b"), r"\1 are"),
)
_SECOND_CLAUSE = re.compile(
    r",? (?:and|but|or) (?:then |also )?(?:is|are|was|were|am|has|have|had|does|did|will|can|I|he|she|it|they"
    r"|[a-z]+(?:s|ed) (?:in|at|by|to|with|for|of|on|as|the|an?|his|her|its|their))\b"
)
_BE = "is|are|was|were|am"
_PREP = "in|of|by|to|with|for|at|as|on|from|under|near|into|about|against"
_LOWER = r"[a-z][a-z'-]*"

# a citizen of X; married to X; located in X
_LINK = re.compile(
    rf"^(?P<article>an? |the )?(?P<link>{_LOWER}(?: (?!(?:{_PREP}|the|an?) ){_LOWER}){{0,3}}?) (?P<prep>{_PREP}) "
    r"(?P<value>\S.*)$"
)
_PLACE = re.compile(r"^(?P<prep>in|at|on|from|under|near) (?P<value>\S.*)$")
_KIND = re.compile(r"^the (?P<kind>[a-z]+) of (?P<value>\S.*)$")
# As far right as possible: what describes may have a verb of its own.
_DESCRIPTION = re.compile(rf"^[Tt]he (?P<what>.+) (?P<be>{_BE}) (?P<value>\S.*)$")
_RELATIVE = re.compile(r" (?:that|which|where|who|whom|whose) ")
_OF = re.compile(
    r"^(?P<role>(?:name|date|place|head|country|type|kind|number|point|city) of [a-z]+|\S+(?: (?!of )\S+){0,5}?) "
    r"(?P<prep>of|in|for|at) (?P<subject>\S.*)$"
)
_NAME_OF = re.compile(r"^names? of (?:the )?(?=\S+ )")
_OWNED = re.compile(
    r"^(?:(?P<mine>[Mm]y|[Oo]ur)|(?P<subject>[^,]{1,80}?)(?:'s|(?<=s)')) "
    rf"(?P<role>{_LOWER}(?: (?!(?:{_BE}) )[a-z][\w'-]*){{0,4}}) (?P<be>{_BE}) (?P<value>\S.*)$"
)
_BARE = re.compile(rf"^(?P<subject>\S.*?) (?P<be>{_BE}) (?P<value>\S.*)$")
_USER = re.compile(r"^(?:I|(?:[Tt]he |[Tt]his )?[Uu]ser)$")
_CALENDAR = re.compile(
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|january|february|march|april|may|june|july|august|september"
    r"|october|november|december|spring|summer|autumn|winter)\b",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"^(?P<value>.+?) (?:over|to|rather than|instead of) (?P<other>.+)$")
_FOR = re.compile(r"^(?P<value>.+?) (?P<prep>for|as|when|during|while) (?P<what>[a-z].*)$")
_COUNT = re.compile(
    r"^(?P<number>[$€£¥]?\d[\d.,:-]*)(?: (?P<unit>ms|day|month|mm|mile|mg|kb|mb|gb|tb|%|°c|°f|eur))?(?: (?P<rest>.+))?$"
)
_IDENTITY = re.compile(r"^(?:[^\W_a-z]|[\"'$€£¥]|the |an? )")
_SUBJECT_WORDS_MAX = 8
_IN_NAMES = words("of and the de von van der di da la le al bin")
_QUALITY = ("ful", "ous", "able", "ible", "ish", "less", "est", "ing", "ed")


def english(text: str) -> Found | None:
    """Returns the parts of a claim, None where these rules are not sure of them."""
    plain = _prepared(text)
    if plain is None:
        return None
    found = _description(plain) or _owned(plain) or _copula(plain) or _verb(plain)
    if found is None or found.subject.casefold().split(" ", 1)[0] in PRONOUNS:
        return None
    return found


def _prepared(text: str) -> str | None:
    if "?" in text[-2:] or _SENTENCES.search(text):
        return None
    plain = _END.sub("", text)
    for pattern, long in _SHORT_FORMS:
        plain = pattern.sub(long, plain)
    plain = _ADVERBS.sub("", _NOW.sub("", _START.sub("", plain)))
    if UNSURE.search(plain) or _SECOND_CLAUSE.search(plain):
        return None
    return plain


def _description(text: str) -> Found | None:
    """The capital of X is Y; the university where X was educated is Y; the company that made X is Y."""
    matched = _DESCRIPTION.match(text)
    if matched is None:
        return None
    description, be, value = matched["what"], matched["be"], matched["value"]
    if _RELATIVE.search(f" {description} "):
        head, *_ = description.split(" ", 1)
        if _linked(value):
            return _of_link("the " + description, be, value)
        return Found(description, _tense("be", be), value, _identity(head, value, be)) if _named(head, value) else None
    description = _NAME_OF.sub("", description)
    of = _OF.match(description)
    if _linked(value) or _PLACE.match(value):
        return _of_link(description, be, value)
    if of is None:
        return _measured(description, be, value)
    role = of["role"].removeprefix("current ")
    if of["prep"] != "of":
        role, subject = f"{role} {of['prep']}", of["subject"]
    else:
        subject = of["subject"]
    if not _named(role, value):
        return None
    return Found(subject, _tense(role, be), value, _identity(role, value, be))


def _owned(text: str) -> Found | None:
    """X's favourite colour is Y; my editor is Y."""
    matched = _OWNED.match(text)
    if matched is None:
        return None
    subject = "user" if matched["mine"] and matched["mine"].lower() == "my" else matched["subject"] or "we"
    role, be, value = matched["role"], matched["be"], matched["value"]
    if _linked(value) or _PLACE.match(value):
        return _of_link(f"{subject} {role}", be, value)
    if has_quantity(value):
        return Found(subject, _tense(role, be), value, _identity(role, value, be))
    if not _named(role, value):
        return None
    return Found(subject, _tense(role, be), value, _identity(role, value, be))


def _copula(text: str) -> Found | None:
    """X is married to Y; X was born in the city of Y; X is the capital of Y; X is 30 years old."""
    matched = _BARE.match(text)
    if matched is None or _verb_before(matched["subject"]):
        return None
    subject, be, value = matched["subject"], matched["be"], matched["value"]
    if _linked(value) or _PLACE.match(value):
        return _of_link(subject, be, value)
    return _measured(subject, be, value)


def _measured(subject: str, be: str, value: str) -> Found | None:
    if not has_quantity(value):
        return None
    return _count(subject, _tense("be", be), value, _SINGLE if be in ("is", "are", "am") else _UNKNOWN)


def _verb(text: str) -> Found | None:
    """X plays the position of Y; I prefer Y for Z; X lives in Y; X has 3 Z."""
    tokens = text.split(" ")
    at = _verb_at(tokens)
    if at is None or at + 1 >= len(tokens):
        return None
    subject, verb, rest = " ".join(tokens[:at]), tokens[at], " ".join(tokens[at + 1 :])
    past = verb in EVENTS or (verb not in VERBS and verb.endswith("ed"))
    base = verb if past else _base(verb)
    if base == "prefer":
        return _preference(subject, rest)
    preposition = ""
    if tokens[at + 1] in PARTICLES and len(tokens) > at + 2:
        preposition, rest = tokens[at + 1], " ".join(tokens[at + 2 :])
    predicate = f"{base} {preposition}".strip()
    predicate = SAME_VERB.get(predicate, predicate)
    if has_quantity(plain_measures(rest.casefold())) and not preposition:
        return _count(subject, predicate, rest, _MULTI if past else _SINGLE)
    purpose = _FOR.match(rest)
    if purpose is not None and not preposition:
        predicate, rest = f"{predicate} {purpose['prep']} {purpose['what']}", purpose["value"]
    kind, value = _kind(rest)
    if kind or rest.startswith("the "):
        cardinality = _UNKNOWN
    elif predicate in SEVERAL_VERBS or past:
        cardinality = _MULTI
    else:
        cardinality = _UNKNOWN
    if predicate in SINGLE_VERBS:
        cardinality = _SINGLE
    return Found(subject, _timed(f"{predicate} {kind}".strip(), value), value, cardinality)


def _preference(subject: str, rest: str) -> Found:
    """Of preferences for the same purpose, between the same things or of the same kind of thing, one holds."""
    purpose = _FOR.match(rest)
    if purpose is not None:
        return Found(subject, f"prefer {purpose['prep']} {purpose['what']}", purpose["value"], _SINGLE)
    if (between := _BETWEEN.match(rest)) is not None:
        both = sorted((between["value"].casefold(), between["other"].casefold()))
        return Found(subject, f"prefer of {both[0]} and {both[1]}", between["value"], _SINGLE)
    words = rest.split(" ")
    if (
        2 <= len(words) <= 4
        and words[-1].islower()
        and words[-1].isalpha()
        and words[0] not in ("to", "the", "a", "an")
    ):
        return Found(subject, f"prefer {words[-1]}", rest, _SINGLE)
    return Found(subject, "prefer", rest, _UNKNOWN)


def _count(subject: str, predicate: str, value: str, cardinality: Cardinality) -> Found | None:
    """30 seconds; 34 years old; 3 cats: the number is the value, what is counted belongs to the predicate."""
    matched = _COUNT.match(plain_measures(value.casefold()))
    if matched is None:
        return None
    unit = matched["unit"] or ""
    rest = matched["rest"] or ""
    return Found(
        subject, " ".join(filter(None, (predicate, "number", rest))), f"{matched['number']} {unit}".strip(), cardinality
    )


def _of_link(subject: str, be: str, complement: str) -> Found | None:
    matched = _LINK.match(complement)
    if matched is None:
        place = _PLACE.match(complement)
        if place is None or not (
            _IDENTITY.match(place["value"]) or has_quantity(place["value"]) or _CALENDAR.match(place["value"])
        ):
            return None
        return Found(subject, _timed(_tense(f"be {place['prep']}", be), place["value"]), place["value"], _UNKNOWN)
    article, link, prep, rest = matched["article"] or "", matched["link"], matched["prep"], matched["value"]
    if article == "the " and prep in ("of", "for", "at", "in"):
        # X is the capital of Y: Y's capital is X.
        role = link if prep == "of" else f"{link} {prep}"
        return Found(rest, _tense(role, be), subject, _UNKNOWN)
    kind, value = _kind(rest)
    predicate = f"{link} {prep}"
    if predicate in MULTI_LINKS:
        cardinality = _MULTI
    elif predicate in SINGLE_VERBS and be in ("is", "are", "am", "was", "were"):
        cardinality = _SINGLE
    else:
        cardinality = _UNKNOWN
    happens_once = link in EVENTS
    predicate = predicate if happens_once else _tense(predicate, be)
    if not happens_once and be in ("was", "were") and cardinality is _SINGLE:
        cardinality = _UNKNOWN
    return Found(subject, _timed(f"{predicate} {kind}".strip(), value), value, cardinality)


def _kind(text: str) -> tuple[str, str]:
    matched = _KIND.match(text)
    return (matched["kind"], matched["value"]) if matched is not None and matched["kind"] in KINDS else ("", text)


def _linked(value: str) -> bool:
    return _LINK.match(value) is not None


def _tense(predicate: str, be: str) -> str:
    """What was is not what is: the past holds beside the present."""
    return f"was {predicate}" if be in ("was", "were") else predicate


def _timed(predicate: str, value: str) -> str:
    """Where something is says nothing of when."""
    return (
        f"{predicate} time" if has_quantity(plain_measures(value.casefold())) or _CALENDAR.match(value) else predicate
    )


def _named(role: str, value: str) -> bool:
    """Tells whether a value says which one it is, rather than what it is like."""
    if _IDENTITY.match(value) or has_quantity(value):
        return True
    words_of_role = role.casefold().split(" ")
    if QUALITY_ROLES.intersection((words_of_role[0], words_of_role[-1])):
        return True
    return " " in value or not (value in ADJECTIVES or value.endswith(_QUALITY))


def _identity(role: str, value: str, be: str) -> Cardinality:
    """A definite description has one value, if it is one of something that there usually is one of."""
    words = role.casefold().split(" ")
    if be != "is" or words[-1] in MULTI_ROLES or words[0] in MULTI_ROLES:
        return _UNKNOWN
    if words[-1] in VALUE_ROLES or words[0] in VALUE_ROLES or has_quantity(value):
        return _SINGLE
    return _SINGLE if _IDENTITY.match(value) and not value.startswith(("a ", "an ")) else _UNKNOWN


def _verb_before(subject: str) -> bool:
    words = subject.split(" ")
    at = _verb_at(words)
    return at is not None and at < len(words) - 1


def _verb_at(tokens: list[str]) -> int | None:
    """Returns where the verb stands: the first known one, or what looks like one after names or who speaks."""
    for at in range(1, min(len(tokens), _SUBJECT_WORDS_MAX + 1)):
        token = tokens[at]
        if token in VERBS or token in EVENTS:
            return at
        if not (token.islower() and token.isalpha()) or token in PARTICLES or token in _IN_NAMES:
            continue
        before = tokens[:at]
        if _USER.match(" ".join(before)):
            return at if before[0] == "I" or token.endswith(("s", "ed")) else None
        if before[-1] in ("The", "the", "A", "a", "An", "an", "user") or any(map(str.islower, set(before) - _IN_NAMES)):
            continue
        named = before[0] not in ("The", "A", "An")
        looks = len(token) > 3 and token.endswith(("s", "ed")) and not token.endswith(("ss", "us", "is"))
        return at if named and looks else None
    return None


def _base(verb: str) -> str:
    if verb in VERBS:
        return VERBS[verb]
    if verb.endswith("ies") and len(verb) > 4:
        return verb[:-3] + "y"
    if verb.endswith(("shes", "ches", "xes", "sses", "oes")):
        return verb[:-2]
    return verb[:-1] if verb.endswith("s") and not verb.endswith("ss") else verb
