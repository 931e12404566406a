"""Makes the index of facts anew while no server runs: terms by the present rules, vectors by the embedder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noosphere.consistency import Refusal

from .facts.contents import HELD, decode_body, search_terms
from .ports.factstore import FactContent, StoreModel
from .ports.models import Embedder, EmbedderError
from .ports.runtime import SystemClock
from .storage.embedded import DataFolder, DataFolderError
from .storage.facts import NO_MODEL, Rewritten, rewrite
from .storage.facts.rewriting import Change
from .storage.facts.store import FILE

if TYPE_CHECKING:
    from .storage.weaviate import WeaviateAccess


class ReindexError(Exception):
    """The index was not made anew; the old one is as it was. The message is one line."""


async def reindex(folder: Path, embedder: Embedder | None, *, told: Callable[[int, int], None]) -> Rewritten:
    """Makes the index of a data folder anew, beside the old one, which it replaces in the end or not at all.

    Args:
        folder: the data folder; it is locked meanwhile.
        embedder: makes the vectors; with None facts are found by keywords alone.
        told: is told now and then how many versions are done, and how many there are.

    Raises:
        ReindexError: a server uses the folder, it holds no facts, is damaged or cannot be written, or the embedder
            has failed.
    """
    if not (folder / FILE).is_file():
        # Looked at first: locking would make a data folder of it.
        raise ReindexError(f"{folder} holds no facts")
    try:
        with DataFolder.lock(folder):
            return await rewrite(folder, _model_of(embedder), _changing(embedder), told=told)
    except (DataFolderError, EmbedderError) as error:
        raise ReindexError(str(error)) from error


async def reindex_weaviate(
    access: WeaviateAccess, embedder: Embedder | None, *, told: Callable[[int, int], None]
) -> Rewritten:
    """Makes the index on Weaviate anew, beside the old one, which it replaces in the end or not at all.

    Servers may run meanwhile; see :func:`~noosphere.server.storage.weaviate.rewrite`.

    Args:
        access: how Weaviate is reached.
        embedder: makes the vectors; with None facts are found by keywords alone.
        told: is told now and then how many versions are done, and how many there are.

    Raises:
        ReindexError: it holds no facts or cannot be used, a package is missing, or the embedder has failed.
    """
    from .storage.weaviate import rewrite as rewrite_weaviate

    try:
        return await rewrite_weaviate(access, _model_of(embedder), _changing(embedder), clock=SystemClock(), told=told)
    except (Refusal, EmbedderError) as error:
        raise ReindexError(str(error)) from error
    except ImportError as error:
        raise ReindexError(f"Weaviate needs another package: pip install 'noosphere[weaviate]' ({error})") from error


def _model_of(embedder: Embedder | None) -> StoreModel:
    return NO_MODEL if embedder is None else StoreModel(embedder.name, embedder.dimension)


def _changing(embedder: Embedder | None) -> Change:
    async def change(contents: Sequence[FactContent]) -> Sequence[FactContent]:
        # What is kept apart for a review is found by nobody.
        found = {at: decode_body(one) for at, one in enumerate(contents) if not one.scope.startswith(HELD)}
        texts = [body.text for body in found.values()]
        vectors = [None] * len(texts) if embedder is None else await embedder.embed(texts)
        changed = list(contents)
        for (at, body), vector in zip(found.items(), vectors, strict=True):
            terms = search_terms(body.text, body.subject, body.predicate, body.object)
            changed[at] = contents[at]._replace(terms=terms, vector=vector)
        return changed

    return change
