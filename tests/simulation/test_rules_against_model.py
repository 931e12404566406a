"""The real rules answer as the model does, and keep what was promised, in random histories.

``NOOSPHERE_HISTORIES`` sets how many histories are run (600, in campaigns 2,000), ``NOOSPHERE_FIRST_SEED`` where they
begin. A failure names its seed; ``run_history(seed)`` repeats it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.histories import PROFILES, run_history
from tests.support.effort import effort

HISTORIES = int(os.environ.get("NOOSPHERE_HISTORIES", effort(600, 2_000)))
FIRST_SEED = int(os.environ.get("NOOSPHERE_FIRST_SEED", "0"))

# What a kind of history is there to reach; without these it would prove little.
REACHED = {
    "values": "CONFLICT NO_CONFLICT VERSION_MISMATCH PRECONDITION_REQUIRED CONTEXT_TOO_OLD ACKED_WRITES_LOST "
    "FUTURE_REVISION",
    "endings": "INVALID_FIELD CONTEXT_TOO_OLD swept reaped",
    "crowd": "SIBLING_LIMIT",
    "types": "MERGE_TYPE_MISMATCH VALUE_TOO_LARGE",
    "board": "CLAIM_LOST swept",
    "everything": "REQUEST_ID_REUSED STALE_FENCE STALE_INCARNATION PERMISSION_DENIED",
}
APPLIED = {
    "values": "Put Delete Resolve",
    "endings": "Put Delete",
    "crowd": "Put Delete Resolve",
    "types": "Put Delete Add Update Extreme Fields Append",
    "board": "Put Delete Claim Renew Release Complete",
    "everything": "Put Delete Resolve Add Update Extreme Fields Append Claim Renew Release Complete",
}


@pytest.mark.thorough
@pytest.mark.timeout(max(180, HISTORIES // 10))
@pytest.mark.parametrize("kind", range(len(PROFILES)), ids=[profile.name for profile in PROFILES])
def test_rules_and_model_agree_and_nothing_is_lost_in_silence(kind: int) -> None:
    outcomes: Counter[str] = Counter()
    seeds = range(FIRST_SEED, FIRST_SEED + HISTORIES)
    for seed in seeds:
        if seed % len(PROFILES) == kind:
            outcomes += run_history(seed)
    name = PROFILES[kind].name
    wanted = {*REACHED[name].split(), *(f"{verb} applied" for verb in APPLIED[name].split()), "rolled back"}
    if len(seeds) >= 600:
        assert wanted <= set(outcomes), f"never seen in {name}: {sorted(wanted - set(outcomes))}"
