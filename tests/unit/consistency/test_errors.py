"""The table of errors, and the public face of the package."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest

import noosphere.consistency
from noosphere.consistency import CODE_OF, Code, LimitInfo, Reason, Refusal, exhausted, invalid, too_large

BY_CODE = {
    Code.ABORTED: "VERSION_MISMATCH CONFLICT CONTEXT_TOO_OLD SIBLING_LIMIT STALE_READ_SET CLAIM_LOST CONTENTION "
    "TRANSCRIPT_MOVED TOOL_RESULT_SUPERSEDED",
    Code.FAILED_PRECONDITION: "PRECONDITION_REQUIRED MERGE_TYPE_MISMATCH NAMESPACE_DELETED CROSS_NAMESPACE "
    "UNCHECKABLE_GUARD NO_CONFLICT AGENT_ACTIVE STALE_INCARNATION STALE_FENCE SESSION_EXISTS SESSION_CLOSED "
    "TURN_NOT_OPEN CALLS_PENDING SESSION_OPEN CHILDREN_OPEN NOT_PARKED TOKENS_OFF",
    Code.INVALID_ARGUMENT: "INVALID_FIELD VALUE_TOO_LARGE REQUEST_ID_REUSED INVALID_PAGE_TOKEN BUDGET_TOO_SMALL",
    Code.OUT_OF_RANGE: "COMPACTED FUTURE_REVISION",
    Code.NOT_FOUND: "NAMESPACE_NOT_FOUND SESSION_NOT_FOUND ENTRY_NOT_FOUND",
    Code.UNIMPLEMENTED: "NOT_IMPLEMENTED",
    Code.RESOURCE_EXHAUSTED: "LIMIT_EXCEEDED OVERLOADED SLOW_CONSUMER",
    Code.UNAVAILABLE: "DRAINING ENGINE_UNAVAILABLE",
    Code.DATA_LOSS: "ACKED_WRITES_LOST",
    Code.UNAUTHENTICATED: "UNAUTHENTICATED",
    Code.PERMISSION_DENIED: "PERMISSION_DENIED TRUST_DENIED",
}


def test_every_reason_has_its_code() -> None:
    table = {reason: code for code, reasons in BY_CODE.items() for reason in reasons.split()}
    assert {reason.value: code for reason, code in CODE_OF.items()} == table
    assert set(CODE_OF) == set(Reason)
    for reason in Reason:
        assert Refusal(reason, "message").code is CODE_OF[reason]
        assert reason.name == reason.value


def test_a_refusal_says_what_it_is() -> None:
    refusal = Refusal(Reason.CONFLICT, "'k' has changes")
    assert str(refusal) == "'k' has changes"
    assert "CONFLICT" in repr(refusal)
    assert (refusal.detail, refusal.namespace, refusal.head) == (None, "", 0)


def test_a_broken_limit_names_field_value_and_limit() -> None:
    assert invalid("key", "must not be empty").message == "key: must not be empty"
    large = too_large("value", 1_025, 1_024)
    assert (large.reason, large.message) == (Reason.VALUE_TOO_LARGE, "value has 1025 bytes, the limit is 1024")
    assert large.detail == LimitInfo("value", 1_025, 1_024)
    full = exhausted("namespace", 11, 10, "too many records")
    assert (full.reason, full.message) == (
        Reason.LIMIT_EXCEEDED,
        "namespace: too many records (11, the limit is 10)",
    )
    assert full.detail == LimitInfo("namespace", 11, 10)


PUBLIC = """
    CODE_OF DEFAULT_POLICY EPOCH_MAX EVERYTHING NEVER_MS NOTHING_READ NOTHING_SEEN REVISION_MAX SEQ_BITS UNCONDITIONAL
    CausalContext CausalToken ChangeKind Circumstances Claim Code CollectionSeen ConflictInfo ConflictPolicy Cut
    Decision DeleteAll Detail Dot Encoding Event Guard KeepDot KeySeen LimitInfo LogRangeInfo LostInfo LostRange
    MergeType NamePattern NamespaceKind NamespacePolicy NamespaceSeen NamespaceState Order PartFailure Precondition Put
    ReadSet Reason Record Refusal Remembered RequestMemory RequestRef Resolution ResumePoint Scalar Sibling StaleChange
    StaleEntry StaleInfo StampMode TokenKind TransactionInfo VersionClock
    acknowledge actor_name admit ancestors check_agent_id check_collection check_guards check_item_size check_key
    check_namespace check_presented check_replay claimable decide_claim decide_complete decide_delete decide_expiry
    decide_merge decide_put decide_reap decide_release decide_renew decide_resolve decode_causal decode_page
    decode_read_set decode_resume encode_causal encode_page encode_read_set encode_resume epoch_of exhausted find_lost
    fingerprint invalid key_seen_bytes make_revision matches merge merge_tokens next_revision read_set_room
    resolve_policy revisions_back seal seen_by_reader seq_of settle_expiry split_actor to_hex too_large unseal
"""


def test_the_public_names_are_these() -> None:
    assert sorted(noosphere.consistency.__all__) == sorted(PUBLIC.split())


def packages() -> list[str]:
    """Returns every package below ``noosphere`` that says what is public."""
    import noosphere

    found = []
    for module in pkgutil.walk_packages(noosphere.__path__, "noosphere."):
        if module.ispkg and hasattr(importlib.import_module(module.name), "__all__"):
            found.append(module.name)
    return found


@pytest.mark.parametrize("name", packages())
def test_every_public_name_exists_once(name: str) -> None:
    package = importlib.import_module(name)
    assert len(set(package.__all__)) == len(package.__all__)
    for public in package.__all__:
        assert hasattr(package, public), public


def test_what_the_package_imports_for_others_is_public() -> None:
    hidden = {
        name
        for name, value in vars(noosphere.consistency).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    } - set(noosphere.consistency.__all__)
    assert hidden == set()
