"""Filters in Weaviate's terms. Every value is written as :mod:`.naming` does, and so is none of its syntax."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...ports.factstore import FactFilter, FactKey
from . import wire
from .naming import bucket_of, key_text, moment, words
from .records import KEY, NAMES, SLICE, TERMS, TIMES, TRUST, VECTORED

if TYPE_CHECKING:
    from .wire import base_pb2

ID = "_id"


def by_bucket(scopes: Iterable[str], buckets: int) -> dict[str, list[str]]:
    """Returns which tenants have which of the scopes."""
    found: dict[str, list[str]] = {}
    for scope in dict.fromkeys(scopes):
        found.setdefault(bucket_of(scope, buckets), []).append(scope)
    return found


def left_by(where: FactFilter, scopes: Sequence[str]) -> base_pb2.Filters:
    """Returns the filter for the tenant that has these of its scopes."""
    found = [_among(NAMES["scope"], scopes), _among(NAMES["owner"], where.owners)]
    if where.memory_types:
        found.append(_among(NAMES["memory_type"], where.memory_types))
    for field in ("subject", "predicate"):
        if value := getattr(where, field):
            found.append(_among(NAMES[field], (value,)))
    if where.trust_min > 0:
        found.append(
            wire.base_pb2.Filters(
                operator="OPERATOR_GREATER_THAN_EQUAL", value_number=where.trust_min, target=_target(TRUST)
            )
        )
    found.append(_time("OPERATOR_GREATER_THAN", "expires_at_ms", where.alive_at_ms))
    if where.valid_after_ms is not None:
        found.append(_time("OPERATOR_GREATER_THAN", "valid_to_ms", where.valid_after_ms))
    if where.valid_before_ms is not None:
        found.append(_time("OPERATOR_LESS_THAN", "valid_from_ms", where.valid_before_ms))
    return both(*found)


def both(*filters: base_pb2.Filters) -> base_pb2.Filters:
    """Returns what leaves what all of them leave."""
    return filters[0] if len(filters) == 1 else wire.base_pb2.Filters(operator="OPERATOR_AND", filters=filters)


def of_scope(scope: str) -> base_pb2.Filters:
    """Leaves a scope."""
    return _among(NAMES["scope"], (scope,))


def with_term(written: str) -> base_pb2.Filters:
    """Leaves what has a term, given as it is written."""
    return _text("OPERATOR_EQUAL", TERMS, written)


def after_key(key: FactKey) -> base_pb2.Filters:
    """Leaves what comes after a key."""
    return _text("OPERATOR_GREATER_THAN", KEY, key_text(key))


def in_slices(first: int, end: int) -> base_pb2.Filters:
    """Leaves slices from one on and before another."""
    return both(
        wire.base_pb2.Filters(operator="OPERATOR_GREATER_THAN_EQUAL", value_int=first, target=_target(SLICE)),
        wire.base_pb2.Filters(operator="OPERATOR_LESS_THAN", value_int=end, target=_target(SLICE)),
    )


def with_vector() -> base_pb2.Filters:
    """Leaves what was written with a vector."""
    return wire.base_pb2.Filters(operator="OPERATOR_EQUAL", value_boolean=True, target=_target(VECTORED))


def with_ids(ids: Sequence[str]) -> base_pb2.Filters:
    """Leaves objects with one of these ids."""
    values = wire.base_pb2.TextArray(values=ids)
    return wire.base_pb2.Filters(operator="OPERATOR_CONTAINS_ANY", value_text_array=values, target=_target(ID))


def _among(name: str, texts: Sequence[str]) -> base_pb2.Filters:
    written = words(texts)
    if len(written) == 1:
        return _text("OPERATOR_EQUAL", name, written[0])
    values = wire.base_pb2.TextArray(values=written)
    return wire.base_pb2.Filters(operator="OPERATOR_CONTAINS_ANY", value_text_array=values, target=_target(name))


def _text(operator: str, name: str, value: str) -> base_pb2.Filters:
    return wire.base_pb2.Filters(operator=operator, value_text=value, target=_target(name))


def _time(operator: str, field: str, time_ms: int) -> base_pb2.Filters:
    return wire.base_pb2.Filters(operator=operator, value_int=moment(time_ms), target=_target(TIMES[field]))


def _target(name: str) -> base_pb2.FilterTarget:
    return wire.base_pb2.FilterTarget(property=name)
