"""What is used of the ``weaviate`` package: its messages, loaded when they are first needed.

The package takes seconds to import, and its client cannot be told of an authority for its REST calls, repeats calls for
up to a minute and asks PyPI for its newest version. So the messages are its own, and the calls ours.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weaviate.proto.v1.v6300.v1 import (
        aggregate_pb2,
        base_pb2,
        base_search_pb2,
        batch_delete_pb2,
        batch_pb2,
        search_get_pb2,
    )


def load() -> None:
    """Loads the package; blocks for seconds, the first time.

    Raises:
        ImportError: it is not installed.
    """
    importlib.import_module("weaviate.proto.v1")


def __getattr__(name: str) -> object:
    """Returns a module of messages by its name in the package."""
    if name.endswith("_pb2"):
        return getattr(importlib.import_module("weaviate.proto.v1"), name)
    raise AttributeError(name)


__all__ = [
    "aggregate_pb2",
    "base_pb2",
    "base_search_pb2",
    "batch_delete_pb2",
    "batch_pb2",
    "load",
    "search_get_pb2",
]
