"""What every driver refuses, before it does anything, in the same words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from noosphere.consistency import REVISION_MAX, invalid, too_large

from ...ports import factqueue, factstore
from ...ports.factqueue import Job
from ...ports.factstore import FactContent, FactFilter, FactKey

_VECTOR_SUM_MAX = 1e15
"""Keeps lengths finite in 32 bits."""

_TIMES = ("valid_from_ms", "valid_to_ms", "expires_at_ms", "recorded_ms")


def check_contents(contents: Sequence[FactContent], dimension: int) -> None:
    """Checks what is to be written.

    Args:
        contents: the versions.
        dimension: of the store's vectors; 0 if it has none.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming field, value and limit.
    """
    _count("contents", len(contents), factstore.BATCH_MAX, "versions")
    for at, content in enumerate(contents):
        where = f"contents[{at}]"
        check_keys((content.key,), where)
        for field in ("owner", "memory_type"):
            _name(f"{where}.{field}", getattr(content, field))
        for field in ("subject", "predicate"):
            _name(f"{where}.{field}", getattr(content, field), empty=True)
        _share(f"{where}.trust", content.trust)
        for field in _TIMES:
            _time(f"{where}.{field}", getattr(content, field))
        check_terms(content.terms, f"{where}.terms")
        if len(content.body) > factstore.BODY_BYTES_MAX:
            raise too_large(f"{where}.body", len(content.body), factstore.BODY_BYTES_MAX)
        if content.vector is not None:
            check_vector(content.vector, dimension, f"{where}.vector")


def check_keys(keys: Sequence[FactKey], where: str = "keys") -> None:
    """Checks keys, at most 256 of them.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    _count(where, len(keys), factstore.BATCH_MAX, "keys")
    for key in keys:
        _name(f"{where}.scope", key.scope)
        _name(f"{where}.fact_id", key.fact_id)
        if not 1 <= key.version <= REVISION_MAX:
            raise invalid(f"{where}.version", f"{key.version} is not from 1 to {REVISION_MAX}")


def check_terms(terms: Sequence[str], where: str = "terms") -> None:
    """Checks terms of a version or of a question.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    _count(where, len(terms), factstore.TERMS_MAX, "terms")
    for term in terms:
        _name(where, term)


def check_vector(vector: Sequence[float], dimension: int, where: str = "vector") -> None:
    """Checks a vector.

    Raises:
        Refusal: INVALID_FIELD: the store has none, its dimension is another, or a number is not finite.
    """
    if not dimension:
        raise invalid(where, "this store holds no vectors")
    if len(vector) != dimension:
        raise invalid(where, f"has {len(vector)} numbers, the store's model makes {dimension}")
    # One pass for every number; a sum with something that is not a number is none either.
    if not sum(map(abs, vector)) <= _VECTOR_SUM_MAX:
        raise invalid(where, f"is longer than {_VECTOR_SUM_MAX:g}, or holds something that is not a finite number")


def check_filter(where: FactFilter) -> None:
    """Checks a filter. One without scope or owner would leave everything: it is refused, not obeyed.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    for field in ("scopes", "owners"):
        if not getattr(where, field):
            raise invalid(f"where.{field}", "is empty; at least one is needed")
    for field in ("scopes", "owners", "memory_types"):
        values = getattr(where, field)
        _count(f"where.{field}", len(values), factstore.BATCH_MAX, "values")
        for value in values:
            _name(f"where.{field}", value)
    for field in ("subject", "predicate"):
        _name(f"where.{field}", getattr(where, field), empty=True)
    _share("where.trust_min", where.trust_min)
    for field in ("alive_at_ms", "valid_after_ms", "valid_before_ms"):
        if (value := getattr(where, field)) is not None:
            _time(f"where.{field}", value)


def check_scope(scope: str) -> None:
    """Checks the name of a scope.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    _name("scope", scope)


def check_limit(limit: int, limit_max: int) -> None:
    """Checks how much is asked for.

    Raises:
        Refusal: INVALID_FIELD.
    """
    if not 1 <= limit <= limit_max:
        raise invalid("limit", f"{limit} is not from 1 to {limit_max}")


def check_jobs(jobs: Sequence[Job]) -> None:
    """Checks what is to be queued.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming field, value and limit.
    """
    _count("jobs", len(jobs), factqueue.BATCH_MAX, "jobs")
    for at, job in enumerate(jobs):
        _name(f"jobs[{at}].id", job.id, factqueue.ID_CHARS_MAX)
        _name(f"jobs[{at}].group", job.group, factqueue.ID_CHARS_MAX, empty=True)
        if not 0 <= job.priority <= factqueue.PRIORITY_MAX:
            raise invalid(f"jobs[{at}].priority", f"{job.priority} is not from 0 to {factqueue.PRIORITY_MAX}")
        if len(job.body) > factqueue.BODY_BYTES_MAX:
            raise too_large(f"jobs[{at}].body", len(job.body), factqueue.BODY_BYTES_MAX)
    if (size := sum(len(job.body) for job in jobs)) > factqueue.CALL_BYTES_MAX:
        raise too_large("jobs", size, factqueue.CALL_BYTES_MAX, "bytes of bodies")


def check_names(field: str, names: Sequence[str], *, empty: bool = False) -> None:
    """Checks ids, leases or a group, at most 1,024 of them.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    _count(field, len(names), factqueue.BATCH_MAX, "values")
    for name in names:
        _name(field, name, factqueue.ID_CHARS_MAX, empty=empty)


def check_span(field: str, span_ms: int, least_ms: int) -> None:
    """Checks the length of a lease or of a wait.

    Raises:
        Refusal: INVALID_FIELD.
    """
    if not least_ms <= span_ms <= factqueue.LEASE_MS_MAX:
        raise invalid(field, f"{span_ms} is not from {least_ms} to {factqueue.LEASE_MS_MAX} ms")


def distinct(values: Iterable[str]) -> tuple[str, ...]:
    """Returns each value once, in order."""
    return tuple(dict.fromkeys(values))


def _count(field: str, actual: int, limit: int, unit: str) -> None:
    if actual > limit:
        raise too_large(field, actual, limit, unit)


def _name(field: str, value: str, chars_max: int = factstore.NAME_CHARS_MAX, *, empty: bool = False) -> None:
    if not value and not empty:
        raise invalid(field, "is empty")
    if len(value) > chars_max:
        raise too_large(field, len(value), chars_max, "characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(field, "is not Unicode text: it has half of a surrogate pair") from None


def _share(field: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise invalid(field, f"{value} is not from 0 to 1")


def _time(field: str, value: int) -> None:
    if not 0 <= value <= REVISION_MAX:
        raise invalid(field, f"{value} is not from 0 to {REVISION_MAX}")
