"""Long-term facts as an agent of the behaviour suite calls for them."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.message import Message
from tests.support.api import Agent
from tests.support.sessions import Response, SessionAgent, said, session_name
from tests.support.transport import FACTS, Stream

from noosphere.v1 import fact_service_pb2 as pb
from noosphere.v1 import session_service_pb2 as session_pb

_numbers = itertools.count(1)


def user_name() -> str:
    """Returns the name of a user that no other test uses."""
    return f"user/{uuid.uuid4().hex[:12]}-{next(_numbers)}"


class FactAgent:
    """An agent that calls FactService. Keyword arguments are fields of the request, by their own names."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def call(self, method: str, request: Message, kind: type[Response]) -> Response:
        """Makes one call; a request without a caller gets this agent."""
        if not request.HasField("call"):
            request.call.CopyFrom(self.agent.call())  # type: ignore[attr-defined] # every request has one
        return await self.agent.api.transport.unary(FACTS, method, request, kind)

    async def submit(self, *candidates: pb.Candidate, wait: bool = True, **fields: Any) -> pb.SubmitCandidatesResponse:
        """Submits candidates."""
        request = pb.SubmitCandidatesRequest(candidates=candidates, wait=wait, **fields)
        return await self.call("SubmitCandidates", request, pb.SubmitCandidatesResponse)

    async def decided(self, text: str, **fields: Any) -> pb.Decision:
        """Submits one candidate and waits for the decision about it."""
        (decision,) = (await self.submit(pb.Candidate(text=text, **fields))).decisions
        return decision

    async def candidate(self, candidate_id: str) -> pb.GetCandidateResponse:
        """Reads a candidate."""
        request = pb.GetCandidateRequest(candidate_id=candidate_id)
        return await self.call("GetCandidate", request, pb.GetCandidateResponse)

    async def candidates(self, scope: str, *, page_size: int = 0, **fields: Any) -> list[pb.GetCandidateResponse]:
        """Reads every page of a list of candidates."""
        found: list[pb.GetCandidateResponse] = []
        token = ""
        while True:
            request = pb.ListCandidatesRequest(scope=scope, page_size=page_size, page_token=token, **fields)
            page = await self.call("ListCandidates", request, pb.ListCandidatesResponse)
            found += page.candidates
            token = page.next_page_token
            if not token:
                return found

    def watch(self, scope: str, resume_token: bytes = b"") -> Stream[pb.WatchCandidatesResponse]:
        """Begins to watch decisions."""
        request = pb.WatchCandidatesRequest(scope=scope, resume_token=resume_token, call=self.agent.call())
        return self.agent.api.transport.stream(FACTS, "WatchCandidates", request, pb.WatchCandidatesResponse)

    async def review(self, candidate_id: str, *, accept: bool) -> pb.Decision:
        """Reviews a candidate."""
        request = pb.ReviewCandidateRequest(candidate_id=candidate_id, accept=accept)
        return (await self.call("ReviewCandidate", request, pb.ReviewCandidateResponse)).decision

    async def search(self, query: str, *owners: str, **fields: Any) -> list[pb.FactHit]:
        """Searches."""
        request = pb.SearchFactsRequest(query=query, owners=owners, **fields)
        return list((await self.call("SearchFacts", request, pb.SearchFactsResponse)).hits)

    async def get(self, fact_id: str, **fields: Any) -> pb.Fact:
        """Reads a fact."""
        request = pb.GetFactRequest(fact_id=fact_id, **fields)
        return (await self.call("GetFact", request, pb.GetFactResponse)).fact

    async def history(self, fact_id: str) -> list[pb.Fact]:
        """Reads a fact's versions."""
        request = pb.ListFactHistoryRequest(fact_id=fact_id)
        return list((await self.call("ListFactHistory", request, pb.ListFactHistoryResponse)).versions)

    async def listed(self, scope: str, *, page_size: int = 0, **fields: Any) -> list[pb.Fact]:
        """Reads every page of a list of facts."""
        found: list[pb.Fact] = []
        token = ""
        while True:
            request = pb.ListFactsRequest(scope=scope, page_size=page_size, page_token=token, **fields)
            page = await self.call("ListFacts", request, pb.ListFactsResponse)
            found += page.facts
            token = page.next_page_token
            if not token:
                return found

    async def forget(self, **fields: Any) -> pb.ForgetFactsResponse:
        """Forgets facts."""
        return await self.call("ForgetFacts", pb.ForgetFactsRequest(**fields), pb.ForgetFactsResponse)

    async def extract(self, *, wait: bool = True, **fields: Any) -> pb.ExtractionJob:
        """Extracts from a session or a document."""
        request = pb.ExtractFactsRequest(wait=wait, **fields)
        return (await self.call("ExtractFacts", request, pb.ExtractFactsResponse)).job

    async def extraction(self, job_id: str) -> pb.ExtractionJob:
        """Reads an extraction."""
        request = pb.GetExtractionJobRequest(job_id=job_id)
        return (await self.call("GetExtractionJob", request, pb.GetExtractionJobResponse)).job

    async def run_upkeep(self, scope: str = "", *, dry_run: bool = False) -> pb.RunFactUpkeepResponse:
        """Runs upkeep."""
        request = pb.RunFactUpkeepRequest(scope=scope, dry_run=dry_run)
        return await self.call("RunFactUpkeep", request, pb.RunFactUpkeepResponse)

    async def upkeep(self, scope: str = "") -> pb.GetFactUpkeepResponse:
        """Reads what upkeep did last."""
        return await self.call("GetFactUpkeep", pb.GetFactUpkeepRequest(scope=scope), pb.GetFactUpkeepResponse)

    async def policy(self, scope: str) -> pb.FactPolicy:
        """Reads the policy of a scope."""
        return (await self.call("GetFactPolicy", pb.GetFactPolicyRequest(scope=scope), pb.GetFactPolicyResponse)).policy

    async def set_policy(self, scope: str, **fields: Any) -> pb.FactPolicy:
        """Sets the policy of a scope."""
        request = pb.SetFactPolicyRequest(scope=scope, policy=pb.FactPolicy(**fields))
        return (await self.call("SetFactPolicy", request, pb.SetFactPolicyResponse)).policy


class Conversation:
    """A session in which things are said that facts rest on."""

    def __init__(self, sessions: SessionAgent, session_id: str) -> None:
        self.sessions = sessions
        self.id = session_id
        self._count = 0

    @classmethod
    async def begin(cls, agent: Agent) -> Conversation:
        """Opens a session of the agent."""
        sessions = SessionAgent(agent)
        return cls(sessions, (await sessions.open(session_name(sessions))).id)

    async def hears(
        self, text: str, role: session_pb.Role.ValueType = session_pb.ROLE_USER, **fields: Any
    ) -> pb.FactEvidence:
        """Has something said, by the user unless told otherwise; returns it as evidence."""
        self._count += 1
        message = said(text, role, **{"id": f"m{self._count}", **fields})
        await self.sessions.append(self.id, message)
        return pb.FactEvidence(reference=f"msg:{self.id}/{message.id}")


async def collected(stream: Stream[pb.WatchCandidatesResponse], count: int) -> tuple[list[pb.Decision], bytes]:
    """Reads so many decisions of a watch; returns them and where to continue."""
    found: list[pb.Decision] = []
    resume = b""
    messages: AsyncIterator[pb.WatchCandidatesResponse] = aiter(stream)
    while len(found) < count:
        message = await anext(messages)
        resume = message.resume_token
        if message.HasField("decision"):
            found.append(message.decision)
    return found, resume
