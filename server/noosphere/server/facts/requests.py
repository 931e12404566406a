"""Requests: what a repeated call names again, and the refusal of another call under the same id."""

from __future__ import annotations

import random

from noosphere.consistency import Reason, Refusal

from ..memory.core import located
from ..memory.types import Call
from .ledger import digest
from .scopes import NAMESPACES, IdKind, make_id


def request_digest(call: Call, *what: str) -> str:
    """Returns what stands for a call's request, and for one thing of it; empty if the call has no request id."""
    request = call.request
    if request is None:
        return ""
    return digest(*what, call.agent_id, request.client, str(request.sequence), request.uuid)


def request_id(call: Call, scope: str, kind: IdKind, rng: random.Random, at: int = 0) -> str:
    """Returns the id of what a call asks for: the same for a retry, whatever has become of it.

    Args:
        call: who calls.
        scope: where it is.
        kind: what it is.
        rng: makes ids for calls without a request id.
        at: which of those that the call asks for, from 0.
    """
    digits = request_digest(call, kind.name, str(at)) or rng.getrandbits(128).to_bytes(16, "big").hex()
    return make_id(scope, digits, kind)


def reused(what: str, scope: str, head: int) -> Refusal:
    """Returns the refusal of a request id that was used for something else.

    Args:
        what: what it was used for, in words.
        scope: whose ledger knows.
        head: that ledger's head, a revision.
    """
    refusal = Refusal(Reason.REQUEST_ID_REUSED, f"call.request_id: was used {what}")
    return located(refusal, NAMESPACES + scope, head)
