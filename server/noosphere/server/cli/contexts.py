"""`noosphere context explain`: what went into a context, what was left out, and why."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from .common import AgentOption, JsonOption, ServerOption, TimeoutOption, common
from .output import print_fields, print_json, print_line, print_table
from .session import call
from .sessions import SessionArgument, existing
from .views import time_text

if TYPE_CHECKING:
    from noosphere.client import Manifest, ManifestEntry

    from .session_shapes import ManifestShape

app = typer.Typer(help="Contexts: what a model call got to see.")

_BAR_CHARS = 24
_DROPPED_MAX = 20


@app.callback()
def _group() -> None:
    """Contexts: what a model call got to see."""


@app.command()
def explain(
    ctx: typer.Context,
    session: SessionArgument,
    context: Annotated[
        str,
        typer.Argument(metavar="CONTEXT", help="The context's id. [default: the session's newest]", show_default=False),
    ] = "",
    all_: Annotated[bool, typer.Option("--all", help="Also list all that was left out for want of room.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Show what went into a context, what was left out, and why. JSON: Manifest.

    Each section has a bar: what went in, and what was left out. Ids and sizes only: the texts are nowhere kept.
    """
    options = common(ctx, server, as_json, agent, timeout)

    async def read() -> Manifest:
        async with existing(options, session) as opened:
            return await opened.explain(context)

    manifest = call(read())
    if options.as_json:
        print_json(manifest_data(manifest))
    else:
        print_manifest(manifest, every=all_)


def left_out(manifest: Manifest) -> Counter[str]:
    """Returns by section how many tokens of its candidates did not go in."""
    found: Counter[str] = Counter()
    for entry in manifest.entries:
        if entry.fate != "included":
            found[entry.section] += max(entry.tokens_full - entry.tokens, 0)
    return found


def manifest_data(manifest: Manifest) -> ManifestShape:
    """Returns a manifest."""
    missing = left_out(manifest)
    return {
        "context_id": manifest.context_id,
        "session": manifest.session_id,
        "create_time": time_text(manifest.time),
        "author": manifest.author,
        "turn": manifest.turn,
        "recipe": manifest.recipe,
        "tokenizer": manifest.tokenizer,
        "exact": manifest.exact,
        "tokens_used": manifest.tokens_used,
        "tokens_max": manifest.tokens_max,
        "revision": str(manifest.revision),
        "sections": [
            {
                "kind": section.kind,
                "tokens_used": section.tokens_used,
                "tokens_max": section.tokens_max,
                "tokens_left_out": missing[section.kind],
            }
            for section in manifest.sections
        ],
        "entries": [
            {
                "id": entry.id,
                "section": entry.section,
                "fate": entry.fate,
                "reason": entry.reason,
                "source": entry.source,
                "version": str(entry.version),
                "tokens": entry.tokens,
                "tokens_full": entry.tokens_full,
                "trust": entry.trust,
                "relevance": entry.relevance,
                "carried_from": entry.carried_from,
                "late": entry.late,
                "changed": list(entry.changed),
            }
            for entry in manifest.entries
        ],
        "warnings": list(manifest.warnings),
        "used": list(manifest.used),
    }


def print_manifest(manifest: Manifest, *, every: bool = False) -> None:
    """Prints a manifest for people.

    Args:
        manifest: the manifest.
        every: also list more than the first of what was left out.
    """
    share = manifest.tokens_used / manifest.tokens_max if manifest.tokens_max else 0
    counted = manifest.tokenizer + ("" if manifest.exact else ", an estimate")
    print_fields(
        {
            "context": manifest.context_id,
            "session": f"{manifest.session_id}, turn {manifest.turn}, for {manifest.author}",
            "assembled": time_text(manifest.time),
            "recipe": f"{manifest.recipe}, counted by {counted}",
            "tokens": f"{manifest.tokens_used} of {manifest.tokens_max} ({share:.0%})",
            "warnings": ", ".join(manifest.warnings) or "-",
        }
    )
    print_line("")
    _print_sections(manifest)
    print_line("")
    _print_entries(manifest, every)


def _print_sections(manifest: Manifest) -> None:
    missing = left_out(manifest)
    largest = max((s.tokens_used + missing[s.kind] for s in manifest.sections), default=0)
    rows = [
        (s.kind, s.tokens_used, s.tokens_max, missing[s.kind] or "-", _bar(s.tokens_used, missing[s.kind], largest))
        for s in manifest.sections
        if s.tokens_used or missing[s.kind]
    ]
    # What a section without anything to show is allowed is held for the turn's steps, so nobody else has it.
    silent = [
        f"{s.kind} ({s.tokens_max} kept free)" if s.tokens_max else s.kind
        for s in manifest.sections
        if not s.tokens_used and not missing[s.kind]
    ]
    print_table(("SECTION", "IN", "ALLOWED", "LEFT OUT", "TOKENS"), rows, empty="nothing went in")
    if silent:
        print_line(f"nothing to show for {', '.join(silent)}")


def _print_entries(manifest: Manifest, every: bool) -> None:
    order = {section.kind: index for index, section in enumerate(manifest.sections)}
    entries = sorted(manifest.entries, key=lambda entry: order.get(entry.section, len(order)))
    used = set(manifest.used)
    rows: list[tuple[object, ...]] = []
    hidden = 0
    shown: Counter[str] = Counter()
    for entry in entries:
        if entry.fate == "dropped":
            shown[entry.section] += 1
            if shown[entry.section] > _DROPPED_MAX and not every:
                hidden += 1
                continue
        # Of what stands in the text of its section the tokens are the section's.
        whole = entry.fate == "included" or entry.tokens == entry.tokens_full
        size = f"{entry.tokens or entry.tokens_full}" if whole else f"{entry.tokens} of {entry.tokens_full}"
        mark = " (used)" if entry.id in used else ""
        rows.append((entry.section, entry.fate, size, entry.id + mark, _why(entry)))
    print_table(("SECTION", "FATE", "TOKENS", "WHAT", "WHY"), rows, empty="no candidates")
    if hidden:
        print_line(f"{hidden} more were left out (--all lists them)")


def _why(entry: ManifestEntry) -> str:
    """Returns the reason in words, and what else is to be known of carried evidence and of late results."""
    words = [entry.reason.replace("_", " ")]
    if entry.late:
        words.append(f"late: {', '.join(entry.changed)} changed" if entry.changed else "late: overdue")
    if entry.carried_from:
        words.append(f"carried from {entry.carried_from}")
    return ", ".join(words)


def _bar(used: int, missing: int, largest: int) -> str:
    """Returns a bar: what went in, then what was left out; any of it shows."""
    full, light = _glyphs()
    filled = _chars(used, largest)
    return full * filled + light * min(_chars(missing, largest), _BAR_CHARS - filled)


def _chars(tokens: int, largest: int) -> int:
    return max(1, round(tokens / largest * _BAR_CHARS)) if tokens else 0


def _glyphs() -> tuple[str, str]:
    try:
        "█░".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "#", "."
    return "█", "░"
