"""Merge types: what commutes, what fits, what is refused, and which adds a removal drops."""

from __future__ import annotations

import json
import sys
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.consistency.support import refused, utf8_text

from noosphere.consistency import CausalContext, LimitInfo, MergeType, Reason, merge
from noosphere.consistency.limits import JSON_DEPTH_MAX
from noosphere.consistency.merge import COUNTER_MAX, CounterAdd, Extreme, LogAppend, MapUpdate, MergeOp, SetUpdate

ROOM = 64 * 1024

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abé漢😀", max_size=3), inner, max_size=3),
)


def same(value: Any) -> str:
    """Returns text that is equal for equal JSON values only: 1, 1.0 and true are three values."""
    return json.dumps(value, sort_keys=True)


def run(*ops: MergeOp, state: bytes | None = None, room: int = ROOM) -> bytes:
    """Applies operations in order, each at its own revision from 1 on; returns the last state."""
    for revision, op in enumerate(ops, 1):
        state = merge.state_at(merge.type_of(op), merge.apply(op, state, room).state, revision)
    assert state is not None
    return state


def value_of(*ops: MergeOp, room: int = ROOM) -> Any:
    return json.loads(merge.render(merge.type_of(ops[-1]), run(*ops, room=room)))


# -- what commutes ---------------------------------------------------------------------------------


@given(st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=6), st.randoms())
def test_counters_add_up_in_any_order(deltas: list[int], chance: Any) -> None:
    shuffled = list(deltas)
    chance.shuffle(shuffled)
    assert run(*map(CounterAdd, deltas)) == run(*map(CounterAdd, shuffled)) == str(sum(deltas)).encode()


@given(
    st.lists(st.integers(-(10**25), 10**25) | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6),
    st.booleans(),
)
def test_extremes_of_numbers_do_not_depend_on_the_order(numbers: list[float], largest: bool) -> None:
    wanted = max(numbers) if largest else min(numbers)
    for order in (numbers, numbers[::-1], sorted(numbers), sorted(numbers, reverse=True)):
        assert value_of(*(Extreme(json.dumps(n), largest) for n in order)) == wanted


def test_of_equal_numbers_the_first_stays() -> None:
    for largest in (True, False):
        assert same(value_of(Extreme("1", largest), Extreme("1.0", largest))) == "1"
        assert same(value_of(Extreme("1.0", largest), Extreme("1", largest))) == "1.0"


@given(st.lists(utf8_text, min_size=1, max_size=6), st.booleans())
def test_extremes_of_strings_order_by_code_point(texts: list[str], largest: bool) -> None:
    wanted = max(texts) if largest else min(texts)
    assert value_of(*(Extreme(json.dumps(t), largest) for t in texts)) == wanted


@given(st.lists(json_values, max_size=6))
def test_adds_to_a_set_commute(values: list[Any]) -> None:
    one_way = value_of(SetUpdate(), *(SetUpdate(add=(json.dumps(v),)) for v in values))
    other_way = value_of(SetUpdate(), *(SetUpdate(add=(json.dumps(v),)) for v in reversed(values)))
    assert {same(v) for v in one_way} == {same(v) for v in other_way} == {same(v) for v in values}
    assert len(one_way) == len({same(v) for v in values})


@given(st.dictionaries(st.text("abé漢 /.%", max_size=3), json_values, max_size=5))
def test_fields_of_a_map_commute(fields: dict[str, Any]) -> None:
    ops = [MapUpdate({name: json.dumps(value)}) for name, value in fields.items()]
    assert same(value_of(MapUpdate({}), *ops)) == same(value_of(MapUpdate({}), *ops[::-1])) == same(fields)


def test_a_map_update_removes_before_it_sets() -> None:
    assert value_of(MapUpdate({"a": "1", "b": "2"}), MapUpdate({"a": "3"}, remove=("a", "b", "absent"))) == {"a": 3}


# -- sets: which adds a removal drops --------------------------------------------------------------


def test_elements_are_told_apart_by_type_and_compared_without_regard_to_key_order() -> None:
    add = ("1", "1.0", "true", '"1"', "null", "[]", "{}", "0.0", "-0.0")
    assert value_of(SetUpdate(add=add)) == [json.loads(text) for text in add]
    assert value_of(SetUpdate(add=("1", "1.0", "true")), SetUpdate(remove=("1.0",))) == [1, True]
    assert value_of(SetUpdate(add=('{"a":1,"b":2}',)), SetUpdate(add=('{ "b":2, "a":1 }',))) == [{"a": 1, "b": 2}]
    assert value_of(SetUpdate(add=('"é"',)), SetUpdate(remove=(r'"\u00e9"',))) == []
    # Composed and decomposed forms are different texts: no normalisation behind the caller's back.
    assert len(value_of(SetUpdate(add=('"\u00e9"', '"e\u0301"')))) == 2


def test_one_update_removes_before_it_adds_and_takes_duplicates_once() -> None:
    assert value_of(SetUpdate(add=("1", "1", "2"), remove=("1",))) == [1, 2]
    assert value_of(SetUpdate(add=("1",)), SetUpdate(add=("1",), remove=("1", "1"))) == [1]


def test_removal_without_a_context_drops_every_add() -> None:
    assert value_of(SetUpdate(add=("1",)), SetUpdate(add=("1",)), SetUpdate(remove=("1",))) == []


def test_removal_spares_an_add_that_its_context_does_not_cover() -> None:
    add = SetUpdate(add=('"x"',))
    assert value_of(add, SetUpdate(remove=('"x"',), context=CausalContext(1))) == []
    assert value_of(add, SetUpdate(remove=('"x"',), context=CausalContext(0))) == ["x"]
    assert value_of(add, SetUpdate(remove=('"x"',), context=CausalContext(0, (1,)))) == []
    assert value_of(add, add, SetUpdate(remove=('"x"',), context=CausalContext(1))) == ["x"]


def test_covering_only_the_newest_add_does_not_drop_an_earlier_one_of_somebody_else() -> None:
    add = SetUpdate(add=('"x"',))
    only_newest = SetUpdate(remove=('"x"',), context=CausalContext(0, (2,)))
    assert value_of(add, add, only_newest) == ["x"]
    # What is left is the earlier add, so a context that covers it drops the element for good.
    assert value_of(add, add, only_newest, SetUpdate(remove=('"x"',), context=CausalContext(1))) == []
    # And the other way round.
    only_earlier = SetUpdate(remove=('"x"',), context=CausalContext(1))
    assert value_of(add, add, only_earlier, SetUpdate(remove=('"x"',), context=CausalContext(0, (2,)))) == []


@given(
    st.lists(
        st.tuples(st.sampled_from("ar"), st.integers(0, 12), st.integers(1, 12) | st.none()), min_size=1, max_size=12
    )
)
def test_removal_is_observed_remove(steps: list[tuple[str, int, int | None]]) -> None:
    """An element with an add that no removal covered stays; under prefixes alone the reverse holds too."""
    adds: set[int] = set()
    ops: list[MergeOp] = [SetUpdate()]
    exact = True
    for revision, (kind, prefix, extra) in enumerate(steps, 2):
        if kind == "a":
            ops.append(SetUpdate(add=("1",)))
            adds.add(revision)
        else:
            context = CausalContext(prefix, () if extra is None else (extra,))
            ops.append(SetUpdate(remove=("1",), context=context))
            adds -= {dot for dot in adds if context.covers(dot)}
            exact = exact and extra is None
    left = value_of(*ops)
    assert left == [1] if adds else left in ([], [1])
    if exact:
        assert left == ([1] if adds else [])


# -- sizes -----------------------------------------------------------------------------------------


@given(st.lists(json_values, max_size=8), st.integers(2, 64))
def test_a_log_keeps_the_newest_entries_that_fit_and_counts_the_others(values: list[Any], room: int) -> None:
    state: bytes | None = None
    kept: list[Any] = []
    appended = 0
    for value in values:
        text = json.dumps(value)
        if len(merge.dump_json([value])) > room:
            refused(Reason.VALUE_TOO_LARGE, merge.apply, LogAppend((text,)), state, room)
            continue
        merged = merge.apply(LogAppend((text,)), state, room)
        state, appended = merged.state, appended + 1
        kept.append(value)
        while len(merge.dump_json(kept)) > room:
            del kept[0]
        rendered = merge.render(MergeType.LOG, state)
        assert rendered == merge.dump_json(kept)
        assert merged.trimmed == appended - len(kept)


def test_a_log_that_fits_to_the_byte_keeps_everything() -> None:
    assert value_of(LogAppend(("1", "22", '"é"')), room=len('[1,22,"é"]'.encode())) == [1, 22, "é"]
    assert value_of(LogAppend(("1", "22", '"é"')), room=len('[1,22,"é"]'.encode()) - 1) == [22, "é"]


def test_a_log_that_was_written_under_a_higher_limit_shrinks() -> None:
    state = run(LogAppend(("1", "2", "3", "4")))
    merged = merge.apply(LogAppend(("5",)), state, 5)
    assert (json.loads(merge.render(MergeType.LOG, merged.state)), merged.trimmed) == ([4, 5], 3)


def test_entries_max_keeps_so_many_of_the_newest() -> None:
    merged = merge.apply(LogAppend(("4", "5"), entries_max=3), run(LogAppend(("1", "2", "3"))), ROOM)
    assert (json.loads(merge.render(MergeType.LOG, merged.state)), merged.trimmed) == ([3, 4, 5], 2)
    assert merge.apply(LogAppend(()), merged.state, ROOM).trimmed == 2


@pytest.mark.parametrize(
    ("op", "rendered"),
    [
        (CounterAdd(1000), b"1000"),
        (SetUpdate(add=('"é"', "12")), '["é",12]'.encode()),
        (Extreme('"漢字"', True), '"漢字"'.encode()),
        (Extreme("-1.5", False), b"-1.5"),
        (MapUpdate({"k": '"v"'}), b'{"k":"v"}'),
        (LogAppend(("123",)), b"[123]"),
    ],
)
def test_the_limit_is_on_what_readers_see_in_bytes(op: MergeOp, rendered: bytes) -> None:
    assert merge.render(merge.type_of(op), run(op, room=len(rendered))) == rendered
    refusal = refused(Reason.VALUE_TOO_LARGE, run, op, room=len(rendered) - 1)
    assert isinstance(refusal.detail, LimitInfo)
    assert (refusal.detail.actual, refusal.detail.limit) == (len(rendered), len(rendered) - 1)


def test_counters_stop_at_64_bits_and_the_error_fits_into_its_detail() -> None:
    assert value_of(CounterAdd(COUNTER_MAX), CounterAdd(-COUNTER_MAX), CounterAdd(-COUNTER_MAX)) == -COUNTER_MAX
    for start, delta in ((COUNTER_MAX, 1), (COUNTER_MAX, COUNTER_MAX), (-COUNTER_MAX, -(2**63))):
        refusal = refused(Reason.VALUE_TOO_LARGE, run, CounterAdd(start), CounterAdd(delta))
        assert str(start + delta) in refusal.message
        assert isinstance(refusal.detail, LimitInfo)
        assert -(2**63) <= refusal.detail.actual < 2**63


# -- what is no JSON, or of another kind -----------------------------------------------------------


def with_operand(text: str) -> list[MergeOp]:
    return [
        SetUpdate(add=(text,)),
        SetUpdate(remove=(text,)),
        Extreme(text, True),
        Extreme(text, False),
        MapUpdate({"f": text}),
        LogAppend((text,)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nan",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e999",
        "[1e400]",
        "01",
        "'a'",
        "[1,]",
        r'"\ud800"',
        r'{"\udfff":1}',
        r'"\ud800\u0041"',
        '"\ud800"',
        '"tab\there"',
        "\ufeff1",
        "1 2",
        "9" * 5000,
    ],
)
def test_what_other_parsers_could_not_read_is_refused(text: str) -> None:
    for op in with_operand(text):
        refusal = refused(Reason.INVALID_FIELD, merge.apply, op, None, ROOM)
        assert refusal.message.startswith("merge.")


@pytest.mark.parametrize("data", [b"\xff\xfe1\x00", b"\xef\xbb\xbf1", b'"\xed\xa0\x80"', b'"\xff"', b"1\x00"])
def test_bytes_that_are_not_utf8_json_are_refused(data: bytes) -> None:
    refused(Reason.INVALID_FIELD, merge.parse_json, "value", data)


def test_a_pair_of_surrogate_escapes_is_one_character() -> None:
    assert value_of(LogAppend((r'"\ud83d\ude00"', '"😀"'))) == ["😀", "😀"]


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_is_limited_so_that_what_was_stored_can_be_read_from_a_deep_stack(opening: str) -> None:
    closing = "]" if opening == "[" else "}"

    def nested(depth: int) -> str:
        return opening * depth + "1" + closing * depth

    for op in with_operand(nested(JSON_DEPTH_MAX))[:2]:
        state = run(op)

        def read(frames: int, state: bytes = state) -> bytes:
            return read(frames - 1, state) if frames else merge.render(MergeType.SET, state)

        assert read(sys.getrecursionlimit() // 2).startswith(b"[")
    for depth in (JSON_DEPTH_MAX + 1, 5_000, 20_000):
        refusal = refused(Reason.VALUE_TOO_LARGE, merge.parse_json, "value", nested(depth))
        assert refusal.detail == LimitInfo("value", depth, JSON_DEPTH_MAX)


def test_brackets_in_strings_and_side_by_side_are_no_nesting() -> None:
    flat = [["[" * 300 + '"\\' + "{" * 300]] * 200
    assert merge.parse_json("value", json.dumps(flat)) == flat


def test_unclosed_strings_do_not_make_the_nesting_check_search_again_and_again() -> None:
    text = "[" * 200 + '"' + '\\"' * 500_000
    refused(Reason.VALUE_TOO_LARGE, merge.parse_json, "value", text)


@given(json_values)
def test_json_survives_parsing_and_dumping(value: Any) -> None:
    assert same(merge.parse_json("value", merge.dump_json(value))) == same(value)


@pytest.mark.parametrize("text", ["true", "null", "[1]", "{}"])
@pytest.mark.parametrize("largest", [True, False])
def test_extremes_take_numbers_and_strings_only(text: str, largest: bool) -> None:
    refused(Reason.INVALID_FIELD, run, Extreme(text, largest))


@pytest.mark.parametrize("pair", list(permutations(("1", '"1"'))))
def test_extremes_do_not_mix_numbers_and_strings(pair: tuple[str, str]) -> None:
    refused(Reason.MERGE_TYPE_MISMATCH, run, *(Extreme(text, True) for text in pair))


FITTING: dict[MergeType, list[str]] = {
    MergeType.COUNTER: ["0", "-5", str(COUNTER_MAX)],
    MergeType.SET: ["[]", "[1,1.0,true,1]"],
    MergeType.MAX: ["1", "1.5", '"a"'],
    MergeType.MIN: ["-1", "-1.5", '""'],
    MergeType.MAP: ["{}", '{"a":[1]}'],
    MergeType.LOG: ["[]", "[1,1]"],
}


@pytest.mark.parametrize("merge_type", list(FITTING))
def test_a_plain_value_becomes_a_state_if_it_has_the_type_s_shape(merge_type: MergeType) -> None:
    for text in FITTING[merge_type]:
        rendered = merge.render(merge_type, merge.state_from_value(merge_type, text.encode()))
        wanted = json.loads(text)
        if merge_type is MergeType.SET:
            wanted = list({same(v): v for v in wanted}.values())
        assert same(json.loads(rendered)) == same(wanted)
    others = ["true", "null", *(t for kind, texts in FITTING.items() if kind is not merge_type for t in texts)]
    for text in others:
        shape = type(json.loads(text))
        if shape in {type(json.loads(t)) for t in FITTING[merge_type]}:
            continue
        refused(Reason.MERGE_TYPE_MISMATCH, merge.state_from_value, merge_type, text.encode())


@pytest.mark.parametrize("text", ["1.0", "true", str(COUNTER_MAX + 1), str(-COUNTER_MAX - 1)])
def test_a_counter_is_a_64_bit_whole_number(text: str) -> None:
    refused(Reason.MERGE_TYPE_MISMATCH, merge.state_from_value, MergeType.COUNTER, text.encode())


def test_elements_of_a_set_that_was_put_belong_to_the_put() -> None:
    state = merge.state_at(MergeType.SET, merge.state_from_value(MergeType.SET, b"[1,2]"), 7)
    remove = SetUpdate(remove=("1", "2"), context=CausalContext(7))
    assert merge.render(MergeType.SET, merge.apply(remove, state, ROOM).state) == b"[]"
    too_early = SetUpdate(remove=("1", "2"), context=CausalContext(6))
    assert merge.render(MergeType.SET, merge.apply(too_early, state, ROOM).state) == b"[1,2]"
