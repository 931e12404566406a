"""What becomes of each kind of record when words are to be forgotten: pure rules, no I/O.

Names stay as they are: keys, ids, agents, tools. Texts that people and models wrote get a mark in the place of each
word. What only repeats them goes as a whole: an entry of the outbox, a sentence of a summary, a context's manifest.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import msgspec

from noosphere.consistency import Encoding, MergeType, Record, Scalar, Sibling

from ..ports.sources import REDACTED
from ..text import distinct_terms
from .blackout import Blackout, folded
from .codec import decode_message, encode_message, value_of
from .counting import texts_of
from .keys import CHECKPOINTS, CONTROL, EVENTS, HANDOFFS, MESSAGES, META, OUTBOX, SUMMARIES, TOOLS, is_item
from .outbox import Candidate, decode_candidate
from .summary_record import SummaryData
from .summary_text import summary_text
from .toolcall import ToolCall, decode_tool_call, encode_tool_call
from .types import Message, Part, Summary, ToolUse

Count = Callable[[Sequence[str]], int]
"""Counts tokens of texts, each by itself."""

_FIELDS: Mapping[str, frozenset[str]] = {
    META: frozenset({"title", "labels"}),
    CONTROL: frozenset({"next_node", "pending_interrupt", "data"}),
    CHECKPOINTS: frozenset({"name"}),
    EVENTS: frozenset({"explanation"}),
    HANDOFFS: frozenset({"note", "next_node", "pending_interrupt"}),
}
"""Fields of the services' own records that hold what others wrote, by where the records lie."""

_ENDS = r".!?\n\u3002\uff01\uff1f"
_SENTENCE = re.compile(rf"(?:[^{_ENDS}]|[.!?](?!\s|$))*(?:[{_ENDS}]\s*|$)")
_TERMS_MIN = 3
_SHARE_MIN = 0.6
"""A sentence with so many words, of which so many are those of something forgotten, tells of that."""

_MANIFEST_BYTES_MAX = 8 * 1024 * 1024
_summaries = msgspec.json.Decoder(SummaryData)


class Gone(Enum):
    """Says that a record goes."""

    GONE = "gone"


GONE = Gone.GONE


class Fate(NamedTuple):
    """What becomes of a record: the new one, or that it goes; and as what it is counted."""

    place: str
    record: Record | Gone


class Rewriter:
    """Rewrites records.

    Args:
        blackout: the words.
        count: counts tokens.
        told: texts that are forgotten whole.
    """

    def __init__(self, blackout: Blackout, count: Count, told: Sequence[str] = ()) -> None:
        self._blackout = blackout
        self._count = count
        self._told = [terms for text in told if (terms := frozenset(distinct_terms(text)))]
        self._told_folded = [folded(text) for text in told]

    def visible(self, key: str, record: Record) -> Fate | None:
        """Returns what becomes of a visible record, or of a copy of one; None if it stays as it is."""
        if key.startswith(MESSAGES):
            return self._rewritten("messages", record, lambda _: self._message(key, record))
        if key.startswith(TOOLS):
            return self._rewritten("tool_results", record, lambda _: self._tool_call(key, record))
        if key.startswith(SUMMARIES):
            return self._rewritten("summaries", record, self._summary)
        if key.startswith(OUTBOX) and any(sibling.data is not None for sibling in record.siblings):
            return Fate("outbox", GONE) if self._is_told(decode_candidate(value_of(record))) else None
        for place, fields in _FIELDS.items():
            if key.startswith(place):
                return self._rewritten(_name(place), record, partial(self._fields, fields=fields))
        return self._item(record) if is_item(key) else None

    def manifest(self, data: bytes) -> bool:
        """Tells whether a context's manifest has the words."""
        try:
            raw = zlib.decompressobj().decompress(data, _MANIFEST_BYTES_MAX)
            return any(self._blackout.found_in(text) for text in _texts(msgspec.msgpack.decode(raw)))
        except (zlib.error, msgspec.MsgspecError):
            return False

    def forgotten(self, message: Message) -> Message:
        """Returns what is left of a message that is forgotten whole: who said something when, and to which ids."""
        parts = (Part(REDACTED),) if message.parts else ()
        calls = tuple(ToolUse(use.call_id, use.name, "{}") for use in message.tool_calls)
        return self.counted(message._replace(parts=parts, tool_calls=calls, name=self._blackout.text(message.name)))

    def forgotten_result(self, call: ToolCall) -> ToolCall:
        """Returns what is left of a call whose result is forgotten whole."""
        return msgspec.structs.replace(
            call,
            arguments=self._blackout.text(call.arguments),
            content=REDACTED,
            tokens=self._count((REDACTED,)),
            raw="",
            raw_bytes=len(REDACTED.encode()),
        )

    def counted(self, message: Message) -> Message:
        """Returns a message with its size as it is now."""
        return message._replace(tokens=self._count(texts_of(message)))

    def _message(self, key: str, record: Record) -> bytes | None:
        message = decode_message(key, record)
        text = self._blackout.text
        changed = message._replace(
            parts=tuple(Part(text(p.text), p.media_type, self._blackout.data(p.data)) for p in message.parts),
            tool_calls=tuple(ToolUse(use.call_id, use.name, text(use.arguments)) for use in message.tool_calls),
            # Of a tool's message it is the tool's.
            name=message.name if message.tool_call_id else text(message.name),
        )
        if changed == message:
            return None
        return encode_message(self.counted(own_id(changed)))

    def _tool_call(self, key: str, record: Record) -> bytes | None:
        call = decode_tool_call(key, record)
        arguments, content = self._blackout.text(call.arguments), self._blackout.text(call.content)
        if (arguments, content) == (call.arguments, call.content):
            return None
        tokens = call.tokens if content == call.content else self._count((content,))
        # What was the whole result still is.
        raw_bytes = call.raw_bytes if call.raw or not call.raw_bytes else len(content.encode())
        return encode_tool_call(
            msgspec.structs.replace(call, arguments=arguments, content=content, tokens=tokens, raw_bytes=raw_bytes)
        )

    def _summary(self, data: bytes) -> bytes | None:
        summary = _summaries.decode(data)
        changed = msgspec.structs.replace(
            summary,
            goals=self._kept(summary.goals),
            decisions=self._kept(summary.decisions),
            open_questions=self._kept(summary.open_questions),
            entities=self._kept(summary.entities),
            narrative="".join(self._kept(_SENTENCE.findall(summary.narrative))).rstrip(),
        )
        if self._blackout.found_in(changed.narrative):
            # It stands on both sides of the end of a sentence.
            changed = msgspec.structs.replace(changed, narrative=self._blackout.text(changed.narrative))
        if changed == msgspec.structs.replace(summary, narrative=summary.narrative.rstrip()):
            return None
        said = (changed.goals, changed.decisions, changed.open_questions, changed.entities)
        if not any(said) and not changed.narrative:
            changed = msgspec.structs.replace(changed, narrative=REDACTED)
        shown = Summary("", "", "", 0, *said, changed.narrative)
        return msgspec.json.encode(msgspec.structs.replace(changed, tokens=self._count((summary_text(shown),))))

    def _kept(self, entries: Sequence[str]) -> tuple[str, ...]:
        return tuple(entry for entry in entries if not self._tells(entry))

    def _tells(self, entry: str) -> bool:
        """Tells whether a part of a summary tells of what is forgotten, or is taken from it."""
        if self._blackout.found_in(entry) or self._blackout.has_part(entry) or self._repeats(entry):
            return True
        part = folded(entry)
        return bool(part) and any(part in text for text in self._told_folded)

    def _repeats(self, text: str) -> bool:
        """Tells whether a text says again what is forgotten whole."""
        if not self._told:
            return False
        terms = set(distinct_terms(text))
        return len(terms) >= _TERMS_MIN and any(len(terms & told) >= _SHARE_MIN * len(terms) for told in self._told)

    def _is_told(self, candidate: Candidate) -> bool:
        """Tells whether an entry of the outbox says what is forgotten."""
        values = (candidate.value, *candidate.others)
        said = [text for value in values for text in (bytes(value.json), value.data) if text]
        texts = [text.decode("utf-8", "replace") for text in said]
        texts += [candidate.item, *(value for value in candidate.attributes.values() if isinstance(value, str))]
        return any(self._blackout.found_in(text) or self._repeats(text) for text in texts)

    def _fields(self, data: bytes, fields: frozenset[str]) -> bytes | None:
        value = json.loads(data)
        changed = self._within(value, fields)
        return None if changed == value else json.dumps(changed, ensure_ascii=False).encode()

    def _within(self, value: Any, fields: frozenset[str]) -> Any:
        if isinstance(value, dict):
            return {
                name: self._blackout.value(inside) if name in fields else self._within(inside, fields)
                for name, inside in value.items()
            }
        return [self._within(inside, fields) for inside in value] if isinstance(value, list) else value

    def _item(self, record: Record) -> Fate | None:
        attributes = tuple((name, self._scalar(value)) for name, value in record.attributes)
        fate = self._rewritten("items", record, None)
        changed = record if fate is None else fate.record
        assert isinstance(changed, Record), "an item never goes"
        claim = record.claim
        if claim is not None and claim.result is not None:
            claim = claim._replace(result=self._value(claim.result, claim.result_encoding, MergeType.NONE))
        changed = changed._replace(attributes=attributes, claim=claim)
        return None if changed == record else Fate("items", changed)

    def _scalar(self, value: Scalar) -> Scalar:
        return self._blackout.text(value) if isinstance(value, str) else value

    def _rewritten(self, place: str, record: Record, rewrite: Callable[[bytes], bytes | None] | None) -> Fate | None:
        siblings: list[Sibling] = []
        for sibling in record.siblings:
            data = sibling.data
            if data is not None:
                if rewrite is None:
                    data = self._value(data, sibling.encoding, record.merge_type)
                elif (rewritten := rewrite(data)) is not None:
                    data = rewritten
            siblings.append(sibling if data is sibling.data else sibling._replace(data=data))
        if all(new is old for new, old in zip(siblings, record.siblings, strict=True)):
            return None
        return Fate(place, record._replace(siblings=tuple(siblings)))

    def _value(self, data: bytes, encoding: Encoding, merge_type: MergeType) -> bytes:
        if encoding is not Encoding.JSON:
            return self._blackout.data(data)
        text = data.decode()
        if not self._blackout.found_in(text):
            return data
        if merge_type is MergeType.NONE:
            return self._blackout.json(text).encode()
        # The state of a record that is merged has numbers of its own, which are no content.
        state = json.loads(data)
        if merge_type is MergeType.SET:
            state = [[self._blackout.value(value), *dots] for value, *dots in state]
        elif merge_type is MergeType.LOG:
            state["e"] = self._blackout.value(state["e"])
        elif merge_type is MergeType.MAP or isinstance(state, str):
            state = self._blackout.value(state)
        return json.dumps(state, ensure_ascii=False, separators=(",", ":")).encode()


def own_id(message: Message) -> Message:
    """Returns a message as it is stored: with an id only if that is its author's own."""
    return message._replace(id="") if message.key.endswith(f"/{message.id}") else message


def _name(place: str) -> str:
    return {META: "titles", CONTROL: "control"}.get(place, place.removeprefix("_session/").rstrip("/"))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for inside in pair for text in _texts(inside)]
    if isinstance(value, (list, tuple)):
        return [text for inside in value for text in _texts(inside)]
    return []
