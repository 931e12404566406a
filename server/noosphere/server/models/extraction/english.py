"""How people say in English what is worth remembering. The rules would rather miss than invent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .english_values import (
    ended,
    is_attribute_value,
    is_denial,
    is_kind,
    is_lasting,
    is_liking,
    is_name,
    is_thing,
    of_the_user,
    points,
)
from .phrases import PROCEDURAL, Phrase, Said

_FILLER = re.compile(
    r"""^(?:(?:hi|hello|hey|oh|ah|well|also|and|but|so|ok(?:ay)?|yes|no|yeah|actually|anyway|by\sthe\sway|btw|fyi
    |for\sthe\srecord|just\sso\syou\sknow|please\snote(?:\sthat)?|note(?:\sthat)?|to\sbe\s(?:clear|honest)|honestly
    |thanks|thank\syou|in\sgeneral|generally|as\syou\sknow|personally|first|second(?:ly)?|finally)\b[,:!.]?\s+)+""",
    re.IGNORECASE | re.VERBOSE,
)
_CLAUSE = re.compile(r"\s*(?:;|,?\s+(?:and|but)|,)\s+(?=(?:i|i['’]m|my|we|our|call\sme)\b)", re.IGNORECASE)
_AGAIN = re.compile(
    r",?\s+and\s+(?=(?:live\sin|work\s(?:at|for|as)|prefer|speak|am\s(?:allergic|from|based))\b)", re.IGNORECASE
)
_MY = re.compile(
    r"^(?P<whose>my|our)\s(?P<what>[a-z][\w\s'’-]{1,40}?)\s(?:is|are|['’]s)\s(?P<value>.+)$", re.IGNORECASE
)
_DECISION = re.compile(
    r"^(?:we|i)(?:['’]ve|\shave)?\s(?:(?:just|finally|now|all|both)\s)?(?:decided|agreed|settled|opted|committed)"
    r"\s(?:to|on|that|for|against|upon)\s(?P<value>.{3,})$|^(?:our|the|my)\s(?:final\s)?decision\sis\s(?P<other>.{3,})$",
    re.IGNORECASE,
)
_REMEMBER = re.compile(
    r"^(?:please\s|always\s|kindly\s)?(?:remember|keep\sin\smind|bear\sin\smind|don['’]t\sforget|do\snot\sforget|make\sa\snote"
    r"|take\snote|memori[sz]e)(?:\sof)?(?:\sthis)?(?P<said>\s?:|,?\sthat\b)?,?\s*(?P<value>.{3,})$",
    re.IGNORECASE,
)
_NO_MEMORY = re.compile(r"^(?:when|how|what|who|where|why|the\s(?:time|day)|to|me|us|him|her|them|it)\b", re.IGNORECASE)
# "Always" and "never" also begin what people say to cheer each other up; these verbs are about work.
_STANDING = re.compile(
    r"""^(?:from\snow\son|going\sforward)[,:]?\s.{3,}$
    |^(?:please\s)?(?:always|never)\s(?:add|address|answer|apologi[sz]e|ask|avoid|begin|book|call|check|choose|cite|commit
    |confirm|convert|copy|create|delete|deploy|edit|email|end|explain|format|give(?!\sup)|greet|include|install|keep|list|mention
    |merge|notify|order|pick|prefer|push|put|quote|refer|reply|respond|round|run|save|schedule|send|show|sign|sort|speak
    |start|suggest|summari[sz]e|tell\sme|test|translate|use|verify|write)\b.{3,}$""",
    re.IGNORECASE | re.VERBOSE,
)
_OFTEN = (
    r"(?:(?:really|always|usually|generally|normally|much|strongly|absolutely|mostly|mainly|personally|still|also|do)"
    r"\s){0,2}"
)
_I_AM = r"(?:i['’]m|i\sam)"
_V = r"(?P<value>.+)"


def _phrase(
    pattern: str, predicate: str, template: str, accepts: Callable[[str], bool], importance: float = 0.7
) -> Phrase:
    compiled = re.compile(f"^{pattern}$", re.IGNORECASE | re.VERBOSE)
    return Phrase(compiled, predicate, template, 0.9, importance, accepts)


_PHRASES = (
    _phrase(rf"(?:please\s)?call\sme\s{_V}", "nickname", "The user wants to be called {value}.", is_name, 0.9),
    _phrase(rf"{_I_AM}\scalled\s{_V}", "name", "The user's name is {value}.", is_name, 0.9),
    _phrase(rf"i\sgo\sby\s{_V}", "nickname", "The user wants to be called {value}.", is_name, 0.9),
    _phrase(
        rf"i(?:['’]m|\sam)?\s(?:now\s|currently\s)?(?:live|living|reside|residing|based|settled)\sin\s{_V}",
        "lives_in", "The user lives in {value}.", is_name, 0.8,
    ),
    _phrase(
        rf"i(?:['’]ve|\shave)?\s(?:just\s|recently\s)?(?:moved|relocated)\sto\s{_V}",
        "lives_in", "The user lives in {value}.", is_name, 0.8,
    ),
    _phrase(rf"(?:{_I_AM}|i\scome)\s(?:originally\s)?from\s{_V}", "from", "The user is from {value}.", is_name),
    _phrase(rf"i\swas\sborn\sin\s{_V}", "born_in", "The user was born in {value}.", is_name),
    _phrase(rf"i\swas\sborn\son\s{_V}", "born_on", "The user was born on {value}.", is_name),
    _phrase(r"i\swork\sas\s(?P<value>an?\s.+)", "works_as", "The user works as {value}.", is_kind),
    _phrase(rf"i\swork\s(?:at|for)\s{_V}", "works_at", "The user works at {value}.", is_name),
    _phrase(
        rf"{_I_AM}\s(?:severely\s|very\s|also\s)?allergic\sto\s{_V}",
        "allergic_to", "The user is allergic to {value}.", is_liking, 0.9,
    ),
    _phrase(
        rf"i\s(?:can['’]t|cannot|don['’]t|do\snot|never)\seat\s{_V}",
        "does_not_eat", "The user does not eat {value}.", is_liking, 0.8,
    ),
    _phrase(rf"i\s{_OFTEN}prefer\s{_V}", "", "The user prefers {value}.", is_thing),
    _phrase(rf"i\s{_OFTEN}(?:love|like|enjoy|adore)\s{_V}", "like", "The user likes {value}.", is_liking),
    _phrase(rf"{_I_AM}\s(?:a\s)?(?:big\s|huge\s)?fan\sof\s{_V}", "like", "The user likes {value}.", is_liking),
    _phrase(
        rf"i\s{_OFTEN}(?:hate|dislike|detest|can['’]t\sstand|cannot\sstand|(?:don['’]t|do\snot)\s(?:really\s)?like)\s{_V}",
        "dislike", "The user dislikes {value}.", is_liking,
    ),
    _phrase(rf"i\s(?:always|usually|mainly|mostly)\suse\s{_V}", "uses", "The user uses {value}.", is_liking, 0.6),
    _phrase(rf"i\s(?:can\s)?speak\s{_V}", "speaks", "The user speaks {value}.", is_name),
    _phrase(rf"{_I_AM}\s(?P<value>an?\s.+)", "", "The user is {value}.", is_kind),
)  # fmt: skip


def said(sentence: str) -> Iterator[Said]:
    """Yields what a statement in English claims."""
    sentence = _FILLER.sub("", sentence).strip()
    kept = _REMEMBER.match(sentence)
    if kept is not None and not _NO_MEMORY.match(kept["value"]):
        yield from _to_remember(kept["value"], certain=kept["said"] is not None)
    elif _STANDING.match(sentence):
        yield Said(sentence.rstrip(" ."), "", "", 0.9, 0.8, PROCEDURAL)
    elif (decision := _DECISION.match(sentence)) is not None:
        value = decision["value"] or decision["other"]
        if not is_denial(value) and not points(value):
            yield Said(sentence, "", "", 0.9, 0.8)
    else:
        for clause in _clauses(sentence):
            found = _of_clause(clause)
            if found is not None:
                yield found


def _to_remember(value: str, *, certain: bool) -> Iterator[Said]:
    """Yields what is to be remembered; without "that" or a colon only what would be taken by itself, too."""
    inner = list(said(value))
    if inner:
        yield from (found._replace(importance=max(found.importance, 0.9)) for found in inner)
    elif certain:
        yield Said(value[:1].upper() + value[1:], "", "", 0.9, 0.9)


def _clauses(sentence: str) -> Iterator[str]:
    """Yields the clauses of a sentence that speak of their author, "and work at …" with the "I" that it lacks."""
    for part in _CLAUSE.split(sentence):
        first, *more = _AGAIN.split(part)
        yield _FILLER.sub("", first)
        if re.match(r"i\b", first, re.IGNORECASE):
            yield from (f"I {rest}" for rest in more)


def _of_clause(clause: str) -> Said | None:
    clause = ended(clause.rstrip(" .!;,"))
    mine = _MY.match(clause)
    if mine is not None:
        return _attribute(mine["whose"], mine["what"], mine["value"].strip())
    clause = clause[:1] + of_the_user(clause[1:])
    for phrase in _PHRASES:
        found = phrase.read(clause)
        if found is not None:
            return found
    return None


def _attribute(whose: str, what: str, value: str) -> Said | None:
    what = " ".join(what.lower().split())
    lasting = is_lasting(what.rpartition("'s ")[2].rpartition("’s ")[2])
    value = of_the_user(value)
    if not is_attribute_value(value, lasting=lasting):
        return None
    of, predicate = ("The user's", what.replace(" ", "_")) if whose.lower() == "my" else ("Our", "")
    return Said(f"{of} {what} is {value}.", predicate, value, 0.9 if lasting else 0.75, 0.8 if lasting else 0.6)
