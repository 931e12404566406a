"""Sets of facts that later ones contradict, as files, and the real ones where they are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

VARIABLE = "EVALUATION_UPDATES"
_SIBLING = Path(__file__).resolve().parents[3] / "shared" / "data" / "updates"

SMALL = (
    "The capital of Peru is Cusco.",
    "Anna Berg is a citizen of Chile.",
    "The capital of Chile is Santiago.",
    "The capital of Peru is Lima.",
    "Anna Berg likes tea.",
    "Anna Berg likes coffee.",
    "Anna Berg is a citizen of Austria.",
)
"""Two of them are contradicted by later ones."""


def written(folder: Path, facts: Sequence[str], questions: Mapping[str, str], name: str = "set.json") -> Path:
    """Writes a set; ``questions`` are by question, with the answer."""
    file = folder / name
    context = "Here is a list of facts:\n" + "\n".join(f"{at}. {fact}" for at, fact in enumerate(facts))
    answers = [[answer] for answer in questions.values()]
    file.write_text(json.dumps({"context": context, "questions": list(questions), "answers": answers}))
    return file


def real_sets() -> Path:
    """Returns the folder of real sets, which are no part of the repository; skips where they are absent."""
    path = Path(os.environ.get(VARIABLE) or _SIBLING)
    if not path.exists():
        pytest.skip(f"NO SETS OF UPDATES at {path}: superseding is not measured; set {VARIABLE} to their folder")
    return path
