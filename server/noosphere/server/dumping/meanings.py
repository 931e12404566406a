"""What lines of a dump mean to the ports."""

from __future__ import annotations

import base64
import binascii
import struct

import msgspec

from noosphere.consistency import Cut, NamePattern, NamespacePolicy

from ..ports.factqueue import Job
from ..ports.factstore import FactContent
from ..ports.grants import GrantKey, Verb
from ..ports.images import ImageRecord, NamespaceImage
from ..ports.store import NamespaceRef
from .bodies import bytes_of
from .lines import FactLine, FenceLine, Granted, JobLine, RecordLine, Rule, Space

_FLOAT_BYTES = 4


def rule_of(line: Rule) -> tuple[NamePattern, NamespacePolicy]:
    """Returns a pattern and its rules."""
    return NamePattern(line.text, line.exact), msgspec.convert(line.policy, NamespacePolicy)


def grant_of(line: Granted) -> tuple[GrantKey, frozenset[Verb]]:
    """Returns a grant.

    Raises:
        ValueError: one of its verbs is none.
    """
    key = GrantKey(NamePattern(line.principal, line.principal_exact), NamePattern(line.namespace, line.namespace_exact))
    return key, frozenset(map(Verb, line.verbs))


def image_of(line: Space, fences: list[FenceLine]) -> NamespaceImage:
    """Returns what there is to say of a namespace once."""
    return NamespaceImage(
        NamespaceRef(line.name, line.generation, line.origin),
        line.deleted,
        line.head,
        line.config_version,
        line.floor_context,
        tuple(Cut(*cut) for cut in line.cuts),
        tuple((fence.lock, fence.token) for fence in fences),
    )


def record_of(line: RecordLine) -> ImageRecord:
    """Returns a record."""
    return ImageRecord(line.key, line.revision, line.live_until_ms, line.due_ms, bytes_of(line.body))


def content_of(line: FactLine) -> FactContent:
    """Returns one version of one fact.

    Raises:
        ValueError: its vector or its body is none.
    """
    return FactContent(
        line.fact_id,
        line.version,
        line.scope,
        line.owner,
        line.memory_type,
        line.trust,
        line.valid_from_ms,
        line.valid_to_ms,
        line.expires_at_ms,
        line.recorded_ms,
        line.subject,
        line.predicate,
        line.terms,
        bytes_of(line.body),
        None if line.vector is None else _numbers(line.vector),
    )


def job_of(line: JobLine) -> Job:
    """Returns a job."""
    return Job(line.id, line.priority, bytes_of(line.body), line.group)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        packed = base64.b64decode(text, validate=True)
        return struct.unpack(f"<{len(packed) // _FLOAT_BYTES}f", packed)
    except (binascii.Error, struct.error) as error:
        raise ValueError(f"vector: {error}") from None
