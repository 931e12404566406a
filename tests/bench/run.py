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
_TIME_OVER = "the run's time was over before it was measured; --resume goes on with it"
_PART_SECONDS_MIN = 20.0
"""A part for which less is left does not begin: it could only be cut off."""


class Run:
    """Measures what is wanted, and has it saved as it goes.

    Args:
        plan: how much to measure.
        parent: an existing folder on the disk that is measured; every part makes its own below it.
        out: the folder in which documents are left.
        results: what there is already, and where the rest goes.
        saved: is called after each part.
        profiled: profile every row that has a goal, not only those that miss it.
        seconds_max: what still goes on then is cut off; what is complete of it is kept.
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
        self._seconds_max = seconds_max
        self._end = time.monotonic() + seconds_max

    async def measure(self, wanted: Sequence[str]) -> None:
        """Measures parts, or rows, by name. One that fails says so in its place, and the others go on."""
        for part in ORDER:
            rows = _wanted_of(part, wanted)
            if not rows:
                continue
            if self._left() < min(_PART_SECONDS_MIN, self._seconds_max / 2):
                _say(f"{part.label}: {_TOO_LATE}")
                self._leave_out(part, rows, _TOO_LATE)
                self._saved()
                continue
            _say(f"{part.label}: {', '.join(rows)}")
            start, load_average = time.monotonic(), os.getloadavg()[0]
            why = await (self._document(part) if isinstance(part, Document) else self._part(part, rows))
            self._results.note_part(part.name, time.monotonic() - start, load_average, why)
            self._saved()

    def _left(self) -> float:
        return self._end - time.monotonic()

    async def _part(self, part: Part, names: Sequence[str]) -> str:
        work = Path(tempfile.mkdtemp(prefix=f"run-{part.name}-", dir=self._parent))
        kept: list[Row] = []
        limit_s = min(self._plan.part_seconds_max, self._left())
        try:
            async with asyncio.timeout(limit_s) as limit, await start_worker("load", work) as load:
                bench = Bench(self._plan, work, work, load, kept)
                rows: dict[str, Row | Unmeasured] = {
                    row.name: row for row in await part.measure(bench, names, self._profiled)
                }
        except Exception as error:
            # Whatever it is, the other parts are worth having.
            traceback.print_exception(error)
            if limit.expired():
                why = f"it took more than {limit_s:.0f} s" if limit_s == self._plan.part_seconds_max else _TIME_OVER
                # Rows that were complete by then have found nothing wrong.
                self._results.rows |= {row.name: row for row in kept}
                names = [name for name in names if name not in {row.name for row in kept}]
            else:
                why = first_line(error)
                self._keep_logs(part, work)
            self._leave_out(part, names, f"failed: {why}")
            return why
        finally:
            shutil.rmtree(work, ignore_errors=True)
        self._results.rows |= rows
        return ""

    def _keep_logs(self, part: Part, work: Path) -> None:
        """Copies what servers and workers have said, before their folder goes."""
        folder = self._out / "logs" / part.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for log in work.glob("*.log"):
            shutil.copy(log, folder)
        _say(f"{part.label}: the logs are in {folder}")

    async def _document(self, document: Document) -> str:
        quick = self._plan.name != FULL.name
        found = await documents.measure(document, self._out, quick=quick, seconds_max=self._left())
        if "why" in found and "result" in self._results.documents.get(document.name, {}):
            # An earlier run's figures stay.
            return str(found["why"])
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
