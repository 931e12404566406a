"""What the collection of facts says of itself: whether this program can use it, and finds facts in it by meaning."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import msgspec

from ..config import ConfigError, Settings
from ..fact_stores import model_of
from ..models import build
from .findings import Finding, problem, warning


def examine_package() -> list[Finding]:
    """Looks for the package without which a server does not start."""
    if importlib.util.find_spec("weaviate") is not None:
        return []
    advice = "pip install 'noosphere[weaviate]'"
    return [problem("weaviate_missing", "the package for Weaviate is missing", "no module named weaviate", advice)]


async def examine_collection(settings: Settings, described: Mapping[str, Any]) -> list[Finding]:
    """Looks at a collection.

    Args:
        settings: the configuration.
        described: the collection as Weaviate describes it.
    """
    from ..storage.weaviate.schema import FORMAT, Stamp

    name = described["class"]
    try:
        stamp = msgspec.json.decode(described.get("description") or "", type=Stamp)
    except msgspec.DecodeError:
        return [
            problem(
                "weaviate_foreign",
                "the collection for facts was not made by this program",
                f"{name} has no stamp of ours in its description",
                "name another one (weaviate_collection)",
            )
        ]
    if stamp.format > FORMAT:
        return [
            problem(
                "newer_format",
                "the collection of facts is of a newer format than this program knows",
                f"{name} has format {stamp.format}, this program knows {FORMAT}",
                "use the version of noosphere that made it",
            )
        ]
    try:
        models = build(settings)
    except ConfigError as error:
        return [problem("embedder_missing", "the embedder cannot be used", error, "install it, or choose another one")]
    await models.aclose()
    wanted = model_of(models.embedder)
    # One without vectors takes those of any model.
    if not stamp.dimension or (stamp.model, stamp.dimension) == wanted:
        return []
    return [
        warning(
            "weaviate_model",
            "facts are found by keywords alone, because their vectors are of another model",
            f"those of {name} are of {stamp.model}, {stamp.dimension} numbers; configured is {wanted.name or 'none'}",
            "configure the model that they are of, or run `noosphere facts reindex`",
        )
    ]
