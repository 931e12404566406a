"""Turns what people type into values: JSON, files, durations, attributes."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from .exits import usage

Scalar = str | int | float | bool

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
# The largest item of a namespace is 64 KiB; more than this is a mistake, not a value.
_INPUT_BYTES_MAX = 16 * 1024 * 1024


def parse_duration(text: str, option: str) -> timedelta:
    """Reads a duration such as ``90s``, ``1h30m`` or ``500ms``.

    Args:
        text: numbers, each with a unit of ms, s, m, h, d or w.
        option: the option's name, for the error.

    Raises:
        CliError: it is no such text, or not above zero.
    """
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text, re.ASCII):
        raise usage(f"{option}: {text!r} is not a duration such as 90s, 1h30m or 500ms")
    try:
        duration = timedelta(seconds=sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text)))
    except OverflowError:
        raise usage(f"{option}: {text!r} is longer than this program can count") from None
    if not duration:
        raise usage(f"{option}: {text!r} must be at least 1 ms")
    return duration


def parse_time(text: str | None, option: str) -> datetime | None:
    """Reads a moment as RFC 3339 writes it, e.g. ``2026-05-01T12:00:00Z``; None stays None.

    Raises:
        CliError: it is none, or says nothing of its time zone.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise usage(f"{option}: {text!r} is not a moment such as 2026-05-01T12:00Z") from None
    if moment.tzinfo is None:
        raise usage(f"{option}: {text!r} has no time zone; 2026-05-01T12:00Z is in UTC")
    return moment


def parse_scalar(text: str) -> Scalar:
    """Reads an attribute's value: a JSON number, truth value or quoted text, else the text as it stands."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        return text
    return value if isinstance(value, Scalar) else text


def parse_attributes(pairs: list[str], option: str) -> dict[str, Scalar]:
    """Reads ``name=value`` pairs.

    Raises:
        CliError: one has no ``=``, no name, or the name of another.
    """
    found: dict[str, Scalar] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise usage(f"{option}: {pair!r} is not name=value")
        if name in found:
            raise usage(f"{option}: {name!r} is given twice")
        try:
            pair.encode()
        except UnicodeEncodeError:
            raise usage(f"{option}: {pair!r} is not UTF-8") from None
        found[name] = parse_scalar(text)
    return found


def check_revision(option: str, revision: int | None) -> None:
    """Checks that an option's value can be a revision.

    Raises:
        CliError: it is larger than any.
    """
    if revision is not None and revision >= 1 << 63:
        raise usage(f"{option}: {revision} is not a revision")


def read_argument(argument: str) -> bytes:
    """Returns what a VALUE argument stands for: stdin for ``-``, a file for ``@path``, else its own text.

    Raises:
        CliError: the file cannot be read, or the input is larger than any value may be.
    """
    if argument == "-":
        data = sys.stdin.buffer.read(_INPUT_BYTES_MAX + 1)
    elif argument.startswith("@"):
        try:
            with Path(argument[1:]).open("rb") as stream:
                data = stream.read(_INPUT_BYTES_MAX + 1)
        except (OSError, ValueError) as error:
            raise usage(f"VALUE: {argument[1:]}: cannot be read: {getattr(error, 'strerror', error)}") from None
    else:
        # Arguments that are no UTF-8 reach us as surrogates; this gives the bytes back.
        data = argument.encode(errors="surrogateescape")
    if len(data) > _INPUT_BYTES_MAX:
        raise usage(f"VALUE: is larger than {_INPUT_BYTES_MAX} bytes")
    return data


def decode_text(data: bytes) -> str:
    """Returns the text in ``data``.

    Raises:
        CliError: it is not UTF-8; the message says how to store bytes.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise usage(f"VALUE: is not UTF-8 ({error}); --bytes stores bytes as they are") from None


def parse_json(data: bytes) -> Any:
    """Reads JSON as RFC 8259 defines it (no NaN).

    Raises:
        CliError: it is not; the message says how to store a text.
    """
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise usage(f"VALUE: is not JSON ({error}); --text stores a text, --bytes stores bytes as they are") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
