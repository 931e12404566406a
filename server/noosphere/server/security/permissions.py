"""What a principal may do: by itself, by its credential, and by what was granted to it.

Everything is denied that nothing here allows. Nothing here waits; who uses which session is found elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from enum import StrEnum
from typing import NamedTuple

from noosphere.consistency import NamePattern, NamespaceKind, Reason, Refusal, invalid, too_large
from noosphere.consistency.limits import NAMESPACE_BYTES_MAX

from ..ports.coordinator import PolicyTable
from ..ports.grants import GrantKey, Verb
from .principal import OPERATOR_PREFIX, Principal, calling, matches

AGENTS, SESSIONS, FACTS, LOCKS, GROUPS = "agents/", "sessions/", "facts/", "locks/", "groups/"
PRINCIPAL_BYTES_MAX = 1024
GRANTED_CACHE_MAX = 65_536
MERGED_CACHE_MAX = 4_096

Granted = Mapping[NamePattern, frozenset[Verb]]
NOTHING: frozenset[Verb] = frozenset()
EVERYTHING_BUT_ACT = frozenset(Verb) - {Verb.ACT}


class Why(StrEnum):
    """What allows or denies something."""

    OPEN = "the server asks for no credential"
    ADMIN = "the principal is an administrator"
    OWN = "it is the agent's own"
    CREDENTIAL = "the credential is for it"
    GRANTED = "a grant allows it"
    USES = "the session is one that the agent opened, or that it was handed over to"
    NARROWED = "the credential is narrowed to other verbs, sessions or owners"
    NOT_GRANTED = "nothing allows it"
    NOT_ITS_AGENT = "the principal may not act as the agent"

    @property
    def allows(self) -> bool:
        """Whether it is a reason to allow."""
        return self not in (Why.NARROWED, Why.NOT_GRANTED, Why.NOT_ITS_AGENT)


class Doing(NamedTuple):
    """What somebody wants to do.

    Attributes:
        principal: who.
        agent_id: in whose name; empty for nobody's.
        resource: the name of a namespace; or ``locks/…``, ``groups/…`` or ``facts/<scope>``.
        verb: what.
    """

    principal: Principal
    agent_id: str
    resource: str
    verb: Verb


def decide(doing: Doing, granted: frozenset[Verb]) -> Why:
    """Tells whether something is allowed, and why; the rule of every decision.

    Args:
        doing: what is to be done. That the principal may act as the agent is settled elsewhere.
        granted: the verbs of all grants to the principal that are about the resource.
    """
    principal, agent_id, resource, verb = doing
    if principal.open:
        return Why.OPEN
    if principal.verbs is not None and verb not in principal.verbs:
        return Why.NARROWED
    kind, _, rest = resource.partition("/")
    by_grant = Why.GRANTED if verb in granted else Why.NOT_GRANTED
    match kind:
        case "sessions" if principal.session and rest != principal.session:
            return Why.NARROWED
        case "agents":
            if agent_id and agent_id == rest:
                return Why.OWN
            if principal.only_agents:
                return Why.NARROWED
        case "facts":
            whose = _without_application(rest)
            owner_kind, _, name = whose.partition("/")
            if owner_kind == "agent" and agent_id and name == agent_id:
                return Why.OWN
            if whose in principal.owners:
                return Why.CREDENTIAL
            if principal.only_owners and owner_kind != "shared" and whose != principal.granted_owner:
                return Why.NARROWED
        case _:
            pass
    return Why.ADMIN if principal.admin else by_grant


def _without_application(scope: str) -> str:
    """Returns whose a scope is, without the application that it may be for."""
    if scope.startswith("app/"):
        return scope.split("/", 2)[-1]
    return scope


def granted_to(name: str, resource: str, grants: Mapping[GrantKey, frozenset[Verb]]) -> frozenset[Verb]:
    """Returns the verbs of all grants to a principal that are about a resource, by going through all of them."""
    found = NOTHING
    for key, verbs in grants.items():
        if about(key, name, resource):
            found |= verbs
    return found


def about(key: GrantKey, name: str, resource: str) -> bool:
    """Tells whether a grant is to a principal, and about a resource."""
    return matches(key.principal, name) and matches(key.namespace, resource)


def require_acting(agent_id: str) -> None:
    """Checks in whose name the call under way comes.

    Raises:
        Refusal: PERMISSION_DENIED; it does not tell whether there is such an agent.
    """
    principal = calling.get()
    if not principal.may_act_as(agent_id):
        permissions = deciding.get()
        if permissions is None or not permissions.may_act_as(principal, agent_id):
            raise denied_acting(principal, agent_id)


def require_lock(name: str, agent_id: str) -> None:
    """Checks that the call under way may take a lock whose fence it presents.

    Raises:
        Refusal: PERMISSION_DENIED; it does not tell whether there is such a lock.
    """
    principal, permissions = calling.get(), deciding.get()
    if principal.open or permissions is None:
        return
    if not permissions.may(principal, agent_id, LOCKS + name, Verb.WRITE):
        raise denied(Verb.WRITE, LOCKS + name)


class Permissions:
    """Decides by the grants in force. Answers are remembered until a rule or a grant changes.

    Args:
        policies: returns the table of rules and grants as this process knows it, without waiting.
    """

    def __init__(self, policies: Callable[[], PolicyTable]) -> None:
        self._policies = policies
        self._version = -1
        self._indexed: dict[NamePattern, dict[NamePattern, frozenset[Verb]]] = {}
        self._merged: dict[str, Granted] = {}
        self._granted: dict[tuple[str, str], frozenset[Verb]] = {}

    @property
    def version(self) -> int:
        """Which table of grants is in force; another number means that decisions may differ."""
        return self._policies().config_version

    def granted(self, name: str, resource: str) -> frozenset[Verb]:
        """Returns the verbs of all grants to a principal that are about a resource."""
        self._heed()
        verbs = self._granted.get((name, resource))
        if verbs is None:
            if len(self._granted) >= GRANTED_CACHE_MAX:
                self._granted.clear()
            verbs = self._granted[name, resource] = _verbs(self._grants_of(name), resource)
        return verbs

    def why(self, principal: Principal, agent_id: str, resource: str, verb: Verb) -> Why:
        """Tells whether something is allowed by who calls and by grants, and why."""
        granted = NOTHING if principal.open or principal.admin else self.granted(principal.name, resource)
        return decide(Doing(principal, agent_id, resource, verb), granted)

    def may(self, principal: Principal, agent_id: str, resource: str, verb: Verb) -> bool:
        """Tells whether something is allowed by who calls and by grants."""
        return self.why(principal, agent_id, resource, verb).allows

    def may_all(self, principal: Principal, prefix: str, verb: Verb) -> bool:
        """Tells whether something is allowed with everything whose name begins with ``prefix``."""
        if principal.open:
            return True
        narrowed = (
            (principal.verbs is not None and verb not in principal.verbs)
            or (principal.session and not _apart(prefix, SESSIONS))
            or (principal.only_agents and not _apart(prefix, AGENTS))
            or (principal.only_owners and not _apart(prefix, FACTS))
        )
        if narrowed:
            return False
        if principal.admin:
            return True
        self._heed()
        return verb in _verbs(self._grants_of(principal.name), prefix, whole=True)

    def may_act_as(self, principal: Principal, agent_id: str) -> bool:
        """Tells whether a call in the name of an agent may come from a principal, by its credential or by grants."""
        if principal.may_act_as(agent_id):
            return True
        if principal.only_agents or agent_id.startswith(OPERATOR_PREFIX):
            return False
        return Verb.ACT in self.granted(principal.name, AGENTS + agent_id)

    def _heed(self) -> None:
        """Begins anew if the table has changed."""
        table = self._policies()
        if table.config_version == self._version:
            return
        self._granted.clear()
        self._merged.clear()
        self._indexed.clear()
        for (principal, namespace), verbs in table.grants.items():
            self._indexed.setdefault(principal, {})[namespace] = verbs
        self._version = table.config_version

    def _grants_of(self, name: str) -> Granted:
        """Returns all grants to a principal, by what they are about."""
        merged = self._merged.get(name)
        if merged is None:
            if len(self._merged) >= MERGED_CACHE_MAX:
                self._merged.clear()
            found: dict[NamePattern, frozenset[Verb]] = {}
            prefixes = (NamePattern(name[:length], False) for length in range(len(name) + 1))
            for pattern in (NamePattern(name, True), *prefixes):
                for namespace, verbs in self._indexed.get(pattern, {}).items():
                    found[namespace] = found.get(namespace, NOTHING) | verbs
            merged = self._merged[name] = found
        return merged


deciding: ContextVar[Permissions | None] = ContextVar("deciding", default=None)
"""What decides by grants about the call under way; None where credentials alone count."""


def _verbs(grants: Granted, resource: str, *, whole: bool = False) -> frozenset[Verb]:
    """Returns the verbs of grants about a resource; with ``whole`` of those about all that begins with that name."""
    if not grants:
        return NOTHING
    found = NOTHING if whole else grants.get(NamePattern(resource, True), NOTHING)
    # Its prefixes are few; the grants may be thousands.
    for length in range(len(resource) + 1):
        if (verbs := grants.get(NamePattern(resource[:length], False))) is not None:
            found |= verbs
    return found


def _apart(prefix: str, kind: str) -> bool:
    """Tells whether nothing that begins with ``prefix`` is of a kind."""
    return not prefix.startswith(kind) and not kind.startswith(prefix)


def denied(verb: Verb, resource: str) -> Refusal:
    """Returns the refusal of what is not permitted: the same words whether or not there is such a thing."""
    return Refusal(Reason.PERMISSION_DENIED, f"{verb.value!r} on {resource!r} is not permitted")


def denied_acting(principal: Principal, agent_id: str) -> Refusal:
    """Returns the refusal of a call in the name of somebody else's agent."""
    return Refusal(Reason.PERMISSION_DENIED, f"{principal.name!r} may not act as agent {agent_id!r}")


def check_grant(key: GrantKey, verbs: frozenset[Verb]) -> None:
    """Checks what is to be granted.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    text = key.principal.text
    if key.principal.exact and not text:
        raise invalid("principal.exact", "must not be empty; an empty prefix means everybody")
    if (size := len(text.encode("utf-8", "replace"))) > PRINCIPAL_BYTES_MAX:
        raise too_large("principal", size, PRINCIPAL_BYTES_MAX)
    if any(ord(character) < ord(" ") or "\ud800" <= character <= "\udfff" for character in text):
        raise invalid("principal", "contains a control character or a lone surrogate")
    _check_resource(key.namespace)
    if Verb.ACT in verbs and not key.namespace.text.startswith(AGENTS):
        raise invalid("verbs", f"'act' is about agents: the pattern must begin with {AGENTS!r}")


def _check_resource(pattern: NamePattern) -> None:
    field = f"namespace.{'exact' if pattern.exact else 'prefix'}"
    kind = next((kind for kind in (LOCKS, GROUPS) if pattern.text.startswith(kind)), None)
    if kind is None:
        try:
            pattern.check()
        except Refusal as refusal:
            if pattern.text.partition("/")[0] in set(NamespaceKind):
                raise invalid(field, f"{pattern.text!r} is no such name: {refusal.message}") from None
            forms = "agents/…, sessions/…, shared/…, facts/…, locks/… or groups/…"
            raise invalid(field, f"{pattern.text!r} is not {forms}") from None
        return
    rest = pattern.text[len(kind) :]
    if pattern.exact and not rest:
        raise invalid(field, f"{pattern.text!r} names nothing after {kind!r}")
    if (size := len(pattern.text.encode("utf-8", "replace"))) > NAMESPACE_BYTES_MAX:
        raise too_large(field, size, NAMESPACE_BYTES_MAX)
    if any(ord(character) < ord(" ") or "\ud800" <= character <= "\udfff" for character in rest):
        raise invalid(field, "contains a control character or a lone surrogate")
