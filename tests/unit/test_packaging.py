"""What an agent that installs plain `noosphere` gets, and what it does not need."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# grpc looks for its companions and loads those that it finds; plain noosphere brings none of them.
LOADED = """
import sys
sys.modules |= dict.fromkeys(("grpc_tools", "grpc_health", "grpc_reflection", "grpc_status"))
before = set(sys.modules)
import noosphere.client
names = {name.partition(".")[0] for name in set(sys.modules) - before}
print("\\n".join(sorted(n for n in names if n not in sys.stdlib_module_names)))
"""


def test_the_client_loads_only_what_plain_noosphere_depends_on() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if not name.startswith(("_cython_", "_sysconfigdata_"))}
    allowed = {
        "noosphere",
        # grpcio, protobuf and googleapis-common-protos
        "grpc",
        "google",
        "cython_runtime",
        # pydantic and what it brings
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "typing_extensions",
        "typing_inspection",
    }
    assert loaded <= allowed
    assert "noosphere" in loaded


def test_plain_noosphere_declares_four_dependencies() -> None:
    names = {requirement.split(">")[0] for requirement in PROJECT["dependencies"]}
    assert names == {"grpcio", "protobuf", "pydantic", "googleapis-common-protos"}


def test_the_version_is_said_once() -> None:
    from noosphere.server import __version__

    assert PROJECT["version"] == __version__
