"""`noosphere facts forget`, `review`, `extract` and `job`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .common import AgentOption, Common, JsonOption, ServerOption, TimeoutOption, common, path_option
from .exits import ExitCode, usage
from .facts_views import CANDIDATE_COLUMNS, candidate_row, decision_data, extraction_data, forgotten_data
from .output import print_fields, print_json, print_line, print_table
from .session import call, connected

if TYPE_CHECKING:
    from noosphere.client import (
        CandidateState,
        Client,
        ExtractionJob,
        FactDecision,
        ForgetReport,
        SourceDocument,
    )

app = typer.Typer()

_DOCUMENT_BYTES_MAX = 512 * 1024
_WAIT_SECONDS = 60.0
_LISTED_MAX = 20

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]


@app.command()
def forget(
    ctx: typer.Context,
    fact: Annotated[str | None, typer.Argument(metavar="FACT", help="This fact.", show_default=False)] = None,
    query: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What a search for this finds, of one owner.")
    ] = None,
    producer: Annotated[str | None, typer.Option(metavar="NAME", help="All that came from this producer.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of the owner's facts in the scope.")] = False,
    owner: Annotated[str | None, typer.Option(metavar="OWNER", help="Whose facts, e.g. user/42.")] = None,
    scope: Annotated[str, typer.Option(metavar="SCOPE", help="In which scope. [default: the owner's own]")] = "",
    dry_run: DryRunOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Remove facts for good wherever their words are, and block their learning from the same evidence.

    JSON: Forgotten. New evidence teaches them again.
    """
    options = common(ctx, server, as_json, agent, timeout)
    if sum((fact is not None, query is not None, producer is not None, all_)) != 1:
        raise usage("give one of FACT, --query, --producer and --all")
    if owner is None and (query is not None or all_):
        raise usage(f"--owner is needed with {'--query' if query is not None else '--all'}, e.g. --owner user/42")

    async def change(*, dry: bool) -> ForgetReport:
        async with connected(options) as client:
            return await client.facts.forget(
                fact, query=query, producer=producer, everything=all_, owner=owner, scope=scope, dry_run=dry
            )

    if not dry_run and not yes:
        if not sys.stdin.isatty():
            raise usage("facts forget asks before it removes; where there is no terminal to ask on, give --yes")
        if not options.as_json:
            _print_report(call(change(dry=True)))
        typer.confirm("Forget this for good?", abort=True, err=True)
    report = call(change(dry=dry_run))
    if options.as_json:
        print_json(forgotten_data(report))
    else:
        _print_report(report)


@app.command()
def review(
    ctx: typer.Context,
    candidate: Annotated[
        str,
        typer.Argument(metavar="CANDIDATE", help="Its id, as `facts candidates` shows it.", show_default=False),
    ],
    verdict: Annotated[
        Literal["accept", "reject"],
        typer.Argument(help="It goes on through the pipeline, or is turned down.", show_default=False),
    ],
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Decide about a candidate that was kept apart or refused. JSON: FactDecision."""
    options = common(ctx, server, as_json, agent, timeout)

    async def write() -> FactDecision:
        async with connected(options) as client:
            return await client.facts.review(candidate, accept=verdict == "accept")

    done = call(write())
    if options.as_json:
        print_json(decision_data(done))
        return
    print_line(done.status + (f", {done.fact_id} v{done.version}" if done.fact_id else ""))
    for reason in done.reasons:
        print_line(f"{reason.step}: {reason.explanation}")


@app.command()
def extract(
    ctx: typer.Context,
    owner: Annotated[str, typer.Option(metavar="OWNER", help="Whose facts, e.g. user/42.")],
    session: Annotated[
        str | None, typer.Option(metavar="SESSION", help="From what was said there since the last extraction.")
    ] = None,
    document: Annotated[
        Path | None,
        path_option(
            "--document",
            metavar="FILE",
            help="From this text; its facts are not trusted. Needs a model: rules listen to users only.",
        ),
    ] = None,
    document_id: Annotated[
        str, typer.Option(metavar="ID", help="The document's id, as evidence. [default: the file's name]")
    ] = "",
    scope: Annotated[str, typer.Option(metavar="SCOPE", help="Where they are valid. [default: the owner's own]")] = "",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait for the end; `facts job` tells it.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Extract candidates from a session or a document, and wait until they are decided. JSON: Extraction.

    It waits for 60 s at most, or --timeout.
    """
    options = common(ctx, server, as_json, agent, timeout)
    if (session is None) == (document is None):
        raise usage("give one of --session and --document")
    source: SourceDocument | str = session if session is not None else _document(document, document_id)
    patience = options.timeout if options.timeout is not None or no_wait else _WAIT_SECONDS

    async def write() -> tuple[ExtractionJob, list[CandidateState]]:
        async with connected(options) as client:
            job = await client.facts.extract(source, owner=owner, scope=scope, wait=not no_wait, timeout=patience)
            return job, await _found(client, options, job)

    _print_job(options, *call(write()))


@app.command()
def job(
    ctx: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The extraction's id.", show_default=False)],
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show where an extraction stands. JSON: Extraction."""
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> tuple[ExtractionJob, list[CandidateState]]:
        async with connected(options) as client:
            job = await client.facts.extraction(job_id)
            return job, await _found(client, options, job)

    _print_job(options, *call(read()))


async def _found(client: Client, options: Common, job: ExtractionJob) -> list[CandidateState]:
    """Reads what became of the first candidates of an extraction, for people."""
    from noosphere.client import EntryNotFound

    found: list[CandidateState] = []
    for candidate_id in () if options.as_json else job.candidate_ids[:_LISTED_MAX]:
        try:
            found.append(await client.facts.candidate(candidate_id))
        except EntryNotFound:
            # Decisions are not kept for ever; what is left is told.
            continue
    return found


def _print_report(report: ForgetReport) -> None:
    count = len(report.fact_ids)
    verb = "would be forgotten" if report.dry_run else "forgotten"
    print_line(f"{count} {'fact' if count == 1 else 'facts'} {verb}")
    for fact_id in report.fact_ids[:_LISTED_MAX]:
        print_line(f"  {fact_id}")
    if count > _LISTED_MAX:
        print_line(f"  and {count - _LISTED_MAX} more (--json lists them)")
    rows = [(place.replace("_", " "), entries) for place, entries in report.places.items() if entries]
    print_table(("PLACE", "ENTRIES"), rows, empty="no place holds anything of it")
    for text in report.remaining:
        print_line(f"may still hold it: {text}")


def _print_job(options: Common, job: ExtractionJob, found: list[CandidateState]) -> None:
    if options.as_json:
        print_json(extraction_data(job))
    else:
        print_fields(
            {
                "job": job.id,
                "state": job.state + (f": {job.failure}" if job.failure else ""),
                "extractor": job.extractor or "-",
                "attempts": job.attempts,
                "model tokens": job.model_tokens,
                "candidates": len(job.candidate_ids),
            }
        )
        if job.candidate_ids:
            print_line("")
            print_table(CANDIDATE_COLUMNS, [candidate_row(state) for state in found], empty="")
        if len(job.candidate_ids) > _LISTED_MAX:
            print_line(f"and {len(job.candidate_ids) - _LISTED_MAX} more: `facts candidates`")
    if job.state == "failed":
        raise typer.Exit(ExitCode.REFUSED)


def _document(path: Path | None, document_id: str) -> SourceDocument:
    from noosphere.client import SourceDocument

    assert path is not None
    try:
        with path.open("rb") as stream:
            data = stream.read(_DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise usage(f"--document: {path}: cannot be read: {error.strerror}") from None
    if len(data) > _DOCUMENT_BYTES_MAX:
        raise usage(f"--document: {path}: is larger than {_DOCUMENT_BYTES_MAX} bytes")
    try:
        return SourceDocument(document_id or path.name, data.decode())
    except UnicodeDecodeError as error:
        raise usage(f"--document: {path}: is not UTF-8 ({error})") from None
