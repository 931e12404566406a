"""The documents that commands about API tokens print with ``--json``; see ``shapes``."""

from __future__ import annotations

from typing import Annotated, TypedDict


class TokenShape(TypedDict):
    """An API token without its secret, which nobody keeps."""

    token_id: Annotated[str, "Its public part."]
    principal: Annotated[str, "Whom it stands for."]
    admin: Annotated[bool, "Whether it may do everything."]
    agents: Annotated[list[str], "Agents that it may act as; those that end in `*` stand for all that begin so."]
    owners: Annotated[list[str], "For whom it may act."]
    session: Annotated[str | None, "The only session that it may touch."]
    verbs: Annotated[list[str] | None, "At most these."]
    create_time: Annotated[str | None, "When it was made."]
    expire_time: Annotated[str | None, "When it ends."]
    only_agents: Annotated[bool, "Whether `agents` are all that it may act as."]
    only_owners: Annotated[bool, "Whether `owners` are all for whom it may act."]
    parent: Annotated[str | None, "The token that it was narrowed from, and ends with."]
    creator: Annotated[str, "The principal that made it."]
    note: Annotated[str, "What it is for."]


class NewTokenShape(TokenShape):
    """A token that was just made."""

    token: Annotated[str | None, "The whole of it, shown this once; null if it was written to a file."]


class RevokedShape(TypedDict):
    """A token that has ended."""

    token_id: Annotated[str, "Its public part."]
    revoked_count: Annotated[int, "How many have ended: those that were narrowed from it too."]
