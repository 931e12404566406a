"""One comparison from start to end: variant after variant, scenario after scenario; what fails costs only itself."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.children import BenchError
from tests.bench.peers.catalogue import Variant
from tests.bench.peers.environments import REQUIREMENTS, Uninstallable
from tests.bench.peers.group import Group, PeerError
from tests.bench.peers.sites import Missing, site

from noosphere.server.cli.lost_updates_shapes import (
    LostUpdatesRunShape,
    LostUpdatesShape,
    LostUpdatesVariantShape,
)

from .gates import gates
from .oracle import Played, judge
from .scenarios import FULL, QUICK, Director

SCENARIOS = ("plan", "notes", "tasks", "decide", "late", "failover")

_PACKAGES = {"redis": "redis", "langgraph": "langgraph", "mem0": "mem0ai"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared.

    Attributes:
        variants: which, in order.
        scenarios: which, in order; ``failover`` has to be the last one.
        agents: how many, 2 to 32.
        seed: decides the lengths of thoughts.
        think_ms: their median.
        quick: play less.
        install: whether environments of peers may be made.
    """

    variants: Sequence[Variant]
    scenarios: Sequence[str]
    agents: int
    seed: int
    think_ms: float
    quick: bool
    install: bool

    @property
    def names(self) -> list[str]:
        """The agents' names."""
        return [f"agent-{number:02}" for number in range(self.agents)]


async def compare(
    comparison: Comparison, parent: Path, tell: Callable[[str], None], partial: Callable[[LostUpdatesShape], None]
) -> LostUpdatesShape:
    """Plays everything.

    Args:
        comparison: what.
        parent: an existing folder; the run makes its own below it, and removes that.
        tell: is told what is done now.
        partial: takes what is known so far, after each variant.
    """
    start = time.monotonic()
    result: LostUpdatesShape = {
        "ok": False,
        "plan": "quick" if comparison.quick else "full",
        "seed": comparison.seed,
        "agents": comparison.agents,
        "think_ms": comparison.think_ms,
        "seconds": 0.0,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "variants": [],
        "runs": [],
        "gates": [],
    }
    ours = {variant.name for variant in comparison.variants if variant.ours}
    work = Path(tempfile.mkdtemp(prefix="lost-updates-", dir=parent))
    try:
        for variant in comparison.variants:
            tell(f"{variant.name}: {variant.product}, {variant.use} use")
            runs, unavailable = await _play(variant, comparison, work / variant.name)
            result["variants"].append(_shape(variant, unavailable))
            result["runs"] += runs
            result["seconds"] = round(time.monotonic() - start, 1)
            result["gates"] = gates([run for run in result["runs"] if run["variant"] in ours])
            result["ok"] = bool(result["gates"]) and all(gate["ok"] for gate in result["gates"])
            partial(result)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return result


async def _play(variant: Variant, comparison: Comparison, folder: Path) -> tuple[list[LostUpdatesRunShape], str]:
    """Returns the runs of one variant, and why it could not be had at all."""
    runs: list[LostUpdatesRunShape] = []
    left = list(comparison.scenarios)
    sizes = QUICK if comparison.quick else FULL
    while left:
        place = folder / str(len(left))
        opened = False
        try:
            async with (
                site(variant, place, failing="failover" in left, install=comparison.install) as around,
                Group(variant, around.place, comparison.names, place, install=comparison.install) as group,
            ):
                opened = True
                director = Director(group, around, sizes, comparison.seed, comparison.think_ms)
                while left:
                    runs.append(judge(variant.name, await director.play(left[0])))
                    left.pop(0)
        except (Uninstallable, Missing) as error:
            return runs, str(error)
        except (PeerError, BenchError, AssertionError, OSError, TimeoutError) as error:
            why = " ".join(str(error).split())[:400] or repr(error)
            if not opened:
                return runs, why
            runs.append(judge(variant.name, Played(left.pop(0), comparison.agents, (), not_run=why)))
    return runs, ""


def _shape(variant: Variant, unavailable: str) -> LostUpdatesVariantShape:
    return {
        "name": variant.name,
        "product": variant.product,
        "version": "" if unavailable else version_of(variant),
        "use": variant.use,
        "how": variant.how,
        "durability": variant.durability,
        "ours": variant.ours,
        "unavailable": unavailable,
    }


def version_of(variant: Variant) -> str:
    """Returns the version of the product, which for peers is the one that is pinned."""
    if variant.ours:
        return importlib.metadata.version("noosphere")
    package = _PACKAGES.get(variant.environment, variant.environment)
    pins = (REQUIREMENTS / f"{variant.environment}.txt").read_text()
    found = re.search(rf"^{re.escape(package)}(?:\[\w+\])?==(\S+)", pins, re.M)
    return found[1] if found else ""
