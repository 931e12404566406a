"""A run of the benchmarks goes on when a part fails, keeps what it has when cut off, and stops sampling in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bench import documents, run
from tests.bench.children import Child
from tests.bench.documents import Document
from tests.bench.parts import Part
from tests.bench.plan import SMOKE
from tests.bench.results import NoResults, Results, load, resumed
from tests.bench.rounds import STEADY_SAMPLES, Rounds
from tests.bench.rows import Bench, Goal, Row, Unmeasured
from tests.bench.run import Run
from tests.bench.stats import Spread
from tests.bench.tables import ROW_NAMES

_MACHINE = {"commit": "c0ffee", "cpu": "one"}


def _row(name: str, median: float = 1.0) -> Row:
    return Row(name, name, Spread(median, 0.9, 1.1, 3), Goal(0.5, at_least=True), {"rate": 7.0}, samples=[1, 2])


async def _fills(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row]:
    return [_row(name) for name in names]


async def _breaks(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row]:
    raise RuntimeError("the engine | broke\nits log says more")


def _parts(monkeypatch: pytest.MonkeyPatch, *parts: Part | Document) -> None:
    monkeypatch.setattr(run, "ORDER", parts)


async def _no_worker(role: str, logs: Path) -> contextlib.AsyncExitStack:
    """Takes the place of the process that calls servers, where there is nothing to call."""
    return contextlib.AsyncExitStack()


async def _run(
    tmp_path: Path, results: Results, *, seconds_max: float = 600.0, part_seconds_max: float = 60.0
) -> list[Results]:
    file, saved = tmp_path / "results.json", []

    def save() -> None:
        results.save(file)
        saved.append(load(file))

    plan = replace(SMOKE, part_seconds_max=part_seconds_max)
    whole = Run(plan, tmp_path, tmp_path, results, save, profiled=False, seconds_max=seconds_max)
    await whole.measure([part.name for part in run.ORDER])
    return saved


async def test_a_part_that_fails_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _parts(monkeypatch, Part("a", "A", ("a1", "a2"), _breaks), Part("b", "B", ("b1",), _fills))
    saved = await _run(tmp_path, Results(_MACHINE, "smoke"))
    assert list(saved[0].rows) == ["a1", "a2"]
    assert saved[1].rows == {
        "a1": Unmeasured("a1", "a1", "failed: the engine / broke"),
        "a2": Unmeasured("a2", "a2", "failed: the engine / broke"),
        "b1": _row("b1"),
    }
    assert (saved[1].done("a"), saved[1].done("b")) == (False, True)
    left = sorted(entry.name for entry in os.scandir(tmp_path))
    assert left == ["logs", "results.json"], "the folders of parts are removed, but for the logs of one that failed"


async def test_a_part_that_is_cut_off_keeps_its_complete_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row]:
        bench.keep(_row("a1"))
        await asyncio.sleep(600)
        return []

    _parts(monkeypatch, Part("a", "A", ("a1", "a2"), slow), Part("b", "B", ("b1",), _fills))
    monkeypatch.setattr(run, "start_worker", _no_worker)
    (first, last) = await _run(tmp_path, Results(_MACHINE, "smoke"), part_seconds_max=1.0)
    assert first.rows == {"a1": _row("a1"), "a2": Unmeasured("a2", "a2", "failed: it took more than 1 s")}
    assert not first.done("a")
    assert last.rows["b1"] == _row("b1")


async def test_a_server_that_ends_says_how_and_leaves_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ends(bench: Bench, names: Sequence[str], profiled: bool) -> list[Row]:
        bench.keep(_row("a1"))
        words = ["-c", "import sys; print('first | line\\nlast', file=sys.stderr); sys.exit(3)"]
        async with await Child.start("ending", words, bench.logs) as child:
            await child.line(60.0)
        return []

    _parts(monkeypatch, Part("a", "A", ("a1",), ends))
    (found,) = await _run(tmp_path, Results(_MACHINE, "smoke"))
    why = "failed: ending ended with exit code 3; its log ends with: last"
    assert found.rows == {"a1": Unmeasured("a1", "a1", why)}, "what has failed is not trusted"
    assert (tmp_path / "logs" / "a" / "ending.log").read_text() == "first | line\nlast\n"


async def test_what_comes_too_late_is_left_out_and_may_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _parts(monkeypatch, Part("a", "A", ("a1",), _fills), Document("d", "D", "d", ("never",)))
    results = Results(_MACHINE, "smoke", rows={"a1": _row("a1", 2.0)})
    (_, last) = await _run(tmp_path, results, seconds_max=0.0)
    assert last.rows == {"a1": _row("a1", 2.0)}, "an earlier figure stays"
    assert "--resume" in last.documents["d"]["why"]
    assert not last.parts


async def test_a_command_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Document("d", "D", "d", ("noosphere.server.cli", "bench", "compaction", "--traces", str(tmp_path / "none")))
    _parts(monkeypatch, wrong, Part("b", "B", ("b1",), _fills))
    saved = await _run(tmp_path, Results(_MACHINE, "smoke"))
    assert "none" in saved[-1].documents["d"]["why"]
    assert not saved[-1].done("d")
    assert saved[-1].rows == {"b1": _row("b1")}


_SLOW = """
import pathlib, time
out = pathlib.Path({out!r})
try:
    (out / "slow.json").write_text('{{"n": 1}}')
    time.sleep(600)
except KeyboardInterrupt:
    (out / "ended").touch()
"""


@pytest.mark.campaign
async def test_a_command_that_takes_too_long_is_ended_and_keeps_what_it_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_command.py").write_text(_SLOW.format(out=str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(documents, "_SECONDS_MAX", 15.0)
    _parts(monkeypatch, Document("slow", "S", "s", ("slow_command",)))
    (last,) = await _run(tmp_path, Results(_MACHINE, "smoke"))
    assert last.documents["slow"]["result"] == {"n": 1}
    assert "more than 15 s" in last.documents["slow"]["cut_off"]
    assert not last.done("slow")
    assert "ended" in {entry.name for entry in os.scandir(tmp_path)}


async def test_a_data_set_that_is_not_here_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALUATION_TRACES", str(tmp_path / "none"))
    (compaction,) = (one for one in documents.DOCUMENTS if one.name == "compaction")
    _parts(monkeypatch, compaction)
    saved = await _run(tmp_path, Results(_MACHINE, "smoke"))
    assert "EVALUATION_TRACES" in saved[-1].documents["compaction"]["why"]
    assert saved[-1].done("compaction")


def test_each_row_is_of_one_part() -> None:
    rows = [name for part in run.ORDER if isinstance(part, Part) for name in part.rows]
    assert sorted(rows) == sorted(ROW_NAMES)
    assert len({*run.NAMES, *rows}) == len(run.NAMES) + len(rows), "--only takes both"


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = Results(_MACHINE, "full", rows={"a": _row("a"), "b": Unmeasured("b", "B", "none")})
    results.note_part("p", 1.5, 0.5)
    results.documents["d"] = {"result": {"n": 1}}
    results.save(tmp_path / "with.json")
    assert load(tmp_path / "with.json") == results
    results.save(tmp_path / "without.json", samples=False)
    assert load(tmp_path / "without.json").rows["a"] == replace(_row("a"), samples=None)


def test_only_the_same_run_is_resumed(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    with pytest.raises(NoResults, match=r"results\.json"):
        resumed(file, Results(_MACHINE, "full"))
    Results(_MACHINE, "full").save(file)
    assert resumed(file, Results(_MACHINE, "full")) == Results(_MACHINE, "full")
    with pytest.raises(NoResults, match="another commit: c0ffee, not facade"):
        resumed(file, Results({**_MACHINE, "commit": "facade"}, "full"))
    with pytest.raises(NoResults, match="another plan"):
        resumed(file, Results(_MACHINE, "quick"))
    file.write_text('{"schema": 99}')
    with pytest.raises(NoResults, match="schema 99"):
        load(file)


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    most=st.integers(1, 40),
    least=st.integers(1, 10),
    each=st.floats(0.01, 10),
    figures=st.lists(st.floats(0.5, 2.0), min_size=40, max_size=40),
)
def test_rounds_end_between_their_limits(most: int, least: int, each: float, figures: list[float]) -> None:
    clock = _Clock()
    rounds = Rounds(most, least=least, seconds=20.0, first=-1, clock=clock)
    numbers = []
    for number in rounds:
        numbers.append(number)
        assert number < least or clock.now < 20.0, "none begins when the time is over"
        clock.now += each
        if number >= 0:
            rounds.note(figures[number])
    assert numbers == list(range(-1, len(numbers) - 1))
    assert min(least, most) <= len(numbers) - 1 <= most


def test_rounds_end_when_the_figure_stands_still() -> None:
    rounds = Rounds(100, least=3, seconds=1e9)
    for _ in rounds:
        rounds.note(0.8)
    assert rounds.noted == [0.8] * STEADY_SAMPLES
