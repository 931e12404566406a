"""Splitting into sentences, and the words by which entities are found."""

from __future__ import annotations

import pytest

from noosphere.server.models.extractive.entities import find_entities
from noosphere.server.models.extractive.sentences import SENTENCE_CHARS_MAX, split_sentences
from noosphere.server.ports.models import SourceMessage


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Use e.g. Redis, i.e. a cache. Then stop.", ["Use e.g. Redis, i.e. a cache.", "Then stop."]),
        ("Mr. Smith paid $3.50 to J. Doe. Good.", ["Mr. Smith paid $3.50 to J. Doe.", "Good."]),
        ("Call a.b.c() now. Version 1.2.3 works.", ["Call a.b.c() now.", "Version 1.2.3 works."]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("1. Buy milk\n2. Buy bread\n- Go home", ["Buy milk", "Buy bread", "Go home"]),
        ("你好。你是谁？我是“小明”。好！", ["你好。", "你是谁？", "我是“小明”。", "好！"]),
        ("他说：“走吧！”然后走了。", ["他说：“走吧！”", "然后走了。"]),
        ("第一步用 Python 3.11。Second step.", ["第一步用 Python 3.11。", "Second step."]),
        ("Wait... what?!  Really.", ["Wait...", "what?!", "Really."]),
        ("---\n***\n", []),
        ("", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert list(split_sentences(text)) == sentences


@pytest.mark.parametrize("text", ["word " * 500, "x" * 2_000, "很长的一句，" * 200], ids=["spaces", "none", "commas"])
def test_a_long_sentence_is_split_and_nothing_is_lost(text: str) -> None:
    pieces = list(split_sentences(text))
    assert all(len(piece) <= SENTENCE_CHARS_MAX for piece in pieces)
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "entity"),
    [
        ("see https://example.com/a?b=1 for more", "https://example.com/a?b=1"),
        ("write to kim.li@example.com today", "kim.li@example.com"),
        ("due on 2026-11-30 at noon", "2026-11-30"),
        ("it costs $1,250.50 in all", "$1,250.50"),
        ("about 35% of it", "35%"),
        ("open server/app/main.py please", "server/app/main.py"),
        ("set max_retries to three", "max_retries"),
        ("the class TaskBoard is", "TaskBoard"),
        ("order K1NW8N is late", "K1NW8N"),
        ("with Grace Hopper yesterday", "Grace Hopper"),
        ("我们在 3月5日 见面", "3月5日"),
        ("请读《三体》这本书", "《三体》"),
        ("run `make test` first", "make test"),
    ],
)
def test_entities(text: str, entity: str) -> None:
    assert entity in find_entities([SourceMessage("user", "kim", text)], ())


@pytest.mark.parametrize("text", ['{"flight_number": null}', "Hello there. Thanks!", "Flight Number: none", "OK"])
def test_labels_and_courtesies_are_no_entities(text: str) -> None:
    assert find_entities([SourceMessage("assistant", "bot", text)], ()) == []


def test_what_people_say_comes_before_what_only_tools_list() -> None:
    listed = SourceMessage("tool", "bot", " ".join(f"AAA{i}" for i in range(50)))
    said = SourceMessage("user", "kim", "Take ZZZ9.")
    assert find_entities([listed, said, listed], ())[0] == "ZZZ9"


def test_earlier_entities_stay_in_their_order() -> None:
    assert find_entities([], ("one-1", "two-2", "three-3")) == ["one-1", "two-2", "three-3"]
