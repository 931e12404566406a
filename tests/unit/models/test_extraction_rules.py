"""The rules that find facts in what users say: what they take, and above all what they leave."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.facts.canonical import canonical
from noosphere.server.facts.types import Policy
from noosphere.server.models.extraction import RulesExtractor
from noosphere.server.models.extraction.extractor import TEXT_CHARS_MAX
from noosphere.server.models.extraction.statements import statements
from noosphere.server.ports.models import EXTRACTED_CLAIMS_MAX, ExtractedClaim, ExtractionSource

Known = tuple[str, str, str]


async def claims(*texts: str, role: str = "user") -> tuple[ExtractedClaim, ...]:
    sources = [ExtractionSource(f"msg:s/{at}", role, text) for at, text in enumerate(texts)]
    return (await RulesExtractor().extract(sources, "user/42")).claims


def known(found: Sequence[ExtractedClaim]) -> list[Known]:
    return [(one.text, one.predicate, json.loads(one.object) if one.object else "") for one in found]


TAKEN: dict[str, list[Known]] = {
    "I prefer tea over coffee.": [("The user prefers tea over coffee.", "", "")],
    "My name is Kim Lee, and I live in Berlin.": [
        ("The user's name is Kim Lee.", "name", "Kim Lee"),
        ("The user lives in Berlin.", "lives_in", "Berlin"),
    ],
    "I live in Berlin and work at Acme GmbH.": [
        ("The user lives in Berlin.", "lives_in", "Berlin"),
        ("The user works at Acme GmbH.", "works_at", "Acme GmbH"),
    ],
    "By the way, I've moved to New York because of work.": [("The user lives in New York.", "lives_in", "New York")],
    "I live in Bremen now.": [("The user lives in Bremen.", "lives_in", "Bremen")],
    "Call me Bob.": [("The user wants to be called Bob.", "nickname", "Bob")],
    "My birthday is May 5th": [("The user's birthday is May 5th.", "birthday", "May 5th")],
    "my favourite colour is blue!": [("The user's favourite colour is blue.", "favourite_colour", "blue")],
    "My dog's name is Rex.": [("The user's dog's name is Rex.", "dog's_name", "Rex")],
    "Our staging port is 8443.": [("Our staging port is 8443.", "", "")],
    "I'm allergic to peanuts.": [("The user is allergic to peanuts.", "allergic_to", "peanuts")],
    "I don't like mushrooms, but I love pasta.": [
        ("The user dislikes mushrooms.", "dislike", "mushrooms"),
        ("The user likes pasta.", "like", "pasta"),
    ],
    "I love walking my dog, it keeps me fit.": [("The user likes walking their dog.", "like", "walking their dog")],
    "I'm a huge fan of the Alps - so quiet!": [("The user likes the Alps.", "like", "the Alps")],
    "I'm a vegetarian because of the climate.": [("The user is a vegetarian.", "", "")],
    "Never push to main.": [("Never push to main", "", "")],
    "We decided to use Postgres.": [("We decided to use Postgres.", "", "")],
    "Remember that the staging port is 8443.": [("The staging port is 8443.", "", "")],
    "Please remember I prefer metric units.": [("The user prefers metric units.", "", "")],
    "From now on, answer in German.": [("From now on, answer in German", "", "")],
    "About me:\n- I live in Oslo\n- I speak Norwegian": [
        ("The user lives in Oslo.", "lives_in", "Oslo"),
        ("The user speaks Norwegian.", "speaks", "Norwegian"),
    ],
    "> I live in Rome\nI live in Oslo": [("The user lives in Oslo.", "lives_in", "Oslo")],
    "我喜欢喝茶，我住在北京。": [("用户喜欢喝茶。", "喜欢", "喝茶"), ("用户住在北京。", "住在", "北京")],
    "我叫小明，我在腾讯工作": [("用户的名字是小明。", "名字", "小明"), ("用户在腾讯工作。", "就职于", "腾讯")],
    "请记住：数据库端口是5432。": [("数据库端口是5432。", "", "")],
    "我的生日是5月3日": [("用户的生日是5月3日。", "生日", "5月3日")],
    "叫我老王吧": [("用户希望被称呼为老王。", "称呼", "老王")],
    "我对花生过敏。我不喜欢香菜。": [("用户对花生过敏。", "过敏", "花生"), ("用户不喜欢香菜。", "讨厌", "香菜")],
    "我们决定用PostgreSQL。": [("我们决定用PostgreSQL。", "", "")],
    "以后都用中文回答": [("以后都用中文回答", "", "")],
}

LEFT = [
    "Do I live in Berlin?",
    "What is my name?",
    "Is my name Kim",
    "If I lived in Rome I'd be happy.",
    "I live in Rome if you ask my boss.",
    "Maybe I live in Rome.",
    "I might prefer tea.",
    "I'd like a coffee.",
    "I would prefer tea.",
    'He said: "I am tired. I live in Paris. Bye."',
    "She wrote 'I live in Paris. I love it there.' and left.",
    "“I live in Paris.”",
    "He wrote «I am here.\n\nI live in Paris.» yesterday.",
    "> I live in Rome",
    "```\nMy name is Kim.\n```",
    "```\nMy name is Kim.",
    "Translate this:\nI live in Berlin.",
    "Please translate the following. I live in Berlin.",
    "Can you proofread my letter? My name is Kim. I live in Berlin.",
    "Imagine a knight. I live in Camelot.",
    "You are now a pirate. I live in Tortuga.",
    "From: kim@example.org\nSubject: hello\nI live in Berlin.",
    "Her diary goes:\n- I live in Oslo",
    "My flight is late today.",
    "My build is failing.",
    "My name is not Kim.",
    "My order is on its way.",
    "Call me later.",
    "Call me when you are done.",
    "I'm a bit tired.",
    "I love it!",
    "I like how you did that.",
    "I like this one.",
    "I no longer live in Berlin.",
    "I love the colours.",
    "I love their work.",
    "I enjoy watching them.",
    "I like being here.",
    "I felt tired and like I was dreaming.",
    "I'm a big fan.",
    "My favourite part is the end.",
    "Never give up!",
    "Always here to help.",
    "Remember, just breathe.",
    "We decided to do this.",
    "Remember when we met?",
    "Remember me.",
    "Never mind.",
    "We have not decided on a database.",
    "如果我住在上海就好了。",
    "我的生日是哪天？",
    "我住在哪里",
    "也许我喜欢茶。",
    "我没有决定。",
    "他说：“我住在北京。”",
    "请翻译：我住在北京。",
    "把下面这段话翻译成英文。我住在北京。",
    "今天我很累。",
    "",
    "   \n\n",
    "🎉🎉🎉",
]


@pytest.mark.parametrize("text", TAKEN, ids=[f"taken-{at}" for at in range(len(TAKEN))])
async def test_what_users_say_of_themselves_is_taken(text: str) -> None:
    found = await claims(text)
    assert known(found) == TAKEN[text]
    for claim in found:
        assert claim.quote in text
        # Enough for the gate of a scope without a policy of its own.
        assert claim.confidence >= 0.7
        assert claim.importance >= 0.6


@pytest.mark.parametrize("text", LEFT, ids=[f"left-{at}" for at in range(len(LEFT))])
async def test_questions_quotations_suppositions_and_passing_states_are_left(text: str) -> None:
    assert known(await claims(text)) == []


@pytest.mark.parametrize("role", ["assistant", "tool", "system", "document"])
async def test_nobody_but_users_is_listened_to(role: str) -> None:
    assert await claims(*TAKEN, role=role) == ()


async def test_a_claim_stands_in_the_slot_in_which_its_words_would_stand_without_it() -> None:
    policy, compared = Policy(), 0
    for claim in await claims(*TAKEN):
        given = canonical(
            "user/42",
            "user/42",
            claim.text,
            subject=claim.subject,
            predicate=claim.predicate,
            object=claim.object,
            policy=policy,
        )
        bare = canonical("user/42", "user/42", claim.text, policy=policy)
        if bare.slot:
            compared += 1
            assert (given.subject, given.predicate) == (bare.subject, bare.predicate)
    assert compared > 10


async def test_standing_instructions_are_procedures_and_the_rest_is_not() -> None:
    found = await claims("Always answer in German. My name is Kim.")
    assert [one.memory_type for one in found] == ["procedural", "semantic"]


async def test_what_is_said_twice_in_a_message_is_one_claim_and_in_two_it_is_two() -> None:
    assert len(await claims("I love tea. I love tea.")) == 1
    assert [one.reference for one in await claims("I love tea.", "I love tea.")] == ["msg:s/0", "msg:s/1"]


async def test_the_words_are_quoted_as_they_stand() -> None:
    (claim,) = await claims("Well,\tI  live   in Berlin .\nBye")
    assert claim.quote == "Well,\tI  live   in Berlin ."
    assert claim.text == "The user lives in Berlin."


async def test_claims_are_bounded_in_number_and_texts_in_length() -> None:
    many = " ".join(f"My account {at} is A{at}." for at in range(EXTRACTED_CLAIMS_MAX))
    found = await claims(many, many)
    assert len(found) == EXTRACTED_CLAIMS_MAX
    assert {one.reference for one in found} == {"msg:s/0"}
    assert await claims("word. " * TEXT_CHARS_MAX + "I live in Berlin.") == ()


_PIECES = st.sampled_from([*TAKEN, *LEFT, '"', "“", "'", ">", "```", "\n\n", ":", "：", "。", "I live in ", "我住在"])


@given(st.lists(_PIECES, max_size=12).map(" ".join))
def test_whatever_is_said_each_statement_stands_in_it_in_order(text: str) -> None:
    at = 0
    for statement in statements(text):
        at = text.index(statement.quote, at) + len(statement.quote)


@given(st.text(max_size=400), st.sampled_from(sorted(TAKEN)))
async def test_nothing_that_is_quoted_is_taken(noise: str, said: str) -> None:
    told = "He said: “" + said.replace("”", "") + "”"
    assert await claims(told) == ()
    for claim in await claims(f"{noise}\n{said}"):
        assert claim.quote in f"{noise}\n{said}"
        assert claim.text.strip()
