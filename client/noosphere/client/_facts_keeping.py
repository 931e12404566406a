"""What keeps the facts of an agent or a user: forgetting, extraction, policies and upkeep."""

from __future__ import annotations

from noosphere.v1 import fact_service_pb2 as pb

from ._arguments import checked_text, shown
from ._errors import InvalidArgument
from ._facts_data import Fact, FactHit
from ._facts_keeping_data import ExtractionJob, FactPolicy, FactUpkeep, ForgetReport, SourceDocument, UpkeepRun
from ._facts_keeping_wire import from_policy, to_job, to_policy, to_run, to_upkeep
from ._facts_link import FactsLink
from ._session import Session


class FactsKeeping:
    """What keeps facts."""

    def __init__(self, link: FactsLink) -> None:
        self._link = link

    async def forget(
        self,
        fact: Fact | FactHit | str | None = None,
        *,
        query: str | None = None,
        producer: str | None = None,
        everything: bool = False,
        owner: str | None = None,
        scope: str = "",
        dry_run: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> ForgetReport:
        """Removes facts for good, wherever their words are, and blocks their learning from the same evidence.

        They go from the store, its indexes, caches, the queue and summaries; the words are overwritten in the
        messages, results of tools and savepoints that they came from. New evidence teaches them again.

        Give exactly one of ``fact``, ``query``, ``producer`` and ``everything``.

        Args:
            fact: this fact, a hit, or a fact's id.
            query: what a search for this finds; look at it with ``dry_run`` first.
            producer: all that came from this producer, e.g. a poisoned source.
            everything: all of the owner's facts in the scope.
            owner: whose facts; None for the agent's own with ``query`` and ``everything``, else for anybody's.
            scope: in which scope; empty for the owner's own.
            dry_run: only tell what would be forgotten.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            What was removed where, and what may still hold it.

        Raises:
            EntryNotFound: there is no such fact.
            PermissionDenied: the facts are not this agent's to forget.
            AckedWritesLost: something that this client has proposed, seen decided or had forgotten in the scope was
                lost in a failover; raised once, and nothing is forgotten by this call. Repeat it, and what was lost.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        given = [fact is not None, query is not None, producer is not None, bool(everything)]
        if sum(given) != 1:
            raise InvalidArgument(f"fact: {sum(given)} of fact, query, producer and everything are given, not one")
        request = pb.ForgetFactsRequest(dry_run=bool(dry_run), scope=checked_text("scope", scope))
        if fact is not None:
            request.fact_id = fact_id_of(fact)
        elif query is not None:
            request.query = checked_text("query", query)
        elif producer is not None:
            request.producer = checked_text("producer", producer)
        else:
            request.all = True
        if query is not None or everything:
            request.owner = link.or_own("owner", owner)
        elif owner is not None:
            request.owner = checked_text("owner", owner)
        where = request.scope or request.owner or request.fact_id.rpartition("#")[0]
        # Whoever has something forgotten hears of it if a failover loses that.
        request.call.causal_tokens.extend(link.seen((where,)))
        request.call.return_causal_token = True
        reply: pb.ForgetFactsResponse
        if dry_run:
            reply = await link.read(link.stub.ForgetFacts, request, timeout, where)
        else:
            reply = await link.write(link.stub.ForgetFacts, request, request_id, timeout, where)
        link.learn(reply.call.causal_token)
        return ForgetReport(
            tuple(reply.fact_ids),
            {place.place: place.count for place in reply.places},
            tuple(reply.remaining),
            bool(dry_run),
        )

    async def extract(
        self,
        source: Session | SourceDocument | str,
        *,
        owner: str | None = None,
        scope: str = "",
        wait: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> ExtractionJob:
        """Extracts candidates from a session or a document, in the background unless told to wait.

        Args:
            source: a session or its id: what was said there since the last extraction; or a document, whose facts
                have the trust of external content.
            owner: whose facts; None for the agent's own.
            scope: where they are valid; empty for the owner's own.
            wait: return only when the job has ended and its candidates are decided. A model takes its time: give a
                ``timeout`` that suits it. If that passes, the job goes on all the same.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            The job; :meth:`extraction` reads it anew.

        Raises:
            SessionNotFound: there is no such session any more.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.ExtractFactsRequest(
            owner=link.or_own("owner", owner), scope=checked_text("scope", scope), wait=bool(wait)
        )
        if isinstance(source, SourceDocument):
            request.document.id = checked_text("source.id", source.id)
            request.document.text = checked_text("source.text", source.text)
        elif isinstance(source, Session):
            request.session_id = source.id
        elif isinstance(source, str):
            request.session_id = checked_text("source", source)
        else:
            raise InvalidArgument(f"source: {shown(source)} is {type(source).__name__}, no session and no document")
        scope = request.scope or request.owner
        reply: pb.ExtractFactsResponse
        if wait:
            reply = await self._extracted(request, request_id, timeout, scope)
        else:
            reply = await link.write(link.stub.ExtractFacts, request, request_id, timeout, scope)
        return to_job(reply.job)

    async def _extracted(
        self, request: pb.ExtractFactsRequest, request_id: str | None, timeout: float | None, scope: str
    ) -> pb.ExtractFactsResponse:
        """Waits for the end of an extraction: the server's patience ends, but asked under the same id it goes on."""
        link, transport = self._link, self._link.transport
        end = transport.clock() + transport.deadline(timeout)
        # Meanwhile hundreds of other calls may pass this one.
        ticket = transport.sequencer.apart() if request_id is None else transport.ticket(request_id)
        left = timeout
        while True:
            reply: pb.ExtractFactsResponse = await link.write(
                link.stub.ExtractFacts, request, None, left, scope, ticket=ticket
            )
            left = end - transport.clock()
            if reply.job.state != pb.EXTRACTION_STATE_QUEUED or left <= 0:
                return reply

    async def extraction(self, job: ExtractionJob | str, *, timeout: float | None = None) -> ExtractionJob:
        """Returns an extraction as it stands now.

        Args:
            job: the job, or its id.
            timeout: the deadline with all retries, in seconds.

        Raises:
            EntryNotFound: there is no such job any more.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        job_id = job.id if isinstance(job, ExtractionJob) else checked_text("job", job)
        request = pb.GetExtractionJobRequest(job_id=job_id)
        reply: pb.GetExtractionJobResponse = await link.read(link.stub.GetExtractionJob, request, timeout)
        return to_job(reply.job)

    async def policy(self, scope: str | None = None, *, timeout: float | None = None) -> FactPolicy:
        """Returns the rules in force in a scope, all defaults filled in.

        Args:
            scope: the scope; None for the agent's own.
            timeout: the deadline with all retries, in seconds.
        """
        link = self._link
        request = pb.GetFactPolicyRequest(scope=link.or_own("scope", scope))
        reply: pb.GetFactPolicyResponse = await link.read(link.stub.GetFactPolicy, request, timeout, request.scope)
        return to_policy(reply.policy)

    async def set_policy(
        self,
        policy: FactPolicy,
        scope: str | None = None,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> FactPolicy:
        """Replaces the rules of a scope as a whole.

        Args:
            policy: the rules. To change one, read them and use ``dataclasses.replace``.
            scope: the scope; None for the agent's own.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            The rules in force, all defaults filled in.

        Raises:
            InvalidArgument: a rule is out of bounds.
            PermissionDenied: the scope is not this agent's.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.SetFactPolicyRequest(scope=link.or_own("scope", scope), policy=from_policy(policy))
        reply: pb.SetFactPolicyResponse = await link.write(
            link.stub.SetFactPolicy, request, request_id, timeout, request.scope
        )
        return to_policy(reply.policy)

    async def run_upkeep(
        self,
        scope: str = "",
        *,
        dry_run: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> UpkeepRun:
        """Runs upkeep now, which also runs by itself, or tells what it would do.

        Confidence of what is volatile decays, duplicates are joined, what has ended is removed, and old episodes
        are compressed.

        Args:
            scope: the scope; empty for all.
            dry_run: only tell.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            PermissionDenied: the scope is not this agent's.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.RunFactUpkeepRequest(scope=checked_text("scope", scope), dry_run=bool(dry_run))
        reply: pb.RunFactUpkeepResponse
        if dry_run:
            reply = await link.read(link.stub.RunFactUpkeep, request, timeout, scope)
        else:
            reply = await link.write(link.stub.RunFactUpkeep, request, request_id, timeout, scope)
        return to_run(reply)

    async def upkeep(self, scope: str = "", *, timeout: float | None = None) -> FactUpkeep:
        """Returns what the last rounds of upkeep did, and how much waits to be decided.

        Args:
            scope: the scope; empty for all.
            timeout: the deadline with all retries, in seconds.
        """
        link = self._link
        request = pb.GetFactUpkeepRequest(scope=checked_text("scope", scope))
        reply: pb.GetFactUpkeepResponse = await link.read(link.stub.GetFactUpkeep, request, timeout, scope)
        return to_upkeep(reply)


def fact_id_of(fact: Fact | FactHit | str) -> str:
    """Returns the id of a fact.

    Raises:
        InvalidArgument: it is none.
    """
    if isinstance(fact, (Fact, FactHit)):
        return fact.id
    if not isinstance(fact, str):
        raise InvalidArgument(f"fact: {shown(fact)} is {type(fact).__name__}, not a fact")
    return checked_text("fact", fact)
