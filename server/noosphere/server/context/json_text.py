"""JSON text that callers and models wrote, read without trusting it."""

from __future__ import annotations

from typing import Any

import msgspec

from noosphere.consistency import invalid
from noosphere.consistency.limits import JSON_DEPTH_MAX
from noosphere.consistency.merge import parse_json


def read_json(field: str, text: str) -> Any:
    """Returns what a text says.

    Args:
        field: names the text in refusals.
        text: JSON, or anything else.

    Raises:
        Refusal: INVALID_FIELD, for what is no JSON; VALUE_TOO_LARGE, for more than 128 levels of nesting.
    """
    # Both the decoder and whoever writes the value again go down a level of the stack with each level of nesting.
    if text.count("[") + text.count("{") > JSON_DEPTH_MAX:
        parse_json(field, text)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise invalid(field, f"is not JSON: {error}") from None
