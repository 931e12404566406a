"""Causal contexts: what they cover, and their bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.consistency.support import refused

from noosphere.consistency import REVISION_MAX, CausalContext, Reason
from noosphere.consistency.limits import CONTEXT_EXTRAS_MAX

dots = st.integers(1, 40)


@given(st.integers(0, 40), st.lists(dots, max_size=CONTEXT_EXTRAS_MAX), dots)
def test_a_context_covers_its_prefix_and_its_extras_and_nothing_else(prefix: int, extras: list[int], dot: int) -> None:
    context = CausalContext(prefix, tuple(extras))
    assert context.covers(dot) == (dot in {*range(1, prefix + 1), *extras})
    assert context.revisions == (prefix, *extras)
    context.check()


def test_the_empty_context_covers_no_write() -> None:
    assert not CausalContext().covers(1)
    assert CausalContext().revisions == (0,)


def test_bounds() -> None:
    CausalContext(REVISION_MAX, tuple(range(CONTEXT_EXTRAS_MAX))).check()
    refusal = refused(
        Reason.VALUE_TOO_LARGE, CausalContext(0, tuple(range(CONTEXT_EXTRAS_MAX + 1))).check, "put.context"
    )
    assert refusal.message == "put.context.extras has 17 dots, the limit is 16"
    for context in (CausalContext(REVISION_MAX + 1), CausalContext(0, (1, REVISION_MAX + 1)), CausalContext(-1)):
        assert "put.context" in refused(Reason.INVALID_FIELD, context.check, "put.context").message
