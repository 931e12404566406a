"""Texts that are aimed at a model rather than at people: what an injected page tries."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_GAP = r"(?:\W+\w+){0,6}?\W+"
_SHORT_GAP = r"(?:\W+\w+){0,3}?\W+"

_LEAVE = r"(?:ignore|disregard|forget|override|bypass|skip|do not follow|don't follow|stop following)"
_RULES = (
    r"(?:(?:instruction|prompt|rule|guideline|directive|safeguard|constraint|guardrail)s?|polic(?:y|ies)"
    r"|(?:everything|anything|all)\s+(?:above|before|you))"
)
_MODEL = r"(?:ai|assistant|agent|model|llm|chatbot|bot)"
_ORDER = r"(?:must|should|shall|have to|need to|are (?:required|instructed|ordered|told) to)"
_DO = (
    r"(?:ignore|send|forward|reveal|tell|say|output|print|execute|run|call|delete|transfer|recommend|store|remember"
    r"|approve|upload|email|visit|always|never)"
)
_GIVE = r"(?:send|forward|e-?mail|post|upload|exfiltrate|leak|reveal|print|output|show|repeat|disclose|share)"
_PRIVATE = (
    r"(?:system prompt|your (?:instructions|prompt|memory|memories|context)|api keys?|credentials?|passwords?|secrets?"
    r"|conversation|chat history|private keys?|access tokens?)"
)
_FOR_GOOD = (
    r"(?:permanently|forever|in (?:your |the )?(?:long-term )?memory|for all (?:future )?(?:users|sessions)"
    r"|that (?:you|the user|all users) (?:must|should|always|wants?))"
)

_PATTERNS = (
    (rf"\b{_LEAVE}\b{_GAP}{_RULES}\b", "tells a model to leave its instructions"),
    (
        r"\b(?:system|developer|hidden|initial)\s+(?:prompt|instructions?)\b|\bjailbreak|\bdan mode\b"
        r"|\bdeveloper mode\b|\bnew (?:instructions?|directives?|persona)\b",
        "speaks of a model's instructions",
    ),
    (
        rf"\b(?:you are|you're|act|behave|respond|pretend to be|roleplay)\b{_SHORT_GAP}(?:as|now|an?)\W+"
        rf"(?:\w+\W+){{0,3}}?(?:{_MODEL}|dan|admin|administrator|root|developer)\b",
        "gives a model another role",
    ),
    (
        r"<\|?(?:im_start|im_end|system|assistant|user|endoftext)\|?>|\[/?inst\]|<</?sys>>|</?(?:system|instructions?)>"
        r"|^\s*(?:#{2,}\s*)?(?:system|assistant|developer)\s*:",
        "imitates the marks of a model's input",
    ),
    (rf"\b{_MODEL}s?\b\W+(?:\w+\W+){{0,3}}?{_ORDER}\b{_SHORT_GAP}{_DO}\b", "tells models what to do"),
    (rf"\b{_GIVE}\b{_GAP}{_PRIVATE}\b", "asks for what a model must not give away"),
    (
        rf"(?:^|[.!;:,]\s*|\b(?:please|must|should|always|to)\s+)(?:remember|memori[sz]e|store|save|note)\b{_SHORT_GAP}{_FOR_GOOD}\b",
        "tells a model what to remember",
    ),
    (
        r"\b(?:do not|don't|never|without)\s+(?:tell|inform|mention|alert|notify|ask)(?:ing)?\s+"
        r"(?:(?:it|this)\s+to\s+)?the\s+(?:user|human|owner)",
        "asks to keep something from the user",
    ),
    (
        r"(?:忽略|无视|忘记|忘掉|不要遵守|不要理会|绕过|跳过).{0,12}(?:指令|提示|规则|要求|限制|设定)"
        r"|系统提示词|(?:你现在是|从现在开始你是|扮演).{0,12}(?:助手|模型|管理员|机器人|ai)"
        r"|(?:不要|别|勿)(?:告诉|通知|提醒|询问)用户|(?:发送|泄露|透露|输出|告诉我).{0,10}(?:密码|密钥|系统提示|凭证|令牌)",
        "gives a model instructions",
    ),
    (
        r"\bignor(?:iere|ez|a|e)\b.{0,40}\b(?:anweisungen|instructions|instrucciones|istruzioni|instruções)\b"
        r"|(?:игнорируй|забудь|не следуй).{0,40}(?:инструкци|указани|правил)"
        r"|(?:تجاهل|انس).{0,40}(?:التعليمات|الأوامر)"
        r"|(?:無視|忘れ).{0,12}(?:指示|命令|プロンプト)|(?:指示|命令|プロンプト).{0,8}(?:無視|忘れ)|(?:지시|명령).{0,8}무시",
        "tells a model to leave its instructions",
    ),
)
_COMPILED = tuple((re.compile(pattern, re.MULTILINE), what) for pattern, what in _PATTERNS)


def instructions(text: str) -> Iterator[str]:
    """Yields what a text does that only makes sense towards a model, each as the end of "It …"."""
    plain = _without_disguise(text)
    for pattern, what in _COMPILED:
        if pattern.search(plain):
            yield what


def _without_disguise(text: str) -> str:
    """Returns a text as a model reads it: characters without width between its letters hide nothing."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return "".join(one for one in folded if one.isspace() or unicodedata.category(one) not in ("Cc", "Cf"))
