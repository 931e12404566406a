"""The limits that the page and the contract name, as numbers: who tests by the constant cannot see it move."""

from __future__ import annotations

from noosphere.consistency import DEFAULT_POLICY, EPOCH_MAX, NEVER_MS, REVISION_MAX, SEQ_BITS, limits
from noosphere.consistency.merge import COUNTER_MAX
from noosphere.consistency.policy import PREFIX_POLICIES_MAX
from noosphere.consistency.revision import SEQ_MAX

DOCUMENTED = {
    "AGENT_ID_BYTES_MAX": 128,
    "AGENT_LEASE_MS": 15_000,
    "ATTRIBUTES_MAX": 16,
    "BATCH_GET_KEYS_MAX": 256,
    "CAUSAL_TOKENS_MAX": 8,
    "CLAIM_WAIT_MS_MAX": 60_000,
    "CLOCK_ENTRIES_MAX": 16,
    "COMMIT_BYTES_MAX": 1_048_576,
    "COMMIT_MUTATIONS_MAX": 1_024,
    "CONTEXT_EXTRAS_MAX": 16,
    "ITEM_BYTES_DEFAULT": 1_024,
    "ITEM_BYTES_MAX": 65_536,
    "JSON_DEPTH_MAX": 128,
    "KEY_BYTES_MAX": 512,
    "KEY_DEPTH_MAX": 8,
    "LEASE_MS_MAX": 3_600_000,
    "LEASE_MS_MIN": 1_000,
    "LOCK_NAME_BYTES_MAX": 128,
    "LOG_AGE_MS_DEFAULT": 600_000,
    "LOG_BYTES_DEFAULT": 67_108_864,
    "LOG_REVISIONS_DEFAULT": 100_000,
    "MERGED_REPLY_BYTES_MAX": 128,
    "RECORDS_DEFAULT": 1_000_000,
    "REMEMBERED_REPLY_BYTES_MAX": 256,
    "REQUESTS_PER_CLIENT_MAX": 1_024,
    "SIBLINGS_BYTES_MAX": 917_504,
    "SIBLINGS_MAX": 16,
    "TOMBSTONE_RETENTION_MS_MIN": 3_600_000,
    "TRANSACTION_BYTES_MAX": 262_144,
    "TRANSACTION_PARTS_MAX": 64,
    "UUID_REQUESTS_MAX": 10_000,
    "UUID_REQUEST_AGE_MS": 120_000,
}


def test_the_documented_limits() -> None:
    assert {name: getattr(limits, name) for name in DOCUMENTED} == DOCUMENTED
    assert (COUNTER_MAX, PREFIX_POLICIES_MAX) == (9_223_372_036_854_775_807, 16)


def test_the_layout_of_revisions() -> None:
    assert SEQ_BITS == 40
    assert SEQ_MAX == 1_099_511_627_775
    assert EPOCH_MAX << SEQ_BITS | SEQ_MAX == REVISION_MAX == NEVER_MS == 9_223_372_036_854_775_807


def test_tombstones_outlive_every_replay_and_the_log() -> None:
    replay_ms = max(limits.UUID_REQUEST_AGE_MS, limits.CLIENT_REQUEST_AGE_MS)
    assert replay_ms < DEFAULT_POLICY.tombstone_retention_ms
    assert DEFAULT_POLICY.tombstone_retention_ms > limits.LOG_AGE_MS_DEFAULT


def test_the_default_rules() -> None:
    DEFAULT_POLICY.check()
    assert DEFAULT_POLICY.conflict_policy.name == "REJECT"
    assert DEFAULT_POLICY.prefix_policies == ()
    assert (DEFAULT_POLICY.item_bytes_max, DEFAULT_POLICY.records_max) == (1_024, 1_000_000)
    assert (DEFAULT_POLICY.log_age_ms_max, DEFAULT_POLICY.log_revisions_max) == (600_000, 100_000)
    assert DEFAULT_POLICY.log_bytes_max == 67_108_864
