"""Rows of the journal: no bit of them may be another one unnoticed."""

from __future__ import annotations

import pytest

from noosphere.consistency import NEVER_MS
from noosphere.server.storage.embedded.codec import (
    Cell,
    CommitItem,
    DamagedBlob,
    LogItem,
    decode_batch,
    decode_log,
    encode_batch,
    encode_log,
)

CELL = Cell("plan/a", 7, b'{"at": 1}', NEVER_MS, NEVER_MS, True, b"event")
ITEM = CommitItem(b"storage", 7, 1_000, (CELL,), 1, 0)


def test_a_row_is_read_as_it_was_written() -> None:
    batch = decode_batch(encode_batch(1_000, [ITEM]))
    assert (batch.time_ms, batch.items) == (1_000, (ITEM,))
    log = (LogItem(7, 1_000, (CELL,), 20),)
    assert decode_log(encode_log(log)) == log


@pytest.mark.parametrize("blob", [encode_batch(1_000, [ITEM]), encode_batch(1_000, [])], ids=["a commit", "empty"])
def test_a_row_of_which_any_bit_is_another_one_or_any_end_is_missing_is_damaged(blob: bytes) -> None:
    for at in range(len(blob)):
        for bit in range(8):
            changed = blob[:at] + bytes([blob[at] ^ (1 << bit)]) + blob[at + 1 :]
            with pytest.raises(DamagedBlob):
                decode_batch(changed)
        with pytest.raises(DamagedBlob):
            decode_batch(blob[:at])
    with pytest.raises(DamagedBlob):
        decode_batch(blob + b"\0")
