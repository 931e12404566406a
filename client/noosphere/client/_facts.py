"""Long-term facts: found by search, read, explained."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from noosphere.v1 import fact_service_pb2 as pb

from ._arguments import checked_text
from ._context_wire import number, several
from ._errors import InvalidArgument
from ._facts_data import (
    Fact,
    FactExplanation,
    FactHit,
    FactHits,
    MemoryType,
)
from ._facts_keeping import fact_id_of
from ._facts_proposing import FactsProposing
from ._facts_wire import (
    MEMORY_TYPES,
    texts,
    to_explanation,
    to_fact,
    to_hits,
)
from ._listing import PAGE_SIZE, checked_page_size
from ._session_wire import number_of, whole
from ._wire import from_seconds, from_time, to_seconds

HITS_DEFAULT = 10


class Facts(FactsProposing):
    """Long-term facts as one agent's client sees them; ``client.facts``. A handle: it holds nothing.

    ::

        decision = await client.facts.remember("Prefers metric units", owner="user/42", predicate="units",
                                               object="metric", said_by="user", evidence="msg:s9/17")
        if not decision.known:
            print(decision.explain())
        for hit in await client.facts.search("which units?", owner="user/42", max_tokens=300):
            print(hit.text, hit.trust, hit.evidence)

    Nothing becomes a fact but as a candidate that the server has accepted, and it assigns how far a fact is
    trusted. An owner or scope is ``agent/<name>``, ``shared/<name>`` or ``user/<id>``; what is not said is the
    agent's own.
    """

    async def search(
        self,
        query: str,
        *,
        owner: str | None = None,
        owners: Sequence[str] = (),
        scopes: Sequence[str] = (),
        limit: int = HITS_DEFAULT,
        max_tokens: int = 0,
        memory_types: Sequence[MemoryType] = (),
        trust_min: float = 0.0,
        subject: str = "",
        predicate: str = "",
        valid_after: datetime | None = None,
        valid_before: datetime | None = None,
        as_of: datetime | None = None,
        include_superseded: bool = False,
        expand: bool = False,
        embed_timeout: timedelta | float | None = None,
        timeout: float | None = None,
    ) -> FactHits:
        """Finds facts: filters first, then ranking, then packing into ``max_tokens``.

        What this client has seen decided, or was told of by :meth:`Client.observe`, is found. Whatever the query
        contains is text, never syntax.

        Args:
            query: the question, at most 4 KiB.
            owner: whose facts; None for the agent's own, unless ``owners`` are given.
            owners: whose facts, if they are several, at most 8.
            scopes: in which scopes, at most 8; none for the owners' own.
            limit: most hits, 1 to 100.
            max_tokens: most tokens of all hits together; 0 for no limit.
            memory_types: only these; none for any.
            trust_min: facts below this trust stay out, 0 to 1.
            subject: only facts about this subject.
            predicate: only facts with this predicate.
            valid_after: only facts that were so at some time from then on.
            valid_before: only facts that were so at some time before then.
            as_of: what was known at that moment; None for now.
            include_superseded: also what was superseded.
            expand: also what else is known about the subjects and objects of the hits, one hop.
            embed_timeout: how long embedding the query may take before it is left out, in seconds or as a span;
                None for 50 ms.
            timeout: the deadline with all retries, in seconds.

        Returns:
            Hits, the best first, each with its scores, evidence, version and trust.

        Raises:
            AckedWritesLost: facts that this client has seen decided did not survive a crash or failover.
            InvalidArgument: a part of it is malformed.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        if owner is not None and owners:
            raise InvalidArgument("owner: give one of owner and owners")
        request = pb.SearchFactsRequest(
            query=checked_text("query", query),
            owners=texts("owners", owners) or [link.or_own("owner", owner)],
            scopes=texts("scopes", scopes),
            limit=whole("limit", limit, low=1),
            tokens_max=whole("max_tokens", max_tokens),
            memory_types=[
                number_of(f"memory_types[{index}]", name, MEMORY_TYPES)
                for index, name in enumerate(several("memory_types", memory_types))
            ],
            trust_min=number("trust_min", trust_min),
            subject=checked_text("subject", subject),
            predicate=checked_text("predicate", predicate),
            include_superseded=bool(include_superseded),
            expand=bool(expand),
        )
        for name, time in (("valid_after", valid_after), ("valid_before", valid_before), ("as_of", as_of)):
            if time is not None:
                getattr(request, name).CopyFrom(from_time(name, time))
        if embed_timeout is not None:
            request.embed_timeout.CopyFrom(from_seconds(to_seconds("embed_timeout", embed_timeout)))
        request.call.causal_tokens.extend(link.seen(request.scopes or request.owners))
        request.call.return_causal_token = True
        reply: pb.SearchFactsResponse = await link.read(link.stub.SearchFacts, request, timeout)
        link.learn(reply.call.causal_token)
        return to_hits(reply)

    async def get(
        self, fact: Fact | FactHit | str, *, as_of: datetime | None = None, timeout: float | None = None
    ) -> Fact:
        """Returns a fact as it is now, or was known at a moment.

        Args:
            fact: the fact, a hit, or a fact's id.
            as_of: that moment; None for now.
            timeout: the deadline with all retries, in seconds.

        Raises:
            EntryNotFound: there is no such fact, or it was not known then.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.GetFactRequest(fact_id=fact_id_of(fact))
        if as_of is not None:
            request.as_of.CopyFrom(from_time("as_of", as_of))
        reply: pb.GetFactResponse = await link.read(link.stub.GetFact, request, timeout)
        return to_fact(reply.fact)

    async def history(self, fact: Fact | FactHit | str, *, timeout: float | None = None) -> tuple[Fact, ...]:
        """Returns every version of a fact, and of those that it superseded or was superseded by, the newest first.

        Args:
            fact: the fact, a hit, or a fact's id.
            timeout: the deadline with all retries, in seconds.

        Returns:
            At most 1,000 versions.

        Raises:
            EntryNotFound: there is no such fact.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.ListFactHistoryRequest(fact_id=fact_id_of(fact))
        reply: pb.ListFactHistoryResponse = await link.read(link.stub.ListFactHistory, request, timeout)
        return tuple(map(to_fact, reply.versions))

    def list(
        self,
        scope: str | None = None,
        *,
        owner: str = "",
        include_superseded: bool = False,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> AsyncIterator[Fact]:
        """Lists the facts of a scope by id, page by page.

        Args:
            scope: the scope; None for the agent's own.
            owner: only this owner's; empty for any.
            include_superseded: also what was superseded.
            page_size: facts per call, 1 to 1,000.
            timeout: the deadline of each page with its retries, in seconds.
        """
        link = self._link
        request = pb.ListFactsRequest(
            scope=link.or_own("scope", scope),
            owner=checked_text("owner", owner),
            include_superseded=bool(include_superseded),
            page_size=checked_page_size(page_size),
        )
        return link.pages(link.stub.ListFacts, request, lambda reply: reply.facts, to_fact, timeout)

    async def explain(
        self, fact: Fact | FactHit | str, query: str = "", *, timeout: float | None = None
    ) -> FactExplanation:
        """Tells the whole path of a fact, from its evidence to its rank.

        Args:
            fact: the fact, a hit, or a fact's id.
            query: for this query, also its rank.
            timeout: the deadline with all retries, in seconds.

        Raises:
            EntryNotFound: there is no such fact.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.ExplainFactRequest(fact_id=fact_id_of(fact), query=checked_text("query", query))
        reply: pb.ExplainFactResponse = await link.read(link.stub.ExplainFact, request, timeout)
        return to_explanation(reply)
