"""Protobuf ⇄ what contexts are made of. No I/O and no decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from noosphere.v1 import context_service_pb2 as pb

from ._arguments import checked_text, shown
from ._context_data import (
    ContextPlan,
    EntryFate,
    Evidence,
    Manifest,
    ManifestEntry,
    Recipe,
    Section,
    SectionForm,
    SectionKind,
    SectionRule,
    ToolSchema,
)
from ._errors import InvalidArgument
from ._session_wire import name_of, number_of, whole
from ._stale import Notes
from ._values import dump_json
from ._wire import to_time

SECTIONS: Mapping[SectionKind, pb.SectionKind.ValueType] = {
    "system": pb.SECTION_KIND_SYSTEM,
    "tools": pb.SECTION_KIND_TOOLS,
    "profile": pb.SECTION_KIND_PROFILE,
    "task": pb.SECTION_KIND_TASK,
    "summary": pb.SECTION_KIND_SUMMARY,
    "subagents": pb.SECTION_KIND_SUBAGENTS,
    "working": pb.SECTION_KIND_WORKING,
    "transcript": pb.SECTION_KIND_TRANSCRIPT,
    "facts": pb.SECTION_KIND_FACTS,
    "evidence": pb.SECTION_KIND_EVIDENCE,
    "tool_results": pb.SECTION_KIND_TOOL_RESULTS,
    "input": pb.SECTION_KIND_INPUT,
}
_FORMS: Mapping[SectionForm, pb.SectionForm.ValueType] = {
    "default": pb.SECTION_FORM_UNSPECIFIED,
    "full": pb.SECTION_FORM_FULL,
    "summary": pb.SECTION_FORM_SUMMARY,
    "json": pb.SECTION_FORM_JSON,
    "yaml": pb.SECTION_FORM_YAML,
}
_FATES: Mapping[EntryFate, int] = {
    "included": pb.ENTRY_FATE_INCLUDED,
    "shortened": pb.ENTRY_FATE_SHORTENED,
    "dropped": pb.ENTRY_FATE_DROPPED,
}

Note = str | Mapping[str, Any] | Notes
"""A note for one attempt: a text, a chat message whose content it is, or what an earlier attempt was refused for."""

Tool = ToolSchema | Mapping[str, Any] | BaseModel
"""The schema of a tool: our own, or in OpenAI's or Anthropic's shape."""


def from_recipe(recipe: Recipe | None) -> pb.Recipe | None:
    """Returns a recipe as sent; what it allows is for the server to judge.

    Raises:
        InvalidArgument: something in it is of the wrong kind.
    """
    if recipe is None:
        return None
    if not isinstance(recipe, Recipe):
        raise InvalidArgument(f"recipe: {shown(recipe)} is {type(recipe).__name__}, not a Recipe")
    return pb.Recipe(
        name=checked_text("recipe.name", recipe.name),
        sections=[_rule(rule, f"recipe.sections[{index}]") for index, rule in enumerate(recipe.sections)],
        trust_min=number("recipe.trust_min", recipe.trust_min),
        facts_max=whole("recipe.facts_max", recipe.facts_max),
    )


def _rule(rule: SectionRule, field: str) -> pb.SectionRule:
    if not isinstance(rule, SectionRule):
        raise InvalidArgument(f"{field}: {shown(rule)} is {type(rule).__name__}, not a SectionRule")
    return pb.SectionRule(
        kind=number_of(f"{field}.kind", rule.kind, SECTIONS),
        share=number(f"{field}.share", rule.share),
        tokens_min=whole(f"{field}.tokens_min", rule.tokens_min),
        tokens_max=whole(f"{field}.tokens_max", rule.tokens_max),
        priority=whole(f"{field}.priority", rule.priority),
        form=number_of(f"{field}.form", rule.form, _FORMS),
    )


def from_evidence(field: str, evidence: Sequence[Evidence | str], *, numbered: bool = True) -> list[pb.Evidence]:
    """Returns evidence as sent; without an id it is known by its number, from 1, or has none yet.

    Raises:
        InvalidArgument: something in it is of the wrong kind.
    """
    found = []
    for index, one in enumerate(several(field, evidence)):
        where = f"{field}[{index}]"
        if isinstance(one, str):
            one = Evidence(one)
        if not isinstance(one, Evidence):
            raise InvalidArgument(f"{where}: {shown(one)} is {type(one).__name__}, neither Evidence nor text")
        found.append(
            pb.Evidence(
                id=checked_text(f"{where}.id", one.id) or (str(index + 1) if numbered else ""),
                text=checked_text(f"{where}.text", one.text),
                source=checked_text(f"{where}.source", one.source),
                trust=number(f"{where}.trust", one.trust),
                relevance=number(f"{where}.relevance", one.relevance),
            )
        )
    return found


def from_tools(tools: Sequence[Tool]) -> list[pb.ToolSchema]:
    """Returns schemas of tools as sent.

    Raises:
        InvalidArgument: one is of no shape that is known.
    """
    return [_tool(tool, f"tools[{index}]") for index, tool in enumerate(several("tools", tools))]


def _tool(tool: Tool, field: str) -> pb.ToolSchema:
    if isinstance(tool, BaseModel):
        tool = tool.model_dump(exclude_none=True)
    if isinstance(tool, Mapping):
        given = tool.get("function", tool)
        if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
            raise InvalidArgument(f"{field}: {shown(dict(tool))} has no name; give it as a function with a name")
        schema = given.get("parameters", given.get("input_schema"))
        parameters = "" if schema is None else dump_json(schema, f"{field}.parameters").decode()
        tool = ToolSchema(given["name"], given.get("description") or "", parameters)
    if not isinstance(tool, ToolSchema):
        raise InvalidArgument(f"{field}: {shown(tool)} is {type(tool).__name__}, not a schema of a tool")
    return pb.ToolSchema(
        name=checked_text(f"{field}.name", tool.name),
        description=checked_text(f"{field}.description", tool.description),
        parameters=checked_text(f"{field}.parameters", tool.parameters),
    )


def from_notes(notes: Sequence[Note]) -> list[str]:
    """Returns notes as sent; empty ones are left out.

    Raises:
        InvalidArgument: one is neither a text, nor a chat message, nor notes.
    """
    found = []
    for index, note in enumerate(several("notes", notes)):
        if isinstance(note, Notes):
            note = note.explain()
        elif isinstance(note, Mapping):
            note = note.get("content", note)
        if not isinstance(note, str):
            raise InvalidArgument(f"notes[{index}]: {shown(note)} is {type(note).__name__}, neither text nor a message")
        if note:
            found.append(checked_text(f"notes[{index}]", note))
    return found


def to_plan(reply: pb.PlanContextResponse) -> ContextPlan:
    """Returns how a budget is split."""
    return ContextPlan(tuple(map(to_section, reply.sections)), reply.tokens_max)


def to_section(section: pb.Section) -> Section:
    """Returns a section."""
    return Section(name_of(section.kind, SECTIONS, "working"), section.tokens_used, section.tokens_max, section.text)


def to_manifest(manifest: pb.Manifest) -> Manifest:
    """Returns a manifest."""
    return Manifest(
        manifest.context_id,
        manifest.session_id,
        to_time(manifest.create_time),
        manifest.author,
        manifest.turn,
        manifest.recipe,
        manifest.tokenizer,
        manifest.exact,
        manifest.tokens_max,
        manifest.tokens_used,
        tuple(map(to_section, manifest.sections)),
        tuple(_entry(entry) for entry in manifest.entries),
        tuple(manifest.warnings),
        manifest.revision,
        tuple(manifest.used),
    )


def _entry(entry: pb.ManifestEntry) -> ManifestEntry:
    return ManifestEntry(
        entry.id,
        name_of(entry.section, SECTIONS, "working"),
        name_of(entry.fate, _FATES, "dropped"),
        entry.reason,
        entry.source,
        entry.version,
        entry.tokens,
        entry.tokens_full,
        entry.trust,
        entry.relevance,
        entry.carried_from,
        entry.late,
        tuple(entry.changed),
    )


def several(field: str, values: Sequence[Any]) -> Sequence[Any]:
    """Returns what are several values.

    Raises:
        InvalidArgument: it is one, or none of the kind.
    """
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Sequence):
        raise InvalidArgument(f"{field}: {shown(values)} is {type(values).__name__}, not several")
    return values


def number(field: str, value: float) -> float:
    """Returns a number; its bounds are for the server to judge.

    Raises:
        InvalidArgument: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidArgument(f"{field}: {shown(value)} is {type(value).__name__}, not a number")
    return float(value)


def loaded(text: str) -> Any:
    """Returns what a rendered text of the server's holds, a fresh object each time."""
    return json.loads(text)
