"""What agents have seen, decide and resolve: the real server answers as the model does, whatever comes in between.

``NOOSPHERE_DECISIONS`` sets how many histories are run (60, in campaigns 160), ``NOOSPHERE_FIRST_SEED`` where they
begin. A failure names its seed; ``run_thinking(seed)`` repeats it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.thinking import run_thinking
from tests.support.effort import effort

HISTORIES = int(os.environ.get("NOOSPHERE_DECISIONS", effort(40, 160)))
FIRST_SEED = int(os.environ.get("NOOSPHERE_FIRST_SEED", "0"))
PARTS = 2

REACHED = {
    "came in between",
    "overruled",
    "applied on grounds",
    "0 conflicts",
    "1 conflicts",
    "2 conflicts",
    "Resolve applied",
    "Resolve CONFLICT",
    "Resolve NO_CONFLICT",
    "Resolve STALE_READ_SET",
    "RefreshReadSet stale",
    "RefreshReadSet current",
    "RefreshReadSet PERMISSION_DENIED",
    "Commit applied",
    "Commit replayed",
    "Commit unchanged",
    "Commit STALE_READ_SET",
    "Commit UNCHECKABLE_GUARD",
    "Commit ACKED_WRITES_LOST",
    "Commit NAMESPACE_DELETED",
    "Commit VERSION_MISMATCH",
    "Put STALE_READ_SET",
    "Transact STALE_READ_SET",
}
"""What each part of the histories is there to reach; without these it would prove little."""


@pytest.mark.thorough
@pytest.mark.timeout(max(180, HISTORIES))
@pytest.mark.parametrize("part", range(PARTS))
def test_decisions_are_judged_as_the_model_judges_them(part: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(FIRST_SEED + part, FIRST_SEED + HISTORIES, PARTS):
        outcomes += run_thinking(seed)
    if HISTORIES >= 160:
        assert set(outcomes) >= REACHED, f"never seen: {sorted(REACHED - set(outcomes))}"
