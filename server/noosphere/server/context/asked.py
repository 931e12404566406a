"""What a caller asks for, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from noosphere.consistency import REVISION_MAX, check_collection, check_key, invalid, too_large

from ..facts.scopes import check_owner
from ..sessions.keys import OWN, check_entry_id
from .candidates import Evidence
from .json_text import read_json
from .recipe import DEFAULT_RECIPE, Recipe, check_recipe
from .rendering import safe_name
from .shapes import Tool

EVIDENCE_MAX = 200
TOOLS_MAX = 128
SUBAGENTS_MAX = 50
NOTES_MAX = 8
GUARDS_MAX = 32
OWNERS_MAX = 8
NAME_BYTES_MAX = 256
REPORTED_MAX = 1_000


@dataclass(frozen=True)
class Asked:
    """A request for a context.

    Attributes:
        session_id: which session.
        input: the current input; empty if the newest message of the transcript is it.
        system: instructions for the system role.
        model: decides tokenizer and window where they are not given.
        tokenizer: the vocabulary; empty means the model's, else the session's.
        tokens: what the context may take; 0 leaves it to the window.
        window_tokens: the model's window; 0 means that of the model.
        reserve_output_tokens: kept free for the answer.
        recipe: what the context is made of.
        evidence: given by the caller.
        tools: the tools' schemas, the most important first.
        subagents: summaries by sub-agents.
        notes: for this attempt; data.
        guard: collections and keys of the session's namespace that the read set must cover.
        guard_transcript: whether it covers the transcript too.
        fact_owners: whose facts may be recalled; the first one's pinned facts are the profile.
        fact_query: what facts are searched by; empty means the current input.
        evidence_stays: whether the evidence will be given again, as carried.
    """

    session_id: str
    input: str = ""
    system: str = ""
    model: str = ""
    tokenizer: str = ""
    tokens: int = 0
    window_tokens: int = 0
    reserve_output_tokens: int = 0
    recipe: Recipe = DEFAULT_RECIPE
    evidence: tuple[Evidence, ...] = ()
    tools: tuple[Tool, ...] = ()
    subagents: tuple[Evidence, ...] = ()
    notes: tuple[str, ...] = ()
    guard: tuple[str, ...] = ()
    guard_transcript: bool = False
    fact_owners: tuple[str, ...] = ()
    fact_query: str = ""
    evidence_stays: bool = False

    @property
    def guarded_keys(self) -> tuple[str, ...]:
        """The guards that are keys."""
        return tuple(name for name in self.guard if not name.endswith("/"))

    @property
    def guarded_collections(self) -> tuple[str, ...]:
        """The guards that are collections."""
        return tuple(name for name in self.guard if name.endswith("/"))


def check_asked(asked: Asked) -> None:
    """Checks everything that needs no session.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE, naming field, value and limit.
    """
    check_recipe(asked.recipe)
    for field, count, limit in (
        ("evidence", len(asked.evidence), EVIDENCE_MAX),
        ("tools", len(asked.tools), TOOLS_MAX),
        ("subagents", len(asked.subagents), SUBAGENTS_MAX),
        ("notes", len(asked.notes), NOTES_MAX),
        ("guard", len(asked.guard), GUARDS_MAX),
        ("fact_owners", len(asked.fact_owners), OWNERS_MAX),
    ):
        if count > limit:
            raise too_large(field, count, limit, "entries")
    _check_evidence(asked.evidence, "evidence")
    _check_evidence(asked.subagents, "subagents")
    for index, one in enumerate(asked.subagents):
        if one.carried_from:
            raise invalid(f"subagents[{index}].carried_from", f"{one.carried_from!r}: only evidence is carried")
    _check_tools(asked.tools)
    for index, name in enumerate(asked.guard):
        _check_guard(name, f"guard[{index}]")
    for index, owner in enumerate(asked.fact_owners):
        check_owner(owner, f"fact_owners[{index}]")
    for field, text in (("model", asked.model), ("tokenizer", asked.tokenizer)):
        if (size := len(text.encode())) > NAME_BYTES_MAX:
            raise too_large(field, size, NAME_BYTES_MAX)


def _check_evidence(evidence: tuple[Evidence, ...], field: str) -> None:
    seen: set[tuple[str, bool]] = set()
    for index, one in enumerate(evidence):
        check_entry_id(one.id, f"{field}[{index}].id")
        # A carried piece gives way to a fresh one of the same id; two of a kind would be anybody's guess.
        if (one.id, bool(one.carried_from)) in seen:
            raise invalid(f"{field}[{index}].id", f"{one.id!r} is there twice")
        seen.add((one.id, bool(one.carried_from)))
        if one.carried_from:
            check_entry_id(one.carried_from, f"{field}[{index}].carried_from")
        if one.carried_revision and not one.carried_from:
            raise invalid(f"{field}[{index}].carried_revision", "is given without carried_from")
        if one.carried_revision > REVISION_MAX:
            raise invalid(f"{field}[{index}].carried_revision", f"{one.carried_revision} is above {REVISION_MAX}")
        for name, value in (("trust", one.trust), ("relevance", one.relevance)):
            if not 0 <= value <= 1:
                raise invalid(f"{field}[{index}].{name}", f"{value:g} is not between 0 and 1")


def _check_tools(tools: tuple[Tool, ...]) -> None:
    seen: dict[str, str] = {}
    for index, tool in enumerate(tools):
        check_entry_id(tool.name, f"tools[{index}].name")
        # Providers refuse a list that names two tools alike, and nobody could tell which one a model meant.
        other = seen.setdefault(safe_name(tool.name), tool.name)
        if other != tool.name:
            both = f"both are {safe_name(tool.name)!r} in the characters that providers take"
            raise invalid(f"tools[{index}].name", f"{tool.name!r} cannot stand beside {other!r}: {both}")
        if len(seen) <= index:
            raise invalid(f"tools[{index}].name", f"{tool.name!r} is there twice")
        schema = read_json(f"tools[{index}].parameters", tool.parameters) if tool.parameters else {}
        if not isinstance(schema, dict):
            raise invalid(f"tools[{index}].parameters", "is JSON, but no object, as a JSON Schema is")
        if (kind := schema.get("type", "object")) != "object":
            raise invalid(f"tools[{index}].parameters", f"has the type {kind!r}; arguments are an 'object'")


def _check_guard(name: str, field: str) -> None:
    if name.startswith(OWN):
        raise invalid(field, f"{name!r} is kept by the SessionService; guard_transcript guards the transcript")
    if name.endswith("/"):
        check_collection(name, field)
    else:
        check_key(name, field)
