"""How much of what an agent will need survives compress on arrival.

The figure, on recorded runs of tool-using agents, for a budget of so many tokens:

- *Outputs*: the tool messages of more tokens than the budget. Smaller ones are kept as they are by any method, and
  would only flatter the figure.
- *Values* of an output: the different strings and number literals in its JSON that have at least two characters (of
  one character too many are met by chance); truth values and null are none. Of an output that is no JSON: its
  different words with a digit in them, of at least two characters.
- A value is *used* if it occurs in a later message of the assistant or the user, in its text or in the arguments of
  its tool calls. Later tool outputs are no use of it. It occurs where it stands as a whole: neither end of it is a
  letter, digit or underscore with another one directly beside it. Values that are only paraphrased ("3 pm" for
  ``15:00:00``) do not count as used.
- A value is *kept* if it occurs in the same sense in what the method made of the output, marks of what is missing
  apart.
- The *share* is the number of values that are used and kept over the number that are used, of all outputs together.
  Beside it stands the share of the *new* ones: those that had not occurred in any message before the output.

What a method makes of an output depends on what came before it alone. That is checked: everything after the output is
replaced, and the text must be the same to the byte. So is losslessness: whatever is called lossless must expand to the
JSON that the tool returned, and whatever fits without loss must be kept without loss.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from ..context.compaction import NotJson, Task, compact, compress, expand
from ..ports.models import SourceMessage, Tokenizer
from .traces import Run, TraceMessage

GATE_PERCENT = 89.0
GOAL_PERCENT = 92.0
VALUE_CHARS_MIN = 2

_WORD = re.compile(r"\w(?:[\w@.:+/-]*\w)?")
_USERS = ("assistant", "user")


class MethodScore(NamedTuple):
    """What one method did with the outputs over the budget.

    Attributes:
        method: its name.
        used: how many values are used later.
        kept: how many of them it kept.
        used_new: how many of the used ones had not occurred before.
        kept_new: how many of those it kept.
        lossless: how many outputs it kept whole.
        tokens: the size of all that it made.
    """

    method: str
    used: int = 0
    kept: int = 0
    used_new: int = 0
    kept_new: int = 0
    lossless: int = 0
    tokens: int = 0

    @property
    def percent(self) -> float:
        """The share of the used values that it kept; 100 if none was used."""
        return 100 * self.kept / self.used if self.used else 100.0

    @property
    def percent_new(self) -> float:
        """The same of values that had not occurred before."""
        return 100 * self.kept_new / self.used_new if self.used_new else 100.0


class CompactionScore(NamedTuple):
    """What all methods did.

    Attributes:
        runs: how many runs there were.
        outputs: how many tool outputs.
        outputs_over: how many of them were over the budget.
        tokens_over: the size of these.
        methods: the baselines, and ``compress`` as the last.
        problems: where ``compress`` was not what it promises to be, in words.
    """

    runs: int
    outputs: int
    outputs_over: int
    tokens_over: int
    methods: tuple[MethodScore, ...]
    problems: tuple[str, ...]

    @property
    def compress(self) -> MethodScore:
        """The method that counts."""
        return self.methods[-1]


class _Made(NamedTuple):
    text: str
    lossless: bool
    unmarked: str


_Method = Callable[[Run, int, Tokenizer, int], _Made]


def score_compaction(runs: list[Run], tokenizer: Tokenizer, tokens_max: int) -> CompactionScore:
    """Compresses every tool output of recorded runs and looks at what was used of it later.

    Args:
        runs: the recorded runs.
        tokenizer: counts.
        tokens_max: the budget of each output.

    Raises:
        Refusal: INVALID_FIELD: ``tokens_max`` is outside the limits of ``compress``.
    """
    scores = {name: MethodScore(name) for name in _METHODS}
    problems: list[str] = []
    outputs = over = tokens_over = 0
    for run in runs:
        for place, message in enumerate(run.messages):
            if message.role != "tool":
                continue
            outputs += 1
            made = {name: method(run, place, tokenizer, tokens_max) for name, method in _METHODS.items()}
            problems += _problems(run, place, made["compress"], tokenizer, tokens_max)
            if (tokens := tokenizer.count(message.text)) <= tokens_max:
                continue
            over += 1
            tokens_over += tokens
            used, new = _used(run, place)
            for name, result in made.items():
                kept = {value for value in used if _occurs(value, result.unmarked)}
                before = scores[name]
                scores[name] = MethodScore(
                    name,
                    before.used + len(used),
                    before.kept + len(kept),
                    before.used_new + len(new),
                    before.kept_new + len(kept & new),
                    before.lossless + result.lossless,
                    before.tokens + tokenizer.count(result.text),
                )
    return CompactionScore(len(runs), outputs, over, tokens_over, tuple(scores.values()), tuple(problems))


def _head(run: Run, place: int, tokenizer: Tokenizer, tokens_max: int) -> _Made:
    text = run.messages[place].text
    return _cut(text, text, tokenizer, tokens_max)


def _minified_head(run: Run, place: int, tokenizer: Tokenizer, tokens_max: int) -> _Made:
    text = run.messages[place].text
    try:
        minified = expand(compact(text))
    except NotJson:
        return _cut(text, text, tokenizer, tokens_max)
    return _cut(minified, minified, tokenizer, tokens_max)


def _compact_head(run: Run, place: int, tokenizer: Tokenizer, tokens_max: int) -> _Made:
    text = run.messages[place].text
    try:
        spacious, dense = compact(text), compact(text, lines=False)
    except NotJson:
        return _cut(text, text, tokenizer, tokens_max)
    return _cut(dense, spacious, tokenizer, tokens_max)


def _cut(whole: str, shown: str, tokenizer: Tokenizer, tokens_max: int) -> _Made:
    if tokenizer.count(whole) <= tokens_max:
        return _Made(whole, True, whole)
    head = tokenizer.cut(shown, tokens_max)
    return _Made(head, False, head)


def _compress(run: Run, place: int, tokenizer: Tokenizer, tokens_max: int) -> _Made:
    message = run.messages[place]
    task = _task_before(run, place)
    result = compress(message.text, tokenizer, tokens_max=tokens_max, task=task)
    return _Made(result.text, result.lossless, result.unmarked)


_METHODS: dict[str, _Method] = {
    "head cut": _head,
    "JSON without spaces, then head": _minified_head,
    "compact notation, then head": _compact_head,
    "compress": _compress,
}


def _task_before(run: Run, place: int) -> Task:
    message = run.messages[place]
    past = run.messages[:place]
    calls = [call for earlier in reversed(past) for call in earlier.calls]
    # Ids are not always different within a run: the newest call is the one that is answered.
    call = next((call for call in calls if call.id == message.call_id), None)
    return Task(
        tool=message.tool or (call.name if call else ""),
        arguments=call.arguments if call else "",
        messages=[SourceMessage(earlier.role, "", earlier.said) for earlier in past],
    )


def _problems(run: Run, place: int, made: _Made, tokenizer: Tokenizer, tokens_max: int) -> list[str]:
    text = run.messages[place].text
    where = f"{run.name}: message {place}"
    found = []
    if (tokens := tokenizer.count(made.text)) > tokens_max:
        found.append(f"{where}: {tokens} tokens are over the budget of {tokens_max}")
    if made.lossless and made.text != text and expand(made.text) != expand(text):
        found.append(f"{where}: called lossless, but something else came back")
    if not made.lossless and _compact_head(run, place, tokenizer, tokens_max).lossless:
        found.append(f"{where}: would have fitted without loss")
    scrambled = tuple(TraceMessage("user", f"scrambled {later.role}") for later in run.messages[place + 1 :])
    other = run._replace(messages=(*run.messages[: place + 1], *reversed(scrambled)))
    if _compress(other, place, tokenizer, tokens_max).text != made.text:
        found.append(f"{where}: depends on what came after it")
    return found


def _used(run: Run, place: int) -> tuple[set[str], set[str]]:
    """Returns the values of an output that are used later, and which of them had not occurred before."""
    later = "\n".join(message.said for message in run.messages[place + 1 :] if message.role in _USERS)
    earlier = "\n".join(message.said for message in run.messages[:place])
    used = {value for value in _values(run.messages[place].text) if _occurs(value, later)}
    return used, {value for value in used if not _occurs(value, earlier)}


def _values(text: str) -> set[str]:
    try:
        document = json.loads(text, parse_float=_Literal, parse_int=_Literal, parse_constant=_Literal)
    except (ValueError, RecursionError):
        found = {word for word in _WORD.findall(text) if any(map(str.isdigit, word))}
    else:
        found = set()
        stack = [document]
        while stack:
            value = stack.pop()
            if isinstance(value, dict):
                stack.extend(value.values())
            elif isinstance(value, list):
                stack.extend(value)
            elif isinstance(value, str):
                found.add(str(value))
    return {value for value in found if len(value) >= VALUE_CHARS_MIN}


class _Literal(str):
    """A number as it was written."""

    __slots__ = ()


def _occurs(value: str, text: str) -> bool:
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if not _joins(value[0], text[at - 1 : at]) and not _joins(value[-1], text[end : end + 1]):
            return True
        at = text.find(value, at + 1)
    return False


def _joins(inside: str, outside: str) -> bool:
    """Whether two neighbouring characters belong to one word."""
    return _is_of_word(outside) and _is_of_word(inside)


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"
