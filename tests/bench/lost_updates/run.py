"""One comparison from start to end: variant after variant, scenario after scenario; what fails costs only itself."""

from __future__ import annotations

import asyncio
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
from tests.bench.peers.environments import REQUIREMENTS, Uninstallable, environment
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

SECONDS_MAX = 280.0
"""Of a whole comparison. Ours come first and are never cut short by it; peers share what is left."""

_SCENARIO_SECONDS_MIN = 3.0
_SHARES_MAX = 3.0
"""So many even shares of the time that is left may one scenario take: most take a part of theirs."""

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
        seconds_max: when peers are cut off; making environments does not count.
    """

    variants: Sequence[Variant]
    scenarios: Sequence[str]
    agents: int
    seed: int
    think_ms: float
    quick: bool
    install: bool
    seconds_max: float = SECONDS_MAX

    @property
    def names(self) -> list[str]:
        """The agents' names."""
        return [f"agent-{number:02}" for number in range(self.agents)]


@dataclass(frozen=True, slots=True)
class Clock:
    """How much time is left for one variant.

    Attributes:
        end: of the comparison, in seconds of the monotonic clock.
        later: how many scenarios of other variants come after this one's.
    """

    end: float
    later: int

    def left_s(self) -> float:
        """Returns how much time is left in all."""
        return self.end - time.monotonic()

    def limit_s(self, left: int, most: float) -> float:
        """Returns how long the next scenario may take, ``left`` being those of this variant."""
        return min(most, max(_SCENARIO_SECONDS_MIN, self.left_s() * _SHARES_MAX / (left + self.later)))


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
    await _install(comparison, tell)
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
        for number, variant in enumerate(comparison.variants, 1):
            tell(f"{variant.name}: {variant.product}, {variant.use} use")
            later = (len(comparison.variants) - number) * len(comparison.scenarios)
            clock = Clock(start + comparison.seconds_max, later)
            runs, unavailable = await _play(variant, comparison, work / variant.name, clock)
            result["variants"].append(_shape(variant, unavailable))
            result["runs"] += runs
            result["seconds"] = round(time.monotonic() - start, 1)
            result["gates"] = gates([run for run in result["runs"] if run["variant"] in ours])
            result["ok"] = bool(result["gates"]) and all(gate["ok"] for gate in result["gates"])
            partial(result)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return result


async def _install(comparison: Comparison, tell: Callable[[str], None]) -> None:
    """Makes the environments that are not there yet; one that cannot be made is told of in its variants' place."""
    if comparison.install:
        for name in sorted({variant.environment for variant in comparison.variants} - {""}):
            try:
                await asyncio.to_thread(environment, name)
            except Uninstallable as error:
                tell(f"{name}: {error}")


async def _play(
    variant: Variant, comparison: Comparison, folder: Path, clock: Clock
) -> tuple[list[LostUpdatesRunShape], str]:
    """Returns the runs of one variant, and why it could not be had at all."""
    runs: list[LostUpdatesRunShape] = []
    left = list(comparison.scenarios)
    sizes = QUICK if comparison.quick else FULL
    over = f"the comparison's {comparison.seconds_max:g} s were over"
    while left:
        if not variant.ours and clock.left_s() <= 0:
            runs += [judge(variant.name, Played(name, comparison.agents, (), not_run=over)) for name in left]
            return runs, "" if len(runs) > len(left) else over
        place = folder / str(len(left))
        opened = False
        try:
            async with (
                # Whoever hangs while it is opened or prepared must not take the others' time.
                asyncio.timeout(None if variant.ours else clock.left_s() + _SCENARIO_SECONDS_MIN),
                site(variant, place, failing="failover" in left, install=comparison.install) as around,
                Group(variant, around.place, comparison.names, place, install=comparison.install) as group,
            ):
                opened = True
                director = Director(group, around, sizes, comparison.seed, comparison.think_ms)
                while left:
                    limit_s = None if variant.ours else clock.limit_s(len(left), sizes.scenario_seconds_max)
                    runs.append(judge(variant.name, await director.play(left[0], limit_s)))
                    left.pop(0)
        except (Uninstallable, Missing) as error:
            return runs, str(error)
        except (PeerError, BenchError, AssertionError, OSError, TimeoutError) as error:
            ended = isinstance(error, TimeoutError) and not variant.ours and clock.left_s() <= 0
            why = over if ended else " ".join(str(error).split())[:400] or repr(error)
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
