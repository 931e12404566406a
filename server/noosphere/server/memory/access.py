"""Who may do what. Until authentication exists the server listens on loopback only and trusts names.

A private namespace is its agent's alone; agents named ``cli/…`` are the operator at the machine. Namespaces of facts
are nobody's: they are ledgers, which only the fact service reads and writes.
"""

from __future__ import annotations

from noosphere.consistency import NamespaceKind, Reason, Refusal, check_namespace

from ..security.principal import OPERATOR_PREFIX as OPERATOR_PREFIX
from .types import Call


def may_access(call: Call, namespace: str) -> bool:
    """Tells whether the caller may read and write ``namespace``."""
    kind, owner = check_namespace(namespace)
    if kind is not NamespaceKind.AGENT:
        return kind is not NamespaceKind.FACTS
    who = call.incarnation
    return who is not None and (who.agent_id == owner or who.agent_id.startswith(OPERATOR_PREFIX))


def is_private_to(call: Call, namespace: str) -> bool:
    """Tells whether ``namespace`` is the caller's own, where the last writer wins."""
    kind, owner = check_namespace(namespace)
    return kind is NamespaceKind.AGENT and call.incarnation is not None and call.incarnation.agent_id == owner


def require_access(call: Call, namespace: str) -> None:
    """Checks a reader.

    Raises:
        Refusal: PERMISSION_DENIED; it does not tell whether the namespace exists.
    """
    if not may_access(call, namespace):
        raise Refusal(Reason.PERMISSION_DENIED, f"reading {namespace!r} is not permitted")
