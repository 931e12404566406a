"""Canonical subjects, predicates and values, and which predicates have one value at a time."""

from __future__ import annotations

import re
from functools import lru_cache

from ..types import Cardinality, Policy
from ..vocabulary import phrases, words
from ..wording import comparable, folded, unquoted

USER = "user"
"""The subject of claims that their owner makes about themselves."""

_USER = phrases("""
    i|me|my|mine|myself|user|users|the user|this user|current user|the current user
    |我|我的|本人|用户|该用户|用户本人|使用者
""")
_ARTICLE = re.compile(r"^(?:the|an?) (?=\S)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATORS = re.compile(r"[\s_/.:-]+")
_OWN = re.compile(r"'s$")

_SPELLINGS = {
    "favorite": "favourite", "fav": "favourite", "fave": "favourite", "color": "colour", "flavor": "flavour",
    "neighbor": "neighbour", "organisation": "organization", "mom": "mother", "mum": "mother", "dad": "father",
    "mobile": "phone", "telephone": "phone", "mail": "email", "lives": "live", "resides": "live", "reside": "live",
    "living": "live", "residing": "live", "works": "work", "working": "work", "prefers": "prefer", "likes": "like",
    "uses": "use", "has": "have", "speaks": "speak", "plays": "play", "owns": "own", "ceo": "chief executive officer",
    "cto": "chief technology officer", "cfo": "chief financial officer", "dob": "date of birth",
}  # fmt: skip
_PHRASES = {
    "birth date": "date of birth", "birthdate": "date of birth", "birthday": "date of birth",
    "birth place": "place of birth", "birthplace": "place of birth", "work at": "work for", "employer": "work for",
    "work for company": "work for", "employed by": "employed by", "e mail": "email", "email address": "email",
    "e mail address": "email", "phone number": "phone", "time zone": "timezone", "spouse": "married to",
    "headquartered in": "based in", "home city": "live in", "residence": "live in",
    "city of residence": "live in", "full name": "name",
    "住": "住在", "居住在": "住在", "居住于": "住在", "住于": "住在",
}  # fmt: skip

_SINGLE = phrases("""
    age|date of birth|place of birth|born in|born in city|born in country|born in time|born on|born on time|died in
    |died in city|died in country|died in time|died on|name|first name|last name|surname|nickname|gender|pronouns
    |live in|live in city|live in country|address|work for|employed by|work as|job|job title|profession|occupation|role
    |manager|reports to|report to|married to|wife|husband|partner|marital status|email|phone|timezone|locale|nationality
    |native language|mother tongue|capital|headquarters|located in|located in city|located in country
    |located in continent|based in|based in city|chief executive officer|chief technology officer
    |chief financial officer|president|prime minister|chairperson|chairman|head of state|head of government|mayor
    |king|queen|official language|currency|population|founded in|founded in city|founded in country|founded in time
    |created in|created in country|created in time|founded on|written in|written in language|written by|built in
    |built in time|invented by|invented in|discovered by|discovered in|directed by|released in|released in time
    |released on|published in|published in time|published on|author|director|creator|composer|height|weight|size|colour
    |status|state|version|priority|deadline|due date|start date|end date|budget|price|cost|port|host|url|owner|license
    |licence|branch|database|editor|theme|mode|password|salary|birth name|blood type|mother|father
    |年龄|生日|名字|姓名|首都|总部|住在|职业|工作|国籍|电话|邮箱|地址|时区|出生地|母语|公司|妻子|丈夫|配偶|版本|状态|价格|截止日期|出生于|就职于|位于|任职于
""")  # fmt: skip
_SEVERAL = phrases("""
    like|love|hate|dislike|enjoy|avoid|know|speak|visit|own|have|friend|colleague|pet|child|children|son|daughter|sibling
    |brother|sister|hobby|interest|skill|language|allergy|allergic to|tag|label|member|member of|belong to|project|want
    |need|read|watch|buy|play|attend|meet|contain|include|ingredient|feature|depend on|dependency|related to|note|event
    |know about|mention|follow|support|use|friends|colleagues|pets|siblings|brothers|sisters|hobbies|interests|skills
    |languages|allergies|tags|labels|members|projects|ingredients|features|dependencies|notes|events|visited|bought
    |watched|played|attended|met
    |喜欢|讨厌|会说|朋友|同事|宠物|孩子|兄弟|姐妹|爱好|兴趣|技能|语言|过敏|标签|成员|项目|拥有|去过|认识|包含|依赖
""")  # fmt: skip
_SINGLE_FIRST = words(
    "favourite preferred default current main primary native official latest 最喜欢的 首选 默认 当前 主要"
)


def subject_form(text: str) -> str:
    """Returns a subject for comparison; whoever speaks of themselves is ``user``."""
    plain = _bare(text)
    # "my mother's" is about her.
    while (owned := _OWN.sub("", plain)) != plain:
        plain = _bare(owned)
    return USER if plain in _USER else plain


def value_form(text: str) -> str:
    """Returns a value for comparison: without articles, quotes and letter case, measures in one form."""
    return _bare(text)


def _bare(text: str) -> str:
    """Takes off what stands around a name until nothing does, so that doing it twice changes nothing."""
    plain = comparable(text) if text.strip() else ""
    while plain and (bare := _ARTICLE.sub("", unquoted(plain))) != plain:
        plain = comparable(bare)
    return plain


def predicate_form(text: str) -> str:
    """Returns a predicate for comparison: ``livesIn``, ``lives_in`` and ``is living in`` are one."""
    return _predicate(text) if text else ""


@lru_cache(4_096)
def _predicate(text: str) -> str:
    words = [_SPELLINGS.get(word, word) for word in _SEPARATORS.split(folded(_CAMEL.sub(" ", text))) if word]
    while len(words) > 1 and words[0] in ("is", "are", "am", "be", "the", "a", "an", "have"):
        words = words[1:]
    plain = " ".join(words)
    return _PHRASES.get(plain, plain)


def cardinality_of(predicate: str, policy: Policy) -> Cardinality:
    """Returns how the values of a predicate relate, as far as that is known; else UNKNOWN, and both values are kept.

    Args:
        predicate: in any form; empty is UNKNOWN.
        policy: names further ones that have one value.
    """
    form = predicate_form(predicate)
    if not form:
        return Cardinality.UNKNOWN
    if usually_single(form) or named_single(form, policy):
        return Cardinality.SINGLE
    return Cardinality.MULTI if form in _SEVERAL else Cardinality.UNKNOWN


def named_single(form: str, policy: Policy) -> bool:
    """Tells whether the policy says that a predicate, as ``predicate_form`` gives it, has one value at a time."""
    return form in map(predicate_form, policy.single_valued)


def usually_single(form: str) -> bool:
    """Tells whether a predicate, as ``predicate_form`` gives it, is known to have one value at a time."""
    return form in _SINGLE or form.split(" ", 1)[0] in _SINGLE_FIRST or form.startswith("最喜欢的")
