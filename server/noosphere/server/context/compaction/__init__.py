"""Compress on arrival: a tool result made to fit, by what came before it alone.

Public: :func:`compress` with its :class:`Task` and :class:`Compressed`; :func:`compact` and :func:`expand`, the
lossless notation and its way back. All of it is pure.
"""

from __future__ import annotations

from .compression import OUTPUT_BYTES_MAX, TOKENS_DEFAULT, TOKENS_MAX, TOKENS_MIN, compress
from .document import DEPTH_MAX, NotJson
from .notation import compact, expand
from .past import Task
from .paths import PATH_CHARS_MAX, PATHS_MAX, parse_paths
from .reader import NotCompact
from .results import Compressed, LeftOut, Stage

__all__ = [
    "DEPTH_MAX",
    "OUTPUT_BYTES_MAX",
    "PATHS_MAX",
    "PATH_CHARS_MAX",
    "TOKENS_DEFAULT",
    "TOKENS_MAX",
    "TOKENS_MIN",
    "Compressed",
    "LeftOut",
    "NotCompact",
    "NotJson",
    "Stage",
    "Task",
    "compact",
    "compress",
    "expand",
    "parse_paths",
]
