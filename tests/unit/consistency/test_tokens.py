"""Tokens: what is damaged, of another kind or of another format is refused, never misread."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.consistency.support import refused, utf8_text

from noosphere.consistency import (
    Reason,
    ResumePoint,
    TokenKind,
    decode_page,
    decode_resume,
    encode_page,
    encode_resume,
    fingerprint,
    seal,
    unseal,
)
from noosphere.consistency.tokens import FORMAT, TOKEN_BYTES_MAX

POINT = ResumePoint(b"0123456789", 9_000 << 40 | 7)
QUERY = fingerprint("list", "shared/a", "")


@given(st.binary(min_size=1, max_size=20), st.integers(0, 2**64 - 1))
def test_a_resume_point_survives(storage_id: bytes, revision: int) -> None:
    point = ResumePoint(storage_id, revision)
    assert decode_resume(encode_resume(point)) == point


@given(utf8_text)
def test_a_position_survives(position: str) -> None:
    assert decode_page(encode_page(QUERY, position), QUERY) == position


def test_every_flipped_bit_is_noticed() -> None:
    token = encode_resume(POINT)
    for bit in range(len(token) * 8):
        damaged = bytearray(token)
        damaged[bit // 8] ^= 1 << bit % 8
        assert refused(Reason.INVALID_FIELD, decode_resume, bytes(damaged)).message.startswith("resume_token:")


def test_every_truncation_and_extension_is_noticed() -> None:
    token = encode_resume(POINT)
    for end in range(len(token)):
        refused(Reason.INVALID_FIELD, decode_resume, token[:end])
        refused(Reason.INVALID_FIELD, decode_resume, token[end + 1 :])
    for extra in (b"\0", b"x", token):
        refused(Reason.INVALID_FIELD, decode_resume, token + extra)


@given(st.binary(max_size=64))
def test_other_bytes_are_no_token(data: bytes) -> None:
    refused(Reason.INVALID_FIELD, decode_resume, data)


@pytest.mark.parametrize("other", [0, FORMAT + 1, 255])
def test_another_format_is_refused_by_name(other: int) -> None:
    sealed = seal(TokenKind.RESUME, b"0123456789" + bytes(8))
    body = bytes((sealed[0], other)) + sealed[2:-4]
    # Sealed anew, as the version that writes this format would.
    token = body + zlib.crc32(body).to_bytes(4, "big")
    refusal = refused(Reason.INVALID_FIELD, decode_resume, token)
    assert f"format {other}" in refusal.message


def test_a_token_of_another_kind_is_refused() -> None:
    page = bytes.fromhex(encode_page(QUERY, "key"))
    assert "another kind" in refused(Reason.INVALID_FIELD, decode_resume, page).message
    refused(Reason.INVALID_PAGE_TOKEN, decode_page, encode_resume(POINT).hex(), QUERY)
    for kind in TokenKind:
        assert unseal(kind, seal(kind, b"payload"), "token") == b"payload"


def test_a_resume_point_needs_a_namespace_and_a_revision() -> None:
    refused(Reason.INVALID_FIELD, decode_resume, seal(TokenKind.RESUME, b"12345678"))


def test_a_page_token_belongs_to_its_request() -> None:
    token = encode_page(QUERY, "key")
    refusal = refused(Reason.INVALID_PAGE_TOKEN, decode_page, token, fingerprint("list", "shared/b", ""))
    assert "other arguments" in refusal.message


@pytest.mark.parametrize(
    "token",
    ["", "zz", "0", "é", encode_page(QUERY, "key")[:-1], seal(TokenKind.PAGE, QUERY + b"\xff").hex(), "00" * 10],
)
def test_a_damaged_page_token_is_refused(token: str) -> None:
    assert refused(Reason.INVALID_PAGE_TOKEN, decode_page, token, QUERY).message.count("page_token:") == 1


def test_tokens_have_a_limit() -> None:
    longest = seal(TokenKind.RESUME, bytes(TOKEN_BYTES_MAX - 6))
    assert len(unseal(TokenKind.RESUME, longest, "token")) == TOKEN_BYTES_MAX - 6
    refusal = refused(Reason.INVALID_FIELD, unseal, TokenKind.RESUME, longest + b"x", "token")
    assert str(TOKEN_BYTES_MAX) in refusal.message
