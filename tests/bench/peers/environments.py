"""Virtual environments of the peers: made once from pinned requirements, kept in a cache folder, never in ours."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements"
PYTHONS = {"agent-memory-server": "3.12"}
"""Peers that do not run on the Python of everybody else."""

_INSTALL_SECONDS_MAX = 900


class Uninstallable(Exception):
    """A peer cannot be had here; the message says why, in one line."""


def environment(name: str, *, install: bool = True) -> Path:
    """Returns the Python of an environment, which is made if it is not there.

    Args:
        name: that of its requirements.
        install: whether it may be made, which may need a network; otherwise it has to be there.

    Raises:
        Uninstallable: it is not there and cannot be made, or must not be.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    version = PYTHONS.get(name, f"{sys.version_info.major}.{sys.version_info.minor}")
    digest = hashlib.sha256(requirements.read_bytes() + version.encode()).hexdigest()[:12]
    folder = _cache() / f"{name}-{digest}"
    python = folder / "bin" / "python"
    if (folder / "made").exists() and python.exists():
        return python
    if not install:
        raise Uninstallable("not installed yet; run without --no-install")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        # Two runs at once must not both make it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ((folder / "made").exists() and python.exists()):
            _make(folder, _interpreter(version), requirements)
            (folder / "made").touch()
    return python


def install_all() -> dict[str, str]:
    """Makes every environment that is not there yet, before anybody's time is measured; returns why some are not."""
    whys = {}
    for requirements in sorted(REQUIREMENTS.glob("*.txt")):
        try:
            environment(requirements.stem)
        except Uninstallable as error:
            whys[requirements.stem] = str(error)
    return whys


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "noosphere-peers"


def _make(folder: Path, interpreter: str, requirements: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    uv = [sys.executable, "-m", "uv"]
    _run([*uv, "venv", "--quiet", "--python", interpreter, str(folder)])
    python = str(folder / "bin" / "python")
    _run([*uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", str(requirements)])


def _interpreter(version: str) -> str:
    """Returns a Python of this version that runs: what is on the path may be a shim that does not."""
    candidates = [sys.executable, f"python{version}"]
    candidates += [str(path) for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    for candidate in candidates:
        try:
            ask = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            found = subprocess.run(ask, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            continue
        if found == version:
            return candidate
    # uv may have one, or fetch one where it can.
    return version


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise Uninstallable(f"installing took more than {_INSTALL_SECONDS_MAX} s") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise Uninstallable(" ".join(lines)[-300:] or f"uv ended with exit code {done.returncode}")
