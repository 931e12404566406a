"""`noosphere facts export` and `import`: facts as JSON lines."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from .common import AgentOption, Common, JsonOption, ServerOption, TimeoutOption, common
from .exits import usage
from .facts import MemoryTypeName, ScopeArgument
from .facts_views import decision_data, fact_data, last_reason
from .output import print_json, print_line, print_table
from .session import call, connected
from .session_views import cell
from .values import parse_time

if TYPE_CHECKING:
    from noosphere.client import Candidate, FactDecision

    from .facts_shapes import ImportedShape

app = typer.Typer()

_BATCH = 100
_LINE_BYTES_MAX = 64 * 1024
_FACTS_MAX = 1_000_000
_REFUSED_MAX = 1_000
_SHOWN_MAX = 20
_PRODUCER = "import/1"


@app.command()
def export(
    ctx: typer.Context,
    scope: ScopeArgument,
    owner: Annotated[str, typer.Option(metavar="OWNER", help="Only this owner's.")] = "",
    superseded: Annotated[bool, typer.Option("--superseded", help="Also what was superseded.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Print the facts of a scope as JSON lines, for `facts import`: a Fact per line, with or without --json.

    What is written while it runs may be missing.
    """
    options = common(ctx, server, as_json, agent, timeout)

    async def run() -> None:
        async with connected(options) as client:
            listed = client.facts.list(scope, owner=owner, include_superseded=superseded, page_size=1_000)
            async for fact in listed:
                print_json(fact_data(fact))

    call(run())


@app.command("import")
def import_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines as `facts export` prints them; - for stdin.")],
    owner: Annotated[
        str, typer.Option(metavar="OWNER", help="Whose facts they become. [default: as each line says]")
    ] = "",
    scope: Annotated[
        str, typer.Option(metavar="SCOPE", help="Where they are valid. [default: as each line says]")
    ] = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Propose exported facts anew: each goes through the pipeline, with the trust that it had. JSON: Imported.

    For operators. A line needs text and owner; of the other fields of a Fact, those that make it one. What is known
    already is merged, so a file may be imported again. Lines of what was superseded are skipped. Nothing is proposed
    if a line is malformed.
    """
    options = common(ctx, server, as_json, agent, timeout)
    found, skipped = _read(file, owner, scope)
    decisions = call(_propose(options, found))
    counts = Counter(decision.status for decision in decisions)
    refused = [decision for decision in decisions if not decision.known]
    if options.as_json:
        document: ImportedShape = {
            "read": len(found) + skipped,
            "skipped": skipped,
            "statuses": dict(sorted(counts.items())),
            "refused": [decision_data(decision) for decision in refused[:_REFUSED_MAX]],
        }
        print_json(document)
        return
    became = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "nothing to import"
    print_line(f"{len(found) + skipped} read: {became}" + (f", {skipped} skipped" if skipped else ""))
    if refused:
        rows = [(one.candidate_id, one.status, cell(last_reason(one), 80)) for one in refused[:_SHOWN_MAX]]
        print_table(("CANDIDATE", "STATUS", "WHY"), rows, empty="")
        if len(refused) > _SHOWN_MAX:
            print_line(f"and {len(refused) - _SHOWN_MAX} more (`facts candidates` lists them)")


async def _propose(options: Common, found: list[Candidate]) -> list[FactDecision]:
    decisions: list[FactDecision] = []
    async with connected(options) as client:
        for _, of_scope in groupby(found, key=lambda candidate: candidate.scope):
            waiting = iter(of_scope)
            while batch := tuple(islice(waiting, _BATCH)):
                decisions += await client.facts.remember_many(*batch)
    return decisions


def _read(file: str, owner: str, scope: str) -> tuple[list[Candidate], int]:
    """Reads a file as candidates, in the order of their scopes; also returns how many lines were left out."""
    found: list[Candidate] = []
    skipped = 0
    with _opened(file) as stream:
        for number, line in enumerate(_lines(stream, file), 1):
            if not line.strip():
                continue
            where = f"{file}:{number}"
            document = _document(line, where)
            if document.get("superseded_by") or document.get("valid_to"):
                skipped += 1
                continue
            found.append(_candidate(document, where, owner, scope))
            if len(found) > _FACTS_MAX:
                raise usage(f"{where}: has more than {_FACTS_MAX} facts; split it")
    return sorted(found, key=lambda candidate: candidate.scope), skipped


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as stream:
            yield stream
    except (OSError, ValueError) as error:
        raise usage(f"FILE: {file}: cannot be read: {getattr(error, 'strerror', error)}") from None


def _lines(stream: IO[bytes], file: str) -> Iterator[bytes]:
    number = 0
    while line := stream.readline(_LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > _LINE_BYTES_MAX:
            raise usage(f"{file}:{number}: is longer than {_LINE_BYTES_MAX} bytes")
        yield line


def _document(line: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise usage(f"{where}: is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise usage(f"{where}: is not a JSON object")
    return document


def _candidate(document: dict[str, Any], where: str, owner: str, scope: str) -> Candidate:
    from noosphere.client import Candidate, FactEvidence

    def text(name: str) -> str:
        value = document.get(name)
        if value is not None and not isinstance(value, str):
            raise usage(f"{where}: {name}: {value!r} is not a text")
        return value or ""

    def share(name: str) -> float | None:
        value = document.get(name)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1
        ):
            raise usage(f"{where}: {name}: {value!r} is not a number from 0 to 1")
        return value

    def moment(name: str) -> datetime | None:
        return parse_time(text(name) or None, f"{where}: {name}")

    whose = owner or text("owner")
    if not text("text").strip():
        raise usage(f"{where}: text: is missing")
    if not whose:
        raise usage(f"{where}: owner: is missing (--owner names one for all lines)")
    evidence = document.get("evidence") or []
    try:
        sources = [
            FactEvidence(one["reference"], one.get("quote") or "", bytes.fromhex(one.get("content_hash") or ""))
            for one in evidence
        ]
    except (TypeError, KeyError, ValueError, AttributeError):
        raise usage(f"{where}: evidence: is not an array of FactEvidence") from None
    if not sources:
        # Without a source of its own, each import would count as another and make it surer.
        named = text("id") or hashlib.sha256(f"{whose}\0{text('text')}".encode()).hexdigest()[:24]
        sources = [FactEvidence(f"doc:import/{named}")]
    memory_type: Any = text("memory_type") or "semantic"
    if memory_type not in set(MemoryTypeName):
        raise usage(f"{where}: memory_type: {memory_type!r} is not one of {', '.join(MemoryTypeName)}")
    return Candidate(
        text("text"),
        whose,
        subject=text("subject"),
        predicate=text("predicate"),
        object=document.get("object"),
        # Whose facts become somebody else's are not valid in that one's scope any more.
        scope=scope or (whose if owner else text("scope") or whose),
        memory_type=memory_type,
        said_by="internal",
        evidence=sources,
        confidence=share("confidence"),
        importance=share("importance"),
        claimed_trust=share("trust"),
        producer=text("producer") or _PRODUCER,
        valid_from=moment("valid_from"),
        expires_at=moment("expire_time"),
        pinned=document.get("pinned") is True,
    )
