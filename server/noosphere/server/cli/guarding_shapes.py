"""The documents that `audit`, `owner` and `agent` print with ``--json``; see ``shapes``."""

from __future__ import annotations

from typing import Annotated, TypedDict

from .shapes import Revision


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
