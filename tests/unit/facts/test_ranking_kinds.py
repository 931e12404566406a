"""The ranking on other kinds of text than talks: plain facts, long messages and Chinese, all generated.

What helps with talks must not cost anything here, so it is compared with BM25 of stems alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from noosphere.server.facts.ranking import SIGNALS, WEIGHTS, Document, Weights, document, question, rank

# Nothing but BM25 over what a text itself says.
CONTEXT = ("label", "before", "before_asking", "two_before", "after")
BARE = replace(WEIGHTS, **dict.fromkeys((*(name for name in SIGNALS if name != "keywords"), *CONTEXT), 0.0))
PEOPLE = ("Anna Berg", "Ben Okafor", "Chen Wei", "Dora Rossi", "Emil Novak", "Fay Turner", "Goran Petrov", "Hana Sato")
FACTS = (
    ("{} was born in the city of Lyon.", "Where was {} born?"),
    ("The favourite drink of {} is green tea.", "What does {} like to drink?"),
    ("{} works as a carpenter.", "What work does {} do?"),
    ("{} deploys services on Ubuntu 22.04.", "On which system does {} deploy?"),
    ("{} paid an invoice of 1,250 euro.", "Which invoice did {} pay?"),
    ("{} is allergic to peanuts.", "What is {} allergic to?"),
)
CHINESE_PEOPLE = ("王小明", "李丽华", "张建国", "陈思雨", "刘海涛", "赵敏之", "孙志强", "周晓燕")
CHINESE_FACTS = (
    ("{}出生在上海市。", "{}在哪里出生？"),
    ("{}最喜欢的饮料是绿茶。", "{}喜欢喝什么饮料？"),
    ("{}的职业是木匠。", "{}的职业是什么？"),
    ("{}把服务部署在乌班图系统上。", "{}把服务部署在什么系统上？"),
    ("{}付了一张一千二百欧元的发票。", "{}付了多少钱的发票？"),
    ("{}对花生过敏。", "{}对什么过敏？"),
)
FILLER = (
    "The build went through without any surprises, and the report was filed where all reports are filed. ",
    "Nobody had anything to add to the minutes, so the meeting ended a little before lunch. ",
    "A new printer stands in the corridor; its manual lies on top of it and wants to be read. ",
)


def place_of(asked: str, wanted: int, documents: Sequence[Document], weights: Weights) -> int:
    return [one.at for one in rank(question(asked), documents, weights=weights)].index(wanted)


def plain() -> list[tuple[str, str]]:
    return [(said.format(who), asked.format(who)) for who, (said, asked) in product(PEOPLE, FACTS)]


def long() -> list[tuple[str, str]]:
    """Claims within messages of 20 to 400 words."""
    return [
        (FILLER[at % 3] * (1 + at * 7 % 5) ** 2 + said + " " + FILLER[(at + 1) % 3], asked)
        for at, (said, asked) in enumerate(plain())
    ]


def chinese() -> list[tuple[str, str]]:
    return [(said.format(who), asked.format(who)) for who, (said, asked) in product(CHINESE_PEOPLE, CHINESE_FACTS)]


@pytest.mark.parametrize("pairs", [plain(), long(), chinese()], ids=["plain", "long", "chinese"])
def test_other_texts_are_found_no_worse_than_by_keywords_alone(pairs: list[tuple[str, str]]) -> None:
    places: dict[str, list[int]] = {}
    for name, weights in (("bare", BARE), ("all", WEIGHTS)):
        documents = [document(str(at), said, weights=weights) for at, (said, _) in enumerate(pairs)]
        places[name] = [place_of(asked, at, documents, weights) for at, (_, asked) in enumerate(pairs)]
    first = {name: sum(place == 0 for place in found) / len(found) for name, found in places.items()}
    assert first["all"] >= first["bare"]
    assert first["all"] >= (0.6 if pairs == long() else 1)
    assert all(place < 10 for place in places["all"])


def test_of_two_that_say_it_equally_the_newer_is_first() -> None:
    said = [
        document("old", "The director of the museum is Anna Berg.", time_ms=1),
        document("new", "The director of the museum is Ben Okafor.", time_ms=2),
    ]
    assert [said[one.at].id for one in rank(question("Who directs the museum?"), said)] == ["new", "old"]
