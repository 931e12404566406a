"""Takes something out of rendered manifests, and puts it back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from scripts.manifests.documents import Documents

Path = tuple[str | int, ...]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields where everything is: each key of each object, each entry of each list, each document."""
    found = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in found:
        yield (*path, step)
        yield from paths(inner, (*path, step))


@contextlib.contextmanager
def without(documents: Documents, path: Path) -> Iterator[None]:
    """Takes out what is at a path for the length of the block."""
    place: Any = documents.every
    for step in path[:-1]:
        place = place[step]
    before = list(place.items()) if isinstance(place, dict) else list(place)
    del place[path[-1]]
    try:
        yield
    finally:
        place.clear()
        place.update(before) if isinstance(place, dict) else place.extend(before)


def name_of(documents: Documents, path: Path) -> str:
    """Returns a path as text: kind and name of the document, and the steps in it."""
    document = documents.every[int(path[0])]
    return f"{document['kind']}/{document['metadata']['name']}:{'.'.join(map(str, path[1:]))}"
