"""How a tool result is made to fit: in which order, within which limits, and with which refusals."""

from __future__ import annotations

import json
import re

import pytest
from tests.unit.consistency.support import refused
from tests.unit.context.compaction_support import O200K, ByteTokenizer, dumps, plain

from noosphere.consistency import Reason
from noosphere.server.context.compaction import (
    OUTPUT_BYTES_MAX,
    PATH_CHARS_MAX,
    PATHS_MAX,
    TOKENS_DEFAULT,
    TOKENS_MAX,
    TOKENS_MIN,
    LeftOut,
    Stage,
    Task,
    compact,
    compress,
    expand,
)

ORDERS = {
    "orders": [
        {"id": f"ord_{number}", "price": number * 7, "lines": [{"sku": f"S{number}", "quantity": 2}], "etag": "9f" * 20}
        for number in range(100, 130)
    ],
    "next": None,
}


def test_what_fits_stays_as_it_is() -> None:
    text = '{ "a":  [1, 2] }\n'
    result = compress(text, O200K)
    assert (result.text, result.stage, result.lossless) == (text, Stage.WHOLE, True)
    assert result.tokens == O200K.count(text)
    assert result.left_out == LeftOut()


def test_without_a_budget_it_is_the_documented_one() -> None:
    assert compress("word " * (TOKENS_DEFAULT - 10), O200K).stage is Stage.WHOLE
    assert compress("word " * (TOKENS_DEFAULT + 10), O200K).stage is not Stage.WHOLE


def test_white_space_goes_first_then_the_notation_of_json() -> None:
    spread = json.dumps(ORDERS["orders"], indent=8)
    minified = json.dumps(ORDERS["orders"], separators=(",", ":"))
    result = compress(spread, O200K, tokens_max=O200K.count(minified))
    assert (result.text, result.stage, result.lossless) == (minified, Stage.LOSSLESS, True)

    shorter = compress(spread, O200K, tokens_max=O200K.count(minified) // 2)
    assert (shorter.stage, shorter.lossless) == (Stage.LOSSLESS, True)
    assert expand(shorter.text) == minified


def test_rows_share_a_line_only_if_that_is_what_makes_them_fit() -> None:
    text = dumps([{"flight": f"H{number}", "seats": number} for number in range(40)])
    in_lines = compress(text, O200K, tokens_max=O200K.count(compact(text)))
    close = compress(text, O200K, tokens_max=in_lines.tokens - 1)
    assert (in_lines.stage, close.stage) == (Stage.LOSSLESS, Stage.LOSSLESS)
    assert in_lines.text.count("\n") == 40
    assert "\n" not in close.text
    assert expand(in_lines.text) == expand(close.text) == text.replace(", ", ",").replace(": ", ":")


def test_fields_that_the_caller_names_come_before_everything_else() -> None:
    result = compress(dumps(ORDERS), O200K, keep=["orders[*].id", "$.orders[*].price", "no.such[0]"])
    assert result.stage is Stage.FIELDS
    assert result.paths_missed == (2,)
    assert json.loads(expand(plain(result.text))) == {
        "orders": [{"id": order["id"], "price": order["price"]} for order in ORDERS["orders"] or ()]
    }
    assert result.left_out == LeftOut(91, 151)
    assert result.text.endswith("\n[left out: 91 of 151 values]")


def test_named_fields_that_are_too_many_are_chosen_from() -> None:
    result = compress(dumps(ORDERS), O200K, tokens_max=60, keep=["orders[*].id"])
    assert result.stage is Stage.RELEVANT
    found = json.loads(expand(plain(result.text)))
    assert set(found) == {"orders"}
    assert all(set(order) == {"id"} for order in found["orders"])
    assert result.left_out.values_total == 151


def test_paths_that_find_nothing_leave_the_other_stages() -> None:
    result = compress(dumps(ORDERS), O200K, tokens_max=300, keep=["invoices[*].id"])
    assert (result.stage, result.paths_missed) == (Stage.RELEVANT, (0,))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a.b", {"a": {"b": [10, 20, 30]}}),
        ("$['a'][\"b\"][1]", {"a": {"b": [20]}}),
        ("a.b[-1]", {"a": {"b": [30]}}),
        ("a.*", {"a": {"b": [10, 20, 30], "c d": {"e": 1}}}),
        ('a["c d"]', {"a": {"c d": {"e": 1}}}),
        ("list[*][0]", {"list": [[1], [2]]}),
        ("*.b", {"a": {"b": [10, 20, 30]}}),
    ],
)
def test_json_paths(path: str, found: object) -> None:
    document = {"a": {"b": [10, 20, 30], "c d": {"e": 1}}, "list": [[1, 5], [2, 6], []], "filler": "word " * 60}
    result = compress(dumps(document), O200K, tokens_max=50, keep=[path])
    assert result.stage is Stage.FIELDS
    assert json.loads(expand(plain(result.text))) == found


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("items[", "keep[1]: 'items[': expected .name, .*, [3], [*] or [\"name\"] at '['"),
        ("a..b", "keep[1]: 'a..b': expected .name, .*, [3], [*] or [\"name\"] at '..b'"),
        ("a[x]", "keep[1]: 'a[x]': expected .name, .*, [3], [*] or [\"name\"] at '[x]'"),
        ("", "keep[1]: '' has no steps"),
        ("$", "keep[1]: '$' has no steps"),
        ("a" * 257, f"keep[1]: '{'a' * 32}'… has 257 characters, the limit is {PATH_CHARS_MAX}"),
        ("a" + ".b" * 40, "keep[1]: 'a.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.'… has 41 steps, the limit is 32"),
    ],
    ids=["open", "empty-step", "no-number", "empty", "root", "long", "deep"],
)
def test_a_path_that_is_none_is_named(path: str, problem: str) -> None:
    refusal = refused(Reason.INVALID_FIELD, compress, "{}", O200K, keep=["fine", path])
    assert refusal.message == problem


def test_too_many_paths_are_refused() -> None:
    refusal = refused(Reason.INVALID_FIELD, compress, "{}", O200K, keep=["a"] * (PATHS_MAX + 1))
    assert refusal.message == f"keep: {PATHS_MAX + 1} paths are more than {PATHS_MAX}"


@pytest.mark.parametrize("tokens_max", [TOKENS_MIN - 1, TOKENS_MAX + 1, -1])
def test_a_budget_outside_its_limits_is_refused(tokens_max: int) -> None:
    refusal = refused(Reason.INVALID_FIELD, compress, "text", O200K, tokens_max=tokens_max)
    assert refusal.message == f"tokens_max: {tokens_max} is not between {TOKENS_MIN} and {TOKENS_MAX}"


def test_a_result_over_the_limit_is_refused_in_bytes() -> None:
    refusal = refused(Reason.INVALID_FIELD, compress, "é" * (OUTPUT_BYTES_MAX // 2 + 1), O200K)
    assert refusal.message == f"output: has {OUTPUT_BYTES_MAX + 2} bytes, the limit is {OUTPUT_BYTES_MAX}"


def test_what_is_no_unicode_is_refused() -> None:
    refusal = refused(Reason.INVALID_FIELD, compress, "abc\ud800", O200K)
    assert refusal.message == "output: has half a surrogate pair at character 3, which is no Unicode"


@pytest.mark.parametrize(
    "text",
    ["x" * 50_000, "lorem ipsum " * 4_000, "[" * 20_000, dumps({"blob": "lorem ipsum " * 4_000}), '"' * 20_000],
    ids=["one-word", "prose", "brackets", "json", "quotes"],
)
def test_where_nothing_stands_out_the_two_ends_remain(text: str) -> None:
    result = compress(text, O200K, tokens_max=100)
    assert (result.stage, result.lossless) == (Stage.CUT, False)
    found = re.fullmatch(r"(.*)\n\[… (\d+) characters left out …\]\n(.*)", result.text, re.DOTALL)
    assert found is not None
    head, missing, tail = found.groups()
    original = text if text[0] != "{" else text.replace('": "', '":"')
    assert original.startswith(head)
    assert original.endswith(tail)
    assert len(head) > len(tail) > 0
    assert len(head) + int(missing) + len(tail) == len(original)
    assert result.left_out == LeftOut(characters=int(missing), characters_total=len(original))


def test_the_smallest_budget_holds_for_the_worst_vocabulary() -> None:
    result = compress("lorem ipsum " * 100, ByteTokenizer(), tokens_max=TOKENS_MIN)
    assert (result.text, result.tokens) == ("lorem ipsum lore", TOKENS_MIN)


def test_the_largest_result_is_compressed() -> None:
    row = '{"id":"ord_1234567","status":"open","note":"%s"},' % ("x" * 400)
    text = "[" + row * ((OUTPUT_BYTES_MAX - 3) // len(row)) + "{}]"
    result = compress(text, O200K, tokens_max=100, task=Task(arguments='{"status":"open"}'))
    assert result.stage is Stage.RELEVANT
    assert result.tokens <= 100
    assert '"id"' in expand(plain(result.text))
