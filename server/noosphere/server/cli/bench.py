"""`noosphere bench …`: figures of merit on data that the caller has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .bench_lost_updates import lost_updates
from .bench_recall import recall
from .bench_updates import updates
from .common import JsonOption, common
from .exits import CliError, ExitCode, usage
from .output import print_json, print_line, print_table
from .shapes import CompactionMethodShape, CompactionShape

if TYPE_CHECKING:
    from noosphere.server.evaluation import CompactionScore, MethodScore

app = typer.Typer(help="Measure, on data of one's own or beside other products.")
app.command()(recall)
app.command()(updates)
app.command(name="lost-updates")(lost_updates)


@app.command()
def compaction(
    ctx: typer.Context,
    traces: Annotated[
        Path,
        typer.Option(metavar="PATH", help="Recorded runs: a JSON file, or a folder of them.", show_default=False),
    ],
    tokens: Annotated[int, typer.Option(metavar="N", help="The budget of each tool output, 16 to 16384 tokens.")] = 150,
    tokenizer: Annotated[str, typer.Option(metavar="NAME", help="The vocabulary that counts.")] = "o200k_base",
    gate: Annotated[float, typer.Option(metavar="PERCENT", help="Less than this is a failure, 0 to 100.")] = 89.0,
    as_json: JsonOption = False,
) -> None:
    """Measure what compress on arrival keeps of recorded tool outputs. JSON: Compaction.

    Of the values in a tool output over the budget that a later message or tool call uses, the share that is kept,
    beside what simpler methods keep. A file is an array of runs, each an array of chat messages, or an object with
    one as `traj` or `messages`. Every output is also compressed with another future, which has to change nothing.

    Exit code 0: the gate is reached and every promise kept; 5: not; 2: the files cannot be read.
    """
    from noosphere.consistency import Refusal
    from noosphere.server.context.compaction import TOKENS_MAX, TOKENS_MIN
    from noosphere.server.evaluation import TraceError, read_traces, score_compaction
    from noosphere.server.models.tokenizers import TokenizerRegistry

    options = common(ctx, as_json=as_json)
    if not TOKENS_MIN <= tokens <= TOKENS_MAX:
        raise usage(f"--tokens: {tokens} is not between {TOKENS_MIN} and {TOKENS_MAX}")
    if not 0 <= gate <= 100:
        raise usage(f"--gate: {gate:g} is not between 0 and 100")
    try:
        counter = TokenizerRegistry().named(tokenizer)
        score = score_compaction(read_traces(traces), counter, tokens)
    except TraceError as error:
        raise CliError(ExitCode.USAGE, str(error), "UNREADABLE_TRACES") from None
    except Refusal as error:
        raise usage(f"--{error.message}") from None
    if not score.compress.used:
        message = f"{traces}: no value of a tool output over {tokens} tokens is used later; there is nothing to measure"
        raise CliError(ExitCode.USAGE, message, "UNREADABLE_TRACES")
    shape = _shape(score, tokens, counter.name, gate)
    if options.as_json:
        print_json(shape)
    else:
        _show(shape)
    raise typer.Exit(ExitCode.OK if shape["ok"] else ExitCode.CHECK_FAILED)


def _shape(score: CompactionScore, tokens_max: int, tokenizer: str, gate: float) -> CompactionShape:
    from noosphere.server.evaluation import GOAL_PERCENT

    return {
        "ok": score.compress.percent >= gate and not score.problems,
        "gate_percent": gate,
        "goal_percent": GOAL_PERCENT,
        "tokens_max": tokens_max,
        "tokenizer": tokenizer,
        "runs": score.runs,
        "outputs": score.outputs,
        "outputs_over": score.outputs_over,
        "tokens_over": score.tokens_over,
        "methods": [_method(method) for method in score.methods],
        "problems": list(score.problems),
    }


def _method(score: MethodScore) -> CompactionMethodShape:
    return {
        "method": score.method,
        "used": score.used,
        "kept": score.kept,
        "percent": round(score.percent, 2),
        "used_new": score.used_new,
        "kept_new": score.kept_new,
        "percent_new": round(score.percent_new, 2),
        "lossless": score.lossless,
        "tokens": score.tokens,
    }


def _show(shape: CompactionShape) -> None:
    print_line(
        f"{shape['runs']} runs with {shape['outputs']} tool outputs; {shape['outputs_over']} are over "
        f"{shape['tokens_max']} tokens of {shape['tokenizer']}, {shape['tokens_over']} tokens together"
    )
    print_line("")
    columns = ("method", "used values kept", "of new ones", "whole outputs", "tokens")
    rows = [
        (
            method["method"],
            f"{method['percent']:.1f} % ({method['kept']} of {method['used']})",
            f"{method['percent_new']:.1f} %",
            method["lossless"],
            method["tokens"],
        )
        for method in shape["methods"]
    ]
    print_table(columns, rows, empty="")
    print_line("")
    for problem in shape["problems"]:
        print_line(f"broken promise: {problem}")
    reached = shape["methods"][-1]["percent"]
    words = "reached" if reached >= shape["gate_percent"] else "missed"
    print_line(
        f"gate {shape['gate_percent']:g} %: {words}; goal {shape['goal_percent']:g} %: "
        f"{'reached' if reached >= shape['goal_percent'] else 'missed'}"
    )
