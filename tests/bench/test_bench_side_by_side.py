"""Ours are measured beside others, and one that does not work leaves the others alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.peers.catalogue import OURS
from tests.bench.peers.timing import KINDS
from tests.bench.side_by_side import FLOOR, REFERENCE, VARIANTS, Plan, compare

SHORT = Plan(clients=2, rounds=2, sample_seconds=0.01)


def test_every_peer_is_measured_in_the_use_that_loses_nothing() -> None:
    assert REFERENCE in {one.name for one in VARIANTS}
    assert all(one.use == "best" for one in VARIANTS)


@pytest.mark.campaign
@pytest.mark.timeout(300)
async def test_one_that_does_not_open_leaves_the_others_alone(tmp_path: Path) -> None:
    (ours,) = (one for one in OURS if one.name == REFERENCE)
    wrong = replace(ours, name="wrong", adapter="tests.bench.peers.adapters.noosphere_records:Missing")
    found = await compare(SHORT, (wrong, ours), tmp_path, install=False)
    floor, first, second = found["contestants"]
    assert (floor["name"], second["name"], "why" in floor, "why" in second) == (FLOOR, REFERENCE, False, False)
    assert "Missing" in first["why"]
    for kind in KINDS:
        figures = found["operations"][kind][REFERENCE]
        assert figures["rate"]["median"] > 0, kind
        assert figures["ratio"]["median"] == 1.0
        assert 0 < figures["p50_ms"] <= figures["p99_ms"]
        assert "wrong" not in found["operations"][kind]
    assert found["operations"]["get"][FLOOR]["rate"]["median"] > 0
    assert FLOOR not in found["operations"]["append"]
