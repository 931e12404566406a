"""Scripts of demos: JSON files of a form, and one line that says what is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

FILE_BYTES_MAX = 4 * 1024 * 1024

_Form = TypeVar("_Form", bound=BaseModel)


class ScriptError(ValueError):
    """A script that cannot be played; the message is one line that names file, field and value."""


def read_as(form: type[_Form], path: Path) -> _Form:
    """Reads a script from a JSON file.

    Args:
        form: the form that it has to have.
        path: the file, at most 4 MiB.

    Raises:
        ScriptError: it cannot be read, is no JSON or does not have this form.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ScriptError(f"{path}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ScriptError(f"{path}: is larger than {FILE_BYTES_MAX} bytes")
    try:
        return form.model_validate(json.loads(data))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"]))
            shown = "" if isinstance(first["input"], dict) else f" ({first['input']!r:.80})"
            message = first["msg"].removeprefix("Value error, ")
            raise ScriptError(f"{path}: {where + ': ' if where else ''}{message}{shown if where else ''}") from None
        raise ScriptError(f"{path}: is no JSON: {error}") from None
