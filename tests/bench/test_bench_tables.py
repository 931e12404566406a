"""The tables about peers: what was measured stands in them, and what was not says why."""

from __future__ import annotations

from typing import Any

from tests.bench.blocks import blocks_of
from tests.bench.lost import lost_of, lost_updates
from tests.bench.results import Results
from tests.bench.rows import Unmeasured
from tests.bench.side_tables import rates_of, side_by_side, side_by_side_details


def _variant(name: str, *, ours: bool = False, unavailable: str = "") -> dict[str, Any]:
    more = {"ours": ours, "unavailable": unavailable, "durability": "fsync", "how": "as told", "use": "best"}
    return {"name": name, "product": name.title(), "version": "1.2", **more}


def _run(variant: str, scenario: str, **figures: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("lost", "stale", "duplicates", "silent", "signalled", "p50_ms", "p99_ms"), 0)
    rates = {"model_calls_per_commit": 1.25, "commits_per_s": 400.0, "commits": 60, "not_run": ""}
    return {"variant": variant, "scenario": scenario, **counts, **rates, **figures}


LOST = {
    "agents": 16,
    "think_ms": 20.0,
    "seed": 1,
    "variants": [_variant("ours", ours=True), _variant("peer"), _variant("gone", unavailable="no network | here")],
    "runs": [
        _run("ours", "plan"),
        _run("ours", "notes", commits=100),
        _run("ours", "failover", signalled=5),
        _run("peer", "plan", lost=12),
        _run("peer", "notes", lost=3, commits=40),
        _run("peer", "decide", stale=7),
        _run("peer", "late", commits=0, not_run="it has crashed; it says: a long log"),
    ],
    "gates": [
        {"variant": "ours", "scenario": "plan", "what": "lost", "value": 0.0, "limit": 0.0, "ok": True},
        {"variant": "ours", "scenario": "plan", "what": "model calls", "value": 2.5, "limit": 1.3, "ok": False},
    ],
}


def test_what_was_lost_is_told() -> None:
    told = lost_updates(LOST)
    ours, peer, gone = (line for line in told.splitlines() if line.startswith(("| **ours", "| peer", "| gone")))
    assert "| 0 of 160 |" in ours
    assert "| 0, 5 of 60 | 1.25 | 400 |" in ours
    assert "| 15 of 100 | 7 of 60 |" in peer
    assert "not measured: no network / here" in gone
    assert "**1 of 2 gates of Noosphere are reached.** Missed: ours, plan: model calls 2.5, at most 1.3." in told
    assert "a long log" not in told


def test_the_picture_of_what_was_lost_shows_who_was_measured() -> None:
    results = Results({}, "quick", documents={"lost-updates": {"result": LOST}})
    assert lost_of(results) == [("ours", 0.0, 0.0), ("peer", 15.0, 7.0)]
    assert lost_of(Results({}, "quick", documents={"lost-updates": {"why": "no time"}})) == []


def _rate(median: float) -> dict[str, Any]:
    spread = {"median": median, "low": median - 1, "high": median + 1, "count": 3}
    return {"rate": spread, "ratio": {**spread, "median": median / 100}, "p50_ms": 1.5, "p99_ms": 9.75}


SIDE = {
    "contestants": [
        {"name": "ours", "label": "Ours", "ours": True, "durability": "fsync"},
        {"name": "peer", "label": "Peer", "ours": False, "durability": "memory"},
        {"name": "gone", "label": "Gone", "ours": False, "durability": "fsync", "why": "no network"},
    ],
    "operations": {
        "get": {"ours": _rate(100.0), "peer": _rate(250.0)},
        "put": {"ours": _rate(50.0), "peer": {"why": "CoherenceError('no answer:\n HTTP 503 | busy')"}},
        "watch": {"ours": _rate(20.0), "peer": {"why": "tells nobody of changes", "lacks": True}},
    },
}


def test_rates_stand_beside_each_other() -> None:
    ours, peer, gone = side_by_side(SIDE).splitlines()[2:]
    assert ours == "| **ours** | fsync | 100 (1.5 ms) | 50 (1.5 ms) | 1.5 ms |"
    assert peer == "| peer | memory | 250 (1.5 ms) | failed: no answer: HTTP 503 / busy | none |"
    assert gone == "| gone | not measured: no network |  |  |  |"


def test_details_say_how_sure_a_rate_is_and_why_there_is_none() -> None:
    ours, peer, _ = side_by_side_details(SIDE).splitlines()[2:]
    put = "50 (49 to 51, 0.5 of ours); 1.5 / 9.8 ms"
    assert ours == f"| **`ours`: Ours** | fsync | 100 (99 to 101, 1 of ours); 1.5 / 9.8 ms | {put} | 1.5 / 9.8 ms |"
    get, watch = "250 (249 to 251, 2.5 of ours); 1.5 / 9.8 ms", "none: tells nobody of changes"
    assert peer == f"| `peer`: Peer | memory | {get} | failed: no answer: HTTP 503 / busy | {watch} |"


def test_the_picture_of_rates_leaves_latencies_out() -> None:
    results = Results({}, "quick", documents={"side-by-side": {"result": SIDE}})
    assert rates_of(results) == [("get", [("ours", 100.0), ("peer", 250.0)]), ("put", [("ours", 50.0)])]


def test_facts_on_weaviate_stand_beside_those_in_a_folder_as_far_as_they_are_known() -> None:
    speed = {"search_p50_ms": 4.25, "search_p99_ms": 9.0, "written_per_s": 1234.0}
    found: dict[str, Any] = {"wanted": 20_000, "searches": 40, "candidates": 300, "version": "1.38", "weaviate": speed}
    results = Results({}, "full", documents={"weaviate": {"result": found}})
    assert "| Weaviate 1.38 | 4.2 / 9.0 |  | 1,234 |  |" in blocks_of(results)["weaviate"]()
    found |= {"facts": 10_240, "embedded": {**speed, "decided_per_s": 250.0}}
    found["weaviate"] = {**speed, "decided_per_s": 100.0, "recall": 0.995}
    told = blocks_of(results)["weaviate"]()
    assert "| **data folder** | 4.2 / 9.0 | 100 %: the search is exact | 1,234 | 250 |" in told
    assert "| Weaviate 1.38 | 4.2 / 9.0 | 99.5 % | 1,234 | 100 |" in told
    assert "10,240 facts of 512 numbers each (20,000 were not loaded in time)" in told


def test_what_is_not_measured_for_one_reason_is_told_in_one_line() -> None:
    rows = {name: Unmeasured(name, name, "failed: it broke") for name in ("a", "b")}
    assert blocks_of(Results({}, "full", rows=dict(rows)))["unmeasured"]() == "- `a`, `b`: failed: it broke."
