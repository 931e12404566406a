"""Turns the client's records and changes into the documents and cells that commands print."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .output import compact, shorten
from .shapes import ClaimShape, DotShape, RecordShape, ValueShape, WriteShape

if TYPE_CHECKING:
    from noosphere.client import ClaimState, Dot, Record

_CELL_CHARS_MAX = 60


def time_text(time: datetime | None) -> str | None:
    """Returns a time as RFC 3339 in UTC with milliseconds."""
    return None if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def value_data(value: Any) -> Any:
    """Returns a stored value as JSON: itself, or the base64 text of bytes."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def value_cell(values: tuple[Any, ...]) -> str:
    """Returns the live values of a record as one short cell."""
    shown = (f"{len(value)} bytes" if isinstance(value, bytes) else compact(value) for value in values)
    return shorten(" | ".join(shown), _CELL_CHARS_MAX)


def dots_data(dots: Iterable[Dot]) -> list[DotShape]:
    """Returns writes without their content."""
    return [
        {"dot": str(dot.revision), "actor": dot.actor, "write_time": time_text(dot.time), "deleted": dot.deleted}
        for dot in dots
    ]


def record_data(record: Record[Any]) -> RecordShape:
    """Returns a record that was read as JSON."""
    values: list[ValueShape] = [
        {
            "dot": str(written.revision),
            "actor": written.actor,
            "write_time": time_text(written.time),
            "expire_time": time_text(written.expires_at),
            "encoding": "bytes" if isinstance(value, bytes) else "json",
            "value": value_data(value),
        }
        for value, written in zip(record.values, record.writers, strict=True)
    ]
    return {
        "namespace": record.namespace,
        "key": record.key,
        "version": str(record.version or 0),
        "values": values,
        "attributes": dict(record.attributes),
        "merge_type": record.merge_type.name.lower() if record.merge_type else None,
        "claim": _claim_data(record.claim) if record.claim is not None else None,
        "create_time": time_text(record.created_at),
        "change_count": record.change_count,
    }


def write_data(record: Record[Any]) -> WriteShape:
    """Returns what the write that returned this record did."""
    applied = record.applied
    assert applied is not None
    return {
        "namespace": record.namespace,
        "key": record.key,
        "revision": str(applied.revision),
        "version": None if applied.version is None else str(applied.version),
        "overwritten": dots_data(applied.overwritten),
        "concurrent_delete": applied.concurrent_delete,
        "replayed": applied.replayed,
    }


def _claim_data(claim: ClaimState) -> ClaimShape:
    return {
        "holder": claim.holder or None,
        "expire_time": time_text(claim.expires_at),
        "fence": str(claim.fence),
        "done": claim.done,
        "completed_by": claim.completed_by or None,
        "result": value_data(claim.result),
        "attempts": claim.attempts,
    }
