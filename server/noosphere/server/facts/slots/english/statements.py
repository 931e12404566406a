"""Statements with "to be", with "X's", or with a colon."""

from __future__ import annotations

import re

from ...types import Cardinality
from ..predicates import predicate_form, usually_single
from ..shape import Found
from .complements import (
    counted,
    is_identity,
    is_linked,
    is_number,
    is_time,
    linked,
    names_one,
    of_description,
    tensed,
    was,
)
from .verbs import verb_at
from .words import VALUE_ROLES

_BE = "is|are|was|were"
_LABEL = re.compile(
    r"^(?:[Tt]he |[Mm]y |[Uu]ser(?:'s)? )?(?P<role>[A-Za-z][\w'-]*(?: [\w'-]+){0,3}?) ?: (?P<value>[^:]{1,100})$"
)
_INVERSE = re.compile(
    rf"^(?P<value>\S.*?) (?P<be>{_BE}) the (?P<role>[A-Za-z][\w'-]*(?: (?!(?:of|for|in|at) )[\w'-]+){{0,3}}) "
    r"(?P<prep>of|for|in|at) (?P<subject>\S.*)$"
)
# As far right as possible: what describes may have a verb of its own.
_DESCRIPTION = re.compile(rf"^[Tt]he (?P<what>.+) (?P<be>{_BE}) (?P<value>\S.*)$")
_RELATIVE = re.compile(r" (?:that|which|where|who|whom|whose) ")
_CLAUSE = re.compile(
    r"^(?P<before>\S+(?: \S+){0,4}? (?:that|which|where|who|whom|whose)(?: [a-z]\S*){0,3}?) "
    r"(?P<name>[^\W_a-z]\S*(?: .*[^\W_a-z]\S*)?)(?P<after>(?: [a-z]\S*){0,4})$"
)
_OF = re.compile(
    r"^(?P<role>(?:name|date|place|head|country|type|kind|number|point|city) of [a-z]+|\S+(?: (?!of )\S+){0,5}?) "
    r"(?P<prep>of|in|for|at) (?P<subject>\S.*)$"
)
_NAME_OF = re.compile(r"^names? of (?:the )?(?=\S+ )")
_OWNED = re.compile(
    r"^(?:(?P<mine>[Mm]y|[Oo]ur)|(?P<subject>[^,]{1,80}?)(?:'s|(?<=s)')) "
    rf"(?P<role>[a-z][a-z'-]*(?: (?!(?:{_BE}) )[a-z][\w'-]*){{0,4}}) (?P<be>{_BE}) (?P<value>\S.*)$"
)
_COMPOUND = re.compile(r"^(?:[Tt]he )?(?P<subject>\S+(?: \S+){0,3}) (?P<role>[A-Za-z]+) (?P<be>is) (?P<value>\S.*)$")
_BARE = re.compile(rf"^(?P<subject>I(?= am )|\S.*?) (?P<be>{_BE}|(?<=^I )am) (?P<value>\S.*)$")
_CALLED = re.compile(r"^(?:called|named) (?P<name>\S.*)$")
_DUE = re.compile(r"^due (?:on |at |by )?(?P<value>\S.*)$")


def labelled(text: str) -> Found | None:
    """Timezone: CET. Only of what is known to be a property, since most things before a colon are none."""
    matched = _LABEL.match(text)
    if matched is None or not usually_single(predicate_form(matched["role"])):
        return None
    return Found("user", matched["role"], matched["value"], Cardinality.SINGLE)


def inverse(text: str) -> Found | None:
    """X is the capital of Y: Y's capital is X."""
    matched = _INVERSE.match(text)
    if matched is None or matched["value"].startswith(("The ", "the ")) or _has_verb(matched["value"]):
        return None
    role = matched["role"] if matched["prep"] == "of" else f"{matched['role']} {matched['prep']}"
    return Found(matched["subject"], tensed(role, matched["be"]), matched["value"], Cardinality.UNKNOWN)


def described(text: str) -> Found | None:
    """The capital of X is Y; the university where X was educated is Y; the database host is Y."""
    matched = _DESCRIPTION.match(text)
    if matched is None:
        return None
    what, be, value = _NAME_OF.sub("", matched["what"]).removeprefix("current "), matched["be"], matched["value"]
    if _RELATIVE.search(f" {what} "):
        return _relative(what, be, value)
    of = _OF.match(what)
    # "The headquarters of X is in Y", but not "The Wheel of Time is in Welsh".
    relational = of is not None and of["role"].islower()
    if is_linked(value):
        found = linked(of["subject"] if of and relational else what, be, value)
        return found._replace(predicate=f"{of['role']} {found.predicate}") if found and of and relational else found
    if of is None or not names_one(of["role"], value):
        return None
    role = of["role"] if of["prep"] == "of" else f"{of['role']} {of['prep']}"
    return Found(of["subject"], tensed(role, be), value, of_description(of["role"], value, be))


def _relative(what: str, be: str, value: str) -> Found | None:
    """The university where X was educated is Y: X's is Y; without a name in it, the whole describes the subject."""
    head = what.split(" ", 1)[0]
    if is_linked(value):
        return linked(what, be, value)
    if not names_one(head, value):
        return None
    cardinality = of_description(head, value, be)
    clause = _CLAUSE.match(what)
    if clause is None:
        return Found(what, tensed("be", be), value, cardinality)
    predicate = " ".join(f"{clause['before']} {clause['after']}".split())
    return Found(clause["name"], tensed(predicate, be), value, cardinality)


def owned(text: str) -> Found | None:
    """X's favourite colour is Y; my editor is Y."""
    matched = _OWNED.match(text)
    if matched is None:
        return None
    mine = (matched["mine"] or "").lower()
    subject = {"my": "user", "our": "we"}.get(mine) or matched["subject"]
    role, be, value = matched["role"], matched["be"], matched["value"]
    if is_linked(value):
        return linked(f"{subject} {role}", be, value)
    if not names_one(role, value):
        return None
    return Found(subject, tensed(role, be), value, of_description(role, value, be))


def copula(text: str) -> Found | None:
    """X is married to Y; X was born in the city of Y; X is 30 years old; X is called Y."""
    matched = _BARE.match(text)
    if matched is None or _has_verb(matched["subject"]):
        return None
    subject, be, value = matched["subject"], matched["be"], matched["value"]
    if (called := _CALLED.match(value)) is not None and not was(be):
        return Found(subject, "name", called["name"], Cardinality.SINGLE) if is_identity(called["name"]) else None
    if (due := _DUE.match(value)) is not None and is_time(due["value"]):
        return Found(subject, tensed("due", be), due["value"], Cardinality.SINGLE)
    if is_linked(value):
        return linked(subject, be, value)
    compound = _COMPOUND.match(text)
    if compound is not None and (usually_single(predicate_form(compound["role"])) or compound["role"] in VALUE_ROLES):
        return _compound(compound)
    if is_number(value):
        cardinality = Cardinality.UNKNOWN if was(be) else Cardinality.SINGLE
        return counted(subject, tensed("be", be), value, cardinality)
    if (
        subject.startswith(("The ", "the "))
        and (is_identity(value) or is_time(value))
        and not value.startswith(("a ", "an "))
    ):
        return Found(subject, tensed("be", be), value, Cardinality.UNKNOWN)
    return None


def _compound(matched: re.Match[str]) -> Found | None:
    """The database host is Y: the host of the database."""
    subject, role, value = matched["subject"], matched["role"], matched["value"]
    if subject.casefold() in ("the", "a", "an") or " and " in subject or not names_one(role, value):
        return None
    if " " in value and not is_identity(value):
        return None
    return Found(subject, role, value, of_description(role, value, matched["be"]))


def _has_verb(text: str) -> bool:
    words = text.split(" ")
    at = verb_at(words)
    return at is not None and at < len(words) - 1
