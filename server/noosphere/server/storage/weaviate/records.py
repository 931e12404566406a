"""A version of a fact as an object of Weaviate, and back."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...ports.factstore import FactContent, FactKey
from ..facts.vectors import direction_of
from . import wire
from .naming import bucket_of, key_text, moment, object_id, slice_of, text_of, word

if TYPE_CHECKING:
    from .wire import batch_pb2, search_get_pb2

KEY = "key"
TERMS = "terms"
PAYLOAD = "payload"
LENGTH = "length"
SLICE = "slice"
VECTORED = "vectored"
NAMES = {"scope": "scope", "owner": "owner", "memory_type": "kind", "subject": "subject", "predicate": "predicate"}
TIMES = {"valid_from_ms": "valid_from", "valid_to_ms": "valid_to", "expires_at_ms": "expires"}
TRUST = "trust"


class _Payload(msgspec.Struct, array_like=True, frozen=True):
    """What is not read back from anything that is searched: exact numbers, opaque bytes, names as they are."""

    owner: str
    memory_type: str
    subject: str
    predicate: str
    trust: float
    valid_from_ms: int
    valid_to_ms: int
    expires_at_ms: int
    recorded_ms: int
    body: bytes
    vector: bytes | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Payload).decode


def object_of(content: FactContent, collection: str, buckets: int) -> batch_pb2.BatchObject:
    """Returns a version as it is stored. Vectors stand there at length 1, so that a product tells how near they are."""
    id = object_id(content.key)
    vector = None if content.vector is None else np.asarray(content.vector, "<f4")
    direction = None if vector is None else direction_of(vector)
    made = wire.batch_pb2.BatchObject(
        uuid=id,
        collection=collection,
        tenant=bucket_of(content.scope, buckets),
        vector_bytes=b"" if direction is None else direction.astype("<f4").tobytes(),
    )
    payload = _Payload(
        content.owner,
        content.memory_type,
        content.subject,
        content.predicate,
        content.trust,
        content.valid_from_ms,
        content.valid_to_ms,
        content.expires_at_ms,
        content.recorded_ms,
        content.body,
        None if vector is None else vector.tobytes(),
    )
    made.properties.non_ref_properties.update(
        {
            KEY: key_text(content.key),
            PAYLOAD: base64.b64encode(_encode(payload)).decode(),
            LENGTH: len(content.terms),
            SLICE: slice_of(id),
            VECTORED: vector is not None,
            TRUST: content.trust,
            **{name: word(getattr(content, field)) for field, name in NAMES.items()},
            **{name: moment(getattr(content, field)) for field, name in TIMES.items()},
        }
    )
    if content.terms:
        values = [word(term) for term in content.terms]
        made.properties.text_array_properties.add(prop_name=TERMS, values=values)
    return made


def content_of(key: FactKey, result: search_get_pb2.SearchResult) -> FactContent:
    """Returns the version that an object holds.

    Raises:
        ValueError: it is damaged.
    """
    payload = _decode(base64.b64decode(text(result, PAYLOAD), validate=True))
    return FactContent(
        fact_id=key.fact_id,
        version=key.version,
        scope=key.scope,
        owner=payload.owner,
        memory_type=payload.memory_type,
        trust=payload.trust,
        valid_from_ms=payload.valid_from_ms,
        valid_to_ms=payload.valid_to_ms,
        expires_at_ms=payload.expires_at_ms,
        recorded_ms=payload.recorded_ms,
        subject=payload.subject,
        predicate=payload.predicate,
        terms=tuple(map(text_of, words_of(result))),
        body=payload.body,
        vector=None if payload.vector is None else tuple(np.frombuffer(payload.vector, "<f4").tolist()),
    )


def text(result: search_get_pb2.SearchResult, name: str) -> str:
    """Returns a property that is a text."""
    return result.properties.non_ref_props.fields[name].text_value


def words_of(result: search_get_pb2.SearchResult) -> list[str]:
    """Returns the terms of an object, as they are written there."""
    return list(result.properties.non_ref_props.fields[TERMS].list_value.text_values.values)


def vector_of(result: search_get_pb2.SearchResult) -> NDArray[np.float32] | None:
    """Returns the vector of an object, at length 1; None if it has none."""
    stored = result.metadata.vector_bytes
    return np.frombuffer(stored, "<f4") if stored else None
