"""Values: what goes in comes out, as a fresh object, or is refused by name and place."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from noosphere.client import InvalidArgument, ValueMismatch
from noosphere.client._values import JSON_DEPTH_MAX, Payload, codec_for
from noosphere.consistency import Encoding


class Step(BaseModel):
    text: str = Field(alias="t")
    price: float | None = None
    more: Any = None


@dataclasses.dataclass
class Point:
    x: int
    y: float


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_json_comes_back_as_it_was(value: Any) -> None:
    codec = codec_for(None)
    payload = codec.encode(value)
    assert payload.encoding is Encoding.JSON
    assert codec.decode(payload) == value
    # Strict JSON: any reader in any language understands it.
    json.loads(payload.data, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (bytes, b"\x00\xff"),
        (Step, Step(t="go", price=1.5)),
        (Point, Point(1, 2.5)),
        (list[int], [1, 2]),
        (TypeAdapter(dict[str, Step]), {"a": Step(t="x")}),
        (str, "名\u2028"),
        (type(None), None),
    ],
)
def test_models_round_trip(model: Any, value: Any) -> None:
    codec = codec_for(model)
    decoded = codec.decode(codec.encode(value))
    assert decoded == value
    assert type(decoded) is type(value)


def test_fields_are_stored_by_their_alias() -> None:
    assert json.loads(codec_for(Step).encode(Step(t="go")).data)["t"] == "go"


def test_without_a_model_models_and_bytes_are_taken_as_what_they_are() -> None:
    codec = codec_for(None)
    assert codec.decode(codec.encode(Step(t="go"))) == {"t": "go", "price": None, "more": None}
    assert codec.encode(b"\xff") == Payload(b"\xff", Encoding.BYTES)
    assert codec.decode(Payload(b"\xff", Encoding.BYTES)) == b"\xff"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (float("nan"), "value: nan"),
        ({"a": [1, float("inf")]}, r"value\.a\[1\]: inf"),
        ({1: "a"}, "value: the key 1 is int"),
        ({"a": {"b": object()}}, r"value\.a\.b: object is not JSON"),
        ({"s": {1, 2}}, r"value\.s: set is not JSON"),
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
    ],
)
def test_what_is_no_json_is_refused_by_place(value: Any, place: str) -> None:
    with pytest.raises(InvalidArgument, match=place) as caught:
        codec_for(None).encode(value)
    assert (caught.value.reason, caught.value.outcome) == ("INVALID_FIELD", "not_applied")


def test_endless_nesting_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidArgument, match=f"nested deeper than {JSON_DEPTH_MAX}"):
        codec_for(None).encode(value)


@pytest.mark.parametrize(
    ("model", "value", "place"),
    [
        (Step, Step(t="x", price=float("inf")), r"value\.price: inf"),
        (Step, Step(t="x", more=[float("nan")]), r"value\.more\[0\]: nan"),
        (Point, Point(1, float("-inf")), r"value\.y: -inf"),
        (float, float("nan"), "value: nan"),
    ],
)
def test_models_do_not_turn_numbers_into_null(model: Any, value: Any, place: str) -> None:
    """pydantic serializes NaN and infinities as null without a word."""
    with pytest.raises(InvalidArgument, match=place):
        codec_for(model).encode(value)


def test_null_and_words_like_nan_are_values() -> None:
    step = Step(t="NaN Infinity null", price=None)
    assert codec_for(Step).decode(codec_for(Step).encode(step)) == step


@pytest.mark.parametrize(("model", "value"), [(list[int], ["a"]), (Step, {"t": 1}), (bytes, "text"), (Point, 3)])
def test_a_value_of_another_type_is_refused(model: Any, value: Any) -> None:
    with pytest.raises(InvalidArgument, match="value: "):
        codec_for(model).encode(value)


@pytest.mark.parametrize(
    ("model", "payload"),
    [
        (Step, Payload(b'{"t":1}', Encoding.JSON)),
        (Step, Payload(b"\xff", Encoding.BYTES)),
        (bytes, Payload(b"1", Encoding.JSON)),
        (None, Payload(b"{", Encoding.JSON)),
        (list[int], Payload(b'["x"]', Encoding.JSON)),
    ],
)
def test_a_stored_value_that_does_not_fit_keeps_its_bytes(model: Any, payload: Payload) -> None:
    with pytest.raises(ValueMismatch) as caught:
        codec_for(model).decode(payload)
    assert caught.value.raw == payload.data


def test_each_decoding_gives_a_fresh_object() -> None:
    codec = codec_for(None)
    payload = codec.encode({"a": []})
    codec.decode(payload)["a"].append(1)
    assert codec.decode(payload) == {"a": []}


def test_a_model_that_nobody_can_validate_is_refused() -> None:
    class Opaque:
        pass

    with pytest.raises(InvalidArgument, match="model: "):
        codec_for(Opaque)
