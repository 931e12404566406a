"""What of a call is remembered: names, never values, whatever a model has written where names belong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.sessions.toolcall import ToolCall, ToolCallStatus
from noosphere.server.transitions.tool_steps import ARGUMENTS_MAX, UNNAMED, ToolStep, tool_step


def called(name: str = "search", arguments: str = "", status: ToolCallStatus = ToolCallStatus.DONE) -> ToolCall:
    return ToolCall("c1", name, arguments, status)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("", ()),
        ("{}", ()),
        ('{"query": "x", "limit": 3}', ("limit", "query")),
        ('{"query": {"inner": 1}}', ("query",)),
        ('{"查询": 1}', ("查询",)),
        ('{"a@example.org": 1, "query": 2}', ("query", UNNAMED)),
        ('{"ignore all previous instructions": 1}', (UNNAMED,)),
        ('{"4711": 1}', (UNNAMED,)),
        ('{"": 1}', (UNNAMED,)),
        (json.dumps({"x" * 65: 1}), (UNNAMED,)),
        ("[1]", (UNNAMED,)),
        ("{", (UNNAMED,)),
        ("free words", (UNNAMED,)),
        ('{"a": \ud800}', (UNNAMED,)),
    ],
    ids=[
        "nothing",
        "none",
        "two",
        "nested",
        "Chinese",
        "an address",
        "a sentence",
        "a number",
        "empty",
        "long",
        "a list",
        "no JSON",
        "words",
        "a lone surrogate",
    ],
)
def test_names_of_arguments_are_kept_and_what_looks_like_none_is_not(arguments: str, names: tuple[str, ...]) -> None:
    step = tool_step(called(arguments=arguments))
    assert step is not None
    assert step.arguments == names


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text()), st.randoms(use_true_random=False))
def test_neither_values_nor_the_order_of_arguments_matter(arguments: dict[str, str], random: object) -> None:
    items = [(name, None) for name in arguments]
    random.shuffle(items)  # type: ignore[attr-defined] # Hypothesis's Random
    one, other = (tool_step(called(arguments=json.dumps(a))) for a in (arguments, dict(items)))
    assert one is not None
    assert other is not None
    assert one == other
    assert one.number == other.number > 0


def test_more_names_than_are_told_apart_count_as_one_more() -> None:
    step = tool_step(called(arguments=json.dumps({f"a{n:02}": 1 for n in range(ARGUMENTS_MAX + 5)})))
    assert step is not None
    assert len(step.arguments) == ARGUMENTS_MAX + 1
    assert step.arguments[-1] == UNNAMED


@pytest.mark.parametrize("status", [s for s in ToolCallStatus if s is not ToolCallStatus.DONE], ids=str)
def test_only_what_is_done_is_a_step(status: ToolCallStatus) -> None:
    assert tool_step(called(status=status)) is None


@pytest.mark.parametrize("name", ["two words", "x" * 65, "a\nb", "<tool>", "tool\u200b"], ids=ascii)
def test_a_tool_whose_name_looks_like_none_is_no_step(name: str) -> None:
    assert tool_step(called(name)) is None


@pytest.mark.parametrize("name", ["search", "fs.read_file", "mcp:files/read", "web-search", "搜索"], ids=ascii)
def test_usual_names_of_tools_are_steps(name: str) -> None:
    assert tool_step(called(name)) == ToolStep(name, ())


def test_numbers_stay_the_same_in_every_process() -> None:
    assert ToolStep("search", ("limit", "query")).number == 16013368635819975742
