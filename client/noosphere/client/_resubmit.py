"""Writes again what was acknowledged and lost: each call at most once, and nothing over somebody else's work.

A call is written again as one transaction, on the condition that each of its keys is still as the loss has left
it: no newer value and no newer tombstone than the last revision that survived. Compares have to hold again. What
was written against what had been read is committed again against the same, so it is refused if its grounds have
changed or died with it. Merge operations apply to whatever is there, as ever.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

from noosphere.consistency import CausalContext
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

from ._acked import AckedCommit, AckedWrite, Again
from ._errors import AckedWritesLost, DeadlineExceeded, NoosphereError, NotKept, TransactionFailed
from ._record import Applied, to_applied
from ._refused import Attempt
from ._sequence import UUID_SECONDS_MAX
from ._space import Space
from ._transport import Transport
from ._values import JSON
from ._wire import from_context, span_seconds, to_context, to_payload

AGAIN_SECONDS_MAX = UUID_SECONDS_MAX
"""How long after its first attempt a lost call may be sent again under the id of that attempt."""


class Resubmitted(NamedTuple):
    """What became of one lost write.

    Attributes:
        write: the write that was lost.
        revision: the revision at which it was written again; 0 if it was not, or if nothing was left to do
            (a delete of what is gone, a value whose time has passed).
        error: why it was not: a :class:`Conflict` if something else was written there since; None if all is well.
    """

    write: AckedWrite
    revision: int
    error: NoosphereError | None


async def resubmit(transport: Transport, lost: AckedWritesLost, timeout: float | None) -> tuple[Resubmitted, ...]:
    """Writes the lost writes again; see ``Client.resubmit``."""
    # Insertion order is that of the revisions of each namespace.
    commits = dict.fromkeys(write._commit for write in lost.own_writes)
    results: list[Resubmitted] = []
    async with transport.progress.resubmitting:
        left: dict[tuple[str, str], Applied] = {}
        for commit in commits:
            results += await _Call(Space(transport, commit.namespace), commit, left).send(timeout)
    return tuple(results)


class _Call:
    """One lost call.

    Args:
        space: its namespace.
        commit: what is known of it.
        left: what the calls before it have written again, by namespace and key.
    """

    def __init__(self, space: Space, commit: AckedCommit, left: dict[tuple[str, str], Applied]) -> None:
        self._space = space
        self._commit = commit
        self._left = left

    async def send(self, timeout: float | None) -> list[Resubmitted]:
        commit, transport = self._commit, self._space.transport
        if commit.done is not None:
            return self._all(commit.done)
        if not commit.parts:
            return self._all(0, NotKept(f"revision {commit.revision} of {commit.namespace} was not kept"))
        try:
            again = commit.again
            if again is None:
                request = await self._request(timeout)
                if not request.operations:
                    return self._finish(0, ())
                again = Again(request, str(uuid.uuid4()), transport.clock())
            elif transport.clock() - again.sent_at > AGAIN_SECONDS_MAX:
                problem = f"whether {commit.writes[0]!r} was written again cannot be told any more"
                raise DeadlineExceeded(problem, request_id=again.request_id, outcome="unknown")
            commit.again = again
            return self._finish(*await self._execute(again, timeout))
        except TransactionFailed as failed:
            commit.again = None
            return self._failed(failed)
        except NoosphereError as error:
            if error.outcome == "not_applied":
                commit.again = None
            return self._all(0, error)

    async def _request(self, timeout: float | None) -> ms.TransactRequest | ms.CommitRequest:
        original = self._commit.request
        keys = [part.key for part in self._commit.parts if not isinstance(part, ms.AppendOperation)]
        versions = {record.key: record.version or 0 for record in await self._space.read_many(JSON, keys, timeout)}
        operations: list[ms.Operation] = []
        for part in self._commit.parts:
            if isinstance(part, ms.AppendOperation):
                # Its own id decides whether the message is there already.
                operations.append(ms.Operation(append=part))
            elif (write := self._conditioned(part, versions[part.key])) is not None:
                operations.append(write)
        compares = list(self._compares(set(keys)))
        if not original.call.read_set_token:
            again = ms.TransactRequest(namespace=self._space.name, compares=compares, operations=operations)
            # Whoever has lost the lock since must not write now what was written under it.
            again.call.fences.extend(original.call.fences)
            return again
        request = ms.CommitRequest(namespace=self._space.name)
        if isinstance(original, ms.CommitRequest):
            request.CopyFrom(original)
        # What was read, and what of it has to hold.
        request.call.CopyFrom(original.call)
        del request.compares[:], request.operations[:]
        request.compares.extend(compares)
        request.operations.extend(operations)
        return request

    def _compares(self, written: set[str]) -> Iterator[ms.Compare]:
        """Yields what else had to hold; of the keys that are written something stronger has to."""
        original = self._commit.request
        if not isinstance(original, (ms.TransactRequest, ms.CommitRequest)):
            return
        lost = self._commit.lost
        assert lost is not None
        for compare in original.compares:
            before = self._left.get((self._space.name, compare.key))
            if compare.key in written:
                continue
            if before is not None and lost.after < compare.expected_version <= lost.through:
                # What it was compared with is there again.
                yield ms.Compare(key=compare.key, expected_version=before.version or 0)
            else:
                yield compare

    def _conditioned(
        self, part: ms.PutOperation | ms.DeleteOperation | ms.MergeOperation, version: int
    ) -> ms.Operation | None:
        """Returns a write on the condition that nothing else was written there since; None if none is due."""
        assert self._commit.lost is not None
        cut = CausalContext(self._commit.lost.after)
        if isinstance(part, ms.MergeOperation):
            return ms.Operation(merge=_surviving(part, cut.prefix))
        before = self._left.get((self._space.name, part.key))
        expected, seen = (version, cut) if before is None else (before.version or 0, before.seen)
        when = pb.Precondition(expected_version=expected, context=from_context(seen))
        if isinstance(part, ms.DeleteOperation):
            return ms.Operation(delete=ms.DeleteOperation(key=part.key, precondition=when)) if expected else None
        put = ms.PutOperation()
        put.CopyFrom(part)
        put.precondition.CopyFrom(when)
        if part.HasField("ttl"):
            age = self._space.transport.clock() - self._commit.acked_at
            left_ms = round((span_seconds(part.ttl) - age) * 1000)
            if left_ms <= 0:
                return None
            put.ttl.FromMilliseconds(left_ms)
        return ms.Operation(put=put)

    async def _execute(self, again: Again, timeout: float | None) -> tuple[int, tuple[Applied, ...]]:
        space = self._space
        left = again.sent_at + AGAIN_SECONDS_MAX - space.transport.clock()
        timeout = min(space.transport.deadline(timeout), max(left, 0.001))
        if isinstance(again.request, ms.CommitRequest):
            reply: ms.CommitResponse
            reply, call_id = await space.tell(space.transport.stub.Commit, again.request, again.request_id, timeout)
            space.acked(again.request, reply.applied.revision, call_id, reply.applied.replayed)
            return reply.applied.revision, tuple(map(to_applied, reply.applied.results))
        compares = [Attempt(compare.key, "compare", JSON) for compare in again.request.compares]
        attempts = [_attempt(operation) for operation in again.request.operations]
        result = await space.send_transaction(again.request, compares, attempts, again.request_id, timeout)
        return result.revision, result.results

    def _finish(self, revision: int, applied: tuple[Applied, ...]) -> list[Resubmitted]:
        commit = self._commit
        if commit.again is not None:
            for operation, result in zip(commit.again.request.operations, applied, strict=True):
                if not operation.HasField("append"):
                    self._left[self._space.name, _attempt(operation).key] = result
        commit.again, commit.done = None, revision
        self._space.transport.progress.acked.drop(commit)
        return self._all(revision)

    def _failed(self, failed: TransactionFailed) -> list[Resubmitted]:
        """A part of a transaction that was itself in order was not written because of another."""
        own = {part.key: part.error for part in failed.failures}
        return [Resubmitted(write, 0, own.get(write.key, failed)) for write in self._commit.writes]

    def _all(self, revision: int, error: NoosphereError | None = None) -> list[Resubmitted]:
        return [Resubmitted(write, revision, error) for write in self._commit.writes]


def _attempt(operation: ms.Operation) -> Attempt:
    match operation.WhichOneof("kind"):
        case "put":
            return Attempt(operation.put.key, "put", JSON, None, to_payload(operation.put.value))
        case "delete":
            return Attempt(operation.delete.key, "delete", JSON)
        case "append":
            return Attempt(operation.append.message.id, "append", JSON)
        case _:
            return Attempt(operation.merge.key, "put", JSON)


def _surviving(part: ms.MergeOperation, cut: int) -> ms.MergeOperation:
    """Returns a merge whose context names only what has survived: the rest would be refused."""
    merge = ms.MergeOperation()
    merge.CopyFrom(part)
    if part.WhichOneof("operation") == "set_update" and part.set_update.HasField("context"):
        seen = to_context(merge.set_update.context)
        kept = CausalContext(min(seen.prefix, cut), tuple(dot for dot in seen.extras if dot <= cut))
        merge.set_update.context.CopyFrom(from_context(kept))
    return merge
