"""Who may do what in a namespace: the one door to all of them.

A server that asks for no credential trusts names: a private namespace is its agent's alone, and agents named ``cli/…``
are the operator at the machine. Otherwise it depends on the principal, see ``security.permissions``, and a session is
for those who use it. Namespaces of facts are nobody's: they are ledgers, which only the fact service reads and writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import NamedTuple

from noosphere.consistency import NamespaceKind, Refusal, check_namespace

from ..ports.grants import Verb
from ..ports.runtime import Clock
from ..security import Permissions, Principal, Unsettled
from ..security.permissions import SESSIONS, denied
from ..security.principal import OPERATOR_PREFIX as OPERATOR_PREFIX
from .types import Call

USERS_CACHE_MAX = 65_536
USERS_MS_MAX = 1_000
"""How long it is believed who uses a session; nobody who does ceases to, unless the session is another one."""


class SessionUsers(NamedTuple):
    """Who uses a session: the agent that opened it, and those that it was handed to."""

    owner: str
    handed: frozenset[str] = frozenset()


FindUsers = Callable[[str], Awaitable[SessionUsers | None]]

_looked_up: ContextVar[frozenset[str]] = ContextVar("looked_up", default=frozenset())
"""The sessions whose users were looked up in this call."""


class Access:
    """Decides who may do what where.

    Args:
        permissions: decides by principal and by grants.
        clock: on its monotonic time answers about sessions age.

    Attributes:
        permissions: the same.
        find_users: looks up who uses a session, by its id; None if there is no session of that id.
    """

    def __init__(self, permissions: Permissions, clock: Clock) -> None:
        self.permissions = permissions
        self.find_users: FindUsers | None = None
        self._clock = clock
        self._users: dict[str, tuple[SessionUsers, int]] = {}

    def may(self, call: Call, namespace: str, verb: Verb = Verb.READ, *, lately: bool = False) -> bool:
        """Tells whether the caller may do something in a namespace.

        Args:
            call: who calls.
            namespace: where.
            verb: what.
            lately: as for :meth:`may_as`; needed wherever the call was not checked for this namespace when it began.

        Raises:
            Unsettled: who uses the session must be looked up.
        """
        kind, owner = check_namespace(namespace)
        if kind is NamespaceKind.FACTS:
            return False
        if not call.principal.open:
            return self.may_as(call.principal, call.agent_id, namespace, verb, lately=lately)
        if kind is not NamespaceKind.AGENT:
            return True
        who = call.incarnation
        return who is not None and (who.agent_id == owner or who.agent_id.startswith(OPERATOR_PREFIX))

    def require(self, call: Call, namespace: str, verb: Verb = Verb.READ, *, lately: bool = False) -> None:
        """Checks what a caller wants to do; the arguments are those of :meth:`may`.

        Raises:
            Refusal: PERMISSION_DENIED; it does not tell whether the namespace exists.
            Unsettled: who uses the session must be looked up.
        """
        if not self.may(call, namespace, verb, lately=lately):
            raise denied(verb, namespace)

    def may_as(self, principal: Principal, agent_id: str, resource: str, verb: Verb, *, lately: bool = False) -> bool:
        """Tells whether a principal may do something, in the name of an agent or of nobody.

        Args:
            principal: whose credential it is.
            agent_id: the agent; empty for none.
            resource: the name of a namespace; or ``locks/…``, ``groups/…`` or ``facts/<scope>``.
            verb: what.
            lately: whether who uses a session must have been looked up within the last second. Otherwise what was
                found when the call began holds.

        Raises:
            Unsettled: who uses the session must be looked up.
        """
        if self.permissions.may(principal, agent_id, resource, verb):
            return True
        session_id = self._asked_for(principal, resource, verb)
        if not session_id:
            return False
        users, found_ms = self._users.get(session_id, (None, 0))
        if users is not None and self._uses(principal, agent_id, users):
            if not lately or self._clock.monotonic_ms() - found_ms < USERS_MS_MAX:
                return True
        elif session_id in _looked_up.get():
            return False
        raise UnknownUsers(self, session_id, denied(verb, resource))

    def may_use(self, principal: Principal, agent_id: str, session_id: str, users: SessionUsers, verb: Verb) -> bool:
        """Tells whether a principal may do something in a session whose users are known."""
        if principal.open:
            return True
        resource = SESSIONS + session_id
        if self.permissions.may(principal, agent_id, resource, verb):
            return True
        return bool(self._asked_for(principal, resource, verb)) and self._uses(principal, agent_id, users)

    def may_open(self, principal: Principal, agent_id: str, session_id: str) -> bool:
        """Tells whether a principal may open a session: one of an id that nobody has, or one that is there to use.

        Args:
            principal: whose credential it is.
            agent_id: in whose name.
            session_id: its id; empty for one that the server issues.

        Raises:
            Unsettled: who uses the session must be looked up.
        """
        if principal.open:
            return True
        if not self._asked_for(principal, SESSIONS + (session_id or "~"), Verb.WRITE):
            return False
        if not session_id or self.permissions.may(principal, agent_id, SESSIONS + session_id, Verb.WRITE):
            return True
        if session_id not in _looked_up.get():
            raise UnknownUsers(self, session_id, denied(Verb.WRITE, SESSIONS + session_id))
        found = self._users.get(session_id)
        return found is None or self._uses(principal, agent_id, found[0])

    async def require_in_session(self, call: Call, session_id: str, verb: Verb) -> None:
        """Checks what a caller wants to do in a session.

        Raises:
            Refusal: PERMISSION_DENIED; it does not tell whether there is such a session.
        """
        if not await self.may_in_session(call, session_id, verb):
            raise denied(verb, SESSIONS + session_id)

    async def may_in_session(self, call: Call, session_id: str, verb: Verb) -> bool:
        """Tells whether the caller may do something in a session, which is looked up if need be."""
        try:
            return self.may(call, SESSIONS + session_id, verb, lately=True)
        except Unsettled as unsettled:
            await unsettled.settle()
            return self.may(call, SESSIONS + session_id, verb, lately=True)

    async def look_up(self, session_id: str) -> None:
        """Finds out who uses a session, for what is decided in this call.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        users = None if self.find_users is None else await self.find_users(session_id)
        if users is None:
            self._users.pop(session_id, None)
        else:
            if len(self._users) >= USERS_CACHE_MAX:
                self._users.clear()
            self._users[session_id] = users, self._clock.monotonic_ms()
        _looked_up.set(_looked_up.get() | {session_id})

    def _asked_for(self, principal: Principal, resource: str, verb: Verb) -> str:
        """Returns the session that a resource is, if using it would allow what is asked; else nothing."""
        if not resource.startswith(SESSIONS) or (principal.verbs is not None and verb not in principal.verbs):
            return ""
        session_id = resource[len(SESSIONS) :]
        return session_id if not principal.session or session_id == principal.session else ""

    def _uses(self, principal: Principal, agent_id: str, users: SessionUsers) -> bool:
        """Tells whether one of a session's agents calls, one below it, or whoever may act as the one that opened it."""
        who = agent_id or ("" if principal.only_agents else principal.name)
        if who and (who == users.owner or who in users.handed or who.startswith(f"{users.owner}/")):
            return True
        return self.permissions.may_act_as(principal, users.owner)


class UnknownUsers(Unsettled):
    """The refusal of a call to a session whose users are not known here."""

    def __init__(self, access: Access, session_id: str, refusal: Refusal) -> None:
        super().__init__(refusal.reason, refusal.message)
        self._access = access
        self._session_id = session_id

    async def settle(self) -> None:
        """See :meth:`Access.look_up`."""
        await self._access.look_up(self._session_id)


def is_private_to(call: Call, namespace: str) -> bool:
    """Tells whether ``namespace`` is the caller's own, where the last writer wins."""
    kind, owner = check_namespace(namespace)
    return kind is NamespaceKind.AGENT and call.incarnation is not None and call.incarnation.agent_id == owner
