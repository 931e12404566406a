"""Which sentences of a text its author states: no questions, nothing quoted or supposed, no material of a task."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..extractive.sentences import SENTENCE_CHARS_MAX, sentence_spans

SENTENCES_MAX = 500
"""So many sentences of one text are looked at."""

_CLOSING = {"“": "”", "「": "」", "『": "』", "«": "»", "„": "“", "《": "》", "‘": "’", '"': '"', "'": "'"}
_MARK = re.compile(r"[“”「」『』«»„《》‘’\"']|\n\s*\n")
_STRAIGHT = "\"'"
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_CITED_LINE = re.compile(r"^\s*>")
_QUESTION = re.compile(
    r"[?？]\s*[”’」』）】\"')\]]*\s*$|(?:吗|呢|么)[。！!.…\s]*$|什么|为何|怎么|怎样|多少|哪[里儿个些位天年]|谁|是不是|是否"
)
_DOUBT = re.compile(
    r"""\b(?:if|unless|whether|would|could|might|(?-i:may)|maybe|perhaps|probably|possibly|wish|were\sto|guess|wonder
    |not\ssure|think\s(?:so|about)|hypothetical(?:ly)?|for\s(?:example|instance)|e\.g\.|as\sthough)\b
    |如果|要是|假如|假设|假使|倘若|可能|也许|或许|大概|万一|的话|比如|例如|好像|似乎|不确定""",
    re.IGNORECASE | re.VERBOSE,
)
# What follows these is told by somebody who is not the author, or is material for a task.
_FICTION = re.compile(
    r"""\b(?:imagine|pretend|suppose|let['’]s\s(?:say|assume|pretend)|role-?\s?play|act\sas|you\sare\s(?:now\s)?an?
    |play\sthe\s(?:role|part)|in\s(?:this|the)\s(?:story|scenario|novel|game)|once\supon\sa\stime|hypothetically)\b
    |^(?:(?:please|now|then|also|ok(?:ay)?|hi|hello|hey)[,!.]?\s+)*
    (?:(?:can|could|would|will)\syou\s(?:please\s)?|help\sme\s(?:to\s)?|i\s(?:want|need)\syou\sto\s)?
    (?:assume|write|draft|compose|translate|proofread|rewrite|rephrase|summari[sz]e|correct|paraphrase|continue|complete
    |classify|label|annotate|extract|analy[sz]e|review|edit|fix|improve)\b
    |想象|假装|扮演|(?:^|请|帮我|把|将).{0,8}(?:翻译|改写|润色|续写|总结|分析|修改)|写一[篇封首段个]""",
    re.IGNORECASE | re.VERBOSE,
)
# A quotation within a sentence may be a name, but not what somebody says of themselves.
_SPEECH = re.compile(r"\b(?:i|i['’]m|my|me|we|our|remember|always|never)\b|[,，;；]|我", re.IGNORECASE)
_COLON = re.compile(r"[:：]\s*$")
_OWN_LIST = re.compile(
    r"\b(?:remember|note|keep\sin\smind|about\sme|my\spreferences|for\sthe\srecord)\b|记住|记一下|关于我|我的(?:情况|偏好|信息)",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^(?:[-*•#]+|\d{1,3}[.)、])\s+")
_HEADER = re.compile(r"^\s*(?:from|to|subject|sent|date|发件人|收件人|主题)\s*[:：]", re.IGNORECASE)


class Statement(NamedTuple):
    """A sentence that its author states.

    Attributes:
        text: the sentence without line breaks, bullets and blanks around.
        quote: the same, literally as it stands in the source.
    """

    text: str
    quote: str


def statements(text: str) -> Iterator[Statement]:
    """Yields the statements of a text in order.

    It would rather miss than invent: what follows a task such as "translate", or a colon that does not introduce a list
    of one's own, is taken for material.
    """
    shut = _foreign(text)
    for count, (start, end) in enumerate(sentence_spans(text)):
        if count >= SENTENCES_MAX:
            return
        quote = text[start:end].strip()
        if not quote:
            continue
        begin = start + text[start:end].index(quote[0])
        sentence = _BULLET.sub("", " ".join(quote.split()))
        if any(low <= begin < high for low, high in shut):
            continue
        if any(
            _SPEECH.search(text[max(low, start) : min(high, end)]) for low, high in shut if low < end and high > start
        ):
            continue
        if _HEADER.match(sentence) or _FICTION.search(sentence):
            return
        if _COLON.search(sentence):
            if not _OWN_LIST.search(sentence):
                return
            continue
        if len(sentence) > SENTENCE_CHARS_MAX or _QUESTION.search(sentence) or _DOUBT.search(sentence):
            continue
        yield Statement(sentence, quote)


def _foreign(text: str) -> list[tuple[int, int]]:
    """Returns the spans of a text that are quoted, cited or code."""
    spans = _quoted(text)
    at = 0
    fence = -1
    for line in text.splitlines(keepends=True):
        if _FENCE.match(line):
            if fence < 0:
                fence = at
            else:
                spans.append((fence, at + len(line)))
                fence = -1
        elif _CITED_LINE.match(line):
            spans.append((at, at + len(line)))
        at += len(line)
    if fence >= 0:
        spans.append((fence, len(text)))
    return spans


def _quoted(text: str) -> list[tuple[int, int]]:
    """Returns the quotations of a text. One in straight marks that is not closed goes on to the paragraph's end."""
    spans: list[tuple[int, int]] = []
    opened, closing = -1, ""
    for match in _MARK.finditer(text):
        at, mark = match.start(), match.group()
        if opened < 0:
            if mark in _CLOSING and (mark != "'" or _opens(text, at)):
                opened, closing = at, _CLOSING[mark]
        elif mark == closing and (mark not in "'’" or not _inside(text, at)):
            spans.append((opened, at + 1))
            opened = -1
        elif mark[0] == "\n" and closing in _STRAIGHT:
            spans.append((opened, at))
            opened = -1
    if opened >= 0:
        spans.append((opened, len(text)))
    return spans


def _opens(text: str, at: int) -> bool:
    """Returns whether a straight single mark opens a quotation, and is no apostrophe."""
    before = text[at - 1 : at]
    return (not before or before.isspace() or before in "(:,") and text[at + 1 : at + 2].isalpha()


def _inside(text: str, at: int) -> bool:
    """Returns whether a mark stands within a word."""
    return text[at - 1 : at].isalnum() and text[at + 1 : at + 2].isalnum()
