"""Causal tokens: what a merge demands, what is dropped, and that nothing damaged is ever read."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    NOTHING_SEEN,
    REVISION_MAX,
    CausalToken,
    Reason,
    Refusal,
    TokenKind,
    decode_causal,
    encode_causal,
    encode_read_set,
    make_revision,
    merge_tokens,
    seal,
)
from noosphere.consistency.limits import CAUSAL_ENTRIES_MAX
from noosphere.consistency.readset import NOTHING_READ

SPACES = ("shared/a", "shared/b", "sessions/c", "agents/d")
ODD_NAMES = (
    "shared/_",
    "shared/%2F",
    "shared/*",
    "shared/a-b|c:d",
    "shared/{x}",
    "facts/" + "鍵" * 80,
    "shared/🔑/é",
    "shared/" + "n" * 249,
)

revisions = st.builds(make_revision, st.integers(1, 3), st.integers(1, 5))


def tokens(spaces: tuple[str, ...] = SPACES) -> st.SearchStrategy[CausalToken]:
    """Tokens as they come about: by answers and merges."""
    single = st.builds(
        CausalToken, st.dictionaries(st.sampled_from(spaces), revisions, max_size=len(spaces)), st.booleans()
    )
    return st.builds(merge_tokens, st.lists(single, max_size=3))


def demands(token: CausalToken) -> tuple[Mapping[str, tuple[int, ...]], bool]:
    """What a token demands, without the order in which it would forget."""
    return {space: tuple(token.named(space)) for space in token.revisions}, token.incomplete


@given(tokens(), tokens(), tokens())
def test_merging_does_not_depend_on_order_or_repetition(a: CausalToken, b: CausalToken, c: CausalToken) -> None:
    whole = demands(merge_tokens((a, b, c)))
    assert demands(merge_tokens((c, b, a))) == whole
    assert demands(merge_tokens((merge_tokens((a, b)), c))) == whole
    assert demands(merge_tokens((a, merge_tokens((b, c))))) == whole
    assert demands(merge_tokens((a, b, c, a, b))) == whole
    assert demands(merge_tokens((a, NOTHING_SEEN))) == demands(a)
    assert demands(merge_tokens((a, a))) == demands(a)


@given(tokens(), tokens())
def test_a_merge_demands_at_least_what_each_part_demands(a: CausalToken, b: CausalToken) -> None:
    merged = merge_tokens((a, b))
    for space in (*SPACES, "shared/never"):
        parts = [token.needed(space) for token in (a, b)]
        needed = merged.needed(space)
        if None in parts:
            assert needed is None, "what one part cannot do without a linearizable read, the whole cannot"
        elif needed is not None:
            assert needed == max(part for part in parts if part is not None)
        named = set(merged.named(space))
        for part in (a, b):
            # Whatever may have been lost is still named, unless a linearizable read is demanded instead.
            for revision in part.named(space):
                newer = any(other >= revision and other >> 40 == revision >> 40 for other in named)
                assert newer or (needed is None and merged.incomplete)


def test_a_later_epoch_does_not_hide_what_may_have_been_lost() -> None:
    before, after = make_revision(1, 100), make_revision(2, 1)
    merged = merge_tokens((CausalToken({"shared/a": before}), CausalToken({"shared/a": after})))
    assert list(merged.named("shared/a")) == [before, after]
    assert merged.needed("shared/a") is None, "no cache knows whether the first one survived"
    assert decode_causal(encode_causal(merged)) == merged
    confirmed = merged.seen("shared/a", make_revision(2, 7))
    assert list(confirmed.named("shared/a")) == [make_revision(2, 7)]
    assert list(merged.without("shared/a").named("shared/a")) == []


def test_of_one_epoch_only_the_newest_is_named() -> None:
    merged = merge_tokens(CausalToken({"shared/a": make_revision(4, seq)}) for seq in (3, 9, 5))
    assert list(merged.named("shared/a")) == [make_revision(4, 9)]
    assert merged.needed("shared/a") == make_revision(4, 9)


def test_nothing_is_needed_of_what_was_never_seen() -> None:
    token = CausalToken({"shared/a": 5})
    assert token.needed("shared/b") == 0
    assert token._replace(incomplete=True).needed("shared/b") is None
    assert token.without("shared/a").needed("shared/a") == 0
    assert token._replace(incomplete=True).without("shared/a").needed("shared/a") is None


def test_what_an_incomplete_token_lacks_is_not_taken_from_another() -> None:
    """It may have dropped a newer revision than the other token knows."""
    forgetful = CausalToken({"shared/b": 3}, incomplete=True)
    merged = merge_tokens((CausalToken({"shared/a": 5, "shared/b": 9}), forgetful))
    assert merged.needed("shared/a") is None
    assert merged.needed("shared/b") == 9
    # An answer that reflects everything acknowledged stands for what was dropped.
    assert merged.seen("shared/a", 7).needed("shared/a") == 7


def test_the_oldest_entry_goes_when_there_are_too_many() -> None:
    token = NOTHING_SEEN
    for number in range(CAUSAL_ENTRIES_MAX):
        token = token.seen(f"shared/{number}", number + 1)
    assert (len(token.revisions), token.incomplete) == (CAUSAL_ENTRIES_MAX, False)
    token = token.seen("shared/0", 99)
    token = token.seen("shared/new", 100)
    assert (len(token.revisions), token.incomplete) == (CAUSAL_ENTRIES_MAX, True)
    assert token.needed("shared/1") is None, "the one that was seen least recently"
    assert (token.needed("shared/0"), token.needed("shared/new")) == (99, 100)
    merged = merge_tokens((CausalToken({f"facts/{n}": n + 1 for n in range(40)}), CausalToken(token.revisions)))
    assert (len(merged.revisions), merged.incomplete) == (CAUSAL_ENTRIES_MAX, True)
    assert set(token.revisions) == set(merged.revisions), "the later token's entries are the newer ones"


def test_entries_of_earlier_epochs_count() -> None:
    old = CausalToken({f"shared/{n}": make_revision(1, 1) for n in range(40)})
    new = CausalToken({f"shared/{n}": make_revision(2, 1) for n in range(40)})
    merged = merge_tokens((old, new))
    assert sum(len(list(merged.named(space))) for space in merged.revisions) <= CAUSAL_ENTRIES_MAX
    assert (len(merged.revisions), merged.incomplete) == (32, True)
    assert decode_causal(encode_causal(merged)) == merged


def test_seeing_less_changes_nothing() -> None:
    token = CausalToken({"shared/a": 9})
    assert token.seen("shared/a", 4) == token


@given(tokens((*SPACES, *ODD_NAMES)))
def test_a_token_survives_in_its_order(token: CausalToken) -> None:
    found = decode_causal(encode_causal(token))
    assert found == token
    assert list(found.revisions) == list(token.revisions)


def test_the_largest_token_survives() -> None:
    names = [f"shared/{n:03}" + "🔑" * 61 for n in range(CAUSAL_ENTRIES_MAX)]
    token = CausalToken(dict.fromkeys(names, REVISION_MAX), incomplete=True)
    assert decode_causal(encode_causal(token)) == token


def test_every_flipped_bit_is_noticed() -> None:
    data = encode_causal(CausalToken({"shared/a": make_revision(9_000, 7), "shared/é": 1}, incomplete=True))
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert refused(Reason.INVALID_FIELD, decode_causal, bytes(damaged), "call.x").message.startswith("call.x:")


def test_every_truncation_and_extension_is_noticed() -> None:
    data = encode_causal(CausalToken({"shared/a": 5}))
    for end in range(len(data)):
        refused(Reason.INVALID_FIELD, decode_causal, data[:end])
        refused(Reason.INVALID_FIELD, decode_causal, data[end + 1 :])
    refused(Reason.INVALID_FIELD, decode_causal, data + b"\0")


def test_other_tokens_are_refused_by_name() -> None:
    wrong = refused(Reason.INVALID_FIELD, decode_causal, encode_read_set(NOTHING_READ))
    assert "of another kind" in wrong.message
    newer = bytearray(encode_causal(NOTHING_SEEN)[:-4])
    newer[1] += 1
    newer += zlib.crc32(newer).to_bytes(4, "big")
    assert (
        "has format 2, this version reads format 1"
        in refused(Reason.INVALID_FIELD, decode_causal, bytes(newer)).message
    )


def entry(name: bytes, revision: int) -> bytes:
    return struct.pack(">HQ", len(name), revision) + name


FORGED = {
    "nothing": b"",
    "a flag of a later format": b"\2" + entry(b"shared/a", 1),
    "a revision out of range": b"\0" + entry(b"shared/a", REVISION_MAX + 1),
    "half an entry": b"\0" + entry(b"shared/a", 1)[:-1],
    "half a header": b"\0" + entry(b"shared/a", 1)[:5],
    "no name": b"\0" + entry(b"", 1),
    "no namespace": b"\0" + entry(b"other/a", 1),
    "a control character": b"\0" + entry(b"shared/\0a", 1),
    "no UTF-8": b"\0" + entry(b"shared/\xff", 1),
    "a surrogate": b"\0" + entry(b"shared/\xed\xa0\x80", 1),
    "one epoch twice": b"\0" + entry(b"shared/a", 1) + entry(b"shared/a", 2),
    "epochs in disorder": b"\0" + entry(b"shared/a", 2 << 40 | 1) + entry(b"shared/a", 1 << 40 | 1),
    "nothing before an epoch": b"\0" + entry(b"shared/a", 0) + entry(b"shared/a", 1 << 40 | 1),
    "a namespace again later": b"\0"
    + entry(b"shared/a", 1 << 40 | 1)
    + entry(b"shared/b", 1)
    + entry(b"shared/a", 2 << 40 | 1),
}


@pytest.mark.parametrize("payload", FORGED.values(), ids=FORGED)
def test_what_no_server_makes_is_refused(payload: bytes) -> None:
    refused(Reason.INVALID_FIELD, decode_causal, seal(TokenKind.CAUSAL, payload))


def test_too_many_entries_are_refused_by_number() -> None:
    payload = b"\0" + b"".join(entry(b"shared/%d" % n, 1) for n in range(CAUSAL_ENTRIES_MAX + 1))
    found = refused(Reason.VALUE_TOO_LARGE, decode_causal, seal(TokenKind.CAUSAL, payload), "call.causal_tokens")
    assert found.message == "call.causal_tokens has 65 entries, the limit is 64"


@given(st.binary(max_size=200))
def test_no_payload_breaks_the_decoder(payload: bytes) -> None:
    data = seal(TokenKind.CAUSAL, payload)
    found: Reason | None = None
    try:
        token = decode_causal(data)
    except Refusal as refusal:
        found = refusal.reason
    else:
        assert encode_causal(token) == data, "one token, one form"
    assert found in {None, Reason.INVALID_FIELD, Reason.VALUE_TOO_LARGE}
