"""Recorded runs of agents: where the real ones lie, and how made-up ones are written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "EVALUATION_TRACES"
_SIBLING = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"


def recorded_traces() -> Path:
    """Returns the folder of real runs, which are no part of the repository; skips where they are absent."""
    path = Path(os.environ.get(VARIABLE) or _SIBLING)
    if not path.exists():
        pytest.skip(f"NO RECORDED RUNS at {path}: compress on arrival is not measured; set {VARIABLE} to their folder")
    return path


def said(role: str, content: str | None) -> dict[str, Any]:
    return {"role": role, "content": content}


def called(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}


def answered(name: str, output: Any, call_id: str = "c1") -> dict[str, Any]:
    content = output if isinstance(output, str) else json.dumps(output)
    return {"role": "tool", "name": name, "tool_call_id": call_id, "content": content}
