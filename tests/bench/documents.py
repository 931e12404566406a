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

from .children import ROOT

_SHARED = ROOT.parent / "shared" / "data"
_SECONDS_MAX = 420.0
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
    """

    name: str
    label: str
    shown: str
    words: tuple[str, ...]
    quick: tuple[str, ...] = ()
    data: tuple[str, str, str] | None = None


_NOOSPHERE = ("noosphere.server.cli", "bench")
DOCUMENTS = (
    Document(
        "side-by-side",
        "ours and peers side by side",
        "python -m tests.bench.side_by_side",
        ("tests.bench.side_by_side",),
        ("--quick",),
    ),
    Document(
        "lost-updates",
        "lost updates, ours and peers'",
        "noosphere bench lost-updates",
        (*_NOOSPHERE, "lost-updates"),
        ("--quick",),
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
)


async def measure(document: Document, out: Path, *, quick: bool) -> dict[str, Any]:
    """Runs a command.

    Returns:
        Its ``result`` and ``command``, and why it was ``cut_off``, if it was; or ``why`` there is no result.
    """
    more = list(document.quick) if quick else []
    shown = [document.shown, *more]
    if document.data is not None:
        option, variable, folder = document.data
        path = _data_set(variable, folder)
        if path is None:
            return {"why": f"its data set is not here; set {variable} to its folder"}
        more += [option, str(path)]
        shown += [option, folder]
    start, since, file = time.monotonic(), time.time(), out / f"{document.name}.json"
    code, told, said = await _run([*document.words, *more])
    if code not in _MEASURED:
        told = _left(file, since) if code == _CUT_OFF else ""
    if not told:
        return {"why": _tail(said) or f"exit code {code}", "failed": True}
    try:
        result = json.loads(told)
    except ValueError:
        return {"why": f"it printed no JSON: {_tail(told)}", "failed": True}
    file.write_text(told)
    about = {"command": " ".join(shown), "exit_code": code, "seconds": time.monotonic() - start}
    return {"result": result, **about, "cut_off": said if code == _CUT_OFF else ""}


def _data_set(variable: str, folder: str) -> Path | None:
    path = Path(os.environ.get(variable) or _SHARED / folder)
    return path if path.exists() else None


async def _run(words: Sequence[str]) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *words, "--json"),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            told, said = await process.communicate()
    except TimeoutError:
        return _CUT_OFF, "", f"it took more than {_SECONDS_MAX:.0f} s"
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
    """Returns what a command that was cut off has left in its file; "" if nothing."""
    return file.read_text() if file.exists() and file.stat().st_mtime >= since else ""


def _tail(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1][-_TAIL_CHARS:].replace("|", "/") if lines else ""
