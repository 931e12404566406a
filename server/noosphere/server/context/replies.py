"""What the calls of ContextService return."""

from __future__ import annotations

from typing import NamedTuple

from noosphere.consistency import ReadSet, too_large

from .manifests import Manifest
from .provider_rules import check_anthropic, check_openai
from .request import Assembled
from .shapes import anthropic_request, anthropic_tools, as_json, openai_messages, openai_tools
from .types import SectionKind

SHAPES_BYTES_MAX = 20 * 1024 * 1024
"""Both providers' texts together; with the sections' texts and the manifest they stay below what a reply may have."""


class Shapes(NamedTuple):
    """The context as JSON texts: message lists and tools of both providers."""

    openai: str
    anthropic: str
    openai_tools: str
    anthropic_tools: str


class ContextReply(NamedTuple):
    """A context.

    Attributes:
        assembled: messages, sections, entries.
        shapes: the same for the providers.
        manifest: what is kept of it.
        head: the head at which it was read.
        read_set: what a decision made with it depends on.
    """

    assembled: Assembled
    shapes: Shapes
    manifest: Manifest
    head: int
    read_set: ReadSet


class PlanReply(NamedTuple):
    """How a budget would be split: tokens by section, in the recipe's order, and all of them."""

    sections: tuple[tuple[SectionKind, int], ...]
    tokens_max: int


class UsageReply(NamedTuple):
    """How many of the recalled entries were used."""

    used: int
    recalled: int


def shaped(assembled: Assembled) -> Shapes:
    """Returns a context for both providers.

    Raises:
        ProviderRuleError: one of them would refuse it, which is a fault of this server, and better found here.
        Refusal: VALUE_TOO_LARGE, if one reply cannot carry it.
    """
    openai, anthropic = openai_messages(assembled.messages), anthropic_request(assembled.messages)
    check_openai(openai)
    check_anthropic(anthropic)
    shapes = Shapes(
        as_json(openai),
        as_json(anthropic),
        as_json(openai_tools(assembled.tools)),
        as_json(anthropic_tools(assembled.tools)),
    )
    # Better said here than by the transport, which would not say what to do about it.
    if (size := sum(len(text.encode()) for text in shapes)) > SHAPES_BYTES_MAX:
        raise too_large("the context that budget.tokens allows", size, SHAPES_BYTES_MAX)
    return shapes
