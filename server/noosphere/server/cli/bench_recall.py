"""`noosphere bench recall`: how well what is asked for is found again."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import JsonOption, common
from .exits import CliError, ExitCode
from .output import print_json, print_line, print_table
from .shapes import RecallFiguresShape, RecallShape

if TYPE_CHECKING:
    from noosphere.server.evaluation import Conversation, Figures, Meanings, RecallScore

_NO_EMBEDDER = "embedder 'bundled' needs the extra `embeddings` of noosphere, which is not installed"


class EmbedderChoice(StrEnum):
    """What compares meanings."""

    AUTO = "auto"
    BUNDLED = "bundled"
    NONE = "none"


def recall(
    ctx: typer.Context,
    locomo: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Conversations with questions, as LoCoMo has them: a JSON file, or a folder of them.",
            show_default=False,
        ),
    ],
    embedder: Annotated[
        EmbedderChoice, typer.Option(help="What compares meanings; `auto` is `bundled` where that is installed.")
    ] = EmbedderChoice.AUTO,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="Also measure what each signal is worth; takes a few times as long.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure how well turns of conversations are found by questions about them. JSON: Recall.

    Each turn is one memory; each question is asked of its own conversation. Recall is the share of a question's
    evidence among the first 5 or 10, over the questions of all categories that have evidence. What is kept is the
    share of it that stays within a budget of tokens, by three rules of packing.

    Exit code 0: the gates are reached; 5: not; 2: the files cannot be read.
    """
    from noosphere.server.evaluation import LocomoError, read_locomo, score_recall
    from noosphere.server.models.tokenizers import DEFAULT, TokenizerRegistry

    options = common(ctx, as_json=as_json)
    try:
        conversations = read_locomo(locomo)
    except LocomoError as error:
        raise CliError(ExitCode.USAGE, str(error), "UNREADABLE_CONVERSATIONS") from None
    name, meanings = _meanings(embedder, conversations)
    score = score_recall(conversations, TokenizerRegistry().named(DEFAULT), meanings, ablation=ablation)
    shape = _shape(score, name)
    if options.as_json:
        print_json(shape)
    else:
        _show(shape)
    raise typer.Exit(ExitCode.OK if shape["ok"] else ExitCode.CHECK_FAILED)


def _meanings(choice: EmbedderChoice, conversations: tuple[Conversation, ...]) -> tuple[str, Meanings | None]:
    import asyncio

    from noosphere.server.evaluation import Meanings, texts_of
    from noosphere.server.models.embedding import bundled

    model = None if choice is EmbedderChoice.NONE else bundled()
    if model is None:
        if choice is EmbedderChoice.BUNDLED:
            raise CliError(ExitCode.USAGE, _NO_EMBEDDER, "INVALID_FIELD")
        return "", None
    meanings = Meanings()
    asyncio.run(meanings.learn(model, texts_of(conversations)))
    model.close()
    return model.name, meanings


def _shape(score: RecallScore, embedder: str) -> RecallShape:
    from noosphere.server.evaluation import GATES, GOALS

    return {
        "ok": all(score.reached[name] >= gate for name, gate in GATES.items()),
        "gates": GATES,
        "goals": GOALS,
        "reached": {name: round(value, 2) for name, value in score.reached.items()},
        "conversations": score.conversations,
        "memories": score.memories,
        "embedder": embedder,
        "overall": _figures(score.overall),
        "categories": {name: _figures(one) for name, one in score.categories.items()},
        "kept": [
            {
                "form": form,
                "tokens": one.tokens,
                "stopping": round(one.stopping, 2),
                "skipping": round(one.skipping, 2),
                "packed": round(one.packed, 2),
            }
            for form, of_form in score.kept.items()
            for one in of_form
        ],
        "ablation": {name: _figures(one) for name, one in score.ablation.items()},
        "weights_sha256": score.weights_sha256,
    }


def _figures(one: Figures) -> RecallFiguresShape:
    return {
        "n": one.n,
        "recall@5": round(one.recall_at_5, 2),
        "recall@10": round(one.recall_at_10, 2),
        "mrr": round(one.mrr, 2),
    }


def _show(shape: RecallShape) -> None:
    print_line(
        f"{shape['conversations']} conversations with {shape['memories']} turns; "
        f"meaning by {shape['embedder'] or 'nothing: keywords alone'}; weights {shape['weights_sha256'][:12]}"
    )
    print_line("")
    categories = {f"category {name}": one for name, one in shape["categories"].items()}
    _figures_table("questions", {**categories, "all": shape["overall"]})
    print_line("")
    columns = ("evidence kept of", "within", "stopping", "skipping", "packed")
    rows = [
        (one["form"], one["tokens"], f"{one['stopping']:.1f} %", f"{one['skipping']:.1f} %", f"{one['packed']:.1f} %")
        for one in shape["kept"]
    ]
    print_table(columns, rows, empty="")
    print_line("")
    if shape["ablation"]:
        _figures_table("ranking", shape["ablation"])
        print_line("")
    for name, value in shape["reached"].items():
        gate, goal = shape["gates"][name], shape["goals"][name]
        words = ("missed" if value < gate else "reached", "missed" if value < goal else "reached")
        print_line(f"{name} {value:.1f} %: gate {gate:g} % {words[0]}, goal {goal:g} % {words[1]}")


def _figures_table(what: str, figures: dict[str, RecallFiguresShape]) -> None:
    rows = [
        (name, one["n"], f"{one['recall@5']:.1f}", f"{one['recall@10']:.1f}", f"{one['mrr']:.1f}")
        for name, one in figures.items()
    ]
    print_table((what, "n", "recall@5", "recall@10", "MRR"), rows, empty="")
