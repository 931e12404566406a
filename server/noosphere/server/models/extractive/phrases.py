"""By which words goals, decisions and open questions are known, in English and Chinese.

The rules would rather miss than invent: each looks at how a sentence begins, or for words that hardly mean anything
else. What they miss can still be in the narrative.
"""

from __future__ import annotations

import re

_FILLER = (
    r"^(?:(?:hi|hello|hey|also|and|then|now|ok|okay|so|next|first|finally|actually|well|great|thanks)\b[,!.:]?\s+)*"
)
_GOAL = re.compile(
    _FILLER
    + r"""(?:please|pls|can\syou|could\syou|would\syou|help\s(?:me|us)
    |(?:i|we)(?:\swould|['’]d)\slike|(?:i|we)\s(?:want|need|wish|must|have\sto)
    |(?:i\sam|i['’]m|we\sare|we['’]re)\s(?:looking|trying|planning|hoping)|let['’]?s
    |make\ssure|(?:my|our|the|your)\s(?:goal|task|aim|objective)|(?:goal|task|aim|objective)s?:
    |add|analy[sz]e|answer|book|build|calculate|cancel|change|check|compare|convert|create|debug|delete|deploy|describe
    |design|draft|explain|extend|find|fix|generate|implement|improve|investigate|list|migrate|move|optimi[sz]e|order|plan
    |prepare|refactor|remove|rename|replace|report|research|review|rewrite|run|schedule|search|send|show|solve|summari[sz]e
    |test|translate|update|upgrade|verify|write)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_GOAL_ZH = re.compile(
    r"^(?:你好[，,。]?)?(?:请|帮我|帮忙|麻烦|我想|我要|我需要|我希望|我打算|我们要|我们想|我们需要|需要你|希望你|能不能|能否|可不可以|可以帮|目标|任务)"
)
_DECISION = re.compile(
    r"""\b(?:(?:i|we|they|he|she|it)(?:['’]ve|\shave|\shas)?\s(?:\w+\s)?(?:decided|agreed|chose|settled)|decision:|decided:|agreed:|settled\son
    |let['’]?s\s(?:go\swith|use|keep|stick)|(?:i|we)(?:['’]ll|\swill|\sshall)\s(?:use|go\swith|keep|take|stick)
    |(?:was|is|are|were|been)\s(?:approved|rejected|chosen|agreed|decided|confirmed)|from\snow\son)\b
    |^(?:do\snot|don['’]t|never|always|only\suse)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_DECISION_ZH = re.compile(
    r"决定(?!吗)|商定|(?<!判)定为|改用|改为|确定用|确定为|一致同意|(?:我们?|双方|大家|那)(?:就|已经?|最终|最后)?(?:采用|选用|用)"
    r"|^(?:不要|禁止|必须|一律|以后都)"
)
_YES = re.compile(
    r"^(?:yes|yep|yeah|sure|ok(?:ay)?|agreed|confirmed|correct|go\sahead|do\s(?:it|that)|please\s(?:proceed|do|go\sahead)|proceed|sounds\sgood)\b"
    r"|^(?:是的|好的?|可以|行|同意|确认|没问题|没错|对的?)(?:[，。！,.!\s]|$)",
    re.IGNORECASE,
)
_NO = re.compile(
    r"^(?:no|nope|don['’]t|do\snot|stop|rather\snot)\b|^(?:不行|不用|不要|不可以|不同意|算了|不)(?:[，。！,.!\s]|$)",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\b(?:todo|tbd|to\sbe\s(?:decided|confirmed|done)|open\squestion|unclear|unresolved|undecided"
    r"|(?:not\s(?:yet\s)?(?:sure|clear|known|decided))|still\s(?:need|have|has)\sto)\b"
    r"|待定|待办|待确认|未解决|未确定|尚未|不清楚|还没(?:有)?(?:决定|确定|想好)|有待",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"[?？][”’」』）】\"')\]]*$")
_INTRODUCTION_OR_QUESTION = re.compile(r"[?？:：][”’」』）】\"')*]*$")


def is_goal(sentence: str) -> bool:
    """Returns whether a sentence asks for something to be done."""
    return bool(_GOAL.match(sentence) or _GOAL_ZH.match(sentence))


def is_decision(sentence: str) -> bool:
    """Returns whether a sentence settles something."""
    return not _INTRODUCTION_OR_QUESTION.search(sentence) and bool(
        _DECISION.search(sentence) or _DECISION_ZH.search(sentence)
    )


def is_question(sentence: str) -> bool:
    """Returns whether a sentence is a question."""
    return _QUESTION.search(sentence) is not None


def is_open(sentence: str) -> bool:
    """Returns whether a sentence says that something is not settled."""
    return _OPEN.search(sentence) is not None


def answer_of(sentence: str) -> str:
    """Returns ``agreed`` or ``declined`` if a sentence is a plain answer to what was asked, else nothing."""
    if _YES.match(sentence):
        return "agreed"
    return "declined" if _NO.match(sentence) else ""
