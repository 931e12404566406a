"""Stored bytes as JSON that people can read, wherever that loses nothing; as base64 elsewhere.

Records are msgpack behind a format byte. JSON has no bytes, so they become an object: ``{"text": …}`` if they are
UTF-8, ``{"base64": …}`` otherwise; a map becomes ``{"map": [[key, value], …]}``. Whether the way back leads to the very
same bytes is tried when a dump is taken, never assumed.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import msgspec

DEPTH_MAX = 32

_packer = msgspec.msgpack.Encoder()
_unpacker = msgspec.msgpack.Decoder()


class _Unreadable(Exception):
    """JSON cannot say it."""


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored bytes.

    Attributes:
        format: the byte before ``value``, -1 if there is none.
        value: what the rest says, None if it is said by ``base64``.
        base64: all of the bytes.
    """

    format: int = -1
    value: Any = None
    base64: str | None = None


def body_of(data: bytes) -> Body:
    """Returns stored bytes as a dump tells them."""
    if data:
        body = Body(data[0], value) if (value := _told(data[1:])) is not None else None
        if body is not None and bytes_of(body) == data:
            return body
    return Body(base64=base64.b64encode(data).decode())


def bytes_of(body: Body) -> bytes:
    """Returns the stored bytes that a dump tells of.

    Raises:
        ValueError: it tells of none.
    """
    try:
        if body.base64 is not None:
            return base64.b64decode(body.base64, validate=True)
        if body.value is None:
            raise ValueError("is no stored value: it is empty")
        return bytes((body.format,)) + _packer.encode(_meant(body.value, 0))
    except (AttributeError, binascii.Error, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"is no stored value: {error}") from None


def _told(packed: bytes) -> Any:
    try:
        return _readable(_unpacker.decode(packed), 0)
    except (msgspec.MsgspecError, _Unreadable, RecursionError):
        return None


def _readable(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise _Unreadable
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise _Unreadable
            return value
        case bytes():
            try:
                return {"text": value.decode()}
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case list():
            return [_readable(one, depth + 1) for one in value]
        case dict():
            return {"map": [[_readable(key, depth + 1), _readable(one, depth + 1)] for key, one in value.items()]}
        case _:
            raise _Unreadable


def _meant(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise ValueError("is nested too deeply")
    if isinstance(value, list):
        return [_meant(one, depth + 1) for one in value]
    if isinstance(value, dict):
        (kind,) = value
        content = value[kind]
        if kind == "text":
            return content.encode()
        if kind == "base64":
            return base64.b64decode(content, validate=True)
        if kind == "map":
            return {_key(_meant(key, depth + 1)): _meant(one, depth + 1) for key, one in content}
        raise ValueError(f"has a part of kind {kind!r}")
    return value


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
