"""What holds for every tool result, budget and past: within budget, true to the source, the same every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples
from tests.unit.context.compaction_support import JSON, O200K, ByteTokenizer, kept

from noosphere.server.context.compaction import TOKENS_MIN, Stage, Task, compress, expand
from noosphere.server.models.estimates import EstimatedTokenizer
from noosphere.server.ports.models import SourceMessage, Tokenizer

TOKENIZERS: tuple[Tokenizer, ...] = (O200K, ByteTokenizer(), EstimatedTokenizer("upper", O200K))
BUDGETS = st.integers(TOKENS_MIN, 200)
SENTENCES = st.sampled_from(
    [
        "Order ord_7712345 was refused: card declined. ",
        "2024-05-20 12:00:00 INFO worker 3 did job 17\n",
        "2024-05-20 12:00:01 ERROR worker 4 failed\n",
        "订单已经退款。",
        "天气很好我们去公园散步。",
        "🧠🧠🧠",
        "word " * 80,
        "x" * 700,
        "\n\n\n",
        '{"a": 1',
        "…",
        "\x00\x07",
        " ",
    ]
)
TEXTS = st.one_of(st.lists(SENTENCES, max_size=40).map("".join), st.text(max_size=400))
PASTS = st.builds(
    Task,
    tool=st.sampled_from(["", "get_order"]),
    arguments=st.sampled_from(["", '{"id": "order_7712345"}', "{"]),
    goals=st.lists(st.sampled_from(["refund the order", "退款"]), max_size=2),
    messages=st.lists(
        st.builds(
            SourceMessage,
            st.sampled_from(["system", "user", "assistant", "tool", "?"]),
            st.just("a"),
            st.sampled_from(["What is the price? Open ones on May 20th.", "card", "", "1 2 3", "\ud800"]),
        ),
        max_size=4,
    ),
)


class Pairs(tuple[tuple[str, Any], ...]):
    """An object, with keys that may occur twice."""


def read(text: str) -> Any:
    """Reads JSON without touching its numbers."""
    return json.loads(text, object_pairs_hook=Pairs, parse_float=repr, parse_int=repr, parse_constant=repr)


def part_of(part: Any, whole: Any) -> bool:
    """Whether a document can be had from another one by leaving out; long strings, and JSON in strings, in part too."""
    if isinstance(whole, str) and not isinstance(part, str) and len(whole) >= 240 and whole[0] in "{[":
        whole = read(whole)
    if isinstance(part, Pairs) and isinstance(whole, Pairs):
        rest = iter(whole)
        return all(any(key == other and part_of(value, inner) for other, inner in rest) for key, value in part)
    if isinstance(part, list) and isinstance(whole, list):
        rest = iter(whole)
        return all(any(part_of(value, inner) for inner in rest) for value in part)
    if isinstance(part, str) and isinstance(whole, str) and len(whole) >= 240:
        return all(piece.strip() in whole for piece in part.split("…"))
    return type(part) is type(whole) and bool(part == whole)


@given(st.one_of(JSON, TEXTS), BUDGETS, st.sampled_from(TOKENIZERS), PASTS)
@settings(max_examples=examples(300))
def test_never_over_budget_and_never_silent_about_what_is_missing(
    text: str, tokens_max: int, tokenizer: Tokenizer, task: Task
) -> None:
    result = compress(text, tokenizer, tokens_max=tokens_max, task=task)
    assert result.tokens == tokenizer.count(result.text) <= tokens_max
    if result.lossless:
        assert (result.left_out.values, result.left_out.characters) == (0, 0)
        assert result.text == text or expand(result.text) == expand(text)
    else:
        assert result.stage in (Stage.RELEVANT, Stage.CUT)
        assert result.left_out.values > 0 or result.left_out.characters > 0 or "…" in result.text
    if tokenizer.count(text) <= tokens_max:
        assert result.text == text


@given(JSON.filter(lambda text: len(text) > 60), BUDGETS, PASTS)
@settings(max_examples=examples(300))
def test_every_value_is_as_it_was_and_where_it_was(text: str, tokens_max: int, task: Task) -> None:
    result = compress(text, O200K, tokens_max=tokens_max, task=task)
    if result.stage is not Stage.CUT:
        assert part_of(read(expand(kept(result))), read(text))


@given(TEXTS.filter(lambda text: "…" not in text), BUDGETS, PASTS)
def test_lines_are_as_they_were_and_in_their_order(text: str, tokens_max: int, task: Task) -> None:
    result = compress(text, O200K, tokens_max=tokens_max, task=task)
    if result.stage is not Stage.RELEVANT:
        return
    # Blank lines go without a mark.
    rest = "".join(text.split())
    for piece in "".join(kept(result).split()).split("…"):
        at = rest.find(piece)
        assert at >= 0, piece
        rest = rest[at + len(piece) :]


@given(st.one_of(JSON, TEXTS), BUDGETS, PASTS)
@settings(max_examples=examples(50))
def test_the_same_every_time(text: str, tokens_max: int, task: Task) -> None:
    assert compress(text, O200K, tokens_max=tokens_max, task=task) == compress(
        text, O200K, tokens_max=tokens_max, task=task
    )


SCRIPT = """
import json
from noosphere.server.context.compaction import Task, compress
from noosphere.server.models.vocabularies import Vocabulary
from noosphere.server.ports.models import SourceMessage
rows = [{"id": f"ord_{n}", "to": "Ann Lee", "city": ["Rome", "Oslo"][n % 2], "note": f"paid {n}"} for n in range(300)]
log = "".join(f"{n} INFO order {n} of Ann went to Rome for {n % 7} euro\\n" for n in range(300))
past = [SourceMessage("user", "", "ord_77 paid in euro to Oslo")]
task = Task("find", '{"city": "Rome"}', ("refund Ann Lee",), past)
for text in (json.dumps(rows), log):
    print(compress(text, Vocabulary("o200k_base"), tokens_max=150, task=task))
"""


@pytest.mark.campaign
def test_the_same_in_every_process() -> None:
    # Sets of strings have another order in each.
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    (output,) = outputs
    assert "ord_77" in output


@pytest.mark.parametrize("depth", [64, 65, 400, 100_000], ids=["deepest", "deeper", "deep", "deep-as-a-well"])
def test_nesting_is_no_danger(depth: int) -> None:
    text = '{"id":"ord_1","in":' * depth + '"x"' + "}" * depth
    result = compress(text, O200K, tokens_max=60)
    assert result.tokens <= 60
    assert "ord_1" in result.text


def test_json_in_json_in_json_is_no_danger() -> None:
    text = '"end"'
    for _ in range(9):
        text = json.dumps([{"type": "text", "text": text, "n": 1}] * 2)
    assert compress(text, O200K, tokens_max=60).tokens <= 60
