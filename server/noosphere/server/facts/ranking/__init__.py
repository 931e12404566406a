"""Ranking of facts and messages for a question: pure functions over candidates, whatever store they come from."""

from __future__ import annotations

from .documents import Document, asks, document, indexed
from .keywords import Bag, Statistics, statistics
from .packing import PACKED_MAX, Choice, pack
from .question import Question, question
from .rank import CANDIDATES_MAX, Ranked, rank, relevances
from .weights import SIGNALS, WEIGHTS, Weights

__all__ = [
    "CANDIDATES_MAX",
    "PACKED_MAX",
    "SIGNALS",
    "WEIGHTS",
    "Bag",
    "Choice",
    "Document",
    "Question",
    "Ranked",
    "Statistics",
    "Weights",
    "asks",
    "document",
    "indexed",
    "pack",
    "question",
    "rank",
    "relevances",
    "statistics",
]
