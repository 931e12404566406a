"""Assembles the file system of the container image: Python, what is installed for it, what both need, nothing else.

The Dockerfile runs it in its build stage and copies the folder that it fills into an empty image. So there is no
shell, no package manager and no compiler in the image, and the same folder can be made and tried without Docker.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

USER = 65532
"""The numeric user and group of the server, as images without a shell commonly have it."""
INSTALLED = Path("/opt/noosphere")
"""The virtual environment's place in the image."""
# Of no use to a server; what is not there cannot be used against it.
UNUSED = (
    "ensurepip",
    "idlelib",
    "lib2to3",
    "test",
    "tkinter",
    "turtledemo",
    "turtle.py",
    "pydoc_data",
    "site-packages",
)
SYSTEM_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/os-release", "/etc/ld.so.cache", "/etc/protocols")
DATA = Path("/var/lib/noosphere")
ACCOUNTS = {
    "etc/passwd": f"root:x:0:0:root:/root:/noshell\nnoosphere:x:{USER}:{USER}:noosphere:{DATA}:/noshell\n",
    "etc/group": f"root:x:0:\nnoosphere:x:{USER}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def assemble(root: Path, environment: Path, epoch_s: int) -> None:
    """Fills a folder with everything that a container needs.

    Args:
        root: the folder; must not exist.
        environment: a virtual environment of the Python that runs this.
        epoch_s: the time that all files get, in seconds since 1970.
    """
    root.mkdir(parents=True)
    _copy_python(root)
    _copy_environment(root, environment)
    for name in SYSTEM_FILES:
        if Path(name).exists():
            _copy_file(Path(name), root)
    for name, content in ACCOUNTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    # Only the loader knows which libraries are found; the place of each is kept, so that it finds them again.
    for library in sorted(set(_libraries(_binaries(root)))):
        _copy_file(library, root)
    _compile(root)
    for folder, mode in ((root / "tmp", 0o1777), (_inside(root, DATA), 0o700)):
        folder.mkdir(parents=True)
        folder.chmod(mode)
    if os.geteuid() == 0:
        os.chown(_inside(root, DATA), USER, USER)
    _settle(root, epoch_s)


def _copy_python(root: Path) -> None:
    home = _inside(root, Path(sys.base_prefix))
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (home / "bin").mkdir(parents=True)
    shutil.copy2(Path(sys.base_prefix) / "bin" / name, home / "bin" / name)
    library = Path(sysconfig.get_path("stdlib"))
    ignored = shutil.ignore_patterns("__pycache__", "config-*", "*.a", "_tkinter*", "_test*", "*.exe", *UNUSED)
    shutil.copytree(library, _inside(root, library), symlinks=True, ignore=ignored)


def _copy_environment(root: Path, environment: Path) -> None:
    """Copies a virtual environment to its place in the image, without what only installs packages."""
    target = _inside(root, INSTALLED)
    ignored = shutil.ignore_patterns("__pycache__", "pip", "pip-*", "setuptools*", "_distutils_hack", "distutils-*")
    shutil.copytree(environment / "lib", target / "lib", symlinks=True, ignore=ignored)
    (target / "bin").mkdir()
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (target / "bin" / "python").symlink_to(Path(sys.base_prefix) / "bin" / python)
    (target / "pyvenv.cfg").write_text(
        f"home = {sys.base_prefix}/bin\ninclude-system-site-packages = false\n"
        f"version = {sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}\n"
    )
    # Without isolation (-I) whoever sets a variable, or the working directory, could bring in other code.
    script = f"#!{INSTALLED}/bin/python -I\nimport sys\n\nfrom noosphere.server.cli import main\n\nsys.exit(main())\n"
    (target / "bin" / "noosphere").write_text(script)
    (target / "bin" / "noosphere").chmod(0o755)


def _binaries(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink() and (".so" in path.name or os.access(path, os.X_OK)):
            with path.open("rb") as stream:
                if stream.read(4) == b"\x7fELF":
                    yield path


def _libraries(binaries: Iterable[Path]) -> Iterator[Path]:
    """Yields the files of the machine that the loader finds for binaries.

    Raises:
        SystemExit: it finds one nowhere.
    """
    for binary in binaries:
        told = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, env={"LC_ALL": "C"})
        for line in told.stdout.splitlines():
            words = line.split()
            if "not found" in line:
                sys.exit(f"{binary} needs {words[0]}, which is nowhere on this machine")
            found = words[2] if "=>" in words else words[0]
            # Libraries that a wheel brings are found beside what needs them, and copied with it.
            if found.startswith("/") and Path(found).is_file() and not is_beside(binary, Path(found)):
                yield Path(found)


def is_beside(binary: Path, library: Path) -> bool:
    """Tells whether a library was copied together with what needs it."""
    return any(library.is_relative_to(parent) for parent in binary.parents if parent.name == "site-packages")


def _copy_file(file: Path, root: Path) -> None:
    # /lib and /lib64 are links to folders below /usr on Debian: the image has one place for each file.
    target = _inside(root, file.parent.resolve() / file.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy2(file.resolve(), target)
    given = _inside(root, file)
    for parent in reversed(file.parents[:-1]):
        link = _inside(root, parent)
        if parent.is_symlink() and not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.readlink(parent))
    assert given.exists(), given


def _compile(root: Path) -> None:
    """Compiles all of Python's code, as nothing can be written at run time; bound to the content, not to a time."""
    for folder in (Path(sysconfig.get_path("stdlib")), INSTALLED / "lib"):
        done = compileall.compile_dir(
            str(_inside(root, folder)),
            quiet=2,
            stripdir=str(root),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            workers=os.cpu_count() or 1,
        )
        if not done:
            print(f"some files below {folder} cannot be compiled", file=sys.stderr)


def _settle(root: Path, epoch_s: int) -> None:
    """Gives all files one time, and takes away what anybody but their owner might change."""
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o7777
            path.chmod(mode if path == root / "tmp" else mode & ~0o022)
        os.utime(path, (epoch_s, epoch_s), follow_symlinks=False)


def _inside(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def main() -> int:
    """Assembles the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="the folder to fill; must not exist")
    parser.add_argument("--environment", type=Path, required=True, help="the virtual environment to put into it")
    options = parser.parse_args()
    assemble(options.root, options.environment, int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
