"""What a model answered, read as JSON of one shape, or an error that says what is wrong without repeating a word."""

from __future__ import annotations

import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ...ports.models import ModelError

Shape = TypeVar("Shape", bound=BaseModel)

_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*?)\n?```\Z", re.DOTALL)


def parsed(text: str, shape: type[Shape]) -> Shape:
    """Returns what an answer holds, a fence of Markdown around it or not.

    Raises:
        ModelError: it is no such JSON, or a field is missing, too long or of another type.
    """
    text = text.strip()
    if not text:
        raise ModelError("the answer is empty")
    if fenced := _FENCE.match(text):
        text = fenced[1]
    try:
        return shape.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        # Of malformed JSON the parser's message would repeat nothing but places; of values pydantic repeats none.
        raise ModelError(f"the answer is not what was asked for: {where}: {first['type']}") from None
