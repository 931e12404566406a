"""How people say in English what is worth remembering. The rules would rather miss than invent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .phrases import PROCEDURAL, Phrase, Said

VALUE_CHARS_MAX = 120
_NAME_WORDS_MAX = 5

_FILLER = re.compile(
    r"""^(?:(?:hi|hello|hey|oh|ah|well|also|and|but|so|ok(?:ay)?|yes|no|yeah|actually|anyway|by\sthe\sway|btw|fyi
    |for\sthe\srecord|just\sso\syou\sknow|please\snote(?:\sthat)?|note(?:\sthat)?|to\sbe\s(?:clear|honest)|honestly
    |thanks|thank\syou|in\sgeneral|generally|as\syou\sknow|personally|first|second(?:ly)?|finally)\b[,:!.]?\s+)+""",
    re.IGNORECASE | re.VERBOSE,
)
_CLAUSE = re.compile(r"\s*(?:;|,?\s+(?:and|but)|,)\s+(?=(?:i|i['’]m|my|we|our|call\sme)\b)", re.IGNORECASE)
_AGAIN = re.compile(
    r",?\s+and\s+(?=(?:live|work|prefer|love|like|hate|dislike|enjoy|speak|use|am\s(?:allergic|from|based))\b)",
    re.IGNORECASE,
)
_BECAUSE = re.compile(
    r",?\s+(?:because|since|so(?:\sthat)?|as\swell\sas|although|though|even|when|whenever|while|which|where|who|but)\b.*$"
    r"|\s+(?:now|nowadays|currently|these\sdays|right\snow|at\sthe\smoment|at\spresent|as\sof\s\w+)$|,?\s+(?:please|thanks|thank\syou|too|btw)$",
    re.IGNORECASE,
)
_NOT = re.compile(r"^(?:not|n['’]t|never|no\slonger|nothing|neither|nobody|none)\b", re.IGNORECASE)
_POINTING = re.compile(
    r"^(?:it|this|that|these|those|them|him|her|you|your|how|what|when|where|why|who|the\s(?:way|idea|sound|look)\b|to\ssee)\b",
    re.IGNORECASE,
)
_PASSING = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|now|currently|this\s(?:time|week|month|morning|one)|again|still|yet|a\s(?:bit|little|lot))\b",
    re.IGNORECASE,
)
_STATE = re.compile(
    r"^(?:at|in|on|to|from|with|about|for|like|very|too|so|really|quite|pretty|just|only|all|being|getting|going|\w+ing|\w+ed"
    r"|late|ready|broken|fine|good|bad|great|ok(?:ay)?|done|gone|down|up|wrong|right|slow|fast|empty|full|here|there|dead"
    r"|sick|ill|lost|missing|due|over|open|closed|the\s(?:same|following|one)|as\s.*)\b",
    re.IGNORECASE,
)
# What people have for long, and say in one way.
_LASTING = re.compile(
    r"""(?:(?:first|last|full|middle|nick|user|maiden|real|preferred|display)\s?)?name|nickname|pronouns?|birthday|birth\s?date
    |date\sof\sbirth|age|e-?mail(?:\saddress)?|(?:phone|telephone|mobile|account|passport|customer|employee)(?:\snumber)?
    |(?:home|work|postal|billing|shipping)?\s?address|zip\scode|postcode|time\s?zone|locale|native\slanguage|mother\stongue
    |language|nationality|religion|job(?:\stitle)?|occupation|profession|role|title|employer|company|team|department|manager
    |boss|school|university|major|degree|home\s?town|city|country|blood\stype|diet|height|weight|shoe\ssize|size
    |wife|husband|partner|girlfriend|boyfriend|fiancée?|mother|father|mom|mum|dad|brother|sister|son|daughter|best\sfriend
    |doctor|dentist|dog|cat|pet|car|phone|laptop|computer|editor|operating\ssystem|budget|goal|hobby
    |favou?rite\s[\w\s'-]{2,30}|preferred\s[\w\s'-]{2,30}""",
    re.IGNORECASE | re.VERBOSE,
)
_CAPITAL = re.compile(r"[A-Z0-9\"“]|[^\x00-\x7f]")
_LATER = re.compile(
    r"^(?:back|later|tomorrow|today|when|if|at|on|after|before|again|soon|now|anytime|by|a|an|the)\b", re.IGNORECASE
)
_MY = re.compile(
    r"^(?P<whose>my|our)\s(?P<what>[a-z][\w\s'’-]{1,40}?)\s(?:is|are|['’]s)\s(?P<value>.+)$", re.IGNORECASE
)
_DECISION = re.compile(
    r"^(?:we|i)(?:['’]ve|\shave)?\s(?:(?:just|finally|now|all|both)\s)?(?:decided|agreed|chose|chosen|settled|opted|committed)"
    r"\s(?:to|on|that|for|against|upon)\s(?P<value>.{3,})$|^(?:our|the|my)\s(?:final\s)?decision\sis\s(?P<other>.{3,})$",
    re.IGNORECASE,
)
_REMEMBER = re.compile(
    r"^(?:please\s|always\s|kindly\s)?(?:remember|keep\sin\smind|bear\sin\smind|don['’]t\sforget|do\snot\sforget|make\sa\snote"
    r"|take\snote|memori[sz]e)(?:\sof)?(?:\sthis)?\s?(?::|,|\bthat\b)?\s*(?P<value>.{3,})$",
    re.IGNORECASE,
)
_NO_MEMORY = re.compile(r"^(?:when|how|what|who|where|why|the\s(?:time|day)|to|me|us|him|her|them|it)\b", re.IGNORECASE)
_STANDING = re.compile(
    r"^(?:from\snow\son|going\sforward|in\s(?:the\s)?future)[,:]?\s(?P<value>.{3,})$"
    r"|^(?:always|never)\s(?P<other>(?!mind\b)[a-z]+\s.{2,})$",
    re.IGNORECASE,
)
_OFTEN = (
    r"(?:(?:really|always|usually|generally|normally|much|strongly|absolutely|mostly|mainly|personally|still|also|do)"
    r"\s){0,2}"
)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(f"^{text}$", re.IGNORECASE | re.VERBOSE)


def _plain(value: str) -> bool:
    return not _NOT.match(value) and len(value) <= VALUE_CHARS_MAX


def _thing(value: str) -> bool:
    return _plain(value) and not _POINTING.match(value) and not _PASSING.search(value)


def _named(value: str) -> bool:
    words = value.split()
    return (
        _plain(value)
        and len(words) <= _NAME_WORDS_MAX
        and _CAPITAL.match(value) is not None
        and not _LATER.match(value)
    )


def _kind(value: str) -> bool:
    return (
        _thing(value) and len(value.split()) <= _NAME_WORDS_MAX and not re.match(r"(?:fan|bit|little|lot|big)\b", value)
    )


def _phrase(
    pattern: str, predicate: str, template: str, accepts: Callable[[str], bool], importance: float = 0.7
) -> Phrase:
    return Phrase(_pattern(pattern), predicate, template, 0.9, importance, accepts)


_V = r"(?P<value>.+)"
_PHRASES = (
    _phrase(rf"(?:please\s)?call\sme\s{_V}", "nickname", "The user wants to be called {value}.", _named, 0.9),
    _phrase(rf"(?:i['’]m|i\sam)\scalled\s{_V}", "name", "The user's name is {value}.", _named, 0.9),
    _phrase(rf"i\sgo\sby\s{_V}", "nickname", "The user wants to be called {value}.", _named, 0.9),
    _phrase(
        rf"i(?:['’]m|\sam)?\s(?:now\s|currently\s)?(?:live|living|reside|residing|based|settled)\sin\s{_V}",
        "lives_in", "The user lives in {value}.", _named, 0.8,
    ),
    _phrase(
        rf"i(?:['’]ve|\shave)?\s(?:just\s|recently\s)?(?:moved|relocated)\sto\s{_V}",
        "lives_in", "The user lives in {value}.", _named, 0.8,
    ),
    _phrase(rf"(?:i['’]m|i\sam|i\scome)\s(?:originally\s)?from\s{_V}", "from", "The user is from {value}.", _named),
    _phrase(rf"i\swas\sborn\sin\s{_V}", "born_in", "The user was born in {value}.", _named),
    _phrase(rf"i\swas\sborn\son\s{_V}", "born_on", "The user was born on {value}.", _named),
    _phrase(rf"i\swork\sas\s(?:an?\s)?{_V}", "works_as", "The user works as {value}.", _kind),
    _phrase(rf"i\swork\s(?:at|for)\s{_V}", "works_at", "The user works at {value}.", _named),
    _phrase(
        rf"(?:i['’]m|i\sam)\s(?:severely\s|very\s|also\s)?allergic\sto\s{_V}",
        "allergic_to", "The user is allergic to {value}.", _thing, 0.9,
    ),
    _phrase(
        rf"i\s(?:can['’]t|cannot|don['’]t|do\snot|never)\seat\s{_V}",
        "does_not_eat", "The user does not eat {value}.", _thing, 0.8,
    ),
    _phrase(rf"i\s{_OFTEN}prefer\s{_V}", "", "The user prefers {value}.", _thing),
    _phrase(rf"i\s{_OFTEN}(?:love|like|enjoy|adore)\s{_V}", "likes", "The user likes {value}.", _thing),
    _phrase(rf"(?:i['’]m|i\sam)\s(?:a\s)?(?:big\s|huge\s)?fan\sof\s{_V}", "likes", "The user likes {value}.", _thing),
    _phrase(
        rf"i\s{_OFTEN}(?:hate|dislike|detest|can['’]t\sstand|cannot\sstand|don['’]t\s(?:really\s)?like|do\snot\s(?:really\s)?like)\s{_V}",
        "dislikes", "The user dislikes {value}.", _thing,
    ),
    _phrase(rf"i\s(?:always|usually|mainly|mostly)\suse\s{_V}", "uses", "The user uses {value}.", _thing, 0.6),
    _phrase(rf"i\s(?:can\s)?speak\s{_V}", "speaks", "The user speaks {value}.", _named),
    _phrase(rf"(?:i['’]m|i\sam)\san?\s{_V}", "", "The user is a {value}.", _kind),
)  # fmt: skip


def said(sentence: str) -> Iterator[Said]:
    """Yields what a statement in English claims."""
    sentence = _FILLER.sub("", sentence).strip()
    kept = _REMEMBER.match(sentence)
    if kept is not None and not _NO_MEMORY.match(kept["value"]):
        yield from _to_remember(kept["value"])
        return
    standing = _STANDING.match(sentence)
    if standing is not None:
        yield Said(sentence.rstrip(" ."), "", "", 0.9, 0.8, PROCEDURAL)
        return
    if (decision := _DECISION.match(sentence)) is not None and not _NOT.match(decision["value"] or decision["other"]):
        yield Said(sentence, "", "", 0.9, 0.8)
        return
    for clause in _clauses(sentence):
        found = _of_clause(clause)
        if found is not None:
            yield found


def _to_remember(value: str) -> Iterator[Said]:
    inner = list(said(value))
    if inner:
        yield from (found._replace(importance=max(found.importance, 0.9)) for found in inner)
    else:
        yield Said(value[:1].upper() + value[1:], "", "", 0.9, 0.9)


def _clauses(sentence: str) -> Iterator[str]:
    """Yields the clauses of a sentence that speak of their author, "and work at …" with the "I" that it lacks."""
    for part in _CLAUSE.split(sentence):
        first, *more = _AGAIN.split(part)
        yield _FILLER.sub("", first)
        if re.match(r"i\b", first, re.IGNORECASE):
            yield from (f"I {rest}" for rest in more)


def _of_clause(clause: str) -> Said | None:
    clause = _BECAUSE.sub("", clause.rstrip(" .!;,"))
    mine = _MY.match(clause)
    if mine is not None:
        return _attribute(mine["whose"], mine["what"], mine["value"].strip())
    for phrase in _PHRASES:
        found = phrase.read(clause)
        if found is not None:
            return found
    return None


def _attribute(whose: str, what: str, value: str) -> Said | None:
    what = " ".join(what.lower().split())
    lasting = _LASTING.fullmatch(what.rpartition("'s ")[2].rpartition("’s ")[2]) is not None
    if not _thing(value) or _STATE.match(value) or not (lasting or _CAPITAL.match(value)):
        return None
    sure = 0.9 if lasting else 0.75
    of = "The user's" if whose.lower() == "my" else "Our"
    predicate = what.replace(" ", "_") if whose.lower() == "my" else ""
    return Said(f"{of} {what} is {value}.", predicate, value, sure, 0.8 if lasting else 0.6)
