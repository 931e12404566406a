"""Limits what one agent and one principal do at a time; see ``security.allowances``.

Whose call it is stands in the request, which costs nothing to look at before it is decoded. Under a principal that is
known, an agent's meter is that of this agent under this principal: nobody empties the bucket of another's agent by
using its name. Calls without an agent count for their connection. AdminService and administrators are not limited
here, so that an operator gets in whatever goes on.
"""

from __future__ import annotations

from google.protobuf import descriptor_pool

from noosphere.consistency.limits import AGENT_ID_BYTES_MAX

from ...ports.runtime import Clock
from ...security import calling
from ...security.allowances import Meter, Meters, Subject
from ...security.limit_rules import LimitRules
from ..faces import SERVICES
from ..gate import Rpc

_CONNECTION = "\0"
"""Begins the names of connections among agents; no agent's name does."""
_NOTE = "limits"
_UNLIMITED = frozenset({"AdminService"})


def limits_step(rules: LimitRules, clock: Clock) -> LimitsStep:
    """Returns the step that a server's settings and the operators' rules ask for."""
    return LimitsStep(
        Meters(lambda key: rules.allowance(Subject.AGENT, key[1]), lambda: rules.version),
        Meters(lambda key: rules.allowance(Subject.PRINCIPAL, key[0]), lambda: rules.version),
        clock,
    )


class LimitsStep:
    """See the module.

    Args:
        agents: meters by (principal, agent).
        principals: meters by (principal, nothing).
        clock: the source of time.
    """

    def __init__(self, agents: Meters, principals: Meters, clock: Clock) -> None:
        self._agents = agents
        self._principals = principals
        self._clock = clock
        self._limited = _limited()

    def begin(self, rpc: Rpc) -> None:
        """Takes the call from its agent's and its principal's allowance.

        Raises:
            Refusal: LIMIT_EXCEEDED.
        """
        if rpc.method not in self._limited:
            return
        principal = calling.get()
        if principal.admin:
            return
        now_ms = self._clock.monotonic_ms()
        agent_id = _agent_of(rpc)
        agent = self._agents.of((principal.name, agent_id))
        agent.begin(Subject.AGENT, agent_id, now_ms, stream=rpc.streams)
        both: tuple[Meter, ...] = (agent,)
        if not principal.open:
            whole = self._principals.of((principal.name, ""))
            try:
                whole.begin(Subject.PRINCIPAL, principal.name, now_ms, stream=rpc.streams)
            except BaseException:
                agent.end(stream=rpc.streams)
                raise
            both = (agent, whole)
        rpc.notes[_NOTE] = both

    def end(self, rpc: Rpc) -> None:
        """Counts the call as ended."""
        for meter in rpc.notes.get(_NOTE, ()):
            meter.end(stream=rpc.streams)


def _agent_of(rpc: Rpc) -> str:
    if found := rpc.agent:
        # Longer ones are refused when they are decoded, and must not be kept here.
        return found if len(found) <= AGENT_ID_BYTES_MAX else found[:AGENT_ID_BYTES_MAX]
    context = rpc.context
    return "" if context is None else _CONNECTION + context.peer()


def _limited() -> frozenset[str]:
    services = [descriptor_pool.Default().FindServiceByName(full_name) for full_name in SERVICES]
    return frozenset(
        f"/{service.full_name}/{method.name}"
        for service in services
        if service.name not in _UNLIMITED
        for method in service.methods
    )
