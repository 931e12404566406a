"""Whoever reads a command's output may go, as `head` does: every command then ends without a word."""

from __future__ import annotations

import subprocess

import pytest
from tests.support.cli import SECONDS_MAX, Cli
from tests.support.process import NOOSPHERE


def read_only(lines: int, *arguments: str) -> tuple[int, str]:
    """Runs a command whose reader goes after so many lines; returns its exit code and what it printed on stderr."""
    process = subprocess.Popen(
        [str(NOOSPHERE), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=Cli().environment(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        for _ in range(lines):
            assert process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read().decode()
        return process.wait(SECONDS_MAX), told
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "demo --help",
        "config show",
        pytest.param("demo causality", marks=pytest.mark.campaign),
        pytest.param("demo causality --json", marks=pytest.mark.campaign),
    ],
)
def test_nobody_reads_from_the_beginning(command: str) -> None:
    assert read_only(0, *command.split()) == (0, "")


@pytest.mark.campaign
def test_the_reader_of_a_demo_goes_in_the_middle() -> None:
    assert read_only(1, "demo", "--agents", "2", "--sections", "12") == (0, "")
