"""A tiny agent: it writes sections of an outline that several of its kind share."""

from .agent import Goal, Outline, Section, decide_next, work

__all__ = ["Goal", "Outline", "Section", "decide_next", "work"]
