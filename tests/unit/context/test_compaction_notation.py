"""The compact notation: what it looks like, and that nothing is lost on the way there and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.effort import examples
from tests.unit.context.compaction_support import JSON, O200K, dumps

from noosphere.server.context.compaction import DEPTH_MAX, NotCompact, NotJson, compact, expand


def minified(text: str) -> str:
    """What the standard library makes of JSON, number literals, order and doubled keys as they are."""

    class Literal(float):
        text: str

        def __new__(cls, text: str) -> Literal:
            literal = super().__new__(cls, 0.0)
            literal.text = text
            return literal

    def write(value: object) -> str:
        if isinstance(value, Literal):
            return value.text
        if isinstance(value, tuple):
            return "{" + ",".join(f"{write(key)}:{write(inner)}" for key, inner in value) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(write, value)) + "]"
        if isinstance(value, str) and "\ud800" <= max(value, default="") <= "\udfff":
            return json.dumps(value)
        return json.dumps(value, ensure_ascii=False)

    found = json.loads(text, object_pairs_hook=tuple, parse_int=Literal, parse_float=Literal, parse_constant=Literal)
    return write(found)


@given(JSON, st.booleans())
@settings(max_examples=examples(400))
@example('{"a": {"x y": {}}}', True)
@example('[{"a": 1, "b": "~"}, {"a": 2}]', True)
@example('[{"a": 1}, {"a": 1}]', False)
def test_what_was_made_compact_comes_back(text: str, lines: bool) -> None:
    assert expand(compact(text, lines=lines)) == minified(text)


@given(JSON)
def test_json_itself_is_compact_notation(text: str) -> None:
    assert expand(text) == minified(text)


SEATS = [
    {"flight": "HT069", "from": "JFK", "seats": {"economy": 12, "business": 3}},
    {"flight": "HT083", "from": "JFK", "seats": {"economy": 7, "business": 4}},
]
METHODS = {
    "card_1955700": {"source": "card", "last_four": "1907", "id": "card_1955700"},
    "gift_7504069": {"source": "gift", "amount": 250, "id": "gift_7504069"},
}
LEGS = [
    [{"flight": "HT057", "to": "ATL", "at": "2024-05-20"}, {"flight": "HT039", "to": "SEA", "at": "2024-05-21"}],
    [{"flight": "HT136", "to": "ATL", "at": "2024-05-21"}, {"flight": "HT039", "to": "SEA", "at": "2024-05-21"}],
]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"id": "NO6", "n": 3, "ok": True, "x": None}, "id=NO6 n=3 ok=true x=null"),
        ({"zip": "78750", "word": "true", "name": "Ann Lee"}, 'zip="78750" word="true" name="Ann Lee"'),
        ({"a": {"b": {"c": 1}}, "d": {"e": 1, "f": []}}, "a.b.c=1 d{e=1 f[]}"),
        ({"v1.2": {"=": {}}}, '"v1.2"."="{}'),
        ([1, "two", [3, []], {}], "[1 two [3 []] {}]"),
        (SEATS, "[{flight from=JFK seats{economy business}}:\nHT069 12 3\nHT083 7 4]"),
        (
            {"methods": METHODS},
            'methods{{source amount last_four id=@}:\ncard_1955700 card ~ "1907"\ngift_7504069 gift 250 ~}',
        ),
        (LEGS, "[[{flight to at}]:\n[HT057 ATL 2024-05-20 | HT039 SEA 2024-05-21]\n[HT136 ATL ^ | ^2]]"),
        ([{"a": 1, "b": 2}, {"a": 1, "b": 2}], "[{a b=2}:\n1\n1]"),
        ("just text", '"just text"'),
        ({}, "{}"),
    ],
    ids=["fields", "quotes", "joined", "odd-names", "array", "table", "keyed", "groups", "equal", "text", "empty"],
)
def test_the_notation(value: object, text: str) -> None:
    assert compact(dumps(value)) == text
    assert expand(text) == minified(dumps(value))


def test_numbers_survive_to_the_last_digit() -> None:
    text = '{"a":1.10,"b":1e400,"c":12345678901234567890123,"d":-0.0}'
    assert compact(text) == "a=1.10 b=1e400 c=12345678901234567890123 d=-0.0"
    assert expand(compact(text)) == text


def test_keys_that_occur_twice_survive() -> None:
    text = '[{"a":1,"a":2},{"a":1,"a":2}]'
    assert expand(compact(text)) == text


def test_a_table_costs_less_than_half_of_its_json() -> None:
    text = dumps([{"order_id": f"ord_{n}", "status": "open", "unit_price": n, "quantity": 2} for n in range(40)])
    assert O200K.count(compact(text)) * 2 < O200K.count(text)


def test_rows_in_one_line_cost_less_than_rows_in_lines_of_their_own() -> None:
    text = dumps(SEATS * 3)
    assert O200K.count(compact(text, lines=False)) < O200K.count(compact(text))


@pytest.mark.parametrize("opening", ["[", '{"a":'], ids=["arrays", "objects"])
def test_documents_are_as_deep_as_the_limit_and_no_deeper(opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    deepest = opening * DEPTH_MAX + ("" if opening == "[" else "1") + closing * DEPTH_MAX
    assert expand(compact(deepest)) == deepest
    with pytest.raises(NotJson, match=f"deeper than {DEPTH_MAX} levels"):
        compact(f"[{deepest}]")
    with pytest.raises(NotJson):
        compact(opening * 100_000)


@pytest.mark.parametrize(
    "text",
    [
        *("", "a=", "a=1 b", "{a", "[1", '"open', "[{a b}: 1]", "[{a}]", "[{a}: ^]", "[{a b}: ^7]", "[{a=@}: 1]"),
        *("a=1]", "x y", "[[{a}]: 1]", "{{a}: ", "{{a} k 1}", "a.b", "[{a.b{c}}: 1]", "{" * 5_000),
    ],
)
def test_what_is_no_notation_is_refused(text: str) -> None:
    if text == "a.b":
        # One word is a string.
        assert expand(text) == '"a.b"'
        return
    with pytest.raises(NotCompact):
        expand(text)


@given(st.text(alphabet='ab1~^@.=:|[]{}" \n', max_size=25))
@settings(max_examples=examples(500))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = expand(text)
    except NotCompact:
        return
    assert expand(compact(found)) == found
