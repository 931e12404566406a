"""Slots: what the rules of grammar find in a claim, and where they had better find nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.facts.pairs import CONTRARY, OTHERS, SAME, pairs

from noosphere.server.facts.slots import cardinality_of, find, predicate_form, subject_form, value_form
from noosphere.server.facts.slots.find import TEXT_CHARS_MAX
from noosphere.server.facts.types import Cardinality, Policy

POLICY = Policy()
SINGLE, MULTI, UNKNOWN = Cardinality.SINGLE, Cardinality.MULTI, Cardinality.UNKNOWN

# One claim in a line: its words, then subject, predicate, value and whether there is one, several or who knows.
FOUND = """
    The capital of Peru is Lima. | peru | capital | lima | one
    the capital of peru is lima | peru | capital | lima | one
    Lima is the capital of Peru | peru | capital | lima | one
    Anna is the CEO of Acme | acme | chief executive officer | anna | one
    The name of the current head of the Graz government is Anna Berg | graz government | head | anna berg | one
    The head of state of Norway is Harald V | norway | head of state | harald v | one
    The university where Anna was educated is TU Graz | anna | university where was educated | tu graz | one
    The kind of music that Anna plays is ska | anna | kind of music that play | ska | one
    The timeout of the gateway is 30 seconds | gateway | timeout | 30000 ms | one
    The database host is db1.example | database | host | db1.example | one
    The author of What Is to Be Done is Anna Berg | what is to be done | author | anna berg | one
    Help! Hills was written by Anna Berg | help! hills | written by | anna berg | one
    The office where Anna works is Frankfurt am Main | anna | office where work | frankfurt am main | one
    Anna is famous for Winter on the Hill | anna | famous for | winter on the hill | ?
    Anna is married to May Smith | anna | married to | may smith | one
    I am married to May Smith | user | married to | may smith | one
    When Hills Met Clouds was directed by Anna Berg | when hills met clouds | directed by | anna berg | one
    Anna is famous for Who Moved?. | anna | famous for | who moved? | ?
    The headquarters of Acme is located in the city of Graz | acme | headquarters located in city | graz | one
    The current mayor of Graz is Elke | graz | mayor | elke | one
    Gone with the Hills was directed by Anna Berg | gone with the hills | directed by | anna berg | one
    Born in the Alps was performed by The Larks | born in the alps | performed by | larks | ?
    Hollow Hills was written in the language of Welsh | hollow hills | written in language | welsh | one
    Acme was founded in the city of Graz | acme | founded in city | graz | one
    Acme was founded in 1999 | acme | founded in time | 1999 | one
    Anna is married to Ben Berg, Baron of Linz | anna | married to | ben berg, baron of linz | one
    Anna is a citizen of Chile | anna | citizen of | chile | ?
    Anna is famous for Hollow Hills | anna | famous for | hollow hills | ?
    Anna speaks the language of Welsh | anna | speak language | welsh | ?
    Anna works in the field of law | anna | work in field | law | ?
    Anna worked in the city of Graz | anna | worked in city | graz | ?
    Anna plays the position of striker | anna | play position | striker | ?
    striker is associated with the sport of hockey | striker | associated with sport | hockey | ?
    Anna's child is Ben | anna | child | ben | ?
    Anna's favourite dish is ramen | anna | favourite dish | ramen | one
    My favorite color is blue | user | favourite colour | blue | one
    My name is Anna | user | name | anna | one
    The user is called Anna | user | name | anna | one
    I'm married to Ben | user | married to | ben | one
    I live in Berlin now. | user | live in | berlin | one
    Lives in Berlin now. | user | live in | berlin | one
    Works at Acme | user | work for | acme | one
    Prefers dark mode | user | prefer mode | dark mode | one
    Prefers tea over coffee | user | prefer of coffee and tea | tea | one
    Likes tea | user | like | tea | several
    Is married to Ben | user | married to | ben | one
    Was born in Graz | user | born in | graz | one
    Works in progress are in Graz | works in progress | in | graz | ?
    Lives in Graz was a song by Anna | lives in graz | was song by | anna | ?
    Anna has lived in Graz since 2019 | anna | live in | graz | one
    Anna has moved to Linz | anna | live in | linz | one
    Anna lives at 12 Hill Road | anna | live at | 12 hill road | one
    Currently, Anna works at Acme | anna | work for | acme | one
    We use Postgres for storage | we | use for storage | postgres | ?
    User prefers dark mode | user | prefer mode | dark mode | one
    Anna prefers tabs for indentation | anna | prefer for indentation | tabs | one
    Anna prefers tea over coffee | anna | prefer of coffee and tea | tea | one
    Anna prefers window seats on flights | anna | prefer seats on flights | window seats | one
    Anna prefers email | anna | prefer | email | ?
    Anna likes tea | anna | like | tea | several
    Anna visited Rome | anna | visited | rome | several
    Anna is allergic to nuts | anna | allergic to | nuts | several
    Anna has 3 cats | anna | number cats | 3 | one
    Anna is 34 years old | anna | number old | 408 month | one
    The meeting is on Friday | meeting | on time | friday | ?
    The report is due Friday | report | due | friday | one
    The train leaves at 9:00 on Mondays | train | leave at time | 9:00 on mondays | ?
    Timezone: CET | user | timezone | cet | one
    The CEO of Acme was Anna | acme | was chief executive officer | anna | ?
    Anna was married to Ben | anna | was married to | ben | ?
    用户住在北京。 | user | 住在 | 北京 | one
    我搬到了上海 | user | 住在 | 上海 | one
    我最喜欢的颜色是红色 | user | 最喜欢的颜色 | 红色 | one
    法国的首都是巴黎 | 法国 | 首都 | 巴黎 | one
    巴黎是法国的首都 | 法国 | 首都 | 巴黎 | one
    小明的朋友是小红 | 小明 | 朋友 | 小红 | ?
    小明和小红结婚了 | 小明 | 配偶 | 小红 | one
    小明在谷歌工作 | 小明 | 就职于 | 谷歌 | one
    用户喜欢喝茶 | user | 喜欢 | 喝茶 | several
    小明对花生过敏 | 小明 | 过敏 | 花生 | several
    用户更喜欢深色模式 | user | 偏好模式 | 深色模式 | one
    服务器端口是8080 | 服务器 | 端口 | 8080 | one
    会议时间改为周五 | 会议 | 时间 | 周五 | one
    微信由腾讯开发 | 微信 | 由开发 | 腾讯 | ?
"""

NOTHING = """
    Anna does not live in Graz
    Anna no longer lives in Graz
    Anna never lived in Graz
    Anna might live in Graz
    Anna may be married to Ben
    Anna would prefer dark mode
    Anna wants to live in Graz
    Anna also works for Acme
    Anna used to live in Graz
    If it rains, the venue is Hall B
    Does Anna live in Graz?
    Is Lima the capital of Peru?
    According to Ben the capital of Peru is Cusco
    Ben says Anna lives in Graz
    Perhaps the capital of Peru is Lima
    He lives in Graz
    Is Lima the capital of Peru
    Likes of Anna are rare
    Lives in Graz and works in Linz
    It is located in the city of Graz
    This is the capital of Peru
    Anna lives in this city
    Anna lives in Graz and works in Linz
    Anna lives in Graz. She works in Linz.
    Anna lives in Graz because of work
    Anna lives in Graz! She works in Linz
    The capital of Peru is beautiful
    The Hills of Rome is great
    My car is fast
    Anna is kind
    Hello Anna!
    Without insurance, the total is $299
    A linter is written in the language of Rust
    Run the tests before you push
    Note: call Ben
    小明不住在北京
    小明没有搬到上海
    他住在北京
    小明可能住在北京
    小明以前住在北京
    小明住在哪里？
    如果下雨，地点是大厅
    小明也喜欢茶
    أعيش في برلين
    私は東京に住んでいます
    👍
"""

_NUMBER = {"one": SINGLE, "several": MULTI, "?": UNKNOWN}
_ENGLISH_FRAMES = ("Perhaps {}", "{}?", "If {}", "Ben says {}", "{}\n{}", "Ben thinks that {}")
_CHINESE_FRAMES = ("可能{}", "{}吗？", "如果{}", "听说{}", "{}\n{}", "小刚认为{}")
_EVERYTHING = sorted({text for table in (SAME, CONTRARY, *OTHERS.values()) for pair in pairs(table) for text in pair})


def rows(table: str) -> list[str]:
    return [line for line in map(str.strip, table.splitlines()) if line]


@pytest.mark.parametrize("row", rows(FOUND))
def test_what_is_found(row: str) -> None:
    text, subject, predicate, value, number = row.split(" | ")
    slot = find(text, POLICY)
    assert slot is not None
    assert tuple(slot) == (subject, predicate, value, _NUMBER[number])


@pytest.mark.parametrize("text", rows(NOTHING))
def test_where_nothing_is_found(text: str) -> None:
    assert find(text, POLICY) is None


@given(st.sampled_from(_EVERYTHING), st.integers(0, 5))
def test_a_frame_that_takes_back_what_is_stated_leaves_no_slot(text: str, at: int) -> None:
    chinese = any("\u4e00" <= letter <= "\u9fff" for letter in text)
    frame = (_CHINESE_FRAMES if chinese else _ENGLISH_FRAMES)[at]
    assert find(frame.format(text, text), POLICY) is None


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
    | st.lists(st.sampled_from(" ".join(_EVERYTHING).split()), max_size=12).map(" ".join)
)
def test_what_is_found_is_canonical_and_never_empty(text: str) -> None:
    slot = find(text, POLICY)
    if slot is not None:
        assert slot.subject
        assert slot.predicate
        assert slot.value
        assert (slot.subject, slot.predicate, slot.value) == (
            subject_form(slot.subject),
            predicate_form(slot.predicate),
            value_form(slot.value),
        )


def test_long_claims_say_more_than_one_thing() -> None:
    text = "Anna lives in " + "x" * TEXT_CHARS_MAX
    assert find(text, POLICY) is None


def test_aliases_reach_what_is_found() -> None:
    policy = Policy(aliases={"NYC": "New York"})
    assert find("I live in NYC", policy) == find("I live in New York", policy)


def test_the_policy_names_what_has_one_value() -> None:
    policy = Policy(single_valued=("use",))
    for text, expected in (("Anna uses vim", SINGLE), ("Anna likes tea", MULTI)):
        slot = find(text, policy)
        assert slot is not None
        assert slot.cardinality is expected


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("birthday", SINGLE),
        ("livesIn", SINGLE),
        ("favourite_colour", SINGLE),
        ("favorite editor", SINGLE),
        ("default branch", SINGLE),
        ("首都", SINGLE),
        ("最喜欢的颜色", SINGLE),
        ("likes", MULTI),
        ("friend", MULTI),
        ("hobbies", MULTI),
        ("anything else", UNKNOWN),
        ("units", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_of_known_predicates_it_is_known_how_their_values_relate(predicate: str, expected: Cardinality) -> None:
    assert cardinality_of(predicate, POLICY) is expected


def test_a_policy_adds_to_what_has_one_value() -> None:
    assert cardinality_of("seat_number", Policy(single_valued=("seatNumber",))) is SINGLE
