"""Stored bytes as readable JSON: the way back leads to the same bytes, whatever they are."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.dumping.bodies import Body, body_of, bytes_of
from noosphere.server.dumping.lines import Entry, line_of, parse

LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(0, 9), inner, max_size=3),
    max_leaves=20,
)


def through_a_dump(data: bytes) -> bytes:
    line = parse(line_of(Entry("limits", "key", body_of(data))).rstrip(b"\n"))
    assert isinstance(line, Entry)
    return bytes_of(line.value)


@given(st.binary())
def test_any_bytes_come_back(data: bytes) -> None:
    assert through_a_dump(data) == data


@given(st.integers(0, 255), VALUES)
def test_whatever_is_packed_comes_back(form: int, value: object) -> None:
    data = bytes((form,)) + msgspec.msgpack.encode(value)
    assert through_a_dump(data) == data


def test_a_value_can_be_read() -> None:
    body = body_of(b"\x01" + msgspec.msgpack.encode([1, b'{"a": 1}', b"\xff", "x"]))
    assert body == Body(1, [1, {"text": '{"a": 1}'}, {"base64": "/w=="}, "x"])


@pytest.mark.parametrize(
    "body",
    [
        Body(),
        Body(1),
        Body(256, 1),
        Body(1, {"text": 3}),
        Body(1, {"what": "x"}),
        Body(1, {"text": "a", "base64": ""}),
        Body(1, {"base64": "?"}),
        Body(1, {"map": [1]}),
        Body(base64="?"),
        Body(1, 2**70),
        Body(1, {"map": [[{"map": []}, 1]]}),
    ],
)
def test_what_is_no_value_is_refused(body: Body) -> None:
    with pytest.raises(ValueError, match=r"."):
        bytes_of(body)


def test_a_value_without_end_is_refused() -> None:
    value: object = 1
    for _ in range(200):
        value = [value]
    with pytest.raises(ValueError, match="nested"):
        bytes_of(Body(1, value))
    deep = b"\x01" + b"\x91" * 200 + b"\x01"
    assert through_a_dump(deep) == deep
