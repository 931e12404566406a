"""Where a run was made: hardware, kernel, file system, versions, commit."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from .children import ROOT
from .stats import spread

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_SYNC_PROBES = 30
_PACKAGES = ("grpcio", "protobuf", "uvloop", "msgspec")


class NotADisk(Exception):
    """The data folder's file system keeps nothing, so a sync there costs nothing."""


@dataclass(frozen=True, slots=True)
class Mount:
    """The file system that holds a folder."""

    kind: str
    options: str


def mount_of(folder: Path) -> Mount:
    """Returns the file system of an existing folder, from ``/proc/mounts``."""
    device = folder.stat().st_dev
    best, found = -1, Mount("unknown", "")
    resolved = folder.resolve()
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        place = Path(point.encode().decode("unicode_escape"))
        # A later mount on the same point hides an earlier one, hence >=.
        if resolved.is_relative_to(place) and len(place.parts) >= best and _device(place) == device:
            best, found = len(place.parts), Mount(kind, options)
    return found


def _device(place: Path) -> int:
    try:
        return place.stat().st_dev
    except OSError:
        return -1


def require_disk(folder: Path) -> Mount:
    """Returns the folder's file system.

    Raises:
        NotADisk: it lives in memory.
    """
    mount = mount_of(folder)
    if mount.kind in _IN_MEMORY:
        raise NotADisk(f"{folder} is on {mount.kind}, where a sync costs nothing: give --data a folder on a disk")
    return mount


def sync_ms(folder: Path) -> tuple[float, float, float]:
    """Returns first quartile, median and third quartile of an append of 4 KiB with fdatasync, in milliseconds."""
    file = folder / "sync-probe"
    samples = []
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(_SYNC_PROBES):
            start = time.perf_counter()
            os.write(descriptor, bytes(4096))
            os.fdatasync(descriptor)
            samples.append((time.perf_counter() - start) * 1000)
    finally:
        os.close(descriptor)
        file.unlink()
    found = spread(samples)
    return found.low, found.median, found.high


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that a reader needs to judge or repeat a run."""

    date: str
    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    load_average: float
    file_system: str
    sync_ms: tuple[float, float, float]
    python: str
    sqlite: str
    packages: Mapping[str, str]
    commit: str
    command: str

    def as_json(self) -> dict[str, object]:
        """Returns the fields by name."""
        return asdict(self)


def describe(data: Path, mount: Mount, command: str) -> Machine:
    """Returns the facts about this machine and checkout."""
    return Machine(
        date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        cpu=_field("/proc/cpuinfo", "model name"),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=int(_field("/proc/meminfo", "MemTotal").split()[0]) / 1024**2,
        kernel=platform.release(),
        load_average=os.getloadavg()[0],
        file_system=f"{mount.kind} ({mount.options})",
        sync_ms=sync_ms(data),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        sqlite=sqlite3.sqlite_version,
        packages={name: version(name) for name in _PACKAGES},
        commit=_commit(),
        command=command,
    )


def _field(file: str, name: str) -> str:
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown" if file.endswith("cpuinfo") else "0"


def _commit() -> str:
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--", "server", "client", "consistency", "protos", "tests/bench")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit} with uncommitted changes" if changed else commit


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()
