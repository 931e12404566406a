"""The canonical form of a claim: what makes two claims the same claim, and which slot a claim fills."""

from __future__ import annotations

import msgspec

from . import slots
from .ledger import digest
from .types import Cardinality, Claim, Policy
from .wording import comparable, readable

_IN_SLOT = "slot"
_IN_WORDS = "text"


def canonical(
    owner: str,
    scope: str,
    text: str,
    *,
    subject: str = "",
    predicate: str = "",
    object: str = "",
    cardinality: Cardinality = Cardinality.UNKNOWN,
    policy: Policy,
) -> Claim:
    """Returns a claim in the form in which claims are compared.

    What the caller says of subject, predicate and object holds. What is not said is looked for in the words, if these
    agree with what is said. A predicate without a subject is one of the owner's.

    Equal slots and values mean equal keys, and so do equal words without a slot: letter case, the punctuation at the
    end, unseen characters, aliases and ways to write dates, times and quantities make no difference.

    Args:
        owner: whose claim.
        scope: where it is valid.
        text: the claim in words.
        subject: what it is about; empty if not said.
        predicate: which property of it; empty if not said.
        object: the value as JSON text; empty if not said.
        cardinality: how the predicate's values relate; UNKNOWN leaves it to what is known of the predicate.
        policy: the scope's, for its aliases and predicates with one value.

    Raises:
        ValueError: there is neither text nor subject, predicate and object.
    """
    words = readable(text, policy.aliases)
    form = slots.subject_form(readable(subject, policy.aliases))
    property_form = slots.predicate_form(readable(predicate, policy.aliases))
    if property_form and not form:
        # Without a subject, it is said of whose claim it is.
        form = slots.USER
    value = slots.value_form(readable(_in_words(object), policy.aliases)) if object else ""
    found = None if value and property_form else slots.find(text, policy)
    if found is not None and form in ("", found.subject) and property_form in ("", found.predicate) and not value:
        form, property_form, value = found.subject, found.predicate, found.value
        cardinality = found.cardinality if cardinality is Cardinality.UNKNOWN else cardinality
    elif property_form and cardinality is Cardinality.UNKNOWN:
        cardinality = slots.cardinality_of(property_form, policy)
    if form and property_form and not value:
        # All of the words are what is said of it.
        value = comparable(words)
    slot = digest(owner, scope, form, property_form) if form and property_form else ""
    if slot and value:
        key = digest(owner, scope, _IN_SLOT, form, property_form, value)
    else:
        compared = comparable(words) or text
        if not compared:
            raise ValueError("text: a claim needs words, or a subject, a predicate and an object")
        key = digest(owner, scope, _IN_WORDS, compared)
    return Claim(words, form, property_form, value, object, cardinality, key, slot)


def _in_words(object: str) -> str:
    """Returns a JSON value as text for comparison; what is no JSON is compared as it stands."""
    try:
        value = msgspec.json.decode(object)
    except msgspec.DecodeError:
        return object
    return value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()
