"""What compression returns."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

_MARKS = re.compile(r"\n\[left out: \d+ of \d+ (?:values|characters)\]\Z|\n\[… \d+ characters left out …\]\n")


class Stage(StrEnum):
    """How a tool result was made to fit, in the order in which it is tried.

    Attributes:
        WHOLE: it fits as it is.
        FIELDS: the fields that the caller named.
        LOSSLESS: all of it, in a smaller notation.
        RELEVANT: the fields, elements and lines that are most useful to the task.
        CUT: its beginning and its end.
    """

    WHOLE = "whole"
    FIELDS = "fields"
    LOSSLESS = "lossless"
    RELEVANT = "relevant"
    CUT = "cut"


class LeftOut(NamedTuple):
    """How much of a tool result is missing.

    Attributes:
        values: JSON values; 0 of a text that is no JSON, or where the text itself was cut.
        values_total: how many there were.
        characters: of a text that is no JSON, or that was cut.
        characters_total: how many there were.
    """

    values: int = 0
    values_total: int = 0
    characters: int = 0
    characters_total: int = 0

    @property
    def mark(self) -> str:
        """The line that says so in the text; empty if nothing is missing."""
        if self.values:
            return f"\n[left out: {self.values} of {self.values_total} values]"
        if self.characters:
            return f"\n[left out: {self.characters} of {self.characters_total} characters]"
        return ""


class Compressed(NamedTuple):
    """A tool result that fits.

    Attributes:
        text: what stands for it.
        stage: how it was made to fit.
        tokens: the text's size.
        lossless: whether nothing is missing; of JSON white space does not count.
        left_out: what is missing.
        paths_missed: places of the paths in ``keep`` that found nothing.
    """

    text: str
    stage: Stage
    tokens: int
    lossless: bool
    left_out: LeftOut = LeftOut()
    paths_missed: tuple[int, ...] = ()

    @property
    def unmarked(self) -> str:
        """The text without the marks that say how much is missing."""
        return self.text if self.lossless else _MARKS.sub("\n", self.text).removesuffix("\n")
