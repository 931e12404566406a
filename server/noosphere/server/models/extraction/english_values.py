"""What may be claimed in English: values that last and speak for themselves, without clauses that follow them."""

from __future__ import annotations

import re

VALUE_CHARS_MAX = 120
NAME_WORDS_MAX = 5

# Where what is claimed ends, and a reason, a comment or an afterthought begins.
_END = re.compile(
    r""",?\s+(?:because|cause|since|so(?:\sthat)?|as\swell\sas|although|though|even|when|whenever|while|which|where|who|but
    |by\sthe\sway)\b.*$
    |,\s*['’]?(?:they|it|he|she|this|that|these|those|there|and\s(?:this|that|it|they|he|she)|cause|cuz|the\s\w+\s(?:is|are)|you)\b.*$
    |\s*[-–—]\s.*$|\s+['’]cause\b.*$
    |\s+(?:now|nowadays|currently|these\sdays|right\snow|at\sthe\smoment|at\spresent|as\sof\s\w+)$
    |,?\s+(?:please|thanks|thank\syou|too|btw|a\slot|very\smuch)$""",
    re.IGNORECASE | re.VERBOSE,
)
_NOT = re.compile(r"(?:not|n['’]t|never|no\slonger|nothing|neither|nobody|none)\b", re.IGNORECASE)
_POINTING = re.compile(
    r"(?:it|this|that|these|those|them|him|her|you|your|me|how|what|when|where|why|who|everywhere|here|there|to\ssee|i)\b"
    r"|(?:the\s(?:way|idea|sound|look|thought|same|following|one)|one\sof)\b",
    re.IGNORECASE,
)
# What only those know who were there: "the book", "their work", "holding them".
_IN_CONTEXT = re.compile(
    r"^(?:(?i:the)\s(?![A-Z])|(?i:their|his|her|its|your|all\sthe|both|some|these|those|such)\b)"
    r"|\b(?i:it|them|this|that|these|those|him|here|there|you)\b|\b(?i:to|of|for|with|at|in|on|and|or|a|an|the)$"
)
_PASSING = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|now|currently|this\s(?:time|week|month|morning|one)|again|still|yet"
    r"|a\s(?:bit|little|lot))\b",
    re.IGNORECASE,
)
_STATE = re.compile(
    r"(?:at|in|on|to|from|with|about|for|like|very|too|so|really|quite|pretty|just|only|all|being|getting|going|\w+ing|\w+ed"
    r"|late|ready|broken|fine|good|bad|great|ok(?:ay)?|done|gone|down|up|wrong|right|slow|fast|empty|full|here|there|dead"
    r"|sick|ill|lost|missing|due|over|open|closed|as\s.*)\b",
    re.IGNORECASE,
)
_LATER = re.compile(
    r"(?:back|later|tomorrow|today|when|if|at|on|after|before|again|soon|now|anytime|by|a|an|the)\b", re.IGNORECASE
)
_NO_KIND = re.compile(r"\b(?:fan|fans|bit|little|lot|big|huge|total|sure|kind|sort|member)\b", re.IGNORECASE)
_CAPITAL = re.compile(r"[A-Z0-9\"“]|[^\x00-\x7f]")
_FIRST_PERSON = re.compile(r"\b(?:i|i['’]m|i['’]ve|i['’]d|i['’]ll|me|myself|we|us|our)\b", re.IGNORECASE)
_MY = re.compile(r"\bmy\b", re.IGNORECASE)
# What people have for long, and say in one way.
_LASTING = re.compile(
    r"""(?:(?:first|last|full|middle|nick|user|maiden|real|preferred|display)\s?)?name|nickname|pronouns?|birthday|birth\s?date
    |date\sof\sbirth|age|e-?mail(?:\saddress)?|(?:phone|telephone|mobile|account|passport|customer|employee)(?:\snumber)?
    |(?:home|work|postal|billing|shipping)?\s?address|zip\scode|postcode|time\s?zone|locale|native\slanguage|mother\stongue
    |language|nationality|religion|job(?:\stitle)?|occupation|profession|role|title|employer|company|team|department|manager
    |boss|school|university|major|degree|home\s?town|city|country|blood\stype|diet|height|weight|shoe\ssize|size
    |wife|husband|partner|girlfriend|boyfriend|fiancée?|mother|father|mom|mum|dad|brother|sister|son|daughter|best\sfriend
    |doctor|dentist|dog|cat|pet|car|phone|laptop|computer|editor|operating\ssystem|budget|goal|hobby
    |(?:favou?rite|preferred)\s(?!one|thing|part|way|time|memor|moment|place\sto)[\w\s'-]{2,30}""",
    re.IGNORECASE | re.VERBOSE,
)


def ended(clause: str) -> str:
    """Returns a clause without what follows the claim."""
    return _END.sub("", clause)


def of_the_user(value: str) -> str:
    """Returns a value as it is said of somebody else: ``my dog`` is theirs."""
    return _MY.sub("their", value)


def is_plain(value: str) -> bool:
    """Returns whether a value is short and no denial."""
    short = len(value) <= VALUE_CHARS_MAX
    return short and not is_denial(value) and _FIRST_PERSON.search(value) is None


def is_thing(value: str) -> bool:
    """Returns whether a value names something that lasts."""
    return is_plain(value) and not _POINTING.match(value) and not _PASSING.search(value)


def is_liking(value: str) -> bool:
    """Returns whether a value names something that can be liked by whoever was not there."""
    return is_thing(value) and not _IN_CONTEXT.search(value)


def is_name(value: str) -> bool:
    """Returns whether a value looks like the name of a person, a place or a company."""
    short = len(value.split()) <= NAME_WORDS_MAX
    return is_plain(value) and short and _CAPITAL.match(value) is not None and not _LATER.match(value)


def is_kind(value: str) -> bool:
    """Returns whether a value says what somebody is."""
    return is_liking(value) and len(value.split()) <= NAME_WORDS_MAX and not _NO_KIND.search(value)


def is_lasting(attribute: str) -> bool:
    """Returns whether an attribute is one that people have for long."""
    return _LASTING.fullmatch(attribute) is not None


def is_attribute_value(value: str, *, lasting: bool) -> bool:
    """Returns whether a value may be that of an attribute; of one that may pass only a name or a number."""
    return is_thing(value) and not _STATE.match(value) and (lasting or _CAPITAL.match(value) is not None)


def is_denial(value: str) -> bool:
    """Returns whether a value is none."""
    return _NOT.match(value) is not None


def points(value: str) -> bool:
    """Returns whether a text speaks of something that it does not name."""
    return _POINTING.match(value) is not None or re.search(r"\b(?:this|that|these|those|it)\b", value, re.I) is not None
