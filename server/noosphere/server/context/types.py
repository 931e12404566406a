"""The vocabulary of contexts: sections, forms, fates, candidates. Plain values."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple


class SectionKind(IntEnum):
    """A section of a context; the numbers are those of the contract."""

    SYSTEM = 1
    TOOLS = 2
    PROFILE = 3
    TASK = 4
    SUMMARY = 5
    SUBAGENTS = 6
    WORKING = 7
    TRANSCRIPT = 8
    FACTS = 9
    EVIDENCE = 10
    TOOL_RESULTS = 11
    INPUT = 12


class Form(IntEnum):
    """How a section's entries are written; the numbers are those of the contract."""

    DEFAULT = 0
    FULL = 1
    SUMMARY = 2
    JSON = 3
    YAML = 4


class Fate(IntEnum):
    """What became of a candidate; the numbers are those of the contract."""

    INCLUDED = 1
    SHORTENED = 2
    DROPPED = 3


class Why(NamedTuple):
    """The reasons that a manifest gives, as words."""

    fits: str = "fits"
    required: str = "required"
    in_window: str = "in_window"
    no_room: str = "no_room"
    too_large: str = "too_large"
    below_trust: str = "below_trust"
    expired: str = "expired"
    covered_by_summary: str = "covered_by_summary"
    not_covered: str = "not_covered"
    retracted: str = "retracted"
    not_in_recipe: str = "not_in_recipe"
    over_count: str = "over_count"
    duplicate: str = "duplicate"
    superseded: str = "superseded"
    read_set_full: str = "read_set_full"
    parked: str = "parked"
    rejected: str = "rejected"


WHY = Why()

TRUST_OWN = 1.0
"""Of the caller, the operator, and of what this server says."""
TRUST_USER = 0.5
"""Of users and of agents: known, and fallible."""
TRUST_OUTSIDE = 0.0
"""Of tools and whatever else comes from outside."""


class Variant(NamedTuple):
    """One way to write a candidate.

    Attributes:
        text: what would be sent.
        tokens: its size.
        worth: the share of the candidate's value that it keeps, above 0 to 1.
    """

    text: str
    tokens: int
    worth: float = 1.0


Shorter = Callable[[], tuple[str, ...]]
"""Makes shorter texts; ``tuple`` makes none."""


class Candidate(NamedTuple):
    """Something that may enter a section of data.

    Attributes:
        id: what it is, as the manifest names it, e.g. ``item:goals/main``.
        section: for which section.
        source: where it comes from, for people and models.
        version: its version, 0 if it has none.
        trust: 0 to 1.
        value: how likely it helps, 0 to 1.
        text: its content in full, in the section's form.
        shorter: makes the same in fewer words, each shorter than the one before; asked only if room is short.
        scored: whether ``value`` already says how relevant it is to the question.
        since: of evidence that stays, the revision at which it was first given; 0 for all else.
        carried_from: of carried evidence, the context for which it was first given.
    """

    id: str
    section: SectionKind
    source: str
    version: int
    trust: float
    value: float
    text: str
    shorter: Shorter = tuple
    scored: bool = False
    since: int = 0
    carried_from: str = ""

    def weighed(self, relevance: float) -> Candidate:
        """Returns it with its value raised by how relevant its words are; as it is, if that is known better."""
        return self if self.scored else self._replace(value=either(self.value, relevance))


def either(*chances: float) -> float:
    """Returns the chance that one of several independent reasons makes a candidate helpful."""
    none = 1.0
    for chance in chances:
        none *= 1.0 - chance
    return 1.0 - none


class Entry(NamedTuple):
    """One line of a manifest: a candidate and what became of it.

    Attributes:
        id: what it is.
        section: for which section.
        fate: in, in and shortened, or out.
        reason: why, one of :data:`WHY`.
        source: where it comes from.
        version: its version, 0 if it has none.
        tokens: what it took.
        tokens_full: what it would have taken in full.
        trust: 0 to 1.
        relevance: 0 to 1.
        carried_from: of carried evidence, the context for which it was first given.
        late: of a tool's result, whether it came late.
        changed: of a late result, the keys that had changed by then.
    """

    id: str
    section: SectionKind
    fate: Fate
    reason: str
    source: str = ""
    version: int = 0
    tokens: int = 0
    tokens_full: int = 0
    trust: float = 0.0
    relevance: float = 0.0
    carried_from: str = ""
    late: bool = False
    changed: tuple[str, ...] = ()
