"""How people say in Chinese what is worth remembering. The rules would rather miss than invent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .phrases import PROCEDURAL, Phrase, Said

VALUE_CHARS_MAX = 40

_FILLER = re.compile(
    r"^(?:你好|您好|嗨|另外|还有|而且|其实|对了|顺便说一下|顺便|好的?|是的|嗯|哦|那么?|不过|但是?)[，,、！!。：:\s]*"
)
_CLAUSE = re.compile(r"[，,；;、]\s*(?=(?:而且|并且|还有|但是?|不过|也)?(?:我|请?叫我|我们))")
_LEADING = re.compile(r"^(?:而且|并且|还有|但是?|不过|也)")
_BECAUSE = re.compile(r"[，,；;]?\s*(?:因为|所以|但是?|不过|虽然).*$")
_NOT = re.compile(r"^(?:不|没|别|无)")
_POINTING = re.compile(r"[我你您这那它他她谁]")
_PASSING = re.compile(r"今天|现在|目前|刚刚|刚才|明天|昨天|这次|正在|有点|了$")
_STATE = re.compile(r"^(?:在|从|到|对的|错的|好的|坏的|新的|旧的|因为|一样|这样)")
_MY = re.compile(r"^我(?P<plural>们)?(?:的)?(?P<what>[^\s，,。是叫为不没]{1,10})(?:是|叫|为)(?P<value>.+)$")
_DECISION = re.compile(
    r"^(?:我们?|大家|团队|项目组)(?:已经|最终|最后|现在|都|一致)*(?:决定|商定|同意|选定|确定)(?:了|采用|用|使用)?[，,：:]?(?P<value>.{2,})$"
)
_REMEMBER = re.compile(
    r"^(?:请|麻烦|帮我|你要|一定要)*(?:记住|记得|记下来?|记一下|别忘了?|不要忘记?)(?:这一?点)?[，,：:\s]*(?P<value>.{2,})$"
)
_STANDING = re.compile(
    r"^(?:请)?(?:以后|今后|从现在(?:开始|起)|从今以后)(?:都|请)*[，,]?.{2,}$|^(?:请)?(?:永远|总是|始终|一律)(?:不要|别|用|使用|请)?.{2,}$"
)
_OFTEN = r"(?:真的?|一直|通常|一般|平时|特别|非常|很|最|比较|更|也|还是|就|都){0,3}"


def _thing(value: str) -> bool:
    return (
        len(value) <= VALUE_CHARS_MAX
        and not _NOT.match(value)
        and _POINTING.search(value) is None
        and _PASSING.search(value) is None
    )


def _phrase(
    pattern: str, predicate: str, template: str, importance: float = 0.7, accepts: Callable[[str], bool] = _thing
) -> Phrase:
    return Phrase(re.compile(f"^{pattern}$"), predicate, template, 0.9, importance, accepts)


_V = "(?P<value>.+)"
_PHRASES = (
    _phrase(
        "(?:请|你?可以)?(?:叫|称呼)我(?P<value>.+?)(?:吧|就好|就行|即可)?",
        "称呼", "用户希望被称呼为{value}。", 0.9,
    ),
    _phrase(f"我(?:名)?叫(?:做)?{_V}", "名字", "用户的名字是{value}。", 0.9),
    _phrase(f"我(?:现在|目前|一直)?(?:住|居住|定居)在{_V}", "住在", "用户住在{value}。", 0.8),
    _phrase(f"我(?:刚|已经|最近)?搬到了?{_V}", "住在", "用户住在{value}。", 0.8),
    _phrase("我(?:来自|是从)(?P<value>.+?)(?:来的)?", "来自", "用户来自{value}。"),
    _phrase("我(?:现在|目前)?在(?P<value>.+?)(?:工作|上班|任职)", "就职于", "用户在{value}工作。"),
    _phrase("我对(?P<value>.+?)(?:严重)?过敏", "过敏", "用户对{value}过敏。", 0.9),
    _phrase(f"我(?:从来)?不(?:能)?吃{_V}", "不吃", "用户不吃{value}。", 0.8),
    _phrase(f"我{_OFTEN}(?:偏好|偏爱|更喜欢|倾向于){_V}", "", "用户更喜欢{value}。"),
    _phrase(f"我{_OFTEN}(?:不(?:太|是很)?喜欢|讨厌|厌恶|受不了){_V}", "讨厌", "用户不喜欢{value}。"),
    _phrase(f"我{_OFTEN}(?:喜欢|喜爱|热爱|爱吃|爱喝){_V}", "喜欢", "用户喜欢{value}。"),
    _phrase(f"我(?:会说|会讲){_V}", "会说", "用户会说{value}。"),
    _phrase("我是(?:一[名个位])(?P<value>.+)", "", "用户是{value}。"),
)  # fmt: skip


def said(sentence: str) -> Iterator[Said]:
    """Yields what a statement in Chinese claims."""
    sentence = _FILLER.sub("", sentence).strip()
    kept = _REMEMBER.match(sentence)
    if kept is not None:
        yield from _to_remember(kept["value"])
        return
    if _STANDING.match(sentence):
        yield Said(sentence, "", "", 0.9, 0.8, PROCEDURAL)
        return
    if (decision := _DECISION.match(sentence)) is not None and not _NOT.match(decision["value"]):
        yield Said(sentence, "", "", 0.9, 0.8)
        return
    for clause in _CLAUSE.split(sentence):
        found = _of_clause(_LEADING.sub("", clause))
        if found is not None:
            yield found


def _to_remember(value: str) -> Iterator[Said]:
    inner = list(said(value))
    if inner:
        yield from (found._replace(importance=max(found.importance, 0.9)) for found in inner)
    else:
        yield Said(value, "", "", 0.9, 0.9)


def _of_clause(clause: str) -> Said | None:
    clause = _BECAUSE.sub("", clause.rstrip(" 。！!.，,；;"))
    for phrase in _PHRASES:
        found = phrase.read(clause)
        if found is not None:
            return found
    mine = _MY.match(clause)
    if mine is None or "的" not in clause[: mine.end("what")]:
        return None
    value = mine["value"].strip()
    if not _thing(value) or _STATE.match(value):
        return None
    what = mine["what"].removeprefix("的")
    if mine["plural"]:
        return Said(f"我们的{what}是{value}。", "", "", 0.85, 0.7)
    return Said(f"用户的{what}是{value}。", what, value, 0.85, 0.7)
