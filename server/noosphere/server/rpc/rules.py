"""What each call needs: whose it must be, and what must be permitted where. One line for every rpc of ours.

A call without a rule is refused to everybody but those whom nobody asks who they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from noosphere.consistency import Reason, Refusal
from noosphere.v1 import memory_service_pb2

from ..memory.access import Access
from ..ports.grants import Verb
from ..security import Principal
from ..security.permissions import FACTS, GROUPS, LOCKS, SESSIONS, denied
from ..sessions.claims import GIVEN_OWNERS, OWNER_ATTRIBUTE
from ..sessions.teaching import OWNER_LABEL
from ..sessions.tickets import Ticket
from .requests import agent_of

Need = tuple[str, Verb]
"""A resource, and what is to be done with it."""

READ, WRITE, DELETE, WATCH, RESOLVE, ADMIN = (
    Verb.READ,
    Verb.WRITE,
    Verb.DELETE,
    Verb.WATCH,
    Verb.RESOLVE,
    Verb.ADMIN,
)


class Rule(ABC):
    """What a call needs."""

    def agent(self, request: Any) -> str:
        """Returns in whose name a request comes."""
        return agent_of(request)

    @abstractmethod
    def check(self, access: Access, principal: Principal, agent_id: str, request: Any) -> None:
        """Checks a call of a principal in the name of an agent (empty for nobody), which it may act as.

        Raises:
            Refusal: PERMISSION_DENIED.
            Unsettled: who uses a session must be looked up.
        """


class Administrators(Rule):
    """For administrators, whose credential is not narrowed to less than this needs."""

    def __init__(self, verb: Verb = ADMIN) -> None:
        self._verb = verb

    def check(self, access: Access, principal: Principal, agent_id: str, request: Any) -> None:
        """See ``Rule``."""
        narrowed = principal.session or (principal.verbs is not None and self._verb not in principal.verbs)
        if not principal.admin or narrowed:
            raise Refusal(Reason.PERMISSION_DENIED, "this call is for administrators")


class Anybody(Rule):
    """For whoever has a credential."""

    def check(self, access: Access, principal: Principal, agent_id: str, request: Any) -> None:
        """See ``Rule``."""


@dataclass(frozen=True)
class InService(Rule):
    """Decided by the service, before it does anything.

    Attributes:
        why: why not here.
    """

    why: str

    def check(self, access: Access, principal: Principal, agent_id: str, request: Any) -> None:
        """See ``Rule``."""

    def agent(self, request: Any) -> str:
        """Returns in whose name a request comes; nobody's, for a stream of requests."""
        return "" if request is None else agent_of(request)


class Needs(Rule):
    """For whoever may do certain things with certain resources.

    Args:
        needs: returns them, of a request.
        agent: returns in whose name a request comes; what it says in its ``call`` by default.
    """

    def __init__(self, needs: Callable[[Any], Iterable[Need]], agent: Callable[[Any], str] = agent_of) -> None:
        self._needs = needs
        self._agent = agent

    def agent(self, request: Any) -> str:
        """See ``Rule``."""
        return self._agent(request)

    def check(self, access: Access, principal: Principal, agent_id: str, request: Any) -> None:
        """See ``Rule``."""
        for resource, verb in self._needs(request):
            if not access.may_as(principal, agent_id, resource, verb, lately=True):
                raise denied(verb, resource)


class Everything(Rule):
    """For whoever may do something with all resources whose names begin alike.

    Args:
        prefix: returns how, of a request.
        verb: what.
    """

    def __init__(self, prefix: Callable[[Any], str], verb: Verb) -> None:
        self._prefix = prefix
        self._verb = verb

    def check(self, access: Access, principal: Principal, agent_id: str, request: Any) -> None:
        """See ``Rule``."""
        prefix = self._prefix(request)
        if not access.permissions.may_all(principal, prefix, self._verb):
            raise denied(self._verb, f"{prefix}…")


class Opening(Rule):
    """For whoever may open a session, which may be there already.

    Args:
        opened: returns its id, of a request; empty for one that the server issues.
        read: returns the id of a session of which it is made; empty for none.
    """

    def __init__(self, opened: Callable[[Any], str], read: Callable[[Any], str] = lambda _: "") -> None:
        self._opened = opened
        self._read = read

    def check(self, access: Access, principal: Principal, agent_id: str, request: Any) -> None:
        """See ``Rule``."""
        read, opened = self._read(request), self._opened(request)
        if read and not access.may_as(principal, agent_id, SESSIONS + read, READ, lately=True):
            raise denied(READ, SESSIONS + read)
        if not access.may_open(principal, agent_id, opened):
            raise denied(WRITE, SESSIONS + opened)


def _namespace(*verbs: Verb) -> Needs:
    return Needs(lambda request: [(request.namespace, verb) for verb in verbs])


def _session(*verbs: Verb) -> Needs:
    return Needs(lambda request: [(SESSIONS + request.session_id, verb) for verb in verbs])


def _ticket(*verbs: Verb) -> Needs:
    def needs(request: Any) -> list[Need]:
        resource = SESSIONS + Ticket.parse(request.ticket).session_id
        return [(resource, verb) for verb in verbs]

    return Needs(needs)


def _lock(verb: Verb) -> Needs:
    return Needs(lambda request: ((LOCKS + request.name, verb),))


def _group(verb: Verb) -> Needs:
    return Needs(lambda request: ((GROUPS + request.group, verb),))


def _put(request: memory_service_pb2.PutRequest) -> Iterator[Need]:
    yield request.namespace, WRITE
    if request.return_current:
        yield request.namespace, READ
    yield from _owners(request.namespace, request.put)


def _delete(request: memory_service_pb2.DeleteRequest) -> Iterator[Need]:
    yield request.namespace, DELETE
    if request.return_current:
        yield request.namespace, READ


def _transaction(request: Any) -> Iterator[Need]:
    namespace = request.namespace
    kinds = {operation.WhichOneof("kind") for operation in request.operations}
    if kinds - {"delete"} or not kinds:
        yield namespace, WRITE
    if "delete" in kinds:
        yield namespace, DELETE
    for operation in request.operations if namespace.startswith(SESSIONS) else ():
        yield from _owners(namespace, operation.put)


def _transact(request: memory_service_pb2.TransactRequest) -> Iterator[Need]:
    yield from _transaction(request)
    if request.return_current:
        yield request.namespace, READ


def _owners(namespace: str, put: memory_service_pb2.PutOperation) -> Iterator[Need]:
    """Yields what an item needs that says whose fact it is to become when it leaves working memory."""
    if namespace.startswith(SESSIONS) and OWNER_ATTRIBUTE in put.attributes:
        owner = put.attributes[OWNER_ATTRIBUTE].string_value
        if owner.startswith(GIVEN_OWNERS):
            yield FACTS + owner, WRITE


def _update(request: Any) -> Iterator[Need]:
    yield SESSIONS + request.session_id, READ
    yield SESSIONS + request.session_id, WRITE
    if OWNER_LABEL in request.set_labels or OWNER_LABEL in request.remove_labels:
        # Whose a session is says who may have it erased, and whose facts are learned from it.
        yield SESSIONS + request.session_id, ADMIN


def _assemble(request: Any) -> Iterator[Need]:
    yield SESSIONS + request.session_id, READ
    for owner in request.fact_owners:
        yield FACTS + owner, READ


def _ensure(request: memory_service_pb2.EnsureNamespaceRequest) -> Iterator[Need]:
    yield request.namespace, ADMIN if request.HasField("policy") else WRITE


def _fact_scope(verb: Verb) -> Needs:
    return Needs(lambda request: ((FACTS + request.scope, verb),))


def _nothing(_: Any) -> tuple[Need, ...]:
    return ()


_ACTING = Needs(_nothing)
"""For whoever may act as the agent that it is about."""

_SCOPE_OF_ID = InService("the scope is in the id, and the service reads it")
_SCOPE_AND_OWNER = InService("scope and owner follow from each other, and the service completes them")


def _all_of(service: str, rules: Mapping[str, Rule]) -> dict[str, Rule]:
    return {f"/noosphere.v1.{service}/{name}": rule for name, rule in rules.items()}


RULES: Mapping[str, Rule] = {
    **_all_of(
        "MemoryService",
        {
            "Get": _namespace(READ),
            "BatchGet": _namespace(READ),
            "List": _namespace(READ),
            "ListHistory": _namespace(READ),
            "ListConflicts": _namespace(READ),
            "Watch": _namespace(WATCH),
            "Put": Needs(_put),
            "Delete": Needs(_delete),
            "Merge": _namespace(WRITE),
            "Transact": Needs(_transact),
            "Commit": Needs(_transaction),
            "ResolveConflict": _namespace(RESOLVE),
            "Reserve": _namespace(WRITE),
            "CancelReservation": _namespace(WRITE),
            "ClaimNext": _namespace(READ, WRITE),
            "Renew": _namespace(READ, WRITE),
            "Release": _namespace(READ, WRITE),
            "Complete": _namespace(READ, WRITE),
            "EnsureNamespace": Needs(_ensure),
            "RefreshReadSet": InService("the namespaces are those of the read set, and the service decodes it"),
            "Pipeline": InService("each call in the stream is checked as if it came by itself"),
            "OpenAgent": _ACTING,
            "KeepAgent": _ACTING,
            "CloseAgent": _ACTING,
            "GetServerInfo": Anybody(),
        },
    ),
    **_all_of(
        "SessionService",
        {
            "OpenSession": Opening(lambda request: request.session_id),
            "ForkSession": Opening(lambda request: request.fork_id, lambda request: request.session_id),
            # What answers with what is there, or with what was there under the same id, needs read as well.
            "GetSession": _session(READ),
            "ListSessions": InService("those are listed that the caller may read"),
            "UpdateSession": Needs(_update),
            "CloseSession": _session(READ, WRITE),
            "PurgeSession": _session(DELETE),
            "AppendMessages": _session(READ, WRITE),
            "ListMessages": _session(READ),
            "RetractMessage": _session(READ, WRITE),
            "BeginTurn": _session(WRITE),
            "EndTurn": _session(WRITE),
            "GetControl": _session(READ),
            "SetControl": _session(WRITE),
            "StartToolCall": _session(READ, WRITE),
            "FinishToolCall": _ticket(READ, WRITE),
            "UploadToolResult": InService("the ticket is in the first message of the stream"),
            "ReviewToolCall": _ticket(READ, WRITE),
            "GetToolCall": _ticket(READ),
            "ListToolCalls": _session(READ),
            "ReadToolResult": _ticket(READ),
            "CreateCheckpoint": _session(WRITE),
            "ListCheckpoints": _session(READ),
            "RestoreCheckpoint": _session(WRITE),
            "SummarizeSession": _session(WRITE),
            # Whoever is handed a session uses it as its own.
            "Handoff": _session(ADMIN),
            "RunTransitions": _session(WRITE),
            "ListTransitions": _session(READ),
            "GetSessionHealth": _session(READ),
        },
    ),
    **_all_of(
        "ContextService",
        {
            "AssembleContext": Needs(_assemble),
            "PlanContext": Needs(lambda request: _assemble(request.context), lambda request: agent_of(request.context)),
            "ReportUsage": _session(WRITE),
            "ExplainContext": _session(READ),
        },
    ),
    **_all_of(
        "FactService",
        {
            "SubmitCandidates": _SCOPE_AND_OWNER,
            "GetCandidate": _SCOPE_OF_ID,
            "ListCandidates": _fact_scope(READ),
            "WatchCandidates": _fact_scope(WATCH),
            "ReviewCandidate": InService("it is for agents that are operators, whom administrators act as"),
            "SearchFacts": _SCOPE_AND_OWNER,
            "GetFact": _SCOPE_OF_ID,
            "ListFacts": _fact_scope(READ),
            "ListFactHistory": _SCOPE_OF_ID,
            "ForgetFacts": _SCOPE_AND_OWNER,
            "EraseOwner": InService("for administrators, the agent itself, and credentials that may act for the owner"),
            "ExplainFact": _SCOPE_OF_ID,
            "ExtractFacts": _SCOPE_AND_OWNER,
            "GetExtractionJob": _SCOPE_OF_ID,
            "RunFactUpkeep": InService("of all scopes it is for operators, of one for whoever administers it"),
            "GetFactUpkeep": InService("of all scopes it is for operators, of one for whoever administers it"),
            "SetFactPolicy": _fact_scope(ADMIN),
            "GetFactPolicy": _fact_scope(READ),
        },
    ),
    **_all_of(
        "CoordinationService",
        {
            "AcquireLock": _lock(WRITE),
            "RenewLock": _lock(WRITE),
            "ReleaseLock": _lock(WRITE),
            "GetLock": _lock(READ),
            "ListLocks": Everything(lambda request: LOCKS + request.prefix, READ),
            "JoinGroup": _group(WRITE),
            "KeepMember": _group(WRITE),
            "LeaveGroup": _group(WRITE),
            "ListMembers": _group(READ),
            "WatchMembers": _group(WATCH),
        },
    ),
    **_all_of(
        "AdminService",
        {
            "ListNamespaces": Everything(lambda request: request.prefix, ADMIN),
            "GetNamespace": _namespace(ADMIN),
            "DeleteNamespace": _namespace(ADMIN),
            "SetPolicy": Administrators(),
            "ListPolicies": Administrators(READ),
            "SetGrant": Administrators(),
            "ListGrants": Administrators(),
            "CheckGrant": Administrators(),
            "GetStats": Administrators(READ),
            "ListEpochs": Administrators(READ),
            "ListServers": Administrators(READ),
            "GetUsage": Administrators(READ),
            "GetOverview": Administrators(READ),
            "SetLimits": Administrators(),
            "ListLimits": Administrators(READ),
            "GetLimits": Administrators(READ),
            "CreateToken": Administrators(),
            "CreateScopedToken": InService("a narrower credential than one's own is anybody's to make"),
            "ListTokens": Administrators(),
            "RevokeToken": Administrators(),
            "Dump": Administrators(),
            "GetAgent": Administrators(READ),
            "FenceAgent": Administrators(),
            "UnfenceAgent": Administrators(),
            "RevertAgent": Administrators(),
        },
    ),
}


def rule_of(method: str) -> Rule:
    """Returns what a call needs.

    Args:
        method: its full name, ``/noosphere.v1.MemoryService/Get``.

    Raises:
        Refusal: PERMISSION_DENIED: nobody has said who may call it.
    """
    rule = RULES.get(method)
    if rule is None:
        raise Refusal(Reason.PERMISSION_DENIED, f"{method} has no rule that says who may call it")
    return rule
