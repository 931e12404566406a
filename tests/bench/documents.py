"""What other commands measure: lost updates beside peers, and how well things are found and kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from noosphere.server.fleet.engines import find_program

from .children import ROOT

WEAVIATE = find_program("weaviate-server")
NO_WEAVIATE = "weaviate-server is not installed (`make weaviate` builds it, which needs Go)"

_SHARED = ROOT.parent / "shared" / "data"
_SECONDS_MAX = 330.0
"""Lost updates may take 300."""
_END_SECONDS_MAX = 30.0
_CUT_OFF = -1
_MEASURED = frozenset({0, 5})
"""Exit codes after which there are figures: gates reached, and missed."""
_TAIL_CHARS = 300


class Document(NamedTuple):
    """A command of ours that prints figures as JSON.

    Attributes:
        name: stable, for programs; also of the file in ``bench-out``.
        label: what it measures, for people.
        shown: the command, for people.
        words: the same, after ``python -m``.
        quick: words that make it short, where it has such.
        data: the option that takes a data set, the variable that tells where that is, and its folder's name beside the
            clone; nothing for a command that needs none.
        leaves: whether it takes ``--out``, a file in which it keeps what it has found so far.
        lacks: why it cannot be measured here; "" if it can.
    """

    name: str
    label: str
    shown: str
    words: tuple[str, ...]
    quick: tuple[str, ...] = ()
    data: tuple[str, str, str] | None = None
    leaves: bool = False
    lacks: str = ""


_NOOSPHERE = ("noosphere.server.cli", "bench")
DOCUMENTS = (
    Document(
        "side-by-side",
        "ours and peers side by side",
        "python -m tests.bench.side_by_side",
        ("tests.bench.side_by_side",),
        ("--quick",),
        leaves=True,
    ),
    Document(
        "lost-updates",
        "lost updates, ours and peers'",
        "noosphere bench lost-updates",
        (*_NOOSPHERE, "lost-updates"),
        ("--quick",),
        leaves=True,
    ),
    Document(
        "compaction",
        "what contexts keep of tool results",
        "noosphere bench compaction",
        (*_NOOSPHERE, "compaction"),
        data=("--traces", "EVALUATION_TRACES", "traces"),
    ),
    Document(
        "recall",
        "what is found again",
        "noosphere bench recall --ablation",
        (*_NOOSPHERE, "recall", "--ablation"),
        data=("--locomo", "EVALUATION_LOCOMO", "locomo"),
    ),
    Document(
        "updates",
        "facts that later ones contradict",
        "noosphere bench updates",
        (*_NOOSPHERE, "updates"),
        data=("--set", "EVALUATION_UPDATES", "updates"),
    ),
    Document(
        "weaviate",
        "facts on Weaviate and in a data folder",
        "python -m tests.bench.weaviate_facts",
        ("tests.bench.weaviate_facts",),
        ("--quick",),
        leaves=True,
        lacks="" if WEAVIATE else NO_WEAVIATE,
    ),
)


async def measure(document: Document, out: Path, *, quick: bool, seconds_max: float) -> dict[str, Any]:
    """Runs a command, for so long at most.

    Returns:
        Its ``result`` and ``command``, and why it was ``cut_off``, if it was; or ``why`` there is no result.
    """
    if document.lacks:
        return {"why": document.lacks}
    more = list(document.quick) if quick else []
    shown = [document.shown, *more]
    if document.data is not None:
        option, variable, folder = document.data
        path = _data_set(variable, folder)
        if path is None:
            return {"why": f"its data set is not here; set {variable} to its folder"}
        more += [option, str(path)]
        shown += [option, folder]
    start, since = time.monotonic(), time.time()
    file = await asyncio.to_thread(out.resolve) / f"{document.name}.json"
    if document.leaves:
        more += ["--out", str(file)]
    code, told, said = await _run([*document.words, *more], min(_SECONDS_MAX, seconds_max))
    if code not in _MEASURED:
        told = _left(file, since)
        said = said if code == _CUT_OFF else _tail(said) or f"exit code {code}"
    if not told:
        return {"why": said, "failed": True}
    try:
        result = json.loads(told)
    except ValueError:
        return {"why": f"it printed no JSON: {_tail(told)}", "failed": True}
    file.write_text(told)
    about = {"command": " ".join(shown), "exit_code": code, "seconds": time.monotonic() - start}
    return {"result": result, **about, "cut_off": "" if code in _MEASURED else said}


def _data_set(variable: str, folder: str) -> Path | None:
    path = Path(os.environ.get(variable) or _SHARED / folder)
    return path if path.exists() else None


async def _run(words: Sequence[str], seconds_max: float) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *words, "--json"),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds_max):
            told, said = await process.communicate()
    except TimeoutError:
        return _CUT_OFF, "", f"it took more than {seconds_max:.0f} s"
    finally:
        if process.returncode is None:
            await _end(process)
    return process.returncode or 0, told.decode(), said.decode(errors="replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends a command and what it has started: as Ctrl-C does, so that servers and agents are ended in their turn."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        async with asyncio.timeout(_END_SECONDS_MAX):
            await process.communicate()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        # Whoever has left the group may hold a pipe open, and must not hold up the run.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS_MAX):
                await process.wait()


def _left(file: Path, since: float) -> str:
    """Returns what a command that did not end well has left in its file; "" if nothing."""
    # Clocks of file systems lag by a tick.
    return file.read_text() if file.exists() and file.stat().st_mtime >= since - 1 else ""


def _tail(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1][-_TAIL_CHARS:].replace("|", "/") if lines else ""
