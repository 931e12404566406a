"""JSON paths of fields that a caller wants kept, such as ``items[*].price``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from noosphere.consistency.errors import invalid

from .document import Fields, Node
from .pricing import NOTHING, Nothing

PATHS_MAX = 64
PATH_CHARS_MAX = 256
STEPS_MAX = 32

ALL: Final = None
"""The step that any field and any element takes."""
Step: TypeAlias = "str | int | None"

_STEP = re.compile(
    r"""
    \.(?P<name>[^.\[\]"'*\s]+) | \.(?P<any>\*)
    | \[(?P<index>-?[0-9]{1,9})\] | \[(?P<every>\*)\]
    | \["(?P<double>[^"\\]+)"\] | \['(?P<single>[^'\\]+)'\]
    """,
    re.VERBOSE,
)


def parse_paths(paths: Sequence[str], field: str = "keep") -> list[tuple[Step, ...]]:
    """Reads JSON paths: names, ``[3]``, ``[-1]``, ``[*]``, ``.*`` and ``["any name"]``, with or without ``$``.

    Args:
        paths: what the caller gave.
        field: the name of what the caller gave, for errors.

    Returns:
        The steps of each path.

    Raises:
        Refusal: INVALID_FIELD, naming the path and what is wrong with it.
    """
    if len(paths) > PATHS_MAX:
        raise invalid(field, f"{len(paths)} paths are more than {PATHS_MAX}")
    return [_parse(path, f"{field}[{number}]") for number, path in enumerate(paths)]


def _parse(path: str, field: str) -> tuple[Step, ...]:
    if len(path) > PATH_CHARS_MAX:
        raise invalid(field, f"{path[:32]!r}… has {len(path)} characters, the limit is {PATH_CHARS_MAX}")
    text = path.removeprefix("$")
    if text and text[0] not in ".[":
        text = "." + text
    if not text:
        raise invalid(field, f"{path!r} has no steps")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise invalid(field, f'{path!r}: expected .name, .*, [3], [*] or ["name"] at {text[at : at + 16]!r}')
        if found["any"] or found["every"]:
            steps.append(ALL)
        elif found["index"]:
            steps.append(int(found["index"]))
        else:
            steps.append(found["name"] or found["double"] or found["single"])
        at = found.end()
    if len(steps) > STEPS_MAX:
        raise invalid(field, f"{path[:32]!r}… has {len(steps)} steps, the limit is {STEPS_MAX}")
    return tuple(steps)


class Extract(NamedTuple):
    """What paths found in a document.

    Attributes:
        document: the document without everything else; ``NOTHING`` if no path found anything.
        missed: places of the paths that found nothing.
    """

    document: Node | Nothing
    missed: tuple[int, ...]


class _Branch:
    """Paths that have their first steps in common."""

    def __init__(self) -> None:
        self.inner: dict[Step, _Branch] = {}
        self.ends: list[int] = []


def extract(document: Node, paths: Sequence[tuple[Step, ...]]) -> Extract:
    """Keeps of a document what paths lead to, in its own order and with the names around it."""
    root = _Branch()
    for number, path in enumerate(paths):
        branch = root
        for step in path:
            branch = branch.inner.setdefault(step, _Branch())
        branch.ends.append(number)
    hits: set[int] = set()
    found = _extract(document, [root], hits)
    return Extract(found, tuple(number for number in range(len(paths)) if number not in hits))


def _extract(node: Node, branches: list[_Branch], hits: set[int]) -> Node | Nothing:
    arrived = [number for branch in branches for number in branch.ends]
    hits.update(arrived)
    found: Node | Nothing = NOTHING
    if isinstance(node, Fields):
        pairs = [
            (key, inner) for key, value in node if (inner := _follow(value, branches, (ALL, key), hits)) is not NOTHING
        ]
        found = Fields(pairs) if pairs else NOTHING  # type: ignore[arg-type]
    elif isinstance(node, list):
        count = len(node)
        values = [_follow(value, branches, (ALL, place, place - count), hits) for place, value in enumerate(node)]
        found = [value for value in values if not isinstance(value, Nothing)] or NOTHING
    return node if arrived else found


def _follow(value: Node, branches: list[_Branch], steps: tuple[Step, ...], hits: set[int]) -> Node | Nothing:
    inner = [branch.inner[step] for branch in branches for step in steps if step in branch.inner]
    return _extract(value, inner, hits) if inner else NOTHING
