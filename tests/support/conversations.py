"""Conversations with questions about them: where the real ones lie, and made-up ones in their shape."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "EVALUATION_LOCOMO"
_SIBLING = Path(__file__).resolve().parents[3] / "shared" / "data" / "locomo"


def real_conversations() -> Path:
    """Returns the folder of real conversations, which are no part of the repository; skips where they are absent."""
    path = Path(os.environ.get(VARIABLE) or _SIBLING)
    if not path.exists():
        pytest.skip(f"NO CONVERSATIONS at {path}: recall is not measured; set {VARIABLE} to their folder")
    return path


def asked(question: str, *evidence: str, category: int = 1) -> dict[str, Any]:
    return {"question": question, "answer": "?", "evidence": list(evidence), "category": category}


def talked(questions: list[dict[str, Any]], *sessions: tuple[str, list[tuple[str, str]]]) -> dict[str, Any]:
    """Returns a conversation: questions, then for each session its date and who says what."""
    talk: dict[str, Any] = {}
    for number, (date, turns) in enumerate(sessions, 1):
        talk[f"session_{number}_date_time"] = date
        talk[f"session_{number}"] = [
            {"speaker": speaker, "dia_id": f"D{number}:{place}", "text": text}
            for place, (speaker, text) in enumerate(turns, 1)
        ]
    return {"qa": questions, "conversation": talk, "sample_id": "made-up"}
