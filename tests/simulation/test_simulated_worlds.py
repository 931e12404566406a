"""Seeds of the whole: real servers and clients under faults, judged by the checkers and by what agents were told.

``make simulate`` runs more of them, and longer ones.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulation.world.__main__ import world_of
from tests.simulation.world.course import Outcome, Size, simulate
from tests.simulation.world.folders import sweep
from tests.simulation.world.worlds import WORLDS
from tests.support.effort import effort

EVERYDAY = Size(workers=2, rovers=1, fault_seconds=3.0, tasks=4)
SEEDS_MIN = 300
"""So many are run every day, of all worlds together."""
CHUNKS = 27
SEEDS = 10
"""In each chunk."""
FLEET_CHUNKS = effort(6, 20)
FLEET_SEEDS = 5
"""Fewer: three servers take as long as five seeds of one."""


def outcome_of(seed: int, world: str = "") -> Outcome:
    return simulate(seed, WORLDS[world or world_of(seed)], EVERYDAY)


@pytest.fixture
def collected_once() -> Iterator[None]:
    """Looks for garbage once, among what the test has made."""
    gc.disable()
    gc.freeze()
    yield
    gc.collect()
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("collected_once")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_seeds(chunk: int) -> None:
    outcomes = (outcome_of(seed, "embedded") for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS))
    assert not [outcome for outcome in outcomes if outcome.problems]


@pytest.mark.usefixtures("collected_once")
@pytest.mark.parametrize("chunk", range(FLEET_CHUNKS))
def test_seeds_of_several_servers(chunk: int) -> None:
    seeds = range(chunk * FLEET_SEEDS, (chunk + 1) * FLEET_SEEDS)
    assert not [outcome for seed in seeds if (outcome := outcome_of(seed, "fleet")).problems]


@pytest.mark.parametrize("world", list(WORLDS))
def test_a_seed_replays_byte_for_byte(world: str) -> None:
    for seed in (3, 4):
        assert outcome_of(seed, world) == outcome_of(seed, world)


@pytest.mark.parametrize("world", list(WORLDS))
def test_a_seed_replays_in_a_process_that_hashes_otherwise(world: str) -> None:
    code = f"import tests.simulation.test_simulated_worlds as t; print(t.outcome_of(5, {world!r}))"
    told = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "77"}, capture_output=True, check=True
    )
    assert told.stdout.decode() == f"{outcome_of(5, world)}\n"


def test_there_are_enough_seeds_of_each_world() -> None:
    assert CHUNKS * SEEDS + FLEET_CHUNKS * FLEET_SEEDS >= SEEDS_MIN
    assert {"embedded", "fleet"} == set(WORLDS)


def test_a_folder_whose_process_was_killed_is_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        left, kept = (tmp_path / f"noosphere-sim-{process}-x" for process in (other.pid, os.getpid()))
        strange = tmp_path / "noosphere-sim-of-somebody"
        for folder in (left, kept, strange):
            (folder / "disk").mkdir(parents=True)
        assert sweep(tmp_path) == []
        other.kill()
    assert sweep(tmp_path) == [left.name]
    assert sorted(tmp_path.iterdir()) == sorted((kept, strange))


def test_seeds_differ() -> None:
    assert len({outcome_of(seed).digest for seed in range(6)}) == 6
