"""Writes a dump to a file that is there whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import AsyncIterable
from pathlib import Path
from typing import IO, cast

from .lines import DumpError, End, parse

GZIP_SUFFIX = ".gz"
GZIP_LEVEL = 6


async def write_dump(path: Path, lines: AsyncIterable[bytes]) -> tuple[End, int]:
    """Writes lines, or chunks of them, beside ``path`` and puts them in its place once the last line is there.

    Args:
        path: where to; a name that ends in ``.gz`` is compressed. Only its owner may read it.
        lines: of a dump.

    Returns:
        The last line, and the size of the file in bytes.

    Raises:
        DumpError: it cannot be written, or its end is missing. What was at ``path`` is as before.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                with contextlib.ExitStack() as stack:
                    out = cast("IO[bytes]", file)
                    if path.name.endswith(GZIP_SUFFIX):
                        # Without name and time, the same dump is the same file.
                        zipped = gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0)
                        out = cast("IO[bytes]", stack.enter_context(zipped))
                    tail = b""
                    async for chunk in lines:
                        out.write(chunk)
                        tail = _last_line(tail + chunk)
                end = _end(tail)
                file.flush()
                os.fsync(file.fileno())
                size = os.fstat(file.fileno()).st_size
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
        return end, size
    except OSError as error:
        raise DumpError(f"cannot write {path}: {error.strerror}") from None


def _last_line(text: bytes) -> bytes:
    """Returns the last line of what was written, as far as it is there."""
    return text[text.rfind(b"\n", 0, len(text) - 1) + 1 :]


def _end(text: bytes) -> End:
    try:
        end = parse(text) if text.endswith(b"\n") else None
    except ValueError:
        end = None
    if not isinstance(end, End):
        raise DumpError("the dump has no end: whoever took it was cut off; nothing was kept of it")
    return end
