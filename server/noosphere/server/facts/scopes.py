"""Scopes and owners of facts: which names there are, what an id tells of them, and who may read and write where.

A scope is ``agent/<id>``, ``shared/<name>`` or ``user/<id>``, or one of these for one application only:
``app/<application>/user/<id>``. An owner is one of the three. Everything else in a name is data.

A server that asks for no credential trusts names, as everywhere: what is an agent's is that agent's alone, and agents
named ``cli/…`` are the operator at the machine. Otherwise it depends on the principal, see ``security.permissions``.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from noosphere.consistency import Reason, Refusal, check_agent_id, check_namespace, invalid, too_large
from noosphere.consistency.limits import NAMESPACE_BYTES_MAX

from ..memory.access import OPERATOR_PREFIX
from ..memory.core import Core
from ..memory.types import Call
from ..ports.grants import Verb

NAMESPACES = "facts/"
"""Before a scope in the name of the namespace that holds its ledger."""

SCOPE_BYTES_MAX = NAMESPACE_BYTES_MAX - len(NAMESPACES)
"""A scope names its ledger's namespace."""

APPLICATION = "app"
DIGITS = 24
"""How many hexadecimal digits an id ends with."""

_SEPARATOR = "#"
_DIGITS = re.compile(rf"[0-9a-f]{{{DIGITS}}}")
_FORMS = "agent/<id>, shared/<name> or user/<id>"


class Kind(StrEnum):
    """Whose a scope is."""

    AGENT = "agent"
    SHARED = "shared"
    USER = "user"


class IdKind(StrEnum):
    """What an id names; the value stands before its digits."""

    FACT = ""
    CANDIDATE = "c"
    JOB = "j"


class Scope(NamedTuple):
    """A scope's parts: whose it is, and for which application; empty for all."""

    kind: Kind
    name: str
    application: str = ""


@lru_cache(maxsize=4096)
def check_scope(scope: str, field: str = "scope") -> Scope:
    """Checks the name of a scope and returns its parts.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
    """
    if not isinstance(scope, str):
        raise invalid(field, f"{scope!r} is {type(scope).__name__}, not text")
    if not scope:
        raise invalid(field, f"must not be empty; it is {_FORMS}")
    rest, application = scope, ""
    if scope.startswith(f"{APPLICATION}/"):
        _, application, rest = scope.split("/", 2) if scope.count("/") > 1 else ("", "", "")
    kind, _, name = rest.partition("/")
    if kind not in set(Kind) or not name:
        raise invalid(field, f"{scope!r} is not {_FORMS}, with or without {APPLICATION}/<application>/ before it")
    if _SEPARATOR in scope:
        raise invalid(field, f"{scope!r} contains '#', which separates a scope from what is in it")
    if (size := len(scope.encode("utf-8", "replace"))) > SCOPE_BYTES_MAX:
        raise too_large(field, size, SCOPE_BYTES_MAX)
    # No control characters, no empty segments: the rules of every name.
    check_namespace(NAMESPACES + scope, field)
    if kind == Kind.AGENT:
        check_agent_id(name, field)
    return Scope(Kind(kind), name, application)


def check_owner(owner: str, field: str = "owner") -> Scope:
    """Checks the name of an owner, who is one for all applications.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
    """
    parts = check_scope(owner, field)
    if parts.application:
        raise invalid(field, f"{owner!r} is a scope of one application; an owner is {_FORMS}")
    return parts


def scope_or_own(scope: str, owner: str) -> str:
    """Returns a scope, or the owner's own if none is given; checks both.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``owner`` or ``scope``.
    """
    check_owner(owner)
    if not scope:
        return owner
    check_scope(scope)
    return scope


def make_id(scope: str, digits: str, kind: IdKind = IdKind.FACT) -> str:
    """Returns the id of something in a scope, of which ``digits`` are the first 24 hexadecimal ones that matter."""
    return f"{scope}{_SEPARATOR}{kind.value}{digits[:DIGITS]}"


def scope_of(id: str, kind: IdKind = IdKind.FACT, field: str = "") -> str:
    """Returns the scope that an id names.

    Args:
        id: ``<scope>#`` and 24 hexadecimal digits, after ``c`` for a candidate and ``j`` for a job.
        kind: what it has to name.
        field: for messages; ``fact_id``, ``candidate_id`` or ``job_id`` by default.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming ``field``.
    """
    field = field or f"{kind.name.lower()}_id"
    scope, separator, rest = id.rpartition(_SEPARATOR)
    if not separator or not rest.startswith(kind.value) or not _DIGITS.fullmatch(rest[len(kind.value) :]):
        raise invalid(field, f"{id[:300]!r} is not <scope>#{kind.value} with {DIGITS} hexadecimal digits")
    check_scope(scope, field)
    return scope


def digits_of(id: str) -> str:
    """Returns what of an id is no scope: a name without slashes."""
    return id.rpartition(_SEPARATOR)[2]


def may_access(agent_id: str, scope: str) -> bool:
    """Tells whether names alone let an agent, or nobody (empty), read and write in a scope, or what is an owner's."""
    parts = check_scope(scope)
    if parts.kind is not Kind.AGENT:
        return True
    return agent_id == parts.name or agent_id.startswith(OPERATOR_PREFIX)


def operates(call: Call, verb: Verb) -> bool:
    """Tells whether the operator calls, with a credential that is not narrowed to less than this needs.

    Args:
        call: who calls.
        verb: what is to be done, in all scopes.
    """
    principal = call.principal
    narrowed = principal.session or (principal.verbs is not None and verb not in principal.verbs)
    return call.agent_id.startswith(OPERATOR_PREFIX) and not narrowed


def may(core: Core, call: Call, scope: str, verb: Verb) -> bool:
    """Tells whether the caller may do something in a scope, or with what belongs to an owner."""
    if call.principal.open:
        return may_access(call.agent_id, scope)
    check_scope(scope)
    return core.access.may_as(call.principal, call.agent_id, NAMESPACES + scope, verb)


def require_read(core: Core, call: Call, scope: str, verb: Verb = Verb.READ) -> None:
    """Checks a reader.

    Args:
        core: knows what is permitted.
        call: who calls.
        scope: where.
        verb: what the caller must be permitted to do; some read to watch.

    Raises:
        Refusal: PERMISSION_DENIED; it does not tell whether the scope holds anything.
    """
    if not may(core, call, scope, verb):
        raise Refusal(Reason.PERMISSION_DENIED, f"reading facts of {scope!r} is not permitted")


def admit_reader(core: Core, call: Call, *scopes: str, verb: Verb = Verb.READ) -> None:
    """Checks a reader's permission and incarnation; renews its lease.

    Raises:
        Refusal: PERMISSION_DENIED, STALE_INCARNATION.
    """
    for scope in scopes:
        require_read(core, call, scope, verb)
    core.require_current(call)


def require_write(core: Core, call: Call, scope: str, owner: str, verb: Verb = Verb.WRITE) -> None:
    """Checks a writer.

    Args:
        core: knows what is permitted.
        call: who calls.
        scope: where.
        owner: whose facts.
        verb: what the caller must be permitted to do in the scope and with what is the owner's.

    Raises:
        Refusal: PERMISSION_DENIED; it does not tell whether the scope holds anything.
    """
    if not (may(core, call, scope, verb) and (owner == scope or may(core, call, owner, verb))):
        raise Refusal(Reason.PERMISSION_DENIED, f"changing facts of {owner!r} in {scope!r} is not permitted")
