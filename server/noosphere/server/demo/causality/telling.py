"""What the causality demo tells: steps of lines, each of which must be true of the server, and knows whether it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """A statement about the server, and whether it holds."""

    text: str
    holds: bool = True


@dataclass(frozen=True, slots=True)
class Quote:
    """A paragraph as a model reads it."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Sights:
    """Who had seen what.

    Attributes:
        rows: who, what they hold, whose writes they have seen up to which revision, and how that relates to
            the present.
    """

    rows: tuple[tuple[str, str, str, str], ...]


class StepFailed(Exception):
    """A line does not hold, so what would follow means nothing."""


@dataclass(slots=True)
class Step:
    """One step of the story.

    Attributes:
        name: one word for programs.
        title: for people.
        parts: what is told, in order.
    """

    name: str
    title: str
    parts: list[Line | Quote | Sights] = field(default_factory=list)

    def line(self, text: str, holds: bool = True) -> None:
        """Tells a line.

        Raises:
            StepFailed: it does not hold.
        """
        self.parts.append(Line(text, holds))
        if not holds:
            raise StepFailed

    def quote(self, title: str, text: str, *must_name: str) -> None:
        """Tells a paragraph that a model would get.

        Raises:
            StepFailed: something that it must name is missing in it.
        """
        self.parts.append(Quote(title, text))
        missing = [name for name in must_name if name not in text]
        if missing:
            self.line(f"{title} names {', '.join(missing)}", False)

    def failed(self, error: Exception) -> None:
        """Tells what ended the step before its time."""
        self.parts.append(Line(f"nothing fails here, but: {type(error).__name__}: {error}", False))

    @property
    def failures(self) -> list[str]:
        """The lines that do not hold."""
        return [part.text for part in self.parts if isinstance(part, Line) and not part.holds]

    def as_dict(self) -> dict[str, Any]:
        """Returns the step as plain data for JSON."""
        quotes = [part for part in self.parts if isinstance(part, Quote)]
        return {
            "name": self.name,
            "title": self.title,
            "ok": not self.failures,
            "lines": [{"text": part.text, "holds": part.holds} for part in self.parts if isinstance(part, Line)],
            "paragraphs": [{"title": quote.title, "text": quote.text} for quote in quotes],
            "sights": [
                {"agent": agent, "holds": holds, "seen": seen, "order": order}
                for part in self.parts
                if isinstance(part, Sights)
                for agent, holds, seen, order in part.rows
            ],
        }


@dataclass(frozen=True, slots=True)
class Account:
    """The whole story.

    Attributes:
        steps: as far as it came.
        missing: names of the steps that were not reached.
        seconds: how long it took.
    """

    steps: tuple[Step, ...]
    missing: tuple[str, ...]
    seconds: float

    @property
    def failures(self) -> list[str]:
        """Everything that does not hold, with the step's name; empty if all is well."""
        return [f"{step.name}: {text}" for step in self.steps for text in step.failures]

    def as_dict(self) -> dict[str, Any]:
        """Returns the account as plain data for JSON."""
        return {
            "ok": not self.failures,
            "failures": self.failures,
            "steps": [step.as_dict() for step in self.steps],
            "missing": list(self.missing),
            "seconds": round(self.seconds, 3),
        }
