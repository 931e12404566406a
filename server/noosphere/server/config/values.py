"""Values that settings and the command line have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def folder_or_file(text: Any) -> Any:
    """Returns the path that a text names, with ``~`` replaced; what is neither text nor path is left alone.

    Raises:
        ValueError: the text names nothing. The empty one would be the working directory.
    """
    if not isinstance(text, (str, Path)):
        return text
    if text == "":
        raise ValueError("'' is not a path")
    if "\0" in str(text):
        raise ValueError(f"{str(text)!r} is not a path: it contains NUL")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"{str(text)!r} is in a home directory that does not exist") from None
