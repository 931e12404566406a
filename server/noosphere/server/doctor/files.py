"""The data folder, its file system, and files that nobody else should read."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ..config import Settings
from ..drivers import is_replica
from ..security.tokens import TOKENS
from ..storage.embedded.coordinator import FILE as COORDINATION
from ..storage.embedded.database import APPLICATION_ID
from ..storage.embedded.folder import FORMAT, LOCK, RESTORING, STAMP
from ..storage.embedded.sqlite import FILE as WORKING
from ..storage.facts.queue import FILE as QUEUE
from ..storage.facts.store import FILE as FACTS
from .findings import Finding, problem
from .surroundings import Surroundings

FREE_BYTES_MIN = 256 * 1024 * 1024
"""A fold and a rewrite of the files need room beside them."""

FREE_SHARE_MIN = 0.05
FREE_FILES_MIN = 100
AHEAD_MS_MAX = 60_000
"""How far store time may be ahead of the machine's clock: after that, the clock was set back."""

_NOT_OURS = stat.S_IRWXG | stat.S_IRWXO
_DATABASES = (WORKING, COORDINATION, FACTS, QUEUE)


def examine_secrets(settings: Settings, config: Path | None) -> Iterator[Finding]:
    """Looks at who may read the files that hold secrets; ``config`` is the configuration's, if it holds any."""
    for path, what in ((settings.tls_key, "the key of the server's certificate"), (config, "a secret of the server")):
        if path is None:
            continue
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            # That it cannot be read is told by whoever reads it.
            continue
        if mode & stat.S_IROTH:
            yield problem(
                "secret_readable",
                f"everybody on this machine may read {what}",
                f"{path} has mode {mode:04o}",
                f"chmod 600 {path}, and replace what others may have read",
            )


def examine_folder(settings: Settings, surroundings: Surroundings, served: bool) -> Iterator[Finding]:
    """Looks at the data folder; at whatever will hold it, if there is none yet."""
    if is_replica(settings):
        return
    path = settings.data
    if not os.path.lexists(path):
        parent = next(one for one in (*path.absolute().parents,) if os.path.lexists(one))
        if not parent.is_dir():
            yield _not_a_folder(parent)
            return
        # Asked by writing: permissions alone do not tell of a file system that is mounted for reading.
        yield from _examine_writing(parent)
        yield from _examine_room(parent, surroundings)
        return
    if not path.is_dir():
        yield _not_a_folder(path)
        return
    try:
        names = set(os.listdir(path))
    except OSError as error:
        yield problem(
            "data_unusable",
            "the data folder cannot be read",
            f"{path}: {error.strerror}",
            "let the server's user read and write it, or configure another one (data)",
        )
        return
    unwritable = list(_examine_writing(path))
    if unwritable:
        yield from unwritable
        return
    yield from _examine_room(path, surroundings)
    if STAMP not in names and names - {LOCK}:
        yield problem(
            "data_foreign",
            "the data folder is one of something else",
            f"{path} is not empty and has no {STAMP}",
            "configure an empty folder, or one that a server has made (data)",
        )
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if names and mode & _NOT_OURS & (stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH):
        yield problem(
            "data_readable",
            "others on this machine may read or change the data",
            f"{path} has mode {mode:04o}",
            f"chmod 700 {path}",
        )
    if RESTORING in names:
        yield problem(
            "restore_cut_off",
            "a restore into the data folder has not ended",
            f"{path / RESTORING} is there",
            "run `noosphere restore --replace` to its end",
        )
    yield from _examine_stamp(path)
    yield from _examine_databases(path, names, surroundings)
    if LOCK in names and not served and (owner := _holder(path / LOCK)) is not None:
        yield problem(
            "data_in_use",
            "another process uses the data folder, and no server answers at the configured address",
            f"{path} is locked by process {owner}",
            "give the options that the server was started with, or end that process",
        )


def examine_tokens(settings: Settings) -> Iterator[Finding]:
    """Looks whether anybody can administer a server that takes API tokens."""
    path = settings.data / COORDINATION
    if not settings.tokens or is_replica(settings):
        return
    count = 0
    try:
        if path.exists():
            with closing(reading(path)) as db:
                ((count,),) = db.execute("SELECT count(*) FROM entries WHERE tbl = ?", (TOKENS,))
    except sqlite3.Error:
        # There is no such table before a first token, and a damaged file is told of elsewhere.
        count = 0
    if not count and settings.tls_client_ca is None:
        yield problem(
            "no_admin_token",
            "the server takes API tokens, and there is none",
            f"{path} has no token",
            "noosphere token create --admin, with the options of the server",
        )


def _not_a_folder(path: Path) -> Finding:
    return problem(
        "data_not_a_folder",
        "the data folder is a file",
        f"{path} is no folder",
        "move it away, or configure another folder (data)",
    )


def _examine_writing(folder: Path) -> Iterator[Finding]:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"noosphere")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        yield problem(
            "data_unusable",
            "nothing can be written and synced where the data are to be",
            f"{folder}: {error.strerror}",
            "mount it for writing, let the server's user write there, or configure another folder (data)",
        )


def _examine_room(folder: Path, surroundings: Surroundings) -> Iterator[Finding]:
    room = surroundings.room(folder)
    if room.free_bytes < max(FREE_BYTES_MIN, int(room.size_bytes * FREE_SHARE_MIN)):
        yield problem(
            "disk_full",
            "the disk of the data is nearly full",
            f"{room.free_bytes / 2**20:,.0f} MiB of {room.size_bytes / 2**20:,.0f} MiB are free at {folder}",
            "make room: a server stops when it can write no more",
        )
    if room.files and room.free_files < FREE_FILES_MIN:
        yield problem(
            "disk_full",
            "the disk of the data can hold hardly any more files",
            f"{room.free_files} of {room.files} are free at {folder}",
            "remove files that are not needed",
        )


def _examine_stamp(path: Path) -> Iterator[Finding]:
    try:
        text = (path / STAMP).read_text("ascii").strip()
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        text = str(error)
    program, _, number = text.partition(" ")
    if program != "noosphere" or not number.isdecimal():
        yield problem(
            "data_damaged",
            "the stamp of the data folder is damaged",
            f"{path / STAMP} says {text[:40]!r}",
            "restore a dump into an empty folder",
        )
    elif int(number) > FORMAT:
        yield _newer(path / STAMP, int(number))


def _examine_databases(path: Path, names: set[str], surroundings: Surroundings) -> Iterator[Finding]:
    for name in sorted(names.intersection(_DATABASES)):
        try:
            with closing(reading(path / name)) as db:
                ((application,),) = db.execute("PRAGMA application_id")
                ((version,),) = db.execute("PRAGMA user_version")
                ahead_ms = 0
                if name == WORKING:
                    for (time_ms,) in db.execute("SELECT value FROM store WHERE name = 'time_ms'"):
                        ahead_ms = time_ms - surroundings.wall_ms()
        except sqlite3.OperationalError as error:
            yield problem("data_unusable", f"{name} cannot be read", error, "see what else is found")
            continue
        except sqlite3.DatabaseError as error:
            application, version, ahead_ms = None, 0, 0
            evidence = str(error)
        else:
            evidence = f"application id {application}"
        if application != APPLICATION_ID:
            yield problem(
                "data_damaged",
                f"{path / name} is damaged, or of another program",
                evidence,
                "restore a dump into an empty folder",
            )
        elif version > FORMAT:
            yield _newer(path / name, version)
        elif ahead_ms > AHEAD_MS_MAX:
            yield problem(
                "clock_set_back",
                "the clock of this machine is behind what the store has seen: times and leases stand still until then",
                f"the clock is {ahead_ms / 1000:,.0f} s behind the newest stored time",
                "set the clock right, and keep it so by NTP",
            )


def _newer(path: Path, found: int) -> Finding:
    return problem(
        "newer_format",
        "the data are of a newer format than this program knows",
        f"{path} has format {found}, this program reads up to {FORMAT}",
        "use the newer version of noosphere",
    )


def reading(path: Path) -> sqlite3.Connection:
    """Opens a database that a server may be using, to read it."""
    return sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True, timeout=5)


def _holder(lock: Path) -> str | None:
    """Returns the process that has locked a folder, None if none has."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return None
    except OSError:
        return os.read(fd, 32).decode("ascii", "replace").strip() or "(unknown)"
    finally:
        os.close(fd)
