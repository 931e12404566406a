"""What a context showed that does not come from its session."""

from __future__ import annotations

import pytest

from noosphere.server.context.manifests import Manifest
from noosphere.server.context.shown import shown_in
from noosphere.server.context.types import Entry, Fate, SectionKind
from noosphere.server.sessions.seen import ShownContext


def entry(name: str, trust: float, fate: Fate = Fate.INCLUDED) -> Entry:
    """A line of a manifest."""
    return Entry(name, SectionKind.FACTS, fate, "fits", trust=trust)


@pytest.mark.parametrize(
    ("entries", "shown"),
    [
        ((), None),
        ((entry("message:m", 0.0), entry("item:notes/a", 0.5), entry("tool:search", 0.0)), None),
        ((entry("fact:f", 0.0, Fate.DROPPED), entry("evidence:e", 0.0, Fate.DROPPED)), None),
        ((entry("fact:f", 0.9), entry("fact:g", 0.5)), ShownContext(7, 0.5, recalled=True)),
        ((entry("fact:f", 0.5), entry("evidence:e", 0.0)), ShownContext(7, 0.0, recalled=True)),
        ((entry("evidence:e", 0.2, Fate.SHORTENED),), ShownContext(7, 0.2, recalled=False)),
        ((entry("subagent:s", 0.5),), ShownContext(7, 0.5, recalled=False)),
    ],
    ids=["nothing", "only its own", "only left out", "facts", "facts and evidence", "evidence", "sub-agents"],
)
def test_a_context_showed_the_facts_and_the_evidence_that_are_in(
    entries: tuple[Entry, ...], shown: ShownContext | None
) -> None:
    manifest = Manifest("c", "s", 1, "a", 1, "default", "o200k_base", True, 100, 50, (), entries, (), 7)
    assert shown_in(manifest) == shown
