"""What the store remembers of an applied write, in at most 256 bytes, and the reply it gives on a retry."""

from __future__ import annotations

import msgspec

from noosphere.consistency import CausalContext, Dot, Remembered, acknowledge
from noosphere.consistency.limits import REMEMBERED_REPLY_BYTES_MAX

from .types import AppliedOp


class OpMemory(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One operation of a remembered commit: what its acknowledgement is made from."""

    sole: bool
    live: bool
    prefix: int = 0
    concurrent_delete: bool = False
    overwritten: tuple[int, ...] = ()
    merged: bytes | None = None
    trimmed: int = 0


_decoder = msgspec.msgpack.Decoder(list[OpMemory])


def encode_reply(ops: list[OpMemory]) -> bytes:
    """Returns the remembered form of a write's reply.

    What does not fit is left out in an order that keeps a retry safe: first values and lists that only
    inform, then contexts (a context that covers less refuses more, it never loses anything). A merge whose
    result is left out is one that the writer has not read, so it gets no version either.
    """
    data = msgspec.msgpack.encode(ops)
    if len(data) > REMEMBERED_REPLY_BYTES_MAX:
        ops = [
            OpMemory(op.sole and op.merged is None, op.live and op.merged is None, op.prefix, op.concurrent_delete)
            for op in ops
        ]
        data = msgspec.msgpack.encode(ops)
    if len(data) > REMEMBERED_REPLY_BYTES_MAX:
        # Two bits an operation: 64 operations always fit.
        data = b"".join(bytes((op.sole | op.live << 1,)) for op in ops)
        data = b"\xc1" + data
    return data


def decode_reply(remembered: Remembered) -> tuple[AppliedOp, ...]:
    """Returns the results of a remembered write, as far as they were kept."""
    if remembered.reply[:1] == b"\xc1":
        ops = [OpMemory(bool(flags & 1), bool(flags & 2)) for flags in remembered.reply[1:]]
    else:
        ops = _decoder.decode(remembered.reply)
    results = []
    for op in ops:
        version, context = acknowledge(remembered.revision, op.sole, op.live, CausalContext(op.prefix))
        results.append(
            AppliedOp(
                version,
                context,
                tuple(Dot(dot, "", 0, False) for dot in op.overwritten),
                op.concurrent_delete,
                op.merged,
                op.trimmed,
            )
        )
    return tuple(results)
