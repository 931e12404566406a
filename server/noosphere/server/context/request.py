"""What the assembly of a context needs, all of it plain values, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..ports.models import Tokenizer
from ..sessions.types import Message, Summary
from .calls import States
from .fence import Fence
from .recipe import DEFAULT_RECIPE, Recipe
from .rendering import Rendered
from .shapes import Tool
from .types import Candidate, Entry, SectionKind
from .units import Readers
from .window import WINDOW_DEFAULT, Limits


class Coverage(NamedTuple):
    """A summary, and what it stands for.

    Attributes:
        summary: the summary.
        messages: how many of the request's messages it covers, the oldest first.
        before: whether it covers everything before them.
        revision: when it was made.
    """

    summary: Summary
    messages: int
    before: bool
    revision: int


@dataclass(frozen=True)
class Assembly:
    """Everything that a context is made of.

    Attributes:
        budget_tokens: what it may take.
        tokenizer: counts tokens.
        fence: of the session.
        readers: for whom it is made.
        recipe: a checked recipe.
        system: the caller's text for the system role.
        instructions: messages of the system role that are older than ``messages``, the oldest first.
        given: the current input, if the caller gives it.
        messages: the newest messages, the oldest first.
        more_before: whether the transcript has older ones.
        limits: of the window.
        coverages: summaries, the newest first.
        data: the candidates of the sections of data, but for the summary.
        refused: candidates that may not enter, for the manifest.
        tools: the tools' schemas, the most important first.
        notes: for this attempt; data.
        states: of calls of tools of which the messages do not tell all.
    """

    budget_tokens: int
    tokenizer: Tokenizer
    fence: Fence
    readers: Readers
    recipe: Recipe = DEFAULT_RECIPE
    system: str = ""
    instructions: tuple[Message, ...] = ()
    given: str = ""
    messages: tuple[Message, ...] = ()
    more_before: bool = False
    limits: Limits = WINDOW_DEFAULT
    coverages: tuple[Coverage, ...] = ()
    data: Mapping[SectionKind, tuple[Candidate, ...]] = field(default_factory=dict)
    refused: tuple[Entry, ...] = ()
    tools: tuple[Tool, ...] = ()
    notes: tuple[str, ...] = ()
    states: States = field(default_factory=dict)


class SectionUse(NamedTuple):
    """One section as assembled: tokens taken, tokens allowed, and the text."""

    kind: SectionKind
    tokens_used: int
    tokens_max: int
    text: str


class Assembled(NamedTuple):
    """A context.

    Attributes:
        messages: in order, in no provider's shape.
        tools: the schemas that are in.
        sections: in the recipe's order.
        entries: every candidate, and what became of it.
        warnings: words.
        tokens_used: of all that is sent.
        tokens_max: the budget.
    """

    messages: tuple[Rendered, ...]
    tools: tuple[Tool, ...]
    sections: tuple[SectionUse, ...]
    entries: tuple[Entry, ...]
    warnings: tuple[str, ...]
    tokens_used: int
    tokens_max: int
