"""The lines of a dump.

A header, rules, grants and tables; then each namespace, followed by its fences and records; then versions of facts and
jobs of the fact queue, and counters; at last a line that counts all lines before it and has their digest. Each line is
a JSON object whose ``is`` says what it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .bodies import Body

FORMAT = 1
"""Of dumps. A higher one was made by a newer program."""

LINE_BYTES_MAX = 16 * 1024 * 1024
"""Longest line; a value of 1 MiB takes at most a few."""


class DumpError(Exception):
    """A dump cannot be used. Its text is one line; nothing was changed."""


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is"):
    pass


class Header(_Line, tag="noosphere dump", frozen=True):
    """What the whole dump is.

    Attributes:
        format: :data:`FORMAT` of the program that made it.
        version: that program's.
        time_ms: when it was begun, by the clock of the machine, in milliseconds since 1970.
        epoch: the newest epoch.
        engine: where the working store was.
        model: which embedder made the vectors of facts; empty if none did.
        dimension: how many numbers these have.
        tables: which tables of the coordinator are in it.
    """

    format: int
    version: str
    time_ms: int
    epoch: int
    engine: str
    model: str = ""
    dimension: int = 0
    tables: tuple[str, ...] = ()


class Rule(_Line, tag="rule", frozen=True):
    """The rules of all namespaces that match a pattern."""

    text: str
    exact: bool
    policy: dict[str, Any]


class Granted(_Line, tag="grant", frozen=True):
    """What is granted to whom where."""

    principal: str
    principal_exact: bool
    namespace: str
    namespace_exact: bool
    verbs: tuple[str, ...]


class Entry(_Line, tag="entry", frozen=True):
    """An entry of one of the coordinator's tables."""

    table: str
    key: str
    value: Body


class Space(_Line, tag="namespace", frozen=True):
    """A namespace; its fences and records follow."""

    name: str
    generation: int
    origin: int
    deleted: bool
    head: int
    config_version: int
    floor_context: int
    cuts: tuple[tuple[int, int], ...]


class FenceLine(_Line, tag="fence", frozen=True):
    """The highest fencing token seen of a lock in the namespace above."""

    lock: str
    token: int


class RecordLine(_Line, tag="record", frozen=True):
    """A record of the namespace above. Times are in milliseconds of store time."""

    key: str
    revision: int
    live_until_ms: int
    due_ms: int
    body: Body


class FactLine(_Line, tag="fact", frozen=True):
    """One version of one fact; ``vector`` is base64 of little-endian 32-bit floats."""

    fact_id: str
    version: int
    scope: str
    owner: str
    memory_type: str
    trust: float
    valid_from_ms: int
    valid_to_ms: int
    expires_at_ms: int
    recorded_ms: int
    subject: str
    predicate: str
    terms: tuple[str, ...]
    body: Body
    vector: str | None


class JobLine(_Line, tag="job", frozen=True):
    """A job of the fact queue; ``reason`` says why a dead one was given up."""

    id: str
    priority: int
    group: str
    body: Body
    dead: bool
    reason: str


class Counters(_Line, tag="counters", frozen=True):
    """What was not passed by anything above when the dump was complete; the last line but one.

    Attributes:
        number: the highest that was given to an incarnation, a lock or a member.
        config_version: of rules and grants.
        store_time_ms: the working store's time.
    """

    number: int
    config_version: int
    store_time_ms: int


class End(_Line, tag="end", frozen=True):
    """The last line: how many came before it, and the SHA-256 of all of these, each with its newline."""

    lines: int
    sha256: str


Line = Header | Rule | Granted | Entry | Space | FenceLine | RecordLine | FactLine | JobLine | Counters | End

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


def line_of(line: Line) -> bytes:
    """Returns a line with its newline."""
    return _encoder.encode(line) + b"\n"


def parse(text: bytes) -> Line:
    """Reads a line.

    Raises:
        ValueError: it is none of a dump's.
    """
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
