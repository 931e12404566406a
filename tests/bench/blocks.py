"""The tables that pages of the documentation take from the results of a run; see :mod:`tests.bench.anchors`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .goals import Judged, judged
from .grid import grid
from .lost import lost_updates
from .report import about, details
from .results import Results
from .rows import Unmeasured
from .side_tables import side_by_side, side_by_side_details

_COMPACTION_WORDS = {"compress": "**compress**"}


def blocks_of(results: Results) -> Mapping[str, Callable[[], str]]:
    """Returns what makes each block, by its name."""
    return {
        "about": lambda: about(results),
        "verdict": lambda: _verdict(results),
        "missed": lambda: _missed(results),
        "unmeasured": lambda: _unmeasured(results),
        "side-by-side": lambda: _pictured(results, "side-by-side", side_by_side, "Operations a second"),
        "side-by-side-details": lambda: _of(results, "side-by-side", side_by_side_details),
        "lost-updates": lambda: _pictured(results, "lost-updates", lost_updates, "Lost updates and stale decisions"),
        "weaviate": lambda: _of(results, "weaviate", _weaviate),
        "quality": lambda: _quality(results),
        "details": lambda: details(results),
        "recall-ablation": lambda: _of(results, "recall", _ablation),
        "recall-categories": lambda: _of(results, "recall", _categories),
        "recall-kept": lambda: _of(results, "recall", _kept),
        "compaction": lambda: _of(results, "compaction", _compaction),
    }


def _of(results: Results, name: str, make: Callable[[Mapping[str, Any]], str]) -> str:
    found = results.documents.get(name, {"why": "this run left it out"})
    return make(found["result"]) if "result" in found else f"Not measured: {found['why']}."


def _pictured(results: Results, name: str, make: Callable[[Mapping[str, Any]], str], title: str) -> str:
    table = _of(results, name, make)
    # Nothing is drawn of what was not measured.
    measured = "result" in results.documents.get(name, {})
    return f"{table}\n\n![{title}, ours and peers](images/bench/{name}.svg)" if measured else table


def _verdict(results: Results) -> str:
    found = judged(results)
    missed = [one for one in found if not one.met]
    met = f"{len(found) - len(missed)} of {len(found)} goals of speed and quality are met"
    return f"**{met}**{', ' + str(len(missed)) + ' are missed, see below' if missed else ''}."


def _missed(results: Results) -> str:
    missed = [one for one in judged(results) if not one.met]
    if not missed:
        return "None."
    return grid(("what", "figure (middle half)", "goal"), [_line(one) for one in missed])


def _line(one: Judged) -> tuple[str, str, str]:
    spread = "" if one.low == one.high else f" ({one.show(one.low)} to {one.show(one.high)})"
    return one.what, f"**{one.show(one.value)}**{spread}", f"{'≥' if one.at_least else '≤'} {one.show(one.goal)}"


def _unmeasured(results: Results) -> str:
    of_why: dict[str, list[str]] = {}
    for row in results.rows.values():
        if isinstance(row, Unmeasured):
            of_why.setdefault(row.why, []).append(f"`{row.what}`" if row.what == row.name else row.what)
    lines = [f"- {', '.join(whats)}: {why.rstrip(':')}." for why, whats in of_why.items()]
    lines += [f"- `{name}`: {found['why']}." for name, found in results.documents.items() if "why" in found]
    cut_off = {name: found.get("cut_off", "") for name, found in results.documents.items()}
    lines += [f"- `{name}`, in part: {why}." for name, why in cut_off.items() if why]
    return "\n".join(lines) or "Nothing is left out."


def _weaviate(found: Mapping[str, Any]) -> str:
    header = ("", "search p50 / p99, ms", "nearest ten found", "facts written/s", "candidates decided/s")
    lines = [
        _store("**data folder**", found.get("embedded", {}), "100 %: the search is exact"),
        _store(f"Weaviate {found['version']}", found["weaviate"], ""),
    ]
    held = f"{found['facts']:,} facts" if "facts" in found else "facts"
    short = f" ({found['wanted']:,} were not loaded in time)" if found.get("facts", 0) < found["wanted"] else ""
    note = f"{held} of 512 numbers each{short}, {found['searches']} searches, {found['candidates']} candidates."
    return f"{grid(header, lines)}\n\n{note}"


def _store(label: str, found: Mapping[str, float], exact: str) -> tuple[str, ...]:
    recall = f"{found['recall'] * 100:.1f} %" if "recall" in found else exact
    rates = (f"{found[name]:,.0f}" if name in found else "" for name in ("written_per_s", "decided_per_s"))
    times = f"{found['search_p50_ms']:,.1f} / {found['search_p99_ms']:,.1f}" if "search_p50_ms" in found else ""
    return label, times, recall, *rates


def _quality(results: Results) -> str:
    lines: list[Sequence[str]] = []
    for name in ("recall", "updates"):
        found = results.documents.get(name, {}).get("result")
        if found is not None:
            lines += [
                (_QUALITY_WORDS[key], f"**{value:.1f} %**", f"{found['gates'][key]:g} %", f"{found['goals'][key]:g} %")
                for key, value in found["reached"].items()
            ]
    found = results.documents.get("compaction", {}).get("result")
    if found is not None:
        reached = found["methods"][-1]["percent"]
        gate, goal = found["gate_percent"], found["goal_percent"]
        lines.append((_QUALITY_WORDS["compaction"], f"**{reached:.1f} %**", f"{gate:g} %", f"{goal:g} %"))
    return grid(("what", "reached", "gate", "goal"), lines) if lines else "Not measured: the data sets are not here."


_QUALITY_WORDS = {
    "recall@5": "evidence of a question among the first 5 hits",
    "recall@10": "among the first 10",
    "mrr": "mean reciprocal rank of the first hit that is evidence",
    "kept": "evidence that packing keeps within 1,000 tokens",
    "current_first": "questions whose first hit is the fact that holds now",
    "stale_first": "whose first hit is one that held before (at most)",
    "false_supersessions": "facts superseded that nothing contradicts (at most)",
    "compaction": "values of long tool results that are used later, kept within 150 tokens",
}


def _ablation(found: Mapping[str, Any]) -> str:
    questions = found["overall"]["n"]
    head = f"{found['conversations']} conversations, {found['memories']:,} turns, {questions:,} questions"
    return _figures(head, {_code(name): one for name, one in found["ablation"].items()}, counted=False)


def _code(name: str) -> str:
    signal = name.removeprefix("without ")
    if name == "all signals":
        return "**all signals**"
    return f"without `{signal}`" if signal != name and " " not in signal else name


def _categories(found: Mapping[str, Any]) -> str:
    return _figures("category", {**found["categories"], "all": found["overall"]}, counted=True)


def _figures(head: str, figures: Mapping[str, Mapping[str, Any]], *, counted: bool) -> str:
    header = (head, *(("n",) if counted else ()), "recall@5", "recall@10", "MRR")
    return grid(header, _figure_lines(figures, counted=counted))


def _figure_lines(figures: Mapping[str, Mapping[str, Any]], *, counted: bool) -> Iterable[Sequence[str]]:
    for name, one in figures.items():
        measured = (f"{one[key]:.1f}" for key in ("recall@5", "recall@10", "mrr"))
        yield (name, *((str(one["n"]),) if counted else ()), *measured)


def _kept(found: Mapping[str, Any]) -> str:
    header = ("form", "tokens", "stopping", "skipping", "packed")
    rules = header[2:]
    return grid(
        header, [(one["form"], f"{one['tokens']:,}", *(f"{one[rule]:.1f}" for rule in rules)) for one in found["kept"]]
    )


def _compaction(found: Mapping[str, Any]) -> str:
    return grid(
        ("method", "kept", "of values that were new", f"whole outputs (of {found['outputs_over']})"),
        [
            (
                _COMPACTION_WORDS.get(one["method"], one["method"]),
                f"{one['percent']:.1f} % ({one['kept']} of {one['used']})",
                f"{one['percent_new']:.1f} %",
                str(one["lossless"]),
            )
            for one in found["methods"]
        ],
    )
