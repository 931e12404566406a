"""Every word of what names, policies, tokens and merges refuse, and the edges at which they begin to.

A refusal names the field, the value and the limit; callers read the message, the client reads the details.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    DEFAULT_POLICY,
    CausalContext,
    ConflictPolicy,
    MergeType,
    NamePattern,
    NamespacePolicy,
    Reason,
    Remembered,
    RequestMemory,
    RequestRef,
    ResumePoint,
    TokenKind,
    check_replay,
    decode_page,
    decode_resume,
    encode_page,
    encode_resume,
    fingerprint,
    resolve_policy,
    seal,
    unseal,
)
from noosphere.consistency.causal import decode_causal
from noosphere.consistency.errors import LimitInfo, LogRangeInfo
from noosphere.consistency.limits import (
    CONTEXT_EXTRAS_MAX,
    ITEM_BYTES_MAX,
    KEY_DEPTH_MAX,
    NAMESPACE_BYTES_MAX,
    REQUESTS_PER_CLIENT_MAX,
    TOMBSTONE_RETENTION_MS_MIN,
    UUID_REQUESTS_MAX,
)
from noosphere.consistency.merge import (
    COUNTER_MAX,
    CounterAdd,
    Extreme,
    LogAppend,
    apply,
    dump_json,
    parse_json,
    state_from_value,
)
from noosphere.consistency.names import check_agent_id, check_collection, check_key
from noosphere.consistency.order import NamespaceState, admit
from noosphere.consistency.policy import PREFIX_POLICIES_MAX
from noosphere.consistency.revision import REVISION_MAX
from noosphere.consistency.tokens import TOKEN_BYTES_MAX

REJECT = ConflictPolicy.REJECT
DAY_MS = 24 * 3600 * 1000


# -- rules of namespaces ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "name", "range_and_unit"),
    [
        ("item_bytes_max", "item_bytes_max", f"1 and {ITEM_BYTES_MAX}"),
        ("records_max", "records_max", "1 and 10000000"),
        ("tombstone_retention_ms", "tombstone_retention", f"{TOMBSTONE_RETENTION_MS_MIN} and {10**12} ms"),
        ("log_age_ms_max", "log_age_max", f"1000 and {DAY_MS} ms"),
        ("log_revisions_max", "log_revisions_max", "1 and 10000000"),
        ("log_bytes_max", "log_bytes_max", f"1 and {1 << 30}"),
    ],
)
def test_what_is_said_of_a_bound(field: str, name: str, range_and_unit: str) -> None:
    def message(value: object) -> str:
        changes: dict[str, Any] = {field: value}
        return refused(Reason.INVALID_FIELD, replace(DEFAULT_POLICY, **changes).check).message

    assert message(0) == f"policy.{name}: 0 is not between {range_and_unit}"
    for value in (True, 1.5, "7", None):
        assert message(value) == f"policy.{name}: {value!r} is not a whole number"


def test_what_is_said_of_policies_by_prefix() -> None:
    def message(*prefixes: str) -> str:
        policy = NamespacePolicy(prefix_policies=tuple((prefix, REJECT) for prefix in prefixes))
        return refused(Reason.INVALID_FIELD, policy.check).message

    field = "policy.prefix_policies.prefix"
    assert message("") == f"{field}: must not be empty; use conflict_policy"
    assert message("a") == f"{field}: 'a' must end in '/'"
    assert message("a/", "a/") == f"{field}: must not repeat"

    too_many = NamespacePolicy(prefix_policies=tuple((f"c{n}/", REJECT) for n in range(PREFIX_POLICIES_MAX + 1)))
    refusal = refused(Reason.VALUE_TOO_LARGE, too_many.check)
    assert refusal.message == f"policy.prefix_policies has 17 entries, the limit is {PREFIX_POLICIES_MAX}"
    assert refusal.detail == LimitInfo("policy.prefix_policies", 17, PREFIX_POLICIES_MAX)


def test_what_is_said_of_a_policy_that_is_none() -> None:
    unknown: Any = 9
    refusal = refused(Reason.INVALID_FIELD, NamespacePolicy(conflict_policy=unknown).check)
    assert refusal.message == "policy.conflict_policy: 9 is not a conflict policy"
    refusal = refused(Reason.INVALID_FIELD, NamespacePolicy(prefix_policies=(("a/", unknown),)).check)
    assert refusal.message == "policy.prefix_policies.conflict_policy: 9 is not a conflict policy"


def test_what_is_said_of_a_pattern() -> None:
    def message(text: str) -> str:
        return refused(Reason.INVALID_FIELD, NamePattern(text, False).check).message

    assert message("shared") == "pattern.prefix: 'shared' must begin with a kind and a slash, e.g. 'shared/'"
    assert message("other/a") == "pattern.prefix: 'other/a' is not agents/…, sessions/…, shared/… or facts/…"
    assert message("") == "pattern.prefix: must not be empty"
    # As it was sent, also where something has to follow.
    assert message("other/") == "pattern.prefix: 'other/' is not agents/…, sessions/…, shared/… or facts/…"
    for text in ("shared//a", "shared//", "shared/a//"):
        assert message(text) == f"pattern.prefix: {text!r} has an empty segment between slashes"


def test_a_prefix_may_be_as_long_as_a_name_that_it_fits() -> None:
    longest = "shared/".ljust(NAMESPACE_BYTES_MAX, "a")
    NamePattern(longest, False).check()
    NamePattern(longest[:-2] + "/", False).check()
    # A name that begins with the second one would be one byte longer.
    for text, limit in ((longest + "a", NAMESPACE_BYTES_MAX), (longest[:-1] + "/", NAMESPACE_BYTES_MAX - 1)):
        refusal = refused(Reason.VALUE_TOO_LARGE, NamePattern(text, False).check)
        assert refusal.detail == LimitInfo("pattern.prefix", len(text), limit)


def test_an_exact_entry_is_not_a_prefix() -> None:
    exact, prefix = (replace(DEFAULT_POLICY, records_max=n) for n in (1, 2))
    table = {NamePattern("shared/a", True): exact, NamePattern("shared/a", False): prefix}
    assert resolve_policy("shared/a", table) is exact
    assert resolve_policy("shared/ab", table) is prefix
    assert resolve_policy("shared/b", table) is DEFAULT_POLICY


# -- names -----------------------------------------------------------------------------------------


def test_what_is_said_of_an_agent() -> None:
    refusal = refused(Reason.INVALID_FIELD, check_agent_id, "a#1")
    assert refusal.message == "agent_id: 'a#1' contains '#', which separates agent and incarnation"
    refusal = refused(Reason.INVALID_FIELD, check_agent_id, "a//b", "holder")
    assert refusal.message == "holder: 'a//b' has an empty segment between slashes"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (7, "7 is int, not text"),
        ("", "must not be empty"),
        ("a\n", "contains the control character U+000A"),
        ("a\x9f", "contains the control character U+009F"),
        ("a\ud800", "contains the lone surrogate U+D800"),
        ("a//b", "'a//b' has an empty segment between slashes"),
    ],
)
def test_what_is_said_of_a_text_that_is_no_name(text: Any, problem: str) -> None:
    assert refused(Reason.INVALID_FIELD, check_key, text, "name").message == f"name: {problem}"


def test_what_is_said_of_a_key_too_deep() -> None:
    check_key("a/" * KEY_DEPTH_MAX + "k")
    refusal = refused(Reason.VALUE_TOO_LARGE, check_key, "a/" * (KEY_DEPTH_MAX + 1) + "k", "name")
    assert refusal.message == f"name has 9 collections above it, the limit is {KEY_DEPTH_MAX}"
    assert refusal.detail == LimitInfo("name", 9, KEY_DEPTH_MAX)


def test_what_is_said_of_a_collection() -> None:
    check_collection("a/" * KEY_DEPTH_MAX)
    refusal = refused(Reason.VALUE_TOO_LARGE, check_collection, "a/" * (KEY_DEPTH_MAX + 1), "name")
    assert refusal.message == f"name has 9 levels, the limit is {KEY_DEPTH_MAX}"
    assert refusal.detail == LimitInfo("name", 9, KEY_DEPTH_MAX)
    assert refused(Reason.INVALID_FIELD, check_collection, "a", "name").message == "name: 'a' must end in '/'"
    assert (
        refused(Reason.INVALID_FIELD, check_collection, "/", "name").message
        == "name: '/' is not a collection; use the empty text for the whole namespace"
    )
    for text in ("a//", "/a/", "//"):
        message = refused(Reason.INVALID_FIELD, check_collection, text, "name").message
        assert message == f"name: {text!r} has an empty segment between slashes"


# -- tokens ----------------------------------------------------------------------------------------


def test_what_is_said_of_a_token() -> None:
    def message(token: bytes) -> str:
        return refused(Reason.INVALID_FIELD, unseal, TokenKind.PAGE, token, "start").message

    newer = bytes((TokenKind.PAGE, 7))
    assert (
        message(bytes(TOKEN_BYTES_MAX + 1)) == f"start: has {TOKEN_BYTES_MAX + 1} bytes, the limit is {TOKEN_BYTES_MAX}"
    )
    assert message(bytes(6)) == "start: is damaged or not a token"
    assert message(seal(TokenKind.READ_SET, b"")) == "start: is a token of another kind (4, expected 2)"
    assert message(newer + zlib.crc32(newer).to_bytes(4, "big")) == "start: has format 7, this version reads format 1"


@pytest.mark.parametrize("payload", [b"", b"\2", b"\0\0", b"\0\0\7" + bytes(8) + b"other/a"])
def test_what_is_said_of_a_damaged_causal_token(payload: bytes) -> None:
    refusal = refused(Reason.INVALID_FIELD, decode_causal, seal(TokenKind.CAUSAL, payload), "after")
    assert refusal.message == "after: is damaged or not a token"


def test_what_is_said_of_a_damaged_resume_token() -> None:
    refusal = refused(Reason.INVALID_FIELD, decode_resume, seal(TokenKind.RESUME, b"12345678"), "start")
    assert refusal.message == "start: is damaged or not a token"


def test_the_revision_of_a_resume_token_has_eight_bytes_without_a_sign() -> None:
    point = ResumePoint(b"id", 2**64 - 1)
    body = bytes((TokenKind.RESUME, 1)) + b"id" + b"\xff" * 8
    assert encode_resume(point) == body + zlib.crc32(body).to_bytes(4, "big")
    assert decode_resume(encode_resume(point)) == point


def test_what_is_said_of_a_page_token() -> None:
    query = fingerprint("list", "shared/a")
    refusal = refused(Reason.INVALID_PAGE_TOKEN, decode_page, encode_page(query, "k"), fingerprint("other"))
    assert refusal.message == "page_token: belongs to a request with other arguments"
    refusal = refused(Reason.INVALID_PAGE_TOKEN, decode_page, "no digits", query)
    assert refusal.message == "page_token: is damaged or not a token"


# -- contexts --------------------------------------------------------------------------------------


def test_what_is_said_of_a_context() -> None:
    CausalContext(REVISION_MAX, (0,)).check()
    for context, revision in ((CausalContext(-1), -1), (CausalContext(0, (1, REVISION_MAX + 1)), REVISION_MAX + 1)):
        refusal = refused(Reason.INVALID_FIELD, context.check, "seen")
        assert refusal.message == f"seen: {revision} is not a revision"
    refusal = refused(Reason.VALUE_TOO_LARGE, CausalContext(0, (1,) * (CONTEXT_EXTRAS_MAX + 1)).check)
    assert refusal.message == f"context.extras has 17 dots, the limit is {CONTEXT_EXTRAS_MAX}"
    assert refusal.detail == LimitInfo("context.extras", 17, CONTEXT_EXTRAS_MAX)


# -- what comes before any record ------------------------------------------------------------------

STATE = NamespaceState("shared/a", False, 7, ())


def admission(state: NamespaceState = STATE, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "permitted": True,
        "remembered": None,
        "fingerprint": fingerprint(1),
        "presented": (),
        "incarnation_current": True,
        "stale_fence": None,
        "limits": (),
    }
    return admit(state, **(arguments | changes))


def test_what_is_said_of_a_write_that_is_not_admitted() -> None:
    def message(reason: Reason, state: NamespaceState = STATE, **changes: Any) -> str:
        return refused(reason, admission, state, **changes).message

    assert admission() is None
    assert message(Reason.PERMISSION_DENIED, permitted=False) == "writing to 'shared/a' is not permitted"
    assert (
        message(Reason.NAMESPACE_DELETED, STATE._replace(deleted=True))
        == "namespace 'shared/a' was deleted; EnsureNamespace opens a new one"
    )
    assert message(Reason.STALE_FENCE, stale_fence="door") == "lock 'door': a later holder has already written"
    assert (
        message(Reason.STALE_INCARNATION, incarnation_current=False)
        == "this incarnation of the agent has ended; open the agent again"
    )
    refusal = refused(Reason.FUTURE_REVISION, admission, presented=(7, 9, 8))
    assert refusal.message == "revision 9 of 'shared/a' was never issued; the head is 7"
    assert refusal.detail == LogRangeInfo(9, 0)


def test_what_is_said_of_a_request_id_of_another_call() -> None:
    found = Remembered(3, fingerprint(1), b"reply", 0)
    refusal = refused(Reason.REQUEST_ID_REUSED, check_replay, found, fingerprint(2))
    assert refusal.message == "request_id: already used by a different request"


def test_what_is_said_of_too_many_requests() -> None:
    memory = RequestMemory()
    for n in range(UUID_REQUESTS_MAX):
        memory.remember(RequestRef(uuid=f"{n}"), Remembered(n + 1, b"m", b"", 5))
    refusal = refused(Reason.LIMIT_EXCEEDED, memory.check_room, RequestRef(uuid="more"), 5)
    assert refusal.message == "request_id.uuid: too many requests in 2 minutes (10000, the limit is 10000)"
    assert refusal.detail == LimitInfo("request_id.uuid", UUID_REQUESTS_MAX, UUID_REQUESTS_MAX)

    for n in range(REQUESTS_PER_CLIENT_MAX):
        memory.remember(RequestRef("a#1", n + 1), Remembered(n + 1, b"m", b"", 5))
    refusal = refused(Reason.LIMIT_EXCEEDED, memory.check_room, RequestRef("a#1", REQUESTS_PER_CLIENT_MAX + 1), 5)
    assert refusal.message == "request_id.sequence: too many unanswered requests (1024, the limit is 1024)"
    assert refusal.detail == LimitInfo("request_id.sequence", REQUESTS_PER_CLIENT_MAX, REQUESTS_PER_CLIENT_MAX)


# -- merges ----------------------------------------------------------------------------------------


def test_what_is_said_of_a_counter_that_is_full() -> None:
    refusal = refused(Reason.VALUE_TOO_LARGE, apply, CounterAdd(2), str(COUNTER_MAX).encode(), 100)
    assert refusal.message == (
        f"merge.counter_add.delta: 2 would take the counter to {COUNTER_MAX + 2}, its limit is ±{COUNTER_MAX}"
    )
    assert refusal.detail == LimitInfo("merge.counter_add.delta", 2, COUNTER_MAX)


@pytest.mark.parametrize(("largest", "field"), [(True, "merge.max"), (False, "merge.min")])
def test_what_is_said_of_an_extreme(largest: bool, field: str) -> None:
    for operand in ("true", "null", "[1]", "{}"):
        refusal = refused(Reason.INVALID_FIELD, apply, Extreme(operand, largest), None, 100)
        assert refusal.message == f"{field}: must be a JSON number or string"
    refusal = refused(Reason.MERGE_TYPE_MISMATCH, apply, Extreme("1", largest), b'"a"', 100)
    assert refusal.message == f"{field}: the record holds a string, not a number"
    refusal = refused(Reason.MERGE_TYPE_MISMATCH, apply, Extreme('"a"', largest), b"1", 100)
    assert refusal.message == f"{field}: the record holds a number, not a string"


def test_what_is_said_of_an_entry_that_no_log_could_hold() -> None:
    assert apply(LogAppend(('"aaaa"',)), None, 8).rendered == b'["aaaa"]'
    refusal = refused(Reason.VALUE_TOO_LARGE, apply, LogAppend(('"aaaaa"',)), None, 8)
    assert refusal.message == "merge.log_append.entries has 9 bytes, the limit is 8"
    assert refusal.detail == LimitInfo("merge.log_append.entries", 9, 8)


def test_what_is_said_of_a_value_of_another_shape() -> None:
    refusal = refused(Reason.MERGE_TYPE_MISMATCH, state_from_value, MergeType.MAP, b"[1]")
    assert refusal.message == "value: a MAP record holds an object"
    refusal = refused(Reason.INVALID_FIELD, state_from_value, MergeType.MAX, b"NaN")
    assert refusal.message == "value: is not JSON: NaN is not JSON"


@pytest.mark.parametrize(
    "text",
    [
        # However many siblings came before, and from whatever depth they came back.
        "[" + "[]," * 3 + "[" * 128 + "]" * 129,
        "[" * 100 + "[]," + "[" * 29 + "]" * 129,
        '{"a":' * 99 + '{"b":{},"c":' + "[" * 29 + "]" * 29 + "}" * 100,
    ],
)
def test_nesting_is_counted_from_the_outside(text: str) -> None:
    refusal = refused(Reason.VALUE_TOO_LARGE, parse_json, "f", text)
    assert refusal.message == "f has 129 levels of nesting, the limit is 128"


@pytest.mark.parametrize("text", ["[" + ",".join(["{}"] * 200) + "]", "[" + ",".join(["[[]]"] * 200) + "]"])
def test_siblings_are_not_nested(text: str) -> None:
    assert len(parse_json("f", text)) == 200


def test_nesting_as_deep_as_is_allowed_is_read() -> None:
    deepest = "[" * 127 + "]" * 127
    assert parse_json("f", f"[[],{deepest}]") == [[], parse_json("f", deepest)]


def test_what_is_said_of_text_that_is_not_json() -> None:
    for text in (r'"\ud800"', '["\ud800"]'):
        refusal = refused(Reason.INVALID_FIELD, parse_json, "f", text)
        assert refusal.message == "f: is not JSON: contains half of a surrogate pair"
    refusal = refused(Reason.INVALID_FIELD, parse_json, "f", "-1e999")
    assert refusal.message == "f: is not JSON: -1e999 is beyond the range of a 64-bit float"
    for number in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            dump_json(number)


def test_what_is_said_of_a_result_that_does_not_fit() -> None:
    assert apply(Extreme('"aaaa"', largest=True), None, 6).rendered == b'"aaaa"'
    refusal = refused(Reason.VALUE_TOO_LARGE, apply, Extreme('"aaaa"', largest=True), None, 5)
    assert refusal.message == "merge has 6 bytes, the limit is 5"
    assert refusal.detail == LimitInfo("merge", 6, 5)
