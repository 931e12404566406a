"""The figure of compress on arrival: what counts as a value, as used and as kept, on runs counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.traces import answered, called, recorded_traces, said

from noosphere.consistency import Reason, Refusal
from noosphere.server.context.compaction import Compressed, Stage, Task
from noosphere.server.evaluation import (
    GATE_PERCENT,
    GOAL_PERCENT,
    CompactionScore,
    Run,
    TraceError,
    read_traces,
    score_compaction,
)
from noosphere.server.models.vocabularies import Vocabulary

MODULE = "noosphere.server.evaluation.compaction"
O200K = Vocabulary("o200k_base")
FILLER = [{"note": f"nothing of interest number {place}", "etag": "ab" * 20} for place in range(30)]


def scored(tmp_path: Path, *messages: dict[str, Any], tokens_max: int = 40) -> CompactionScore:
    file = tmp_path / "runs.json"
    file.write_text(json.dumps([{"traj": messages}]))
    return score_compaction(read_traces(file), O200K, tokens_max)


def test_values_are_used_where_the_agent_or_the_user_says_them_later(tmp_path: Path) -> None:
    output = {
        "id": "ord_7712",
        "price": 42,
        "city": "Oslo",
        "code": "XY",
        "open": True,
        "unused": "Rome",
        "rest": FILLER,
    }
    score = scored(
        tmp_path,
        said("user", "What about Oslo?"),
        called("get_order", order="?"),
        answered("get_order", output),
        said("assistant", "It costs 42 euro. True."),
        said("user", "Ship it to Oslo, please."),
        called("ship", call_id="c2", id="ord_7712"),
        # What a later tool returns is no use.
        answered("ship", {"to": "Rome"}, call_id="c2"),
    )
    assert (score.runs, score.outputs, score.outputs_over) == (1, 2, 1)
    assert (score.compress.used, score.compress.used_new) == (3, 2)
    assert (score.compress.kept, score.compress.kept_new) == (3, 2)
    assert score.problems == ()


@pytest.mark.parametrize(
    ("value", "reply", "used"),
    [
        ("ord_77", "It is ord_77.", 1),
        ("ord_77", "It is ord_771.", 0),
        ("ord_77", "It is xord_77, or ord_77x, or (ord_77)", 1),
        (42, "For $42 only", 1),
        (42, "For 420 or 1426 or 42nd", 0),
        (-42, "You get back 5-42.", 1),
        (7, "7", 0),
        ("7", "7", 0),
        (1.50, "1.5", 1),
        (None, "null None", 0),
        (True, "true True", 0),
        ("Ann Lee", "Ann Lee!", 1),
        ("Ann Lee", "Ann B. Lee", 0),
        ("", "", 0),
    ],
)
def test_a_value_is_used_as_a_whole(tmp_path: Path, value: object, reply: str, used: int) -> None:
    score = scored(tmp_path, called("t"), answered("t", {"value": value, "rest": FILLER}), said("assistant", reply))
    assert score.compress.used == used


def test_of_a_text_the_words_with_digits_are_the_values(tmp_path: Path) -> None:
    output = "Order ord_77 was paid on 2024-05-20.\n" + "Nothing else happened that day.\n" * 40
    score = scored(
        tmp_path, called("t"), answered("t", output), said("assistant", "Order ord_77, paid Nothing on 2024-05-20")
    )
    assert (score.compress.used, score.compress.kept) == (2, 2)


def test_a_value_counts_as_kept_only_outside_of_the_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Compressed("id=ord_1\n[left out: 30 of 61 values]", Stage.RELEVANT, 3, lossless=False)
    monkeypatch.setattr(f"{MODULE}.compress", lambda *_, **__: made)
    output = {"id": "ord_1", "sum": 61, "rest": FILLER}
    score = scored(tmp_path, called("t"), answered("t", output), said("assistant", "61 for ord_1"))
    assert (score.compress.used, score.compress.kept) == (2, 1)


def test_outputs_within_the_budget_do_not_flatter_the_figure(tmp_path: Path) -> None:
    score = scored(tmp_path, called("t"), answered("t", {"id": "ord_77"}), said("assistant", "ord_77"))
    assert (score.outputs, score.outputs_over, score.compress.used) == (1, 0, 0)


def test_the_call_is_the_newest_one_of_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = []

    def spy(output: str, tokenizer: Vocabulary, **options: Any) -> Compressed:
        tasks.append(options["task"])
        return Compressed(output, Stage.WHOLE, tokenizer.count(output), lossless=True)

    monkeypatch.setattr(f"{MODULE}.compress", spy)
    scored(
        tmp_path,
        called("t", call_id="same", place="Rome"),
        answered("t", "1", call_id="same"),
        called("t", call_id="other", place="Bonn"),
        called("t", call_id="same", place="Oslo"),
        answered("t", "2", call_id="same"),
        said("assistant", "never seen"),
    )
    assert [json.loads(task.arguments)["place"] for task in tasks] == ["Rome", "Rome", "Oslo", "Oslo"]
    assert not any("never seen" in message.text for task in tasks for message in task.messages)


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (Compressed("word " * 50, Stage.CUT, 5, lossless=False), "51 tokens are over the budget of 40"),
        (Compressed("a=1", Stage.LOSSLESS, 3, lossless=True), "called lossless, but something else came back"),
        (Compressed("a=1", Stage.RELEVANT, 3, lossless=False), "would have fitted without loss"),
    ],
    ids=["budget", "lossless", "fits"],
)
def test_broken_promises_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Compressed, problem: str
) -> None:
    monkeypatch.setattr(f"{MODULE}.compress", lambda *_, **__: made)
    output = {f"field_{place}": place for place in range(5)} if "fitted" in problem else {"rest": FILLER}
    score = scored(tmp_path, called("t"), answered("t", output), said("assistant", "hello"))
    assert [found.split(": ", 2)[2] for found in score.problems] == [problem]
    assert score.problems[0].startswith("runs.json[0]: message 1: ")


def test_a_method_that_looks_ahead_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ahead(run: Run, place: int) -> Task:
        return Task(arguments=run.messages[-1].text)

    monkeypatch.setattr(f"{MODULE}._task_before", ahead)
    rows = [{"code": f"ZX{place:04d}", "grams": place} for place in range(200)]
    score = scored(tmp_path, called("t"), answered("t", rows), said("assistant", "I take ZX0150"))
    assert score.problems == ("runs.json[0]: message 1: depends on what came after it",)


def test_a_budget_outside_the_limits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as caught:
        scored(tmp_path, called("t"), answered("t", "1"), tokens_max=3)
    assert caught.value.reason is Reason.INVALID_FIELD


def test_runs_come_in_several_shapes_and_files(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "hello"}, {"type": "image"}]
    messages = [said("user", "hi"), {"role": "assistant", "content": parts}, called("find", place="Oslo")]
    (tmp_path / "b.json").write_text(json.dumps([messages, {"messages": messages}]))
    (tmp_path / "a.json").write_text(json.dumps([{"traj": messages}]))
    (tmp_path / "notes.txt").write_text("no runs")
    runs = read_traces(tmp_path)
    assert [run.name for run in runs] == ["a.json[0]", "b.json[0]", "b.json[1]"]
    for run in runs:
        assert [message.said for message in run.messages] == ["hi", "hello", '{"place": "Oslo"}']


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "f.json: is no JSON (Expecting property name"),
        ("{}", "f.json: is no array of runs"),
        ("[1]", "f.json[0]: is no array of messages, and has none as traj or messages"),
        ('[{"traj": 3}]', "f.json[0]: is no array of messages"),
        ('[[{"content": "x"}]]', "f.json[0]: message 0: is no object with a role"),
        ('[[{"role": "user", "content": 3}]]', "f.json[0]: message 0: content is neither text nor an array of parts"),
        ('[[{"role": "user", "tool_calls": 3}]]', "f.json[0]: message 0: tool_calls is no array"),
        ('[[{"role": "user", "tool_calls": [3]}]]', "f.json[0]: message 0: a tool call has no function"),
    ],
)
def test_what_holds_no_runs_is_named(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "f.json").write_text(content)
    with pytest.raises(TraceError) as caught:
        read_traces(tmp_path)
    assert problem in str(caught.value)


def test_no_file_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none.json: No such file"):
        read_traces(tmp_path / "none.json")
    with pytest.raises(TraceError, match=r"the folder has no \*.json files"):
        read_traces(tmp_path)


@pytest.mark.campaign
def test_the_gate_and_the_goal_on_recorded_runs() -> None:
    score = score_compaction(read_traces(recorded_traces()), O200K, 150)
    assert score.problems == ()
    assert score.compress.used >= 100
    assert score.compress.percent >= GOAL_PERCENT > GATE_PERCENT
    assert score.compress.percent > max(method.percent for method in score.methods[:-1])
