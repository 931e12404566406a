"""What a run has found so far, as a file: written after every part, so that a run that is cut off loses nothing.

The same file without its samples is ``docs/benchmarks.json``, of which every figure in the documentation is made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .rows import Row, Unmeasured

SCHEMA = 1


class NoResults(Exception):
    """There is no file of results, or not one that can be gone on with."""


@dataclass(slots=True)
class Results:
    """Everything that a run has found.

    Attributes:
        machine: where it runs; see :class:`tests.bench.machine.Machine`.
        plan: the name of the plan.
        parts: by the name of each part: when it was measured, how long that took, how busy the machine was before.
        rows: by name.
        documents: what other programs have found, by name: either ``result``, or ``why`` there is none.
    """

    machine: Mapping[str, Any]
    plan: str
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, Row | Unmeasured] = field(default_factory=dict)
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long all parts have taken."""
        return float(sum(part["seconds"] for part in self.parts.values()))

    def note_part(self, name: str, seconds: float, load_average: float, why: str = "") -> None:
        """Notes that a part was measured; ``why`` it failed, if it did."""
        date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        self.parts[name] = {"date": date, "seconds": seconds, "load_average": load_average, "failed": why}

    def done(self, name: str) -> bool:
        """Tells whether a part was measured, and did not fail."""
        return name in self.parts and not self.parts[name]["failed"]

    def as_json(self, *, samples: bool = True) -> dict[str, Any]:
        """Returns everything, with every single sample or without any."""
        rows = [row.as_json() for row in self.rows.values()]
        if not samples:
            for row in rows:
                row.pop("samples", None)
        return {
            "schema": SCHEMA,
            "machine": dict(self.machine),
            "plan": self.plan,
            "seconds": self.seconds,
            "parts": self.parts,
            "rows": rows,
            "documents": self.documents,
        }

    def save(self, file: Path, *, samples: bool = True) -> None:
        """Writes everything; a reader sees the old file or the new one."""
        text = json.dumps(self.as_json(samples=samples), indent=1) + "\n"
        fresh = file.with_suffix(".tmp")
        fresh.write_text(text)
        fresh.replace(file)


def load(file: Path) -> Results:
    """Reads results.

    Raises:
        NoResults: there is no such file, or it is not one of these.
    """
    try:
        found = json.loads(file.read_text())
        if found["schema"] != SCHEMA:
            raise NoResults(f"{file} has schema {found['schema']}, not {SCHEMA}")
        return Results(found["machine"], found["plan"], found["parts"], dict(_rows(found["rows"])), found["documents"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoResults(f"{file}: no results of a benchmark: {error!r}") from None


def resumed(file: Path, fresh: Results) -> Results:
    """Returns the results in a file, to be gone on with.

    Raises:
        NoResults: they are of another commit or plan than ``fresh``, so they would not be one run.
    """
    found = load(file)
    for name, before, now in (
        ("plan", found.plan, fresh.plan),
        ("commit", found.machine["commit"], fresh.machine["commit"]),
        ("processor", found.machine["cpu"], fresh.machine["cpu"]),
    ):
        if before != now:
            raise NoResults(f"{file} is of another {name}: {before}, not {now}")
    return found


def _rows(found: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, Row | Unmeasured]]:
    for row in found:
        yield row["name"], Unmeasured(row["name"], row["what"], row["why"]) if "why" in row else Row.from_json(row)
