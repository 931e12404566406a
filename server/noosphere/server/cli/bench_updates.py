"""`noosphere bench updates`: what becomes of facts that later ones contradict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .bench_recall import EmbedderChoice
from .common import JsonOption, common
from .exits import CliError, ExitCode, usage
from .output import print_json, print_line, print_table
from .shapes import UpdatesPlacedShape, UpdatesSetShape, UpdatesShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noosphere.server.evaluation import Placed, UpdateSet, UpdatesScore

SHOWN_MAX = 20


def updates(
    ctx: typer.Context,
    path: Annotated[
        Path,
        typer.Option(
            "--set",
            metavar="PATH",
            help="Numbered facts with questions, as FactConsolidation has them: a JSON file, or a folder of them.",
            show_default=False,
        ),
    ],
    embedder: Annotated[
        EmbedderChoice, typer.Option(help="What compares meanings; `auto` is `bundled` where that is installed.")
    ] = EmbedderChoice.AUTO,
    as_json: JsonOption = False,
) -> None:
    """Measure what becomes of facts that later ones contradict. JSON: Updates.

    The facts go through the pipeline of an engine of their own, in order, as candidates without subject or predicate:
    only their words tell what they are about. Then the questions are searched for. Of interest is whether the fact that
    holds now is first, whether one that held before is, and whether anything was superseded that nothing contradicts.

    Exit code 0: the gates are reached; 5: not; 2: the files cannot be read.
    """
    import asyncio

    from noosphere.server.app import StartupError
    from noosphere.server.evaluation import UpdatesError, read_updates

    options = common(ctx, as_json=as_json)
    try:
        given = read_updates(path)
        scores = asyncio.run(_scores(given, embedder))
    except UpdatesError as error:
        raise CliError(ExitCode.USAGE, str(error), "UNREADABLE_UPDATES") from None
    except StartupError as error:
        raise usage(f"--embedder: {error}") from None
    shape = _shape(given, scores)
    if options.as_json:
        print_json(shape)
    else:
        _show(shape)
    raise typer.Exit(ExitCode.OK if shape["ok"] else ExitCode.CHECK_FAILED)


async def _scores(given: Sequence[UpdateSet], embedder: EmbedderChoice) -> list[UpdatesScore]:
    from tempfile import TemporaryDirectory

    from noosphere.server.app import open_engine
    from noosphere.server.config import Settings
    from noosphere.server.evaluation import score_updates
    from noosphere.server.logs import configure_logging

    configure_logging("warning", "console")
    failures: list[BaseException] = []
    scores = []
    for one in given:
        with TemporaryDirectory(prefix="noosphere-bench-") as folder:
            settings = Settings(data=Path(folder), embedder=embedder.value)
            async with open_engine(settings, on_fatal=failures.append) as engine:
                scores.append(await score_updates(engine.facts, one))
    if failures:
        raise failures[0]
    return scores


def _shape(given: Sequence[UpdateSet], scores: Sequence[UpdatesScore]) -> UpdatesShape:
    from noosphere.server.evaluation import UPDATE_GATES, UPDATE_GOALS, reaches

    reached = {
        name: round((min if name == "current_first" else max)(score.reached[name] for score in scores), 2)
        for name in UPDATE_GATES
    }
    return {
        "ok": all(reaches(name, reached[name], gate) for name, gate in UPDATE_GATES.items()),
        "gates": UPDATE_GATES,
        "goals": UPDATE_GOALS,
        "reached": reached,
        "sets": [_set(one.name, score) for one, score in zip(given, scores, strict=True)],
    }


def _set(name: str, score: UpdatesScore) -> UpdatesSetShape:
    return {
        "name": name,
        "facts": score.facts,
        "decided": score.decided,
        "supersessions": score.supersessions,
        "false_supersessions": list(score.false_supersessions),
        "questions": _placed(score.questions),
        "alone": _placed(score.alone),
        "missed": [{"question": asked, "wanted": wanted, "first": first} for asked, wanted, first in score.missed],
    }


def _placed(one: Placed) -> UpdatesPlacedShape:
    return {"n": one.n, "current_first": round(one.current_first, 2), "stale_first": round(one.stale_first, 2)}


def _show(shape: UpdatesShape) -> None:
    from noosphere.server.evaluation import reaches

    for one in shape["sets"]:
        became = ", ".join(f"{count} {status}" for status, count in one["decided"].items())
        print_line(f"{one['name']}: {one['facts']} facts: {became}; {one['supersessions']} of them superseded others")
        print_line("")
        rows = [
            (name, placed["n"], f"{placed['current_first']:.1f} %", f"{placed['stale_first']:.1f} %")
            for name, placed in (("what holds now", one["questions"]), ("with history", one["alone"]))
        ]
        print_table(("searched", "questions", "current first", "stale first"), rows, empty="")
        print_line("")
        for missed in one["missed"][:SHOWN_MAX]:
            print_line(f"not first: {missed['question']} {missed['wanted']} First: {missed['first']}")
        for what in one["false_supersessions"][:SHOWN_MAX]:
            print_line(f"superseded, and should not be: {what}")
    for name, value in shape["reached"].items():
        gate, goal = shape["gates"][name], shape["goals"][name]
        words = ["reached" if reaches(name, value, limit) else "missed" for limit in (gate, goal)]
        print_line(f"{name} {value:.1f} %: gate {gate:g} % {words[0]}, goal {goal:g} % {words[1]}")
