"""Slots of English claims, by rules of grammar."""

from __future__ import annotations

import re

from ..shape import Found
from .elided import with_subject
from .sentence import prepared
from .statements import copula, described, inverse, labelled, owned
from .verbs import verb
from .words import PRONOUNS

_GENERAL = re.compile(r"[Aa]n? [a-z]|[-*]")
# In a subject it is a title: "Help! I Am Here was written by".
_SENTENCE = re.compile(r"[!?] +[A-Z]")
_CLAUSE = re.compile(r", (?![A-Z])|[`()\[\]]")

_RULES = (labelled, inverse, described, owned, copula, verb)


def english(text: str) -> Found | None:
    """Returns the parts of a claim, None where these rules are not sure of them."""
    plain = prepared(with_subject(text))
    if plain is None:
        return None
    found = next(filter(None, (rule(plain) for rule in _RULES)), None)
    return found if found is not None and _names_things(found) else None


def _names_things(found: Found) -> bool:
    """Tells whether subject and value name something: no rule tells what a pronoun means."""
    if _GENERAL.match(found.subject) or _CLAUSE.search(found.subject) or _SENTENCE.search(found.value):
        return False
    return not any(_is_pronoun(part) for part in (found.subject, found.value))


def _is_pronoun(part: str) -> bool:
    first, _, rest = part.partition(" ")
    # With another capital after it, it is a title: "They Live".
    return first.casefold() in PRONOUNS and not (first[0].isupper() and rest[:1].isupper())


__all__ = ["english"]
