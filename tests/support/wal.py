"""Cuts the end off a write-ahead log, as a loss of power does that the page cache did not survive."""

from __future__ import annotations

from pathlib import Path

_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24


def frames(wal: Path) -> int:
    """Returns how many whole frames a write-ahead log of SQLite has."""
    size = int.from_bytes(wal.read_bytes()[8:12], "big")
    return (wal.stat().st_size - _HEADER_BYTES) // (size + _FRAME_HEADER_BYTES)


def cut_wal(wal: Path, keep_frames: int, torn_bytes: int = 100) -> None:
    """Keeps the first frames and a torn piece of the next one."""
    page = int.from_bytes(wal.read_bytes()[8:12], "big")
    with wal.open("r+b") as file:
        file.truncate(_HEADER_BYTES + keep_frames * (page + _FRAME_HEADER_BYTES) + torn_bytes)
