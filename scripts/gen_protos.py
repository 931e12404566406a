"""Generates the gRPC stubs beside their .proto files; `--check` only compares (used by `make check`)."""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PACKAGE = Path("noosphere/v1")
ETCD = Path("noosphere/server/storage/etcd")
PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generate(root: Path, package: Path, out: Path) -> list[Path]:
    sources = sorted(str(p.relative_to(root)) for p in (root / package).glob("*.proto"))
    kinds = ("--python_out", "--grpc_python_out", "--mypy_out", "--mypy_grpc_out")
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", str(root), *(f"{kind}={out}" for kind in kinds), *sources],
        check=True,
        cwd=root,
        # protoc finds the mypy plugins on PATH, where an unactivated environment's are not.
        env={**os.environ, "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))},
    )
    made = sorted(p for pattern in PATTERNS for p in (out / package).glob(pattern))
    # A .proto without services gets an empty grpc module; nobody imports it.
    return [p for p in made if "_pb2_grpc" not in p.name or "_service_pb2_grpc" in p.name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if the committed stubs differ")
    check = parser.parse_args().check
    # The contract of ours, and what is used of etcd's.
    results = [settle(PROTOS, PACKAGE, check), settle(ROOT / "server", ETCD, check)]
    return max(results)


def settle(root: Path, package: Path, check: bool) -> int:
    with tempfile.TemporaryDirectory() as folder:
        made = generate(root, package, Path(folder))
        target = root / package
        committed = {p.name for pattern in PATTERNS for p in target.glob(pattern)}
        differing = [
            p.name for p in made if not (target / p.name).exists() or not filecmp.cmp(p, target / p.name, shallow=False)
        ]
        stale = sorted(committed - {p.name for p in made})
        if check:
            for name in differing + stale:
                print(f"{package / name}: differs from its .proto; run `make proto`", file=sys.stderr)
            return 1 if differing or stale else 0
        for name in stale:
            (target / name).unlink()
        for path in made:
            shutil.copy(path, target / path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
