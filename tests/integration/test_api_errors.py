"""Errors: each documented reason of each rpc is produced, and decoded."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.api import SEEN_NOTHING, Agent, Api, put
from tests.support.asking import ask
from tests.support.engine import LocalServer, local_server
from tests.support.meddling import MeddlingStore
from tests.support.statuses import refusal
from tests.support.watching import watching

import noosphere.v1
from noosphere.consistency import Reason
from noosphere.server.storage.embedded import coordinator
from noosphere.v1 import admin_service_pb2 as admin
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types
from noosphere.v1.admin_grants_pb2 import Grant

SPACE = "shared/s"
LONG = 5_000
"""Longer than any name may be."""
SIBLINGS = types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS)


class Scene:
    """A server in this process with two agents, a record ``k``, a counter ``n`` and a claimed task ``t/1``."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.api: Api = server.api
        self.other_call = types.CallContext()

    async def set(self) -> Scene:
        self.agent = await self.api.agent("a")
        self.other = await self.api.agent("b")
        self.old = await self.agent.put(SPACE, "k", 1)
        self.new = await self.other.put(SPACE, "k", 2, context=self.old.context)
        await self.agent.add(SPACE, "n", call=self.agent.call(sequence=1, fences={"lock": 5}))
        await self.agent.put(SPACE, "t/1", 1)
        task = await self.agent.claim(SPACE, "t/")
        assert task is not None
        self.task = task
        return self

    async def has_read(self, key: str, space: str = SPACE) -> types.CallContext:
        """The agent, with a read set that has seen ``key``."""
        call = self.agent.call()
        call.record_read_set = True
        response = await self.api.get(pb.GetRequest(namespace=space, key=key, call=call))
        return types.CallContext(actor=self.agent.actor, read_set_token=response.call.read_set_token)

    async def is_stale(self) -> types.CallContext:
        """The agent, with a read set that no longer holds."""
        call = await self.has_read("k")
        await self.move_k()
        return call

    @property
    def used(self) -> types.CallContext:
        """An id that was used for something else."""
        return self.agent.call(sequence=1)

    @property
    def fenced(self) -> types.CallContext:
        """A token below the highest that was seen."""
        return self.agent.call(fences={"lock": 4})

    @property
    def stranger(self) -> types.Record:
        """The task as somebody sees it who does not hold it."""
        return types.Record(key="t/1", claim=types.Claim(fence=self.old.revision))

    def meddle(self, how: Callable[[], Awaitable[object]]) -> None:
        core = self.server.engine.memory.core
        core.store = MeddlingStore(core.store, how)

    async def move_k(self) -> None:
        await self.other.put(SPACE, "k", 3, blind=True)

    async def move_n(self) -> None:
        await self.other.add(SPACE, "n")

    async def reap(self) -> None:
        await self.agent.delete(SPACE, "k", blind=True)
        await self.server.elapse(3_600_000)
        await self.server.sweep()

    async def claim_and_release(self) -> None:
        task = await self.other.claim(SPACE, "t/")
        assert task is not None
        await self.other.release(SPACE, task)


Scenario = Callable[[Scene], Awaitable[object]]


async def _as_operator(scene: Scene, method: str, **fields: Any) -> object:
    operator = await scene.api.agent("cli/operator")
    return await ask(scene.api, method, call=operator.call(), **fields)


async def _as_former_operator(scene: Scene, method: str, **fields: Any) -> object:
    operator = await scene.api.agent("cli/operator")
    await scene.api.open_agent("cli/operator", takeover=True)
    return await ask(scene.api, method, call=operator.call(), **fields)


async def _grant(scene: Scene, principal: str) -> object:
    grant = Grant(
        principal=types.NamePattern(exact=principal), resource=types.NamePattern(prefix="shared/"), verbs=["read"]
    )
    return await ask(scene.api, "SetGrant", grant=grant)


async def _too_many_grants(scene: Scene) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "GRANTS_MAX", 1)
        await _grant(scene, "p")
        return await _grant(scene, "q")


async def _then(call: Awaitable[types.CallContext], use: Callable[[types.CallContext], Awaitable[object]]) -> object:
    return await use(await call)


async def _commit(scene: Scene, call: types.CallContext) -> object:
    return await scene.api.commit(pb.CommitRequest(namespace=SPACE, operations=[put("x", 1)], call=call))


async def _siblings_of_k(scene: Scene) -> types.Record:
    await scene.agent.ensure("shared/full", SIBLINGS)
    for n in range(2):
        await scene.agent.put("shared/full", "k", n, context=SEEN_NOTHING)
    return await scene.agent.get("shared/full", "k")


async def _resolve(scene: Scene, context: types.CausalContext) -> object:
    return await scene.api.resolve_conflict(
        pb.ResolveConflictRequest(
            namespace="shared/full", key="k", context=context, delete=True, call=scene.agent.call()
        )
    )


async def _unseen_sibling(scene: Scene) -> object:
    seen = await _siblings_of_k(scene)
    await scene.other.put("shared/full", "k", 3, context=SEEN_NOTHING)
    return await _resolve(scene, seen.context)


async def _resolved(scene: Scene) -> object:
    seen = await _siblings_of_k(scene)
    await _resolve(scene, seen.context)
    return await _resolve(scene, seen.context)


async def _siblings(scene: Scene) -> object:
    await scene.agent.ensure("shared/full", SIBLINGS)
    for n in range(16):
        await scene.agent.put("shared/full", "k", n, context=SEEN_NOTHING)
    return await scene.agent.put("shared/full", "k", 16, context=SEEN_NOTHING)


async def _context_too_old(scene: Scene) -> object:
    await scene.reap()
    return await scene.agent.put(SPACE, "k", 3, context=scene.new.context)


async def _contended(
    scene: Scene, meddle: Callable[[], Awaitable[object]], call: Callable[[], Awaitable[object]]
) -> object:
    scene.meddle(meddle)
    return await call()


async def _contended_claim(scene: Scene) -> object:
    await scene.agent.release(SPACE, scene.task)
    return await _contended(scene, scene.claim_and_release, lambda: scene.agent.claim(SPACE, "t/"))


async def _history_compacted(scene: Scene) -> object:
    first = await scene.api.list_history(pb.ListHistoryRequest(namespace=SPACE, page_size=1))
    await scene.agent.ensure(SPACE, types.NamespacePolicy(log_revisions_max=1))
    await scene.server.sweep()
    return await scene.api.list_history(pb.ListHistoryRequest(namespace=SPACE, page_token=first.next_page_token))


async def _watch(scene: Scene, after: int) -> None:
    async with watching(scene.agent, SPACE, after=after) as watch:
        await watch.ended()


async def _watch_compacted(scene: Scene) -> None:
    await scene.agent.ensure(SPACE, types.NamespacePolicy(log_revisions_max=1))
    await scene.server.sweep()
    await _watch(scene, scene.old.revision)


async def _watch_draining(scene: Scene) -> None:
    scene.server.engine.memory.signals.drain()
    await _watch(scene, scene.old.revision)


async def _delete_twice(scene: Scene) -> object:
    await scene.api.delete_namespace(SPACE)
    return await scene.api.delete_namespace(SPACE)


async def _too_many_patterns(scene: Scene) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "PATTERNS_MAX", 1)
        await scene.api.set_policy(types.NamePattern(prefix="shared/a"), types.NamespacePolicy())
        return await scene.api.set_policy(types.NamePattern(prefix="shared/b"), types.NamespacePolicy())


async def _close(scene: Scene, agent: Agent) -> object:
    await scene.api.close_agent(agent.actor)
    return await scene.api.close_agent(agent.actor)


async def _keep(scene: Scene, agent: Agent) -> object:
    await scene.api.close_agent(agent.actor)
    return await scene.api.keep_agent(agent.actor)


SCENARIOS: dict[tuple[str, Reason], Scenario] = {
    ("List", Reason.INVALID_PAGE_TOKEN): lambda s: s.api.list_records(pb.ListRequest(namespace=SPACE, page_token="ab")),
    ("ListHistory", Reason.INVALID_PAGE_TOKEN): lambda s: s.api.list_history(
        pb.ListHistoryRequest(namespace=SPACE, page_token="ab")
    ),
    ("ListHistory", Reason.COMPACTED): _history_compacted,
    ("Put", Reason.VERSION_MISMATCH): lambda s: s.agent.put(SPACE, "k", 3, expected=s.old.version),
    ("Put", Reason.CONFLICT): lambda s: s.agent.put(SPACE, "k", 3, context=s.old.context),
    ("Put", Reason.CONTEXT_TOO_OLD): _context_too_old,
    ("Put", Reason.SIBLING_LIMIT): _siblings,
    ("Put", Reason.CONTENTION): lambda s: _contended(s, s.move_k, lambda: s.agent.put(SPACE, "k", 3, blind=True)),
    ("Put", Reason.PRECONDITION_REQUIRED): lambda s: s.agent.put(SPACE, "k", 3),
    ("Put", Reason.MERGE_TYPE_MISMATCH): lambda s: s.agent.put(SPACE, "n", "text", expected=s.task.version - 2),
    ("Put", Reason.STALE_FENCE): lambda s: s.agent.put(SPACE, "new", 1, call=s.fenced),
    ("Put", Reason.REQUEST_ID_REUSED): lambda s: s.agent.put(SPACE, "new", 1, call=s.used),
    ("Delete", Reason.VERSION_MISMATCH): lambda s: s.agent.delete(SPACE, "k", expected=s.old.version),
    ("Delete", Reason.CONFLICT): lambda s: s.agent.delete(SPACE, "k", context=s.old.context),
    ("Delete", Reason.CONTENTION): lambda s: _contended(s, s.move_k, lambda: s.agent.delete(SPACE, "k", blind=True)),
    ("Delete", Reason.PRECONDITION_REQUIRED): lambda s: s.agent.delete(SPACE, "k"),
    ("Delete", Reason.STALE_FENCE): lambda s: s.agent.delete(SPACE, "k", blind=True, call=s.fenced),
    ("Delete", Reason.REQUEST_ID_REUSED): lambda s: s.agent.delete(SPACE, "k", blind=True, call=s.used),
    ("Merge", Reason.MERGE_TYPE_MISMATCH): lambda s: s.agent.add(SPACE, "k"),
    ("Merge", Reason.STALE_FENCE): lambda s: s.agent.add(SPACE, "n", call=s.fenced),
    ("Merge", Reason.REQUEST_ID_REUSED): lambda s: s.agent.add(SPACE, "n", 2, call=s.used),
    ("Merge", Reason.CONTENTION): lambda s: _contended(s, s.move_n, lambda: s.agent.add(SPACE, "n")),
    ("Transact", Reason.VERSION_MISMATCH): lambda s: s.agent.transact(SPACE, put("x", 1), compares={"k": 0}),
    ("Transact", Reason.CONFLICT): lambda s: s.agent.transact(SPACE, put("k", 1, context=s.old.context)),
    ("Transact", Reason.STALE_FENCE): lambda s: s.agent.transact(SPACE, put("x", 1), call=s.fenced),
    ("Transact", Reason.REQUEST_ID_REUSED): lambda s: s.agent.transact(SPACE, put("x", 1), call=s.used),
    ("Transact", Reason.CONTENTION): lambda s: _contended(
        s, s.move_k, lambda: s.agent.transact(SPACE, put("k", 1, blind=True))
    ),
    ("Put", Reason.STALE_READ_SET): lambda s: _then(s.is_stale(), lambda call: s.agent.put(SPACE, "x", 1, call=call)),
    ("Merge", Reason.STALE_READ_SET): lambda s: _then(s.is_stale(), lambda call: s.agent.add(SPACE, "x", call=call)),
    ("Commit", Reason.STALE_READ_SET): lambda s: _then(s.is_stale(), lambda call: _commit(s, call)),
    ("Commit", Reason.UNCHECKABLE_GUARD): lambda s: _then(
        s.has_read("k", "shared/elsewhere"), lambda call: _commit(s, call)
    ),
    ("CancelReservation", Reason.CLAIM_LOST): lambda s: s.api.cancel_reservation(
        pb.CancelReservationRequest(namespace=SPACE, key="k", fence=s.old.revision, call=s.agent.call())
    ),
    ("ResolveConflict", Reason.CONFLICT): _unseen_sibling,
    ("ResolveConflict", Reason.NO_CONFLICT): _resolved,
    ("Watch", Reason.COMPACTED): _watch_compacted,
    ("Watch", Reason.FUTURE_REVISION): lambda s: _watch(s, s.task.version + 1),
    ("Watch", Reason.DRAINING): _watch_draining,
    ("ClaimNext", Reason.REQUEST_ID_REUSED): lambda s: s.agent.claim(SPACE, "t/", call=s.used),
    ("ClaimNext", Reason.CONTENTION): _contended_claim,
    ("Renew", Reason.CLAIM_LOST): lambda s: s.agent.renew(SPACE, s.stranger),
    ("Release", Reason.CLAIM_LOST): lambda s: s.agent.release(SPACE, s.stranger),
    ("Complete", Reason.CLAIM_LOST): lambda s: s.agent.complete(SPACE, s.stranger),
    ("OpenAgent", Reason.AGENT_ACTIVE): lambda s: s.api.agent("a"),
    ("KeepAgent", Reason.STALE_INCARNATION): lambda s: _keep(s, s.agent),
    ("CloseAgent", Reason.STALE_INCARNATION): lambda s: _close(s, s.agent),
    ("ListNamespaces", Reason.INVALID_PAGE_TOKEN): lambda s: s.api.list_namespaces(
        admin.ListNamespacesRequest(page_token="ab")
    ),
    ("ListPolicies", Reason.INVALID_PAGE_TOKEN): lambda s: s.api.list_policies(page_token="ab"),
    ("ListEpochs", Reason.INVALID_PAGE_TOKEN): lambda s: s.api.list_epochs(page_token="ab"),
    ("ListServers", Reason.INVALID_PAGE_TOKEN): lambda s: s.api.list_servers(page_token="ab"),
    ("SetPolicy", Reason.LIMIT_EXCEEDED): _too_many_patterns,
    ("DeleteNamespace", Reason.NAMESPACE_DELETED): _delete_twice,
    ("GetNamespace", Reason.NAMESPACE_NOT_FOUND): lambda s: s.api.get_namespace("shared/none"),
    ("DeleteNamespace", Reason.NAMESPACE_NOT_FOUND): lambda s: s.api.delete_namespace("shared/none"),
    ("DeleteNamespace", Reason.VERSION_MISMATCH): lambda s: s.api.delete_namespace(SPACE, s.old.revision),
    ("SetGrant", Reason.INVALID_FIELD): lambda s: ask(s.api, "SetGrant"),
    ("SetGrant", Reason.VALUE_TOO_LARGE): lambda s: _grant(s, "x" * LONG),
    ("SetGrant", Reason.LIMIT_EXCEEDED): _too_many_grants,
    ("CheckGrant", Reason.INVALID_FIELD): lambda s: ask(s.api, "CheckGrant", verb="fly"),
    ("ListGrants", Reason.INVALID_PAGE_TOKEN): lambda s: ask(s.api, "ListGrants", page_token="ab"),
    ("ListLimits", Reason.INVALID_PAGE_TOKEN): lambda s: ask(s.api, "ListLimits", page_token="ab"),
    ("ListTokens", Reason.INVALID_PAGE_TOKEN): lambda s: ask(s.api, "ListTokens", page_token="ab"),
    ("CreateScopedToken", Reason.TOKENS_OFF): lambda s: ask(s.api, "CreateScopedToken"),
    ("RevokeToken", Reason.INVALID_FIELD): lambda s: ask(s.api, "RevokeToken", token_id="x"),
    ("RevokeToken", Reason.ENTRY_NOT_FOUND): lambda s: ask(s.api, "RevokeToken", token_id="0" * 16),
    ("GetUsage", Reason.INVALID_FIELD): lambda s: ask(s.api, "GetUsage", top=-1),
    ("GetOverview", Reason.INVALID_FIELD): lambda s: ask(s.api, "GetOverview", top=-1),
    ("GetAgent", Reason.INVALID_FIELD): lambda s: ask(s.api, "GetAgent"),
    ("GetAgent", Reason.VALUE_TOO_LARGE): lambda s: ask(s.api, "GetAgent", agent_id="x" * LONG),
    ("FenceAgent", Reason.INVALID_FIELD): lambda s: _as_operator(s, "FenceAgent"),
    ("FenceAgent", Reason.VALUE_TOO_LARGE): lambda s: _as_operator(s, "FenceAgent", agent_id="x" * LONG),
    ("FenceAgent", Reason.STALE_INCARNATION): lambda s: _as_former_operator(s, "FenceAgent", agent_id="b"),
    ("UnfenceAgent", Reason.INVALID_FIELD): lambda s: _as_operator(s, "UnfenceAgent"),
    ("UnfenceAgent", Reason.VALUE_TOO_LARGE): lambda s: _as_operator(s, "UnfenceAgent", agent_id="x" * LONG),
    ("UnfenceAgent", Reason.STALE_INCARNATION): lambda s: _as_former_operator(s, "UnfenceAgent", agent_id="b"),
    ("RevertAgent", Reason.INVALID_FIELD): lambda s: _as_operator(s, "RevertAgent", agent_id="b"),
    ("RevertAgent", Reason.VALUE_TOO_LARGE): lambda s: _as_operator(
        s, "RevertAgent", agent_id="x" * LONG, namespace=SPACE, since_revision=1
    ),
    ("RevertAgent", Reason.STALE_INCARNATION): lambda s: _as_former_operator(
        s, "RevertAgent", agent_id="b", namespace=SPACE, since_revision=1
    ),
}

ELSEWHERE = {
    # It needs a network whose buffers are full: tests/faults/test_watchers.py.
    ("Watch", Reason.SLOW_CONSUMER),
    # It needs etcd: tests/faults/test_replicas.py.
    ("ListServers", Reason.ENGINE_UNAVAILABLE),
    # What needs an engine that does not answer, or others that change the same at that moment.
    *((rpc, Reason.ENGINE_UNAVAILABLE) for rpc in ("GetAgent", "FenceAgent", "UnfenceAgent", "RevertAgent", "Dump")),
    *((rpc, Reason.CONTENTION) for rpc in ("FenceAgent", "UnfenceAgent")),
    # What OpenAgent of a fenced agent is answered with: tests/integration/test_one_bad_agent.py.
    ("FenceAgent", Reason.PERMISSION_DENIED),
    # What needs a caller with a credential: tests/integration/test_authentication.py.
    ("CreateScopedToken", Reason.PERMISSION_DENIED),
    # Tables of tens of thousands, tested with the tables: tests/contract/test_tables.py.
    *((rpc, Reason.LIMIT_EXCEEDED) for rpc in ("CreateToken", "CreateScopedToken", "FenceAgent")),
    # Ten thousand keys, and two dumps at a time.
    *((rpc, Reason.LIMIT_EXCEEDED) for rpc in ("RevertAgent", "Dump")),
    # Servers that were built without: those of tests.
    *((rpc, Reason.NOT_IMPLEMENTED) for rpc in ("Dump", "GetOverview")),
}


def documented() -> dict[str, set[Reason]]:
    """Returns the reasons that the comment of each rpc names."""
    found: dict[str, set[Reason]] = {}
    folder = Path(noosphere.v1.__path__[0])
    for name in ("memory_service.proto", "admin_service.proto"):
        comment: list[str] = []
        for line in (folder / name).read_text().splitlines():
            if line.startswith("  //"):
                comment.append(line)
                continue
            if rpc := re.match(r"  rpc (\w+)\(", line):
                found[rpc[1]] = {reason for reason in Reason if re.search(rf"\b{reason}\b", " ".join(comment))}
            comment = []
    return found


def test_every_documented_reason_of_every_rpc_has_a_scenario() -> None:
    promised = {(rpc, reason) for rpc, reasons in documented().items() for reason in reasons}
    assert len(promised) > 20
    assert promised - ELSEWHERE <= set(SCENARIOS)
    assert promised >= ELSEWHERE


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with local_server(tmp_path) as server:
        yield await Scene(server).set()


@pytest.mark.parametrize(("rpc", "reason"), SCENARIOS, ids=str)
async def test_a_documented_reason_is_produced(scene: Scene, rpc: str, reason: Reason) -> None:
    with refusal(reason):
        await SCENARIOS[rpc, reason](scene)
