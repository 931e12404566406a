"""Contexts: proto messages to domain values and back."""

from __future__ import annotations

from collections.abc import Iterable

from noosphere.consistency import encode_causal, encode_read_set, invalid
from noosphere.v1 import context_service_pb2 as pb
from noosphere.v1 import types_pb2

from ..context.asked import Asked
from ..context.candidates import Evidence
from ..context.manifests import Manifest
from ..context.recipe import DEFAULT_RECIPE, Recipe, SectionRule, section_kind
from ..context.replies import ContextReply
from ..context.request import SectionUse
from ..context.shapes import Tool
from ..context.types import Form
from ..memory.types import Call
from ..sessions.keys import namespace_of
from .times import timestamp


def asked(message: pb.AssembleContextRequest) -> Asked:
    """Returns what is asked for; limits are checked by the service.

    Raises:
        Refusal: INVALID_FIELD.
    """
    return Asked(
        session_id=message.session_id,
        input=message.input,
        system=message.system,
        model=message.model,
        tokenizer=message.tokenizer,
        tokens=message.budget.tokens,
        window_tokens=message.budget.window_tokens,
        reserve_output_tokens=message.budget.reserve_output_tokens,
        recipe=recipe(message.recipe, "recipe") if message.HasField("recipe") else DEFAULT_RECIPE,
        evidence=_evidence(message.evidence),
        tools=tuple(Tool(tool.name, tool.description, tool.parameters) for tool in message.tools),
        subagents=_evidence(message.subagents),
        notes=tuple(message.notes),
        guard=tuple(message.guard),
        guard_transcript=message.guard_transcript,
        fact_owners=tuple(message.fact_owners),
        fact_query=message.fact_query,
        evidence_stays=message.evidence_stays,
    )


def _evidence(messages: Iterable[pb.Evidence]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(one.id, one.text, one.source, one.trust, one.relevance, one.carried_from, one.carried_revision)
        for one in messages
    )


def recipe(message: pb.Recipe, field: str) -> Recipe:
    """Returns a recipe; its rules are checked by the service.

    Raises:
        Refusal: INVALID_FIELD for sections and forms that do not exist.
    """
    return Recipe(
        message.name,
        tuple(_rule(rule, f"{field}.sections[{index}]") for index, rule in enumerate(message.sections)),
        message.trust_min,
        message.facts_max,
    )


def _rule(message: pb.SectionRule, field: str) -> SectionRule:
    try:
        form = Form(message.form)
    except ValueError:
        names = ", ".join(f"{form.value} = {form.name}" for form in Form)
        raise invalid(f"{field}.form", f"{message.form} is no form; forms are {names}") from None
    kind = section_kind(message.kind, f"{field}.kind")
    return SectionRule(kind, message.share, message.tokens_min, message.tokens_max, message.priority, form)


def assembled(call: Call, session_id: str, reply: ContextReply) -> pb.AssembleContextResponse:
    """Returns a context."""
    shapes, manifest = reply.shapes, reply.manifest
    tokens = call.tokens
    causal = b""
    if tokens is not None and tokens.want_causal:
        causal = encode_causal(tokens.causal.seen(namespace_of(session_id), reply.head))
    return pb.AssembleContextResponse(
        context_id=manifest.context_id,
        sections=map(_section, reply.assembled.sections),
        messages=pb.RenderedMessages(
            openai=shapes.openai,
            anthropic=shapes.anthropic,
            openai_tools=shapes.openai_tools,
            anthropic_tools=shapes.anthropic_tools,
        ),
        manifest=manifest_message(manifest),
        utilization=manifest.utilization,
        head=reply.head,
        # Always: a decision that is made with a context can be committed against it.
        call=types_pb2.CallReply(read_set_token=encode_read_set(reply.read_set), causal_token=causal),
    )


def _section(use: SectionUse) -> pb.Section:
    return pb.Section(
        kind=use.kind.value,  # type: ignore[arg-type] # the numbers are the same
        tokens_used=use.tokens_used,
        tokens_max=use.tokens_max,
        text=use.text,
    )


def manifest_message(manifest: Manifest) -> pb.Manifest:
    """Returns a manifest."""
    entries = [
        pb.ManifestEntry(
            id=entry.id,
            section=int(entry.section),  # type: ignore[arg-type] # the numbers are the same
            fate=int(entry.fate),  # type: ignore[arg-type] # the numbers are the same
            reason=entry.reason,
            source=entry.source,
            version=entry.version,
            tokens=entry.tokens,
            tokens_full=entry.tokens_full,
            trust=entry.trust,
            relevance=entry.relevance,
            carried_from=entry.carried_from,
            late=entry.late,
            changed=entry.changed,
        )
        for entry in manifest.entries
    ]
    return pb.Manifest(
        context_id=manifest.context_id,
        session_id=manifest.session_id,
        create_time=timestamp(manifest.created_ms),
        author=manifest.author,
        turn=manifest.turn,
        recipe=manifest.recipe,
        tokenizer=manifest.tokenizer,
        exact=manifest.exact,
        tokens_max=manifest.tokens_max,
        tokens_used=manifest.tokens_used,
        sections=[
            pb.Section(kind=one.kind, tokens_used=one.tokens_used, tokens_max=one.tokens_max)  # type: ignore[arg-type]
            for one in manifest.sections
        ],
        entries=entries,
        warnings=manifest.warnings,
        revision=manifest.revision,
        used=manifest.used,
    )
