"""Agents that keep what they have seen, as tokens, the way a client in any language does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.support.api import SEEN_NOTHING, Agent, Scalar, scalars, span

from noosphere.consistency import CausalToken, ReadSet, decode_causal, decode_read_set
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

SIBLINGS = types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS)
WARN = types.GUARD_MODE_WARN


def guard(prefix: str, namespace: str = "") -> types.Guard:
    """Returns a guard."""
    return types.Guard(prefix=prefix, namespace=namespace)


class Mind:
    """An agent with one read set, which its reads extend and its writes advance.

    Attributes:
        agent: who calls.
        token: the read-set token.
        told: the newest reply's tokens.
    """

    def __init__(self, agent: Agent, token: bytes = b"") -> None:
        self.agent = agent
        self.token = token
        self.told = types.CallReply()

    @property
    def seen(self) -> ReadSet:
        """What the token says."""
        return decode_read_set(self.token)

    def call(
        self,
        *,
        record: bool = False,
        guards: Iterable[types.Guard | str] = (),
        warn: bool = False,
        allow_checked: bool = False,
        sequence: int = 0,
        uuid: str = "",
    ) -> types.CallContext:
        """Returns who calls, with the read set."""
        found = self.agent.call(sequence=sequence, uuid=uuid)
        found.read_set_token = self.token
        found.record_read_set = record
        found.guards.extend(guard(g) if isinstance(g, str) else g for g in guards)
        found.guard_mode = WARN if warn else types.GUARD_MODE_UNSPECIFIED
        found.allow_checked = allow_checked
        return found

    def take(self, told: types.CallReply) -> None:
        """Keeps the tokens of a reply."""
        self.told = told
        self.token = told.read_set_token

    async def get(self, space: str, key: str) -> types.Record:
        """Reads a key and records it."""
        response = await self.agent.api.get(pb.GetRequest(namespace=space, key=key, call=self.call(record=True)))
        self.take(response.call)
        return response.record

    async def batch_get(self, space: str, *keys: str) -> list[types.Record]:
        """Reads keys and records them."""
        request = pb.BatchGetRequest(namespace=space, keys=keys, call=self.call(record=True))
        response = await self.agent.api.batch_get(request)
        self.take(response.call)
        return list(response.records)

    async def page(
        self,
        space: str,
        collection: str = "",
        *,
        page_size: int = 0,
        page_token: str = "",
        reverse: bool = False,
        where: Mapping[str, Scalar] | None = None,
        claimed_only: bool = False,
    ) -> pb.ListResponse:
        """Reads a page of a collection and records it."""
        request = pb.ListRequest(
            namespace=space,
            collection=collection,
            page_size=page_size,
            page_token=page_token,
            reverse=reverse,
            where=scalars(where),
            claimed_only=claimed_only,
            call=self.call(record=True),
        )
        response = await self.agent.api.list_records(request)
        self.take(response.call)
        return response

    async def commit(
        self,
        space: str,
        *operations: pb.Operation,
        compares: Mapping[str, int] | None = None,
        guards: Iterable[types.Guard | str] = (),
        warn: bool = False,
        allow_checked: bool = False,
        sequence: int = 0,
    ) -> pb.TransactApplied:
        """Commits against the read set, which the commit advances."""
        request = pb.CommitRequest(
            namespace=space,
            operations=operations,
            compares=[pb.Compare(key=key, expected_version=version) for key, version in (compares or {}).items()],
            call=self.call(guards=guards, warn=warn, allow_checked=allow_checked, sequence=sequence),
        )
        response = await self.agent.api.commit(request)
        self.take(response.call)
        return response.applied

    async def refresh(self, *guards: types.Guard | str) -> list[types.StaleEntry]:
        """Compares the read set with the present, which it then is."""
        request = pb.RefreshReadSetRequest(call=self.call(guards=guards))
        response = await self.agent.api.refresh_read_set(request)
        self.take(response.call)
        return list(response.stale)

    def also(self) -> Mind:
        """Returns somebody who has seen the same."""
        return Mind(self.agent, self.token)


def names_of(stale: Iterable[types.StaleEntry]) -> dict[str, list[tuple[str, str, int]]]:
    """Returns what changed each stale name: key, actor and revision, the newest first."""
    return {entry.name: [(c.key, c.actor, c.revision) for c in entry.changes] for entry in stale}


def causal(reply: types.CallReply) -> CausalToken:
    """Returns a reply's causal token."""
    return decode_causal(reply.causal_token)


async def conflicts(agent: Agent, space: str, collection: str = "", page_size: int = 0) -> list[pb.PendingConflict]:
    """Reads every page of a conflict queue."""
    found: list[pb.PendingConflict] = []
    token = ""
    while True:
        request = pb.ListConflictsRequest(
            namespace=space, collection=collection, page_size=page_size, page_token=token, call=agent.call()
        )
        response = await agent.api.list_conflicts(request)
        found += response.conflicts
        token = response.next_page_token
        if not token:
            return found


async def collide(space: str, key: str, *agents: Agent) -> types.Record:
    """Has each agent write the key without having seen the others; returns what is there then."""
    for number, agent in enumerate(agents, 1):
        await agent.put(space, key, number, context=SEEN_NOTHING)
    return await agents[0].get(space, key)


async def queue(agent: Agent, space: str, collection: str = "", page_size: int = 0) -> list[str]:
    """Reads which keys wait in a conflict queue."""
    return [c.record.key for c in await conflicts(agent, space, collection, page_size)]


async def resolve(
    agent: Agent,
    space: str,
    record: types.Record,
    value: str | None = None,
    *,
    keep: int = 0,
    call: types.CallContext | None = None,
) -> pb.ResolveConflictResponse:
    """Resolves a key's conflict by a value, by the dot to keep, or (neither) by deleting the key."""
    request = pb.ResolveConflictRequest(
        namespace=space, key=record.key, context=record.context, call=call or agent.call()
    )
    if value is not None:
        request.value.CopyFrom(types.Value(data=b'"%s"' % value.encode(), encoding=types.ENCODING_JSON))
    elif keep:
        request.keep_dot = keep
    else:
        request.delete = True
    return await agent.api.resolve_conflict(request)


async def reserve(
    agent: Agent,
    space: str,
    key: str,
    *,
    lease_ms: int = 30_000,
    wait_ms: int = 0,
    call: types.CallContext | None = None,
) -> pb.ReserveResponse:
    """Reserves a key."""
    request = pb.ReserveRequest(
        namespace=space, key=key, lease=span(lease_ms), wait=span(wait_ms), call=call or agent.call()
    )
    return await agent.api.reserve(request)


async def cancel(
    agent: Agent, space: str, key: str, fence: int, *, call: types.CallContext | None = None
) -> pb.CancelReservationResponse:
    """Gives a reservation up."""
    request = pb.CancelReservationRequest(namespace=space, key=key, fence=fence, call=call or agent.call())
    return await agent.api.cancel_reservation(request)
