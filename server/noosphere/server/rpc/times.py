"""Times: milliseconds inside, Timestamp and Duration in the API."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from noosphere.consistency import invalid

_SECONDS_MAX = 253_402_300_799
"""The last second of the year 9999, the end of the API's timestamps."""


def timestamp(time_ms: int) -> Timestamp:
    """Returns a store time as a timestamp."""
    seconds, rest = divmod(time_ms, 1000)
    return Timestamp(seconds=min(seconds, _SECONDS_MAX), nanos=rest * 1_000_000)


def duration(time_ms: int) -> Duration:
    """Returns a span as a duration."""
    seconds, rest = divmod(time_ms, 1000)
    return Duration(seconds=seconds, nanos=rest * 1_000_000)


def duration_ms(field: str, value: Duration) -> int:
    """Returns a duration in whole milliseconds, rounded up so that a positive one never becomes 0.

    Raises:
        Refusal: INVALID_FIELD for seconds and nanos of different sign or out of range.
    """
    if abs(value.seconds) > _SECONDS_MAX or abs(value.nanos) > 999_999_999 or value.seconds * value.nanos < 0:
        raise invalid(field, f"{value.seconds} s and {value.nanos} ns are not a valid duration")
    return value.seconds * 1000 - (-value.nanos // 1_000_000)


def timestamp_ms(field: str, value: Timestamp) -> int:
    """Returns a timestamp in whole milliseconds.

    Raises:
        Refusal: INVALID_FIELD for a time before 1970 or after 9999.
    """
    if not 0 <= value.seconds <= _SECONDS_MAX or not 0 <= value.nanos <= 999_999_999:
        raise invalid(field, f"{value.seconds} s and {value.nanos} ns are not a valid timestamp")
    return value.seconds * 1000 + value.nanos // 1_000_000
