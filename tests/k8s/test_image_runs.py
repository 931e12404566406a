"""The Dockerfile's own steps, carried out without Docker, and the server of the image that they make."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.image_root import INSTALLED, USER
from tests.support.waiting import until

from noosphere.client import connect

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
WHY_NOT = (
    "is not root on Linux, or has no `unshare` (Debian: util-linux), so the image is not tried"
    if os.geteuid() != 0 or shutil.which("unshare") is None
    else ""
)

# What a container runtime does with the image: its root for reading alone, a volume, /tmp, /dev and /proc, the user.
ISOLATED = """
set -e
mount --make-rprivate /
mount --bind "$0" "$0"
mount -o remount,ro,bind "$0"
mount --rbind /dev "$0/dev"
mount -t proc proc "$0/proc"
mount -t tmpfs -o uid={user},gid={user},mode=0700 volume "$0/var/lib/noosphere"
mount -t tmpfs -o mode=1777 tmp "$0/tmp"
exec {python} -c '
import os, sys
root, *arguments = sys.argv[1:]
os.chroot(root)
os.chdir("/var/lib/noosphere")
os.setgroups([])
os.setgid({user})
os.setuid({user})
os.execve(arguments[0], arguments, {{"PATH": "/nowhere", "HOME": "/nowhere"}})
' "$0" "$@"
"""


def steps(folder: Path) -> list[str]:
    """Returns the commands of the build stage, with folders of this machine for those of a container."""
    stage = DOCKERFILE.partition("FROM scratch")[0].replace("\\\n", " ")
    commands = re.findall(r"^RUN (.+)$", stage, re.MULTILINE)
    assert len(commands) == 2
    home = shlex.quote(str(folder))
    commands = [re.sub(r"(?<![\w.])/(build|environment|wheel|image)\b", rf"{home}/\1", one) for one in commands]
    base = shlex.quote(str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"))
    return [re.sub(r"(^|&& )python ", rf"\1{base} ", one) for one in commands]


def digest(root: Path) -> str:
    """Returns a digest of everything in a folder: names, kinds, modes, times, content."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        told = path.lstat()
        found.update(f"{path.relative_to(root)} {told.st_mode} {told.st_uid} {told.st_mtime_ns}".encode())
        if path.is_symlink():
            found.update(os.readlink(path).encode())
        elif stat.S_ISREG(told.st_mode):
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
async def test_the_server_of_the_image_serves_on_a_read_only_root_without_rights(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NOOSPHERE_")}
    environment |= {"SOURCE_DATE_EPOCH": "1767225600", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    # Copies, as the container has: building must not leave anything in the repository.
    source = tmp_path / "src"
    for line in re.findall(r"^COPY (?!--from)(.+) (\S+)$", DOCKERFILE, re.MULTILINE):
        for name in line[0].split():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            ignored = shutil.ignore_patterns("__pycache__")
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=ignored)
            else:
                shutil.copy(ROOT / name, target)
    for step in steps(tmp_path):
        _run(step, source, environment)
    image = tmp_path / "image"
    again = tmp_path / "again"
    _run(steps(tmp_path)[1].rpartition("&& ")[2].replace(str(image), str(again)), source, environment)
    assert digest(image) == digest(again), "the same source makes other bytes"
    names = {path.name for path in image.rglob("*") if path.is_file()}
    assert not {"sh", "bash", "dash", "busybox", "apt-get", "dpkg", "pip", "gcc"} & names
    writable = [path for path in image.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    assert writable == [image / "tmp"]
    # The runtime makes them.
    for name in ("dev", "proc"):
        (image / name).mkdir(exist_ok=True)
    script = ISOLATED.format(user=USER, python=shlex.quote(sys.executable))
    server = _start(script, image, f"{INSTALLED}/bin/noosphere", "serve", "--listen", "127.0.0.1:0")
    told: list[str] = []
    try:
        assert server.stdout is not None
        await _address(server, told)
        (status,) = [_status(pid) for pid in _children(server.pid)]
        assert status["Uid"].split() == [str(USER)] * 4
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        address = re.search(r"serves on (\S+)", told[-1])
        assert address is not None
        async with connect(address[1], agent="planner", timeout=60) as client:
            await client.shared("launch").put("plan", {"steps": ["draft"]})
            found = await client.shared("launch").get("plan")
            assert found is not None
            assert found.value == {"steps": ["draft"]}
        for pid in _children(server.pid):
            os.kill(pid, 15)
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def _run(step: str, folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(["sh", "-c", step], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


def _start(script: str, *arguments: str | Path) -> subprocess.Popen[str]:
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
    return subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


async def _address(server: subprocess.Popen[str], told: list[str]) -> None:
    """Waits for the line that tells where it serves."""
    assert server.stdout is not None
    os.set_blocking(server.stdout.fileno(), False)

    def told_it() -> bool:
        assert server.stdout is not None
        assert server.poll() is None, "the server has ended"
        if line := server.stdout.readline():
            told.append(line)
        return bool(told) and "serves on" in told[-1]

    await until(told_it, 120)


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
