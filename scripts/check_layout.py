"""Checks rules of the source tree that no linter knows (used by `make check`); prints one line per violation."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("client", "consistency", "protos", "server")
TYPED = (
    "client/noosphere/client",
    "consistency/noosphere/consistency",
    "protos/noosphere/v1",
    "server/noosphere/server",
    "server/noosphere/testing",
)
LINES_MAX = 500
# The lock must work with whatever index its user has configured.
INDEX_ADDRESS = re.compile(
    rb"--(extra-)?index-url|--find[-]links|https?://[^\s\"']*(/simple\b|[p]ypi|[p]ythonhosted)", re.I
)


def violations(root: Path, tracked: list[str]) -> Iterator[str]:
    """Yields one line per violation.

    Args:
        root: the repository.
        tracked: paths below it to look at, with forward slashes.
    """
    for path in tracked:
        file = root / path
        if not file.is_file():
            continue
        parts = path.split("/")
        if parts[-2:] == ["noosphere", "__init__.py"]:
            yield f"{path}: a namespace package must not have an __init__.py (it would hide the other parts)"
        generated = "_pb2" in parts[-1] or parts[-1] == "_generated.py"
        if path.endswith(".py") and parts[0] in SOURCES and not generated:
            if (lines := file.read_bytes().count(b"\n")) > LINES_MAX:
                yield f"{path}: has {lines} lines, the limit is {LINES_MAX}: is it really one idea?"
            if len(parts) > 4 and not (file.parent / "__init__.py").exists():
                yield f"{path}: its folder has no __init__.py, so it is no package of ours"
        if found := INDEX_ADDRESS.search(file.read_bytes()):
            yield f"{path}: names a package index ({found[0].decode(errors='replace')})"
    for package in TYPED:
        if package + "/py.typed" not in tracked:
            yield f"{package}/py.typed: is missing, so users' type checkers ignore the package"


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    found = list(violations(ROOT, sorted(filter(None, listed.stdout.decode().split("\0")))))
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
