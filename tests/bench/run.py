"""One run from start to end: part after part, each with folders and children of its own, saved after each."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from . import documents
from .children import start_worker
from .documents import Document
from .parts import PARTS, Part
from .plan import FULL, Plan
from .results import Results
from .rows import Bench, Row, Unmeasured, first_line

_FIRST = ("floor",)
ORDER: tuple[Part | Document, ...] = (
    *(part for part in PARTS if part.name in _FIRST),
    *documents.DOCUMENTS,
    *(part for part in PARTS if part.name not in _FIRST),
)
NAMES = tuple(part.name for part in ORDER)
_TOO_LATE = "the run's time was over before its turn came; --resume goes on with it"


class Run:
    """Measures what is wanted, and has it saved as it goes.

    Args:
        plan: how much to measure.
        parent: an existing folder on the disk that is measured; every part makes its own below it.
        out: the folder in which documents are left.
        results: what there is already, and where the rest goes.
        saved: is called after each part.
        profiled: profile every row that has a goal, not only those that miss it.
        seconds_max: no part begins later than this.
    """

    def __init__(
        self,
        plan: Plan,
        parent: Path,
        out: Path,
        results: Results,
        saved: Callable[[], None],
        *,
        profiled: bool,
        seconds_max: float,
    ) -> None:
        self._plan = plan
        self._parent = parent
        self._out = out
        self._results = results
        self._saved = saved
        self._profiled = profiled
        self._end = time.monotonic() + seconds_max

    async def measure(self, wanted: Sequence[str]) -> None:
        """Measures parts, or rows, by name. One that fails says so in its place, and the others go on."""
        for part in ORDER:
            rows = _wanted_of(part, wanted)
            if not rows:
                continue
            if time.monotonic() >= self._end:
                _say(f"{part.label}: {_TOO_LATE}")
                self._leave_out(part, rows, _TOO_LATE)
                self._saved()
                continue
            _say(f"{part.label}: {', '.join(rows)}")
            start, load_average = time.monotonic(), os.getloadavg()[0]
            why = await (self._document(part) if isinstance(part, Document) else self._part(part, rows))
            self._results.note_part(part.name, time.monotonic() - start, load_average, why)
            self._saved()

    async def _part(self, part: Part, names: Sequence[str]) -> str:
        work = Path(tempfile.mkdtemp(prefix=f"run-{part.name}-", dir=self._parent))
        try:
            async with asyncio.timeout(self._plan.part_seconds_max), await start_worker("load", work) as load:
                bench = Bench(self._plan, work, work, load)
                rows: dict[str, Row | Unmeasured] = {
                    row.name: row for row in await part.measure(bench, names, self._profiled)
                }
        except Exception as error:
            # Whatever it is, the other parts are worth having.
            why = first_line(error)
            if isinstance(error, TimeoutError):
                why = f"it took more than {self._plan.part_seconds_max:.0f} s"
            traceback.print_exception(error)
            self._leave_out(part, names, f"failed: {why}")
            return why
        finally:
            shutil.rmtree(work, ignore_errors=True)
        self._results.rows |= rows
        return ""

    async def _document(self, document: Document) -> str:
        found = await documents.measure(document, self._out, quick=self._plan.name != FULL.name)
        self._results.documents[document.name] = found
        if "why" in found:
            _say(f"{document.label}: not measured: {found['why']}")
        return str(found["why"]) if found.get("failed") else str(found.get("cut_off", ""))

    def _leave_out(self, part: Part | Document, rows: Sequence[str], why: str) -> None:
        """Says why there are no figures, unless an earlier run has left some."""
        if isinstance(part, Document):
            if "result" not in self._results.documents.get(part.name, {}):
                self._results.documents[part.name] = {"why": why}
            return
        for name in rows:
            if not isinstance(self._results.rows.get(name), Row):
                self._results.rows[name] = Unmeasured(name, name, why)


def _wanted_of(part: Part | Document, wanted: Sequence[str]) -> tuple[str, ...]:
    """Returns which rows of a part are wanted, the name of a document if that is."""
    rows = (part.name,) if isinstance(part, Document) else part.rows
    return rows if part.name in wanted else tuple(name for name in rows if name in wanted)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
