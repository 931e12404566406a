"""Lets pass what whoever calls may do, by the table in ``rpc.rules``. Comes after authentication."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ReferenceType, ref

from noosphere.consistency import Reason, Refusal

from ...memory.access import Access
from ...security import calling
from ...security.permissions import deciding, denied_acting
from ..gate import Rpc
from ..rules import rule_of


class AuthorizationStep:
    """See the module. Every call is let pass where nobody is asked who they are."""

    def __init__(self) -> None:
        self._access: Callable[[], Access | None] = lambda: None

    def decide_by(self, access: Access) -> None:
        """Says what decides from now on; it is not kept in memory for that."""
        reference: ReferenceType[Access] = ref(access)
        self._access = reference

    def begin(self, rpc: Rpc) -> None:
        """See ``Step``."""
        principal = calling.get()
        if principal.open:
            return
        rule = rule_of(rpc.method)
        access = self._access()
        if access is None:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "what decides who may do what is not open yet; try again")
        deciding.set(access.permissions)
        request = rpc.message
        agent_id = rule.agent(request)
        if agent_id and not access.permissions.may_act_as(principal, agent_id):
            raise denied_acting(principal, agent_id)
        rule.check(access, principal, agent_id, request)

    def end(self, rpc: Rpc) -> None:
        """See ``Step``."""
