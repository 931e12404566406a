"""Refusals as ``google.rpc.Status``: code, one sentence, ErrorInfo, when to ask again, at most one typed detail."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NoReturn

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from noosphere.consistency import (
    ConflictInfo,
    Dot,
    LimitInfo,
    LogRangeInfo,
    LostInfo,
    Refusal,
    StaleEntry,
    StaleInfo,
    TransactionInfo,
)
from noosphere.v1 import errors_pb2, types_pb2

from .times import duration, timestamp

DOMAIN = "noosphere"
STATUS_KEY = "grpc-status-details-bin"
DETAILS_BYTES_MAX = 4096
MESSAGE_CHARS_MAX = 512
_UNSEEN_MAX = 16
_ANY_BYTES = 128
"""More than a detail takes beside itself: its type and two lengths."""

_ended: ContextVar[tuple[int, Refusal] | None] = ContextVar("ended", default=None)


def status_of(refusal: Refusal) -> status_pb2.Status:
    """Returns the rich status of a refusal, at most 4 KiB, without any value of a record."""
    info = error_details_pb2.ErrorInfo(reason=refusal.reason.value, domain=DOMAIN)
    if refusal.namespace:
        info.metadata["namespace"] = refusal.namespace
        info.metadata["head"] = str(refusal.head)
    status = status_pb2.Status(
        code=grpc.StatusCode[refusal.code.value].value[0], message=_cut(refusal.message, MESSAGE_CHARS_MAX)
    )
    _pack(status, info)
    if refusal.retry_after_ms is not None:
        _pack(status, error_details_pb2.RetryInfo(retry_delay=duration(refusal.retry_after_ms)))
    always = len(status.details)
    detail = _detail(refusal, DETAILS_BYTES_MAX - status.ByteSize() - _ANY_BYTES)
    if detail is not None:
        _pack(status, detail)
        while status.ByteSize() > DETAILS_BYTES_MAX:
            # Names can be long, and above gRPC's limit for metadata the whole error would be lost.
            del status.details[always:]
            if not _shorten(detail):
                break
            _pack(status, detail)
    return status


async def abort(context: grpc.aio.ServicerContext[Message, Message], refusal: Refusal) -> NoReturn:
    """Ends the call with the refusal's status."""
    status = status_of(refusal)
    _ended.set((id(context), refusal))
    await context.abort(
        grpc.StatusCode[refusal.code.value],
        status.message,
        trailing_metadata=((STATUS_KEY, status.SerializeToString()),),
    )


def last_refusal(context: object) -> Refusal | None:
    """Returns what this task has ended a call with by :func:`abort`, None if that was not it."""
    ended = _ended.get()
    return ended[1] if ended is not None and ended[0] == id(context) else None


def dot_message(dot: Dot) -> types_pb2.DotInfo:
    """Returns a dot as the API shows it."""
    message = types_pb2.DotInfo(dot=dot.dot, actor=dot.actor, deleted=dot.deleted)
    if dot.time_ms:
        message.write_time.CopyFrom(timestamp(dot.time_ms))
    return message


def stale_message(entry: StaleEntry) -> types_pb2.StaleEntry:
    """Returns what changed after a model saw it, as the API shows it."""
    changes = [types_pb2.StaleChange(key=c.key, actor=c.actor, revision=c.revision) for c in entry.changes]
    return types_pb2.StaleEntry(
        namespace=entry.namespace,
        name=entry.name,
        is_collection=entry.is_collection,
        seen=entry.seen,
        now=entry.now,
        changes=changes,
    )


def _shorten(detail: Message) -> bool:
    """Drops the least telling entry of a detail's list; returns whether there was one."""
    match detail:
        case errors_pb2.ConflictDetail() if detail.unseen:
            del detail.unseen[-1]
        case errors_pb2.TransactionDetail() if detail.failures:
            del detail.failures[-1]
        case _:
            return False
    return True


def _pack(status: status_pb2.Status, message: Message) -> None:
    packed = any_pb2.Any()
    # Maps in one order: the same refusal is the same bytes.
    packed.Pack(message, deterministic=True)
    status.details.append(packed)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def _stale_detail(entries: tuple[StaleEntry, ...], head: int, bytes_max: int) -> errors_pb2.StaleReadSetDetail:
    """Returns as much as fits: first what changed, then who changed it, of each the newest first."""
    detail = errors_pb2.StaleReadSetDetail(head=head)
    for entry in entries:
        detail.stale.append(stale_message(entry._replace(changes=())))
        if detail.ByteSize() > bytes_max:
            del detail.stale[-1]
            return detail
    for depth in range(max((len(entry.changes) for entry in entries), default=0)):
        for shown, entry in zip(detail.stale, entries, strict=True):
            if depth < len(entry.changes):
                change = entry.changes[depth]
                shown.changes.add(key=change.key, actor=change.actor, revision=change.revision)
                if detail.ByteSize() > bytes_max:
                    del shown.changes[-1]
                    return detail
    return detail


def _detail(refusal: Refusal, bytes_max: int) -> Message | None:
    match refusal.detail:
        case ConflictInfo(key, version, unseen):
            return errors_pb2.ConflictDetail(
                namespace=refusal.namespace,
                key=key,
                version=version,
                unseen=[dot_message(dot) for dot in unseen[:_UNSEEN_MAX]],
                head=refusal.head,
            )
        case LimitInfo(field, actual, limit):
            actual = max(-(1 << 63), min(actual, (1 << 63) - 1))
            return errors_pb2.LimitDetail(field=field, actual=actual, limit=limit, head=refusal.head)
        case LostInfo(after, through):
            return errors_pb2.LostRevisionsDetail(
                namespace=refusal.namespace, **{"from": after}, to=through, head=refusal.head
            )
        case LogRangeInfo(requested, floor):
            return errors_pb2.LogRangeDetail(
                namespace=refusal.namespace, requested=requested, floor=floor, head=refusal.head
            )
        case TransactionInfo(failures):
            detail = errors_pb2.TransactionDetail(head=refusal.head)
            for failure in failures[:_UNSEEN_MAX]:
                inner = failure.refusal.detail
                detail.failures.add(
                    index=failure.index,
                    is_operation=failure.is_operation,
                    key=failure.key,
                    reason=failure.refusal.reason.value,
                    version=inner.version if isinstance(inner, ConflictInfo) else 0,
                )
            return detail
        case StaleInfo(entries):
            return _stale_detail(entries, refusal.head, bytes_max)
        case None:
            return None
