"""`noosphere facts …`: what is remembered beyond sessions, found, and explained."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, cast

import typer

from .common import AgentOption, JsonOption, ServerOption, TimeoutOption, common
from .facts_views import (
    CANDIDATE_COLUMNS,
    candidate_data,
    candidate_row,
    claim_text,
    fact_data,
    parts_text,
    path_data,
    search_data,
    standing_text,
)
from .output import print_fields, print_json, print_line, print_table
from .session import call, connected
from .session_views import cell
from .values import parse_time
from .views import time_text

if TYPE_CHECKING:
    from noosphere.client import CandidateState, CandidateStatus, Fact, FactExplanation, FactHits, MemoryType

    from .facts_shapes import FactPathShape

app = typer.Typer(help="Long-term facts: what is remembered, why, and what was refused.")


class MemoryTypeName(StrEnum):
    """Kinds of memory, as options."""

    WORKING = "working"
    EPISODIC = "episodic"
    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"


class StatusName(StrEnum):
    """Where decided candidates stand, as options."""

    WRITTEN = "written"
    MERGED = "merged"
    SUPERSEDED = "superseded"
    CONTESTED = "contested"
    REJECTED = "rejected"
    QUARANTINED = "quarantined"
    SUPPRESSED = "suppressed"
    DEAD = "dead"


FactArgument = Annotated[
    str, typer.Argument(metavar="FACT", help="The fact's id, as `facts search` shows it.", show_default=False)
]
ScopeArgument = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE", help="The scope: agent/<name>, shared/<name> or user/<id>, e.g. user/42.", show_default=False
    ),
]
OwnersOption = Annotated[
    list[str], typer.Option("--owner", metavar="OWNER", help="Whose facts, e.g. user/42. May be repeated.")
]
LastOption = Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="Only the newest N.")]

_TEXT_CHARS_MAX = 80
# A fact's id may begin with a c, too.
_CANDIDATE = re.compile(r".*#c[0-9a-f]{24}", re.DOTALL)


@app.command()
def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The question, in words.", show_default=False)],
    owner: OwnersOption,
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="In this scope instead of the owners' own. May be repeated."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100, help="Most hits.")] = 10,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", min=0, help="Most tokens of all hits together; 0 for no limit.")
    ] = 0,
    memory_type: Annotated[
        list[MemoryTypeName] | None, typer.Option("--type", help="Only this kind of memory. May be repeated.")
    ] = None,
    trust_min: Annotated[float, typer.Option(metavar="X", min=0, max=1, help="Facts below this trust stay out.")] = 0.0,
    subject: Annotated[str, typer.Option(metavar="TEXT", help="Only facts about this subject.")] = "",
    predicate: Annotated[str, typer.Option(metavar="TEXT", help="Only facts with this predicate.")] = "",
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME", help="What was known then, e.g. 2026-05-01T12:00Z. [default: now]")
    ] = None,
    superseded: Annotated[bool, typer.Option("--superseded", help="Also what was superseded.")] = False,
    expand: Annotated[
        bool, typer.Option("--expand", help="Also what else is known about subjects and objects of the hits.")
    ] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Find facts, the best first, and show why each stands where it stands. JSON: FactSearch.

    Whatever the question contains is text, never syntax.
    """
    options = common(ctx, server, as_json, agent, timeout)
    moment = parse_time(as_of, "--as-of")

    async def read() -> FactHits:
        async with connected(options) as client:
            return await client.facts.search(
                query,
                owners=owner,
                scopes=scope or (),
                limit=limit,
                max_tokens=max_tokens,
                memory_types=cast("list[MemoryType]", memory_type or []),
                trust_min=trust_min,
                subject=subject,
                predicate=predicate,
                as_of=moment,
                include_superseded=superseded,
                expand=expand,
            )

    hits = call(read())
    if options.as_json:
        print_json(search_data(hits))
        return
    rows = [
        (
            number,
            f"{hit.relevance:.2f}",
            f"{hit.trust:.2f}",
            standing_text(hit.fact) if superseded else f"v{hit.version}",
            hit.id,
            cell(hit.text, _TEXT_CHARS_MAX),
            parts_text(hit.scores),
        )
        for number, hit in enumerate(hits, 1)
    ]
    columns = ("RANK", "RELEVANCE", "TRUST", "STANDS" if superseded else "VERSION", "FACT", "TEXT", "WHY")
    print_table(columns, rows, empty="nothing found")
    if hits.warnings:
        print_line(f"warnings: {', '.join(hits.warnings)}")


@app.command("list")
def list_(
    ctx: typer.Context,
    scope: ScopeArgument,
    owner: Annotated[str, typer.Option(metavar="OWNER", help="Only this owner's.")] = "",
    superseded: Annotated[bool, typer.Option("--superseded", help="Also what was superseded.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List the facts of a scope by id. JSON: a Fact per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[Fact]:
        async with connected(options) as client:
            listed = client.facts.list(scope, owner=owner, include_superseded=superseded, page_size=1_000)
            return [fact async for fact in listed]

    found = call(read())
    if options.as_json:
        for fact in found:
            print_json(fact_data(fact))
        return
    rows = [
        (fact.id, fact.owner, f"{fact.trust:.2f}", standing_text(fact), cell(fact.text, _TEXT_CHARS_MAX))
        for fact in found
    ]
    print_table(("FACT", "OWNER", "TRUST", "STANDS", "TEXT"), rows, empty="no facts")


@app.command()
def show(
    ctx: typer.Context,
    fact: FactArgument,
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME", help="As it was known then, e.g. 2026-05-01T12:00Z. [default: now]")
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show a fact with its evidence. JSON: Fact."""
    options = common(ctx, server, as_json, agent, timeout)
    moment = parse_time(as_of, "--as-of")

    async def read() -> Fact:
        async with connected(options) as client:
            return await client.facts.get(fact, as_of=moment)

    found = call(read())
    if options.as_json:
        print_json(fact_data(found))
    else:
        _print_fact(found)


@app.command()
def history(
    ctx: typer.Context,
    fact: FactArgument,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List the versions of a fact and of what it superseded or was superseded by. JSON: a Fact per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> tuple[Fact, ...]:
        async with connected(options) as client:
            return await client.facts.history(fact)

    found = call(read())
    if options.as_json:
        for version in found:
            print_json(fact_data(version))
        return
    rows = [
        (
            time_text(one.recorded_at) or "-",
            _span(one.valid_from, one.valid_to),
            one.id,
            f"v{one.version}",
            f"{one.confidence:.2f}",
            cell(one.text, _TEXT_CHARS_MAX),
        )
        for one in found
    ]
    print_table(("RECORDED", "SO IN THE WORLD", "FACT", "VERSION", "CONFIDENCE", "TEXT"), rows, empty="no versions")


@app.command()
def candidates(
    ctx: typer.Context,
    scope: ScopeArgument,
    status: Annotated[
        list[StatusName] | None, typer.Option(help="Only those that stand there. May be repeated.")
    ] = None,
    last: LastOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """List decided candidates of a scope, the newest first, with why. JSON: a Candidate per line."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> list[CandidateState]:
        found: list[CandidateState] = []
        async with connected(options) as client:
            size = min(last or 1_000, 1_000)
            statuses = cast("list[CandidateStatus]", status or [])
            async for state in client.facts.candidates(scope, statuses=statuses, page_size=size):
                found.append(state)
                if len(found) == last:
                    break
        return found

    listed = call(read())
    if options.as_json:
        for state in listed:
            print_json(candidate_data(state))
        return
    print_table(CANDIDATE_COLUMNS, [candidate_row(state) for state in listed], empty="no candidates")


@app.command()
def why(
    ctx: typer.Context,
    id_: Annotated[str, typer.Argument(metavar="ID", help="The id of a fact, or of a candidate.", show_default=False)],
    query: Annotated[str, typer.Option(metavar="TEXT", help="Also the fact's rank for this question.")] = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show the whole path of a fact, from its evidence to its rank, or why a candidate is none. JSON: FactPath."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> tuple[FactExplanation | None, tuple[CandidateState, ...]]:
        async with connected(options) as client:
            if not _CANDIDATE.fullmatch(id_):
                path = await client.facts.explain(id_, query)
                return path, path.candidates
            state = await client.facts.candidate(id_)
            fact_id = state.decision.fact_id
            return (await client.facts.explain(fact_id, query) if fact_id else None), (state,)

    path, states = call(read())
    if options.as_json:
        alone: FactPathShape = {
            "fact": None,
            "candidates": [candidate_data(state) for state in states],
            "rank": None,
            "scores": None,
        }
        print_json(alone if path is None else path_data(path))
        return
    if path is not None:
        _print_fact(path.fact)
        print_line("")
    _print_candidates(states)
    if path is not None and query:
        print_line("")
        found = "it is not found"
        if path.scores is not None:
            found = f"rank {path.rank}, relevance {path.scores.relevance:.2f}: {parts_text(path.scores)}"
        print_line(f"for {query!r}: {found}")


def _print_fact(fact: Fact) -> None:
    sources = f"{fact.source_count} distinct, {len(fact.evidence)} listed"
    print_fields(
        {
            "fact": f"{fact.id}, version {fact.version}",
            "text": fact.text,
            "says": claim_text(fact),
            "stands": standing_text(fact) + (", in the profile" if fact.pinned else ""),
            "owner": fact.owner + ("" if fact.scope == fact.owner else f", valid in {fact.scope}"),
            "kind": fact.memory_type,
            "trust": f"{fact.trust:.2f}",
            "confidence": f"{fact.confidence:.2f}, importance {fact.importance:.2f}",
            "so since": _span(fact.valid_from, fact.valid_to),
            "expires": time_text(fact.expires_at) or "never",
            "recorded": time_text(fact.recorded_at) or "-",
            "producer": fact.producer or "-",
            "contested by": ", ".join(fact.contested_by) or "-",
            "sources": sources,
        }
    )
    rows = [(one.reference, one.content_hash.hex()[:12] or "-", cell(one.quote or "-")) for one in fact.evidence]
    if rows:
        print_table(("EVIDENCE", "HASH", "QUOTE"), rows, empty="")


def _print_candidates(states: tuple[CandidateState, ...]) -> None:
    for state in states:
        candidate, decision = state.candidate, state.decision
        print_fields(
            {
                "candidate": candidate.id,
                "text": candidate.text or "(its words are no longer kept)",
                "submitted": f"{time_text(candidate.time) or '-'} by {candidate.actor or 'the server'}",
                "came in as": f"said by {candidate.said_by}"
                + (f", from {candidate.producer}" if candidate.producer else ""),
                "evidence": ", ".join(one.reference for one in candidate.sources) or "-",
                "trust": f"{candidate.trust:.2f}, assigned by the server",
                "became": decision.status + (f", {decision.fact_id} v{decision.version}" if decision.fact_id else ""),
            }
        )
        rows = [(reason.step, reason.reason, reason.explanation) for reason in decision.reasons]
        print_table(("STEP", "REASON", "WHY"), rows, empty="no reasons are recorded")
    if not states:
        print_line("the candidates that it came from are no longer remembered")


def _span(begin: datetime | None, end: datetime | None) -> str:
    return f"{time_text(begin) or '-'}" + (f" to {time_text(end)}" if end is not None else "")
