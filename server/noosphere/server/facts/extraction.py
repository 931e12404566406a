r"""Extraction jobs: what waits in the queue, what the ledger says of them, and how far sessions have been read.

In a scope's ledger:

    \0j/<job>               an extraction that has ended
    \0e/<owner>/<session>   up to where a session has been read for an owner

Neither holds a word of what was read.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .ledger import JOBS, digest
from .scopes import digits_of

EXTRACTED = "\0e/"

EXTRACTION_JOBS = "extract"
"""The kind of a job that extracts."""

EXTRACT_PRIORITY = 8
"""Of what somebody asks for."""

BACKGROUND_PRIORITY = 9
"""Of what the server does by itself after a turn."""

CANDIDATE_IDS_MAX = 1_000
"""Most candidates that a job names; it may submit more."""

DOCUMENT = "doc:"
"""Before a document's id, as evidence names it."""


class ExtractionState(StrEnum):
    """Where an extraction stands."""

    QUEUED = "queued"
    DONE = "done"
    FAILED = "failed"
    SUPPRESSED = "suppressed"


class Document(msgspec.Struct, frozen=True):
    """What is no part of a session: its id and its text."""

    id: str
    text: str


class ExtractionWork(msgspec.Struct, frozen=True, omit_defaults=True):
    """An extraction as it waits in the queue.

    Attributes:
        kind: always ``EXTRACTION_JOBS``.
        scope: where the facts are valid.
        owner: whose facts.
        session_id: which session to read; empty for a document.
        document: what to read instead.
        agent: on whose behalf; empty for the server itself.
        actor: the same as ``agent#incarnation``.
        meaning: the fingerprint of the request; empty if it had no id.
    """

    kind: str
    scope: str
    owner: str
    session_id: str = ""
    document: Document | None = None
    agent: str = ""
    actor: str = ""
    meaning: bytes = b""

    @property
    def asked(self) -> bool:
        """Whether somebody asked for it, and may look at it later."""
        return bool(self.actor)


class ExtractionNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """An extraction, as callers see it and as the ledger keeps it once it has ended.

    Attributes:
        id: its id.
        owner: whose facts.
        state: where it stands.
        failure: why it failed.
        candidate_ids: what it submitted, the first 1,000.
        extractor: what extracted, with its version.
        attempts: how often it was tried.
        model_tokens: what models read and wrote for its last attempt.
        meaning: the fingerprint of the request; empty if it had no id.
    """

    id: str
    owner: str
    state: ExtractionState
    failure: str = ""
    candidate_ids: tuple[str, ...] = ()
    extractor: str = ""
    attempts: int = 0
    model_tokens: int = 0
    meaning: bytes = b""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Up to where a session has been read for an owner.

    Attributes:
        position: the position of the last source that was read.
        failures: how many extractions have failed right after it.
    """

    position: str = ""
    failures: int = 0


_works = msgspec.json.Decoder(ExtractionWork)


def encode_work(work: ExtractionWork) -> bytes:
    """Returns an extraction as it waits in the queue."""
    return msgspec.json.encode(work)


def decode_work(data: bytes) -> ExtractionWork:
    """Returns an extraction that waited in the queue."""
    return _works.decode(data)


def job_key(job_id: str) -> str:
    """Returns where it is noted what became of an extraction."""
    return JOBS + digits_of(job_id)


def progress_key(owner: str, session_id: str) -> str:
    """Returns where it is noted how far a session has been read for an owner."""
    return f"{EXTRACTED}{digest(owner)}/{digest(session_id)}"
