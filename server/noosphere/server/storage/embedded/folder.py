"""The data folder: one process at a time, a format stamp, and errors that a person can act on."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from types import TracebackType
from typing import Self

log = logging.getLogger("noosphere.storage")

FORMAT = 1
"""Format of everything in a data folder. A higher one on disk was written by a newer program."""

STAMP = "FORMAT"
LOCK = "LOCK"
_FRESH = "FORMAT.new"
RESTORING = "RESTORING"
"""A file that is there while a restore has not ended: what else is there is not complete."""

_NUMBER_DIGITS_MAX = 9


class DataFolderError(Exception):
    """A data folder or a file in it cannot be used. Its text is one line; nothing was changed."""


class StoreFailed(Exception):
    """The disk failed while the server ran. Its text is one line; the process has to stop.

    Whatever was not acknowledged by then has an unknown outcome, and trying again is no remedy: after a
    failed sync an operating system may have dropped the very pages that a second sync would report as
    written.
    """


def log_failure(failure: BaseException) -> None:
    """Says so, for want of somebody who stops the process."""
    log.critical("%s", failure)


class DataFolder:
    """A locked data folder. The lock ends with :meth:`release` or with the process.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd

    @classmethod
    def lock(cls, path: Path, *, restores: bool = False) -> DataFolder:
        """Creates the folder if there is none, locks it and checks its format.

        Args:
            path: the folder.
            restores: whether a restore does so; nobody else takes what one has left half done.

        Raises:
            DataFolderError: it is no folder, cannot be read or written, is in use by another process,
                holds something else, or was written in a newer format.
        """
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            names = set(os.listdir(path))
        except (FileExistsError, NotADirectoryError):
            raise DataFolderError(f"{path} is not a folder") from None
        except OSError as error:
            raise DataFolderError(f"cannot use the data folder {path}: {error.strerror}") from None
        if STAMP not in names and names - {LOCK, _FRESH}:
            raise DataFolderError(f"{path} is not empty and has no {STAMP} file: it is not a data folder of noosphere")
        lock_fd = _take_lock(path)
        try:
            if RESTORING in names and not restores:
                raise DataFolderError(
                    f"a restore into {path} was cut off: what is there is not complete; run `noosphere restore "
                    "--replace` to its end"
                )
            if STAMP in names:
                _check_stamp(path)
            else:
                _write_stamp(path)
        except BaseException:
            os.close(lock_fd)
            raise
        return cls(path, lock_fd)

    def begin_restore(self) -> None:
        """Keeps everybody but a restore from using the folder, also after a loss of power.

        Raises:
            OSError: it cannot be written to.
        """
        with open(self.path / RESTORING, "ab") as file:
            os.fsync(file.fileno())
        sync_folder(self.path)

    def end_restore(self) -> None:
        """Ends what :meth:`begin_restore` began.

        Raises:
            DataFolderError: it cannot be written to.
        """
        try:
            sync_folder(self.path)
            (self.path / RESTORING).unlink()
            sync_folder(self.path)
        except OSError as error:
            raise DataFolderError(f"cannot write to the data folder {self.path}: {error.strerror}") from None

    def release(self) -> None:
        """Lets another process use the folder; may be called twice."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> Self:
        """Returns the folder."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unlocks."""
        self.release()


def _take_lock(path: Path) -> int:
    try:
        lock_fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataFolderError(f"cannot use the data folder {path}: {LOCK}: {error.strerror}") from None
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(lock_fd, 32).decode("ascii", "replace").strip()
        os.close(lock_fd)
        raise DataFolderError(f"{path} is already in use by process {owner or '(unknown)'}") from None
    except OSError as error:
        os.close(lock_fd)
        raise DataFolderError(f"cannot lock the data folder {path}: {error.strerror}") from None
    try:
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(lock_fd)
        raise DataFolderError(f"cannot write to the data folder {path}: {error.strerror}") from None
    return lock_fd


def _check_stamp(path: Path) -> None:
    try:
        text = (path / STAMP).read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise DataFolderError(f"cannot read {path / STAMP}: {error}") from None
    program, _, number = text.strip().partition(" ")
    if program != "noosphere" or not number.isdecimal() or len(number) > _NUMBER_DIGITS_MAX:
        raise DataFolderError(f"{path / STAMP} is damaged: it should say 'noosphere {FORMAT}'")
    check_format(int(number), path)


def check_format(found: int, where: Path) -> None:
    """Checks a format number read from ``where``.

    Raises:
        DataFolderError: a newer program wrote it.
    """
    if found > FORMAT:
        raise DataFolderError(
            f"{where} has format {found}, this version of noosphere reads up to {FORMAT}: use the newer version"
        )


def _write_stamp(path: Path) -> None:
    """Writes the stamp so that it is there whole or not at all."""
    fresh = path / _FRESH
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, f"noosphere {FORMAT}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(fresh, path / STAMP)
        sync_folder(path)
    except OSError as error:
        raise DataFolderError(f"cannot write to the data folder {path}: {error.strerror}") from None


def sync_folder(path: Path) -> None:
    """Makes the names of files in ``path`` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
