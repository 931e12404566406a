"""Counts what callers do; see ``security.usage``."""

from __future__ import annotations

import grpc
from google.protobuf.message import Message

from noosphere.consistency.errors import CONFLICTS

from ...security import Usage, calling
from ..gate import Rpc, nothing
from ..requests import namespace_of

_OK = grpc.StatusCode.OK
_UNBELIEVED = frozenset(
    {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}
)
"""How calls end of which it is not sure that the names in them are anybody's."""

# As many as there are types of messages.
_may_be_unapplied: dict[type[Message], bool] = {}


def met_a_conflict(rpc: Rpc) -> bool:
    """Tells whether a call that has ended came to nothing because somebody else was faster."""
    if rpc.refusal is not None:
        return rpc.refusal.reason in CONFLICTS
    response = rpc.response
    if response is None:
        return False
    kind = type(response)
    possible = _may_be_unapplied.get(kind)
    if possible is None:
        possible = _may_be_unapplied[kind] = "not_applied" in kind.DESCRIPTOR.fields_by_name
    return possible and response.HasField("not_applied")


class UsageStep:
    """See the module. Comes before authentication, so that calls refused by it are counted too.

    Args:
        usage: keeps the counts.
    """

    def __init__(self, usage: Usage) -> None:
        self._usage = usage

    begin = nothing

    def end(self, rpc: Rpc) -> None:
        """Counts the call."""
        principal, request, refusal = calling.get(), rpc.message, rpc.refusal
        reason = None if refusal is None else refusal.reason
        if request is None:
            # What comes inside a stream is counted by itself.
            self._usage.count(principal.name, "", "", reason=reason)
            return
        agent, namespace = rpc.agent, namespace_of(request)
        # Asked first, because it is so for most, and sets of codes are slow to look into.
        if rpc.code is not _OK and rpc.code in _UNBELIEVED:
            # The names in it may be made up, or others'.
            namespace = ""
            if rpc.code is grpc.StatusCode.UNAUTHENTICATED or not principal.may_act_as(agent):
                agent = ""
        self._usage.count(
            principal.name, agent, namespace, rpc.request_bytes, rpc.sent_bytes, reason, met_a_conflict(rpc)
        )
