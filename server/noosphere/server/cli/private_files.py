"""Files that hold a secret: readable by their owner alone, whole or not there."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from .exits import CliError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def private_file(path: Path) -> Iterator[Callable[[str], None]]:
    """Makes sure that a file can be written, and yields what writes it.

    Args:
        path: which; what is there is replaced at once, so that whoever reads it finds the old or the new one.

    Yields:
        A function that takes the file's text. Without a call of it nothing is changed.

    Raises:
        CliError: the file cannot be written: told before the block begins, where that can be told.
    """
    if path.is_dir():
        raise _refused(path, "Is a directory")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _refused(path, error.strerror) from None
    with os.fdopen(number, "w", encoding="utf-8") as file:

        def write(text: str) -> None:
            try:
                file.write(text)
                file.flush()
                os.fsync(number)
                os.replace(partial, path)
            except OSError as error:
                raise _refused(path, error.strerror) from None

        try:
            yield write
        finally:
            # What was put in its place is not there under this name any more.
            partial.unlink(missing_ok=True)


def _refused(path: Path, why: str | None) -> CliError:
    return CliError(ExitCode.USAGE, f"cannot write {path}: {why}", "CANNOT_WRITE")
