"""The documents that `audit`, `owner` and `agent` print with ``--json``; see ``shapes``."""

from __future__ import annotations

from typing import Annotated, TypedDict

from .shapes import Revision


class AgentFenceShape(TypedDict):
    """Who has fenced an agent."""

    by: Annotated[str, "The agent that did."]
    time: Annotated[str, "When."]
    why: Annotated[str, "Why."]


class AgentClaimShape(TypedDict):
    """A task that an agent has claimed."""

    namespace: Annotated[str, "The namespace."]
    key: Annotated[str, "The key."]
    holder: Annotated[str, "Who holds it, as agent#incarnation."]
    fence: Annotated[Revision, "The fencing token."]
    expire_time: Annotated[str, "When the claim ends by itself."]


class AgentShape(TypedDict):
    """An agent: what it does, as far as the server that answers has counted, and what it holds."""

    agent: Annotated[str, "Its name."]
    incarnation: Annotated[Revision, "Its newest incarnation; 0 if it was never opened."]
    active: Annotated[bool, "Whether that has not ended, and its lease lives."]
    fence: Annotated[AgentFenceShape | None, "Who has fenced it."]
    calls: Annotated[int | None, "Its calls; null if none are counted."]
    refused: Annotated[dict[str, int], "Its refused calls, by reason."]
    conflicts: Annotated[int | None, "Its calls that met somebody who was faster."]
    last_call: Annotated[str | None, "When its last call ended."]
    claims: Annotated[list[AgentClaimShape], "Tasks that it has claimed, at most 100."]
    locks: Annotated[list[str], "Locks that it holds, at most 100."]
    sessions: Annotated[list[str], "Sessions that it has opened, at most 100."]
    session_count: Annotated[int, "How many there are."]
    context_count: Annotated[int, "How many contexts they hold."]
    complete: Annotated[bool, "Whether all records and sessions were looked at."]


class AgentFencedShape(TypedDict):
    """What fencing an agent, or allowing it again, did."""

    agent: Annotated[str, "The agent."]
    fenced: Annotated[bool, "Whether it is fenced now."]
    ended: Annotated[str | None, "The incarnation that has ended, as agent#incarnation."]
    released_claims: Annotated[int, "How many claims were freed."]


class RevertedShape(TypedDict):
    """A record that an agent has written, and what becomes of it."""

    namespace: Annotated[str, "The namespace."]
    key: Annotated[str, "The key."]
    outcome: Annotated[
        str, "`restored`, `deleted`, `unchanged`, `conflict`, `compacted`, `unsupported`, `reserved`, `refused`."
    ]
    revision: Annotated[Revision, "The commit that put it back; 0 for none."]
    last_writer: Annotated[str, "Who had written it last, as agent#incarnation."]


class OwnerErasedShape(TypedDict):
    """What an erasure of an owner removed, or would."""

    owner: Annotated[str, "Whose."]
    dry_run: Annotated[bool, "Whether it only told."]
    sessions: Annotated[list[str], "The sessions, at most 1,000."]
    facts: Annotated[list[str], "The facts, at most 1,000."]
    namespaces: Annotated[list[str], "The private namespaces."]
    places: Annotated[dict[str, int], "How many entries of which place."]
    remaining: Annotated[list[str], "What may still hold something."]


class AuditShape(TypedDict):
    """A call, as the audit log has noted it. Names may be of people."""

    time: Annotated[str, "When it ended."]
    principal: Annotated[str, "The identity that it came from; empty if none was asked for, or none was proved."]
    credential: Annotated[str, "Which of its credentials proved it."]
    agent: Annotated[str, "In whose name it came, as agent#incarnation; if it was denied, that is what it said."]
    peer: Annotated[str, "From which address."]
    request: Annotated[str, "The id of a write."]
    method: Annotated[str, "As Service/Method."]
    kind: Annotated[str, "`read`, `write`, `admin`, `keep` (of which only denials are noted) or `lost`."]
    target: Annotated[str, "What it was about: a namespace, `locks/<name>` or `groups/<name>`."]
    keys: Annotated[list[str], "Of which keys or ids in it, at most 16."]
    more_keys: Annotated[int, "How many more it named."]
    owners: Annotated[list[str], "Whose facts."]
    versions: Annotated[list[Revision], "Which versions it read or wrote, at most 16."]
    head: Annotated[Revision, "The namespace's newest revision as it was answered, 0 if it was not told."]
    count: Annotated[int, "How many records, messages or facts it was answered."]
    code: Annotated[str, "How it ended, e.g. `OK`."]
    reason: Annotated[str, "Why it was refused."]
    inside_pipeline: Annotated[bool, "Whether it came inside a Pipeline."]
    sampled: Annotated[float, "The share of such calls that is noted."]
    lost: Annotated[int, "Not 0: this is no call; so many before it were not noted."]
