"""Notes in the audit log who called, what about, and how it ended.

It stands before authentication, so that it also hears of those who proved nothing; what it tells is what the other
steps have found out by the end of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from noosphere.consistency import NamePattern, Reason, Refusal

from ...security import calling
from ...security.audit import AuditLog, Entry
from ...security.principal import matches
from ..gate import Rpc
from .audited import KEYS_MAX, TEXT_CHARS_MAX, Audited, Kind, audited

_DENIED = frozenset({grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED})
_CROWDED = grpc.StatusCode.RESOURCE_EXHAUSTED


class AuditStep:
    """See the module.

    Writes, acts of administration and denials are noted all; so are reads of what ``full`` names, and of the others a
    share. Of what renews something only denials are.

    Args:
        audit: where it is noted.
        services: whose methods there are.
        wall_ms: the time.
        share: of reads, from 0 to 1.
        full: namespaces of which all reads are noted.
        required: refuse what would have to be noted while that cannot be done.
        rng: returns a number from 0 up to 1.
    """

    def __init__(
        self,
        audit: AuditLog,
        services: Sequence[ServiceDescriptor],
        *,
        wall_ms: Callable[[], int],
        share: float,
        full: Sequence[NamePattern],
        required: bool,
        rng: Callable[[], float],
    ) -> None:
        self._audit = audit
        self._methods = {
            f"/{service.full_name}/{method.name}": audited(method) for service in services for method in service.methods
        }
        self._wall_ms = wall_ms
        self._share = share
        self._full = tuple(full)
        self._required = required
        self._rng = rng

    def begin(self, rpc: Rpc) -> None:
        """See :class:`~noosphere.server.rpc.gate.Step`.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, if a call must be noted and cannot be.
        """
        if self._required and self._audit.failing and self._methods[rpc.method].kind is not Kind.KEEP:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the audit log cannot be written, and audit_required is set")

    def end(self, rpc: Rpc) -> None:
        """See :class:`~noosphere.server.rpc.gate.Step`."""
        of = self._methods[rpc.method]
        request, denied = rpc.message, rpc.code in _DENIED
        share = 1.0
        if not denied:
            if of.kind is Kind.KEEP:
                return
            # A flood of refused calls must not push out what others did.
            if of.kind is Kind.READ or rpc.code is _CROWDED:
                share = self._share_of(of, request)
                if share < 1 and self._rng() >= share:
                    return
        self._audit.note(self._entry(rpc, of, request, share))

    def _share_of(self, of: Audited, request: Any) -> float:
        if self._full and request is not None:
            target = of.target(request)
            if any(matches(pattern, target) for pattern in self._full):
                return 1.0
        return self._share

    def _entry(self, rpc: Rpc, of: Audited, request: Any, share: float) -> Entry:
        principal, context, response = calling.get(), rpc.context, rpc.response
        target, agent, asked = "", "", ""
        keys: tuple[str, ...] = ()
        owners: tuple[str, ...] = ()
        more = 0
        if request is not None:
            target = _short(of.target(request))
            named = of.keys(request)
            keys = tuple(map(_short, islice(named, KEYS_MAX)))
            if len(keys) == KEYS_MAX:
                more = sum(1 for _ in of.keys(request)) - KEYS_MAX
            owners = tuple(map(_short, islice(of.owners(request), KEYS_MAX)))
            if of.call:
                call = request.call
                agent, asked = _agent(call.actor), _asked(call.request_id)
            elif of.actor:
                agent = _agent(request.actor)
        versions: tuple[int, ...] = ()
        head = count = 0
        if response is not None:
            versions = tuple(islice(_told(of.versions(response)), KEYS_MAX))
            head, count = of.head(response), of.count(response)
        return Entry(
            self._wall_ms(),
            principal.name,
            principal.credential,
            agent,
            context.peer() if context is not None else "",
            asked,
            of.method,
            of.kind.value,
            target,
            keys,
            more,
            owners,
            versions,
            head,
            count,
            rpc.code.name,
            rpc.refusal.reason.value if rpc.refusal is not None else _reason(response),
            rpc.parent is not None,
            share,
        )


def _short(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + "…"


def _agent(actor: Any) -> str:
    return f"{_short(actor.agent_id)}#{actor.incarnation}" if actor.agent_id else ""


def _asked(request_id: Any) -> str:
    if request_id.uuid:
        return _short(request_id.uuid)
    return str(request_id.sequence.sequence) if request_id.sequence.sequence else ""


def _reason(response: Any) -> str:
    """Returns why a call was refused that is answered with the record as it is now instead of an error."""
    refused = getattr(response, "not_applied", None)
    return str(getattr(refused, "reason", "")) if refused is not None else ""


def _told(versions: Iterable[int]) -> Iterable[int]:
    return (version for version in versions if version)
