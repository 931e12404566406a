"""Slots of Chinese claims."""

from __future__ import annotations

import re

from ..types import Cardinality
from ..vocabulary import words
from .shape import Found

_START = re.compile(r"^(?:目前|现在|如今|当前|据我所知|其实|另外)[, ]?")
# Negated, supposed, past, reported or asked; and what says more than one thing. Width is folded before.
_UNSURE = re.compile(
    r"[?;。!]|不(?!丹|列颠|来梅|莱)|没|未(?!来)|别(?!墅)|勿|并非|从不|如果|假如|要是|可能|也许|或许|大概|据说|听说|认为|觉得"
    r"|希望|打算|计划|曾|以前|过去|之前|原来|本来|除了|但是|但|而且|并且|因为|所以|虽然|还是|也(?!门)|还有|吗$|呢$|吧$|是否"
    r"|什么|哪|谁|几点|多少|怎么"
)
_SUBJECT = r"(?P<subject>[^,]{1,40}?)"
_ADVERB = r"(?:目前|现在|如今|当前|一直|通常|主要|已经|已)?"
_PRONOUN = re.compile(r"^(?:他|她|它|他们|她们|它们|这|那|这里|那里|这个|那个|此|其|大家|有人|人们)(?:的|$)|^(?:这|那)")

_PREFERS = "偏好"

_VERBS: tuple[tuple[str, str, Cardinality], ...] = (
    (r"(?:居住|住|定居|生活)(?:在|于)|搬(?:到|去)了?|移居(?:到)?", "住在", Cardinality.SINGLE),
    (r"出生(?:在|于)|生于", "出生于", Cardinality.SINGLE),
    (r"(?:去世|逝世|死|卒)(?:在|于)", "去世于", Cardinality.SINGLE),
    (r"毕业于|毕业自", "毕业于", Cardinality.UNKNOWN),
    (r"位于|坐落(?:在|于)|地处", "位于", Cardinality.SINGLE),
    (r"就职于|任职于|供职于|受雇于|就职在", "就职于", Cardinality.SINGLE),
    (r"成立于|创立于|创建于|建于|始建于", "成立于", Cardinality.SINGLE),
    (r"发行于|发布于|出版于", "发布于", Cardinality.SINGLE),
    (r"更喜欢|偏好|偏爱|倾向于|首选", _PREFERS, Cardinality.UNKNOWN),
    (r"喜欢|喜爱|热爱|爱好|爱吃|爱喝|爱看|爱听", "喜欢", Cardinality.MULTI),
    (r"讨厌|厌恶|反感", "讨厌", Cardinality.MULTI),
    (r"(?:会|能)?(?:说|讲)(?=\S*(?:语|话|文)$)", "会说", Cardinality.UNKNOWN),
    (r"信仰|信奉", "信仰", Cardinality.UNKNOWN),
    (r"使用|用的是|在用", "使用", Cardinality.UNKNOWN),
    (r"名叫|叫做|名为|叫", "名字", Cardinality.SINGLE),
    (r"嫁给了?|娶了", "配偶", Cardinality.SINGLE),
    (r"今年(?=[\d一二三四五六七八九十]+岁$)", "年龄", Cardinality.SINGLE),
    (r"属于", "属于", Cardinality.UNKNOWN),
    (r"担任|从事", "担任", Cardinality.UNKNOWN),
)
_VERB = tuple(
    (re.compile(rf"^{_SUBJECT}{_ADVERB}(?:{pattern})(?P<value>.+)$"), predicate, cardinality)
    for pattern, predicate, cardinality in _VERBS
)
_ROLE = r"(?P<role>[^,的是为在于]{1,16})"
_OF = re.compile(
    rf"^(?P<subject>[^,]{{1,40}}?)的(?P<role>[^,是为]{{1,24}}?){_ADVERB}(?:是|为|叫做|叫|改为了?|改成了?|变为了?|变成了?)(?P<value>.+)$"
)
_IS_OF = re.compile(rf"^(?P<value>[^,的]{{1,40}}?){_ADVERB}(?:是|为)(?P<subject>[^,]{{1,40}}?)的{_ROLE}$")
_MOST = re.compile(
    r"^(?P<subject>[^,]{1,40}?)最(?P<verb>喜欢|喜爱|爱|常用)的?(?P<role>[^,是为]{1,16}?)(?:是|为)(?P<value>.+)$"
)
_FROM = re.compile(rf"^{_SUBJECT}{_ADVERB}是(?P<value>[^,]{{1,24}}?)(?P<kind>人|公民|国籍)$")
_WORKS = re.compile(
    rf"^{_SUBJECT}{_ADVERB}在(?P<value>[^,]{{1,40}}?)(?P<verb>工作|上班|任职|上学|读书|学习|生活|居住)$"
)
_MADE = (
    "创立|创建|创办|成立|开发|研发|导演|执导|撰写|编写|写|著|翻译|发明|设计|制作|出版|演唱|主演|建造|发现|生产|制造"
    "|主持|负责|维护|管理"
)
_BY = re.compile(rf"^{_SUBJECT}(?:是)?(?:由|被)(?P<value>[^,]{{1,40}}?)(?P<verb>{_MADE})(?:的|了)?$")
_MADE_BY = re.compile(rf"^{_SUBJECT}是(?P<value>[^,的]{{1,40}}?)(?P<verb>{_MADE})的$")
_ALLERGIC = re.compile(rf"^{_SUBJECT}对(?P<value>[^,]{{1,40}}?)过敏$")
_MOVED = re.compile(rf"^{_SUBJECT}(?:改|推迟|提前|延期|调整)(?:到|至|为|成)了?(?P<value>.+)$")
_PROPERTY = (
    "时间|地点|日期|端口|密码|版本|地址|价格|名称|负责人|状态|电话|邮箱|语言|预算|期限|截止日期|域名|账号|数量|颜色|时区"
    "|生日|主题"
)
_COMPOUND = re.compile(rf"^{_SUBJECT}(?P<role>{_PROPERTY})(?:是|为|(?:改|变更|调整)(?:为|成|到)了?)(?P<value>[^,]+)$")
_LIKED_KIND = re.compile(r"(?:模式|主题|座位|座|格式|语言|编辑器|浏览器|系统|单位|风格|字体|酒店)$")
_MARRIED = re.compile(rf"^{_SUBJECT}(?:和|与|跟|同)(?P<value>[^,]{{1,40}}?)(?:结婚了?|结为夫妻|是夫妻)$")
_SEVERAL = words("""
    朋友 好友 孩子 儿子 女儿 兄弟 姐妹 哥哥 弟弟 姐姐 妹妹 爱好 兴趣 同事 同学 学生 宠物 成员 作品
    优点 缺点 特点 技能 例子
""")
_WORK = {"工作": "就职于", "上班": "就职于", "任职": "就职于", "生活": "住在", "居住": "住在"}


def chinese(text: str) -> Found | None:
    """Returns the parts of a claim, None where these rules are not sure of them."""
    plain = _START.sub("", text)
    if _UNSURE.search(plain):
        return None
    found = _match(plain)
    if found is None or _PRONOUN.match(found.subject) or not found.value.strip():
        return None
    return found


def _match(text: str) -> Found | None:
    if (most := _MOST.match(text)) is not None:
        return Found(most["subject"], f"最喜欢的{most['role']}", most["value"], Cardinality.SINGLE)
    if (married := _MARRIED.match(text)) is not None:
        return Found(married["subject"], "配偶", married["value"], Cardinality.SINGLE)
    if (works := _WORKS.match(text)) is not None:
        predicate = _WORK.get(works["verb"], "就读于")
        return Found(works["subject"], predicate, works["value"], Cardinality.SINGLE)
    if (of := _OF.match(text)) is not None and "的" not in of["value"]:
        cardinality = Cardinality.UNKNOWN if of["role"] in _SEVERAL else Cardinality.SINGLE
        return Found(of["subject"], of["role"], of["value"], cardinality)
    if (is_of := _IS_OF.match(text)) is not None:
        cardinality = Cardinality.UNKNOWN if is_of["role"] in _SEVERAL else Cardinality.SINGLE
        return Found(is_of["subject"], is_of["role"], is_of["value"], cardinality)
    if (by := _BY.match(text) or _MADE_BY.match(text)) is not None:
        return Found(by["subject"], f"由{by['verb']}", by["value"], Cardinality.UNKNOWN)
    if (allergic := _ALLERGIC.match(text)) is not None:
        return Found(allergic["subject"], "过敏", allergic["value"], Cardinality.MULTI)
    if (compound := _COMPOUND.match(text)) is not None and "的" not in compound["value"]:
        return Found(compound["subject"], compound["role"], compound["value"], Cardinality.SINGLE)
    if (moved := _MOVED.match(text)) is not None:
        return Found(moved["subject"], "时间", moved["value"], Cardinality.UNKNOWN)
    if (native := _FROM.match(text)) is not None:
        return Found(
            native["subject"], "国籍" if native["kind"] != "人" else "是 人", native["value"], Cardinality.UNKNOWN
        )
    for pattern, predicate, cardinality in _VERB:
        if (verb := pattern.match(text)) is not None:
            kind = _LIKED_KIND.search(verb["value"]) if predicate == _PREFERS else None
            if kind is not None:
                # Of preferences for one kind of thing, one holds.
                return Found(verb["subject"], f"{predicate}{kind.group()}", verb["value"], Cardinality.SINGLE)
            return Found(verb["subject"], predicate, verb["value"], cardinality)
    return None
