"""What contexts are made of and what is told about them, as plain values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

SectionKind = Literal[
    "system",
    "tools",
    "profile",
    "task",
    "summary",
    "subagents",
    "working",
    "transcript",
    "facts",
    "evidence",
    "tool_results",
    "input",
]
"""A section of a context: instructions, schemas of tools, pinned facts, goals and task state, the summary of what has
left the window, summaries by sub-agents, other items, the newest messages, recalled facts, given evidence, the tool
call under way with its results, the current input."""

SectionForm = Literal["default", "full", "summary", "json", "yaml"]
"""How the entries of a section are written."""

EntryFate = Literal["included", "shortened", "dropped"]
"""What became of a candidate for a context."""


@dataclass(frozen=True, slots=True)
class SectionRule:
    """How one section is filled.

    Attributes:
        kind: which section.
        share: its share of the budget, 0 to 1; all shares together at most 1.
        tokens_min: tokens that it gets in any case, if it has that much to show.
        tokens_max: tokens that it never exceeds; 0 for no limit but the budget.
        priority: who gets unused tokens first: 0 before 1, up to 100.
        form: how its entries are written.
    """

    kind: SectionKind
    share: float = 0.0
    tokens_min: int = 0
    tokens_max: int = 0
    priority: int = 0
    form: SectionForm = "default"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a context is made of.

    Attributes:
        name: for people, at most 64 bytes.
        sections: in their order, each at most once; ``system`` comes first and ``input`` last.
        trust_min: facts below this trust stay out, 0 to 1.
        facts_max: most facts, 1 to 50; 0 for 10.
    """

    name: str
    sections: Sequence[SectionRule]
    trust_min: float = 0.0
    facts_max: int = 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something that the caller gives to a context: shown as data, with its source and trust.

    Attributes:
        text: the text.
        id: the caller's id for it; empty for its number among the others.
        source: where it comes from, for people and models.
        trust: how far it is trusted, 0 to 1.
        relevance: how likely it helps, 0 to 1; 0 for unknown.
    """

    text: str
    id: str = ""
    source: str = ""
    trust: float = 0.5
    relevance: float = 0.0


FindEvidence = Callable[[str, int], Sequence[Evidence | str] | Awaitable[Sequence[Evidence | str]]]
"""Asked for evidence once the budget is split: with the query and the tokens that there is room for; may be async."""


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """The schema of a tool.

    Attributes:
        name: the tool's name.
        description: what it does.
        parameters: the JSON Schema of its arguments, as JSON text; empty for none.
    """

    name: str
    description: str = ""
    parameters: str = ""


class Section(NamedTuple):
    """One section as assembled.

    Attributes:
        kind: which.
        tokens_used: tokens that it took.
        tokens_max: tokens that it was allowed.
        text: its text; empty in a manifest and in a plan.
    """

    kind: SectionKind
    tokens_used: int
    tokens_max: int
    text: str


class ManifestEntry(NamedTuple):
    """One candidate for a context, and what became of it.

    Attributes:
        id: what it is: ``message:<id>``, ``item:<key>``, ``fact:<id>``, ``evidence:<id>``, ``tool:<name>``, and
            ``call:<id>`` for a tool call whose result was parked or rejected …
        section: for which section.
        fate: ``included``, ``shortened`` or ``dropped``.
        reason: why, as a word, e.g. ``fits``, ``no_room``, ``outside_window``.
        source: where it comes from.
        version: its version, 0 where it has none.
        tokens: tokens that it took.
        tokens_full: tokens that it would have taken in full.
        trust: how far it is trusted, 0 to 1.
        relevance: its estimated relevance, 0 to 1.
        carried_from: of evidence that is carried, the id of the context for which it was first given.
        late: of a tool's result, whether it came late: what its call was based on had changed, or its deadline had
            passed.
        changed: of a late result, the keys that had changed by then, at most 32.
    """

    id: str
    section: SectionKind
    fate: EntryFate
    reason: str
    source: str
    version: int
    tokens: int
    tokens_full: int
    trust: float
    relevance: float
    carried_from: str = ""
    late: bool = False
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """What went into a context, what did not, and why. Ids, versions and reasons: no text.

    Attributes:
        context_id: the context's id.
        session_id: the session's id.
        time: store time of the assembly.
        author: the agent for which it was made.
        turn: in which turn.
        recipe: the recipe's name.
        tokenizer: the vocabulary that counted.
        exact: whether it counts exactly as the model does.
        tokens_max: tokens allowed.
        tokens_used: tokens used, as rendered.
        sections: the sections, without text.
        entries: the candidates, at most 2,000.
        warnings: words of warning, e.g. ``SUMMARY_MISSING``.
        revision: the namespace's revision at which everything was read.
        used: what was reported as used.
    """

    context_id: str
    session_id: str
    time: datetime
    author: str
    turn: int
    recipe: str
    tokenizer: str
    exact: bool
    tokens_max: int
    tokens_used: int
    sections: tuple[Section, ...]
    entries: tuple[ManifestEntry, ...]
    warnings: tuple[str, ...]
    revision: int
    used: tuple[str, ...]


class ContextPlan(NamedTuple):
    """How the budget of a context is split.

    Attributes:
        sections: the sections in order, with what each may hold.
        tokens_max: tokens allowed in all.
    """

    sections: tuple[Section, ...]
    tokens_max: int

    def room(self, kind: SectionKind) -> int:
        """Returns the tokens that a section may hold; 0 if the recipe leaves it out."""
        return next((section.tokens_max for section in self.sections if section.kind == kind), 0)


class Usage(NamedTuple):
    """How much of what was recalled for a context was used.

    Attributes:
        used: entries that were used.
        recalled: entries that were recalled.
    """

    used: int
    recalled: int
