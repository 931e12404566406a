"""The comparison's own parts: adapters are small and their products pinned, and a seed decides what is thought."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from tests.bench.peers import catalogue, environments
from tests.bench.peers.environments import Uninstallable
from tests.bench.peers.group import Group
from tests.bench.peers.model import TIMES_MAX, Thoughts
from tests.bench.peers.sites import Missing, site

HERE = Path(__file__).parent
LINES_MAX = 60


@pytest.mark.parametrize("path", sorted((HERE / "adapters").glob("*.py")), ids=lambda path: path.stem)
def test_an_adapter_is_read_in_a_minute(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", sorted(environments.REQUIREMENTS.glob("*.txt")), ids=lambda path: path.stem)
def test_requirements_are_pinned_with_hashes(path: Path) -> None:
    lines = path.read_text().splitlines()
    names = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert names
    assert all("==" in line for line in names)
    assert sum("--hash=sha256:" in line for line in lines) >= len(names)


def test_every_variant_has_an_adapter_and_an_environment() -> None:
    assert len({variant.name for variant in catalogue.ALL}) == len(catalogue.ALL)
    for variant in catalogue.ALL:
        module, _, name = variant.adapter.partition(":")
        file = HERE / "adapters" / f"{module.rpartition('.')[2]}.py"
        assert f"class {name}(" in file.read_text()
        if variant.ours:
            assert getattr(importlib.import_module(module), name)
        else:
            assert (environments.REQUIREMENTS / f"{variant.environment}.txt").is_file()


def test_every_product_is_there_in_its_default_use_and_in_its_best() -> None:
    for product in {variant.product for variant in catalogue.ALL}:
        uses = {variant.use for variant in catalogue.ALL if variant.product == product}
        assert uses == {"default", "best"}, product


def test_a_seed_decides_how_long_is_thought() -> None:
    def drawn(seed: int, agent: str) -> list[float]:
        thoughts = Thoughts(seed, "plan", agent, 20.0)
        return [thoughts.next_s() for _ in range(200)]

    assert drawn(1, "a") == drawn(1, "a")
    assert drawn(1, "a") != drawn(2, "a")
    assert drawn(1, "a") != drawn(1, "b")
    assert all(0 < length <= 0.02 * TIMES_MAX for length in drawn(1, "a"))


@pytest.mark.campaign
@pytest.mark.parametrize("variant", catalogue.PEERS, ids=lambda variant: variant.name)
async def test_two_agents_add_to_a_list_one_after_the_other(variant: catalogue.Variant, tmp_path: Path) -> None:
    try:
        async with (
            site(variant, tmp_path / "site", install=False) as around,
            Group(variant, around.place, ["a", "b"], tmp_path, install=False) as group,
        ):
            await group.begin("smoke")
            await group.put("value", {"one": 1})
            assert await group.call("get", "value") == {"one": 1}
            await group.call("note", "pad", "first")
            await group.call("note", "pad", "second")
            assert sorted(await group.call("items", "pad")) == ["first", "second"]
            await group.call("post", "board", ["task"])
            assert await group.call("finished", "board", "task") is False
    except (Uninstallable, Missing) as missing:
        pytest.skip(f"{variant.name}: {missing}")
