"""Who is calling: an authenticated identity, or whoever reaches a server that asks for none."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

from noosphere.consistency import NamePattern

from ..ports.grants import Verb

OPERATOR_PREFIX = "cli/"
"""Agents named so are the operator at the machine, or an administrator."""


class Principal(NamedTuple):
    """An identity, as its credential proves it, and how far that credential goes.

    Attributes:
        name: what grants, limits and the audit log call it, e.g. ``system:serviceaccount:team:planner``.
        admin: whether it may do everything, as every agent.
        agents: namespaces ``agents/…`` of the agents that it may act as by its credential, beside the agent of its
            own name, those below that name, and what grants add.
        owners: owners of facts and sessions, such as ``user/42``, for whom it may act by its credential.
        session: the only session that it may touch; "" does not narrow.
        verbs: at most these; None does not narrow.
        expires_ms: when the credential ends, in milliseconds since 1970; 0 for never.
        credential: what of all credentials of this identity proved it, e.g. a token's id; for revocation and audit.
        open: nobody was asked who they are: names are trusted, as on loopback.
        only_agents: whether ``agents`` are all that it may act as: neither its own name nor grants add to them.
        only_owners: whether ``owners`` are all agents and users whose facts it may touch: grants do not add to them.
        granted_owner: the one agent or user to whom they do add all the same; "" for none.
    """

    name: str
    admin: bool = False
    agents: tuple[NamePattern, ...] = ()
    owners: tuple[str, ...] = ()
    session: str = ""
    verbs: frozenset[Verb] | None = None
    expires_ms: int = 0
    credential: str = ""
    open: bool = False
    only_agents: bool = False
    only_owners: bool = False
    granted_owner: str = ""

    def may_act_as(self, agent_id: str) -> bool:
        """Tells whether a call in the name of an agent may come from here by the credential alone; grants may add."""
        if self.open or (self.admin and not self.only_agents):
            return True
        if agent_id.startswith(OPERATOR_PREFIX):
            return False
        if not self.only_agents and (agent_id == self.name or agent_id.startswith(f"{self.name}/")):
            return True
        return any(matches(pattern, f"agents/{agent_id}") for pattern in self.agents)


def matches(pattern: NamePattern, name: str) -> bool:
    """Tells whether a pattern is about a name."""
    return name == pattern.text if pattern.exact else name.startswith(pattern.text)


OPEN = Principal("", open=True)
"""Whoever reaches a server that asks for no credential; the server's own work, too."""

calling: ContextVar[Principal] = ContextVar("calling", default=OPEN)
"""The principal of the call under way in this task."""
