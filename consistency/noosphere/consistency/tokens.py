"""Opaque tokens: unsigned, versioned, checksummed bytes. They authorise nothing.

Frame: kind (1 byte), format version (1), payload, CRC-32 of all before it (4).
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

from .errors import Reason, Refusal, invalid

FORMAT = 1
TOKEN_BYTES_MAX = 64 * 1024


class TokenKind(IntEnum):
    """What a token is for; a token of one kind is refused where another is expected."""

    RESUME = 1
    PAGE = 2
    CAUSAL = 3
    READ_SET = 4


def seal(kind: TokenKind, payload: bytes) -> bytes:
    """Returns ``payload`` framed as a token."""
    body = bytes((kind, FORMAT)) + payload
    return body + zlib.crc32(body).to_bytes(4, "big")


def unseal(kind: TokenKind, token: bytes, field: str) -> bytes:
    """Returns a token's payload.

    Raises:
        Refusal: INVALID_FIELD (not a token of this kind, damaged, or of another format).
    """
    if len(token) > TOKEN_BYTES_MAX:
        raise invalid(field, f"has {len(token)} bytes, the limit is {TOKEN_BYTES_MAX}")
    if len(token) < 6 or zlib.crc32(token[:-4]) != int.from_bytes(token[-4:], "big"):
        raise invalid(field, "is damaged or not a token")
    if token[0] != kind:
        raise invalid(field, f"is a token of another kind ({token[0]}, expected {int(kind)})")
    if token[1] != FORMAT:
        raise invalid(field, f"has format {token[1]}, this version reads format {FORMAT}")
    return token[2:-4]


class ResumePoint(NamedTuple):
    """Where a watch continues: after ``revision`` of one namespace's generation."""

    storage_id: bytes
    revision: int


def encode_resume(point: ResumePoint) -> bytes:
    """Returns the resume token of a watch."""
    return seal(TokenKind.RESUME, point.storage_id + struct.pack(">Q", point.revision))


def decode_resume(token: bytes, field: str = "resume_token") -> ResumePoint:
    """Returns where a watch continues.

    Raises:
        Refusal: INVALID_FIELD.
    """
    payload = unseal(TokenKind.RESUME, token, field)
    if len(payload) < 9:
        raise invalid(field, "is damaged or not a token")
    return ResumePoint(payload[:-8], struct.unpack(">Q", payload[-8:])[0])


def encode_page(query: bytes, position: str) -> str:
    """Returns a page token: ``query`` is the fingerprint of the request, ``position`` the last key."""
    return seal(TokenKind.PAGE, query + position.encode()).hex()


def decode_page(token: str, query: bytes) -> str:
    """Returns the position in a page token.

    Raises:
        Refusal: INVALID_PAGE_TOKEN (not a page token, or of a request with other arguments).
    """
    try:
        payload = unseal(TokenKind.PAGE, bytes.fromhex(token), "page_token")
        if payload[: len(query)] != query:
            raise invalid("page_token", "belongs to a request with other arguments")
        return payload[len(query) :].decode()
    except ValueError:
        raise Refusal(Reason.INVALID_PAGE_TOKEN, "page_token: is damaged or not a token") from None
    except Refusal as refusal:
        raise Refusal(Reason.INVALID_PAGE_TOKEN, refusal.message) from None
