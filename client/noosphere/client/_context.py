"""Contexts: what one model call gets to see of a session, and the way to write what was decided on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from noosphere.consistency import Guard
from noosphere.v1 import context_service_pb2 as pb
from noosphere.v1 import session_service_pb2

from ._arguments import checked_text
from ._budget import Budget
from ._context_carried import CarriedEvidence, checked_carry
from ._context_data import ContextPlan, Evidence, FindEvidence, Manifest, Recipe, Section, Usage
from ._context_wire import (
    Note,
    Tool,
    from_evidence,
    from_notes,
    from_recipe,
    from_tools,
    loaded,
    several,
    to_manifest,
    to_plan,
    to_section,
)
from ._messages import to_message
from ._operations import Operation
from ._readset import Readings
from ._session_link import Link
from ._session_wire import whole
from ._stale import Notes
from ._tool_call import ToolCall
from ._view import Decision, GuardMode, Terms, View

GUARDED = ("goals/", "task/")
"""Collections that every context guards."""
MESSAGES = "_session/messages/"
_ITEM = "item:"
_QUERY_MESSAGES = 20
"""So many of the newest messages are looked through for what the user asked last."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a context is asked for.

    Attributes:
        request: the request, without evidence that is yet to be found and without notes of earlier attempts.
        find: finds evidence.
        carry: to how many more steps evidence is carried.
        terms: on which terms what is decided with it is written.
    """

    request: pb.AssembleContextRequest
    find: FindEvidence | None
    carry: int
    terms: Terms


class Context:
    """What one model call gets to see; made by ``Session.context``.

    ::

        context = await session.context(input=question, model="gpt-4o", reserve_output=1024, guard=("plan/",))
        reply = await chat(context.openai())
        await context.commit(Append(reply), Put("plan/next", reply["content"]))

    It remembers what it has shown, so that what is decided with it is only written if that still holds: goals,
    task state and what ``guard`` names must not have changed, and a put or delete that says nothing about what it
    expects of its key replaces what was shown of it. Own writes through the context make it no staler.

    Attributes:
        notes: what made earlier attempts of ``decide`` fail; empty (and false) at first.
    """

    def __init__(
        self, link: Link, reply: pb.AssembleContextResponse, seen: Readings, terms: Terms, notes: Notes
    ) -> None:
        self._link = link
        self._reply = reply
        self._view = View(link.space, seen, terms, notes)
        self.notes: Notes = notes

    @property
    def id(self) -> str:
        """Its id, by which ``Session.explain`` finds it for 24 hours."""
        return self._reply.context_id

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._link.id

    @property
    def sections(self) -> tuple[Section, ...]:
        """The sections in order, with their texts."""
        return tuple(map(to_section, self._reply.sections))

    @property
    def manifest(self) -> Manifest:
        """What went in, what did not, and why."""
        return to_manifest(self._reply.manifest)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Words of warning, e.g. ``SUMMARY_MISSING`` or ``TOKENIZER_FALLBACK``."""
        return tuple(self._reply.manifest.warnings)

    @property
    def tokens_used(self) -> int:
        """Tokens that it takes."""
        return self._reply.manifest.tokens_used

    @property
    def tokens_max(self) -> int:
        """Tokens that it might take."""
        return self._reply.manifest.tokens_max

    @property
    def utilization(self) -> float:
        """Tokens used over tokens allowed."""
        return self._reply.utilization

    def openai(self) -> list[dict[str, Any]]:
        """Returns the ``messages`` of a call of OpenAI's chat completions, fresh objects each time."""
        messages: list[dict[str, Any]] = loaded(self._reply.messages.openai)
        return messages

    def anthropic(self) -> dict[str, Any]:
        """Returns ``system`` and ``messages`` of a call of Anthropic's messages, fresh objects each time."""
        request: dict[str, Any] = loaded(self._reply.messages.anthropic)
        return request

    def openai_tools(self) -> list[dict[str, Any]]:
        """Returns the ``tools`` that have room, in OpenAI's shape; empty if there are none."""
        tools: list[dict[str, Any]] = loaded(self._reply.messages.openai_tools or "[]")
        return tools

    def anthropic_tools(self) -> list[dict[str, Any]]:
        """Returns the ``tools`` that have room, in Anthropic's shape; empty if there are none."""
        tools: list[dict[str, Any]] = loaded(self._reply.messages.anthropic_tools or "[]")
        return tools

    async def commit(
        self,
        *writes: Operation,
        awaited: Sequence[str | ToolCall] = (),
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Decision:
        """Writes a decision at one revision, if what is guarded still is as the model saw it.

        Args:
            writes: messages to append and items to write, at most one per key; at most 64, and 256 KiB.
            awaited: tool calls, or their ids, that must have ended.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            StaleRead: something guarded changed, appeared or vanished; nothing was written. Its ``as_message()``
                tells the next attempt.
            CallsPending: a call in ``awaited`` has not ended.
            TransactionFailed: something stood in the way of a write; nothing was written.
            SessionClosed: the session is closed.
            NoosphereError: anything else, see the tree.
        """
        calls = [one.call_id if isinstance(one, ToolCall) else one for one in several("awaited", awaited)]
        return await self._view.commit(*writes, awaited=calls, request_id=request_id, timeout=timeout)

    async def refresh(self, *, timeout: float | None = None) -> Notes:
        """Compares what was shown with the present, and takes the present as shown from here on.

        For those who decide on what the notes say, e.g. after an approval that took days.

        Args:
            timeout: the deadline with all retries, in seconds.

        Returns:
            What has changed of what is guarded; false if nothing has.
        """
        return await self._view.refresh(timeout=timeout)

    async def report_usage(self, used: Sequence[str] = (), *, reply: str = "", timeout: float | None = None) -> Usage:
        """Reports what of the context was used: that counts as an access, and feeds the session's health.

        Args:
            used: ids of manifest entries, e.g. ``item:plan/next``.
            reply: the model's answer, by whose words use is estimated if ``used`` is empty; it is not kept.
            timeout: the deadline with all retries, in seconds.

        Returns:
            How much of what was recalled was used.

        Raises:
            EntryNotFound: the context is not kept any more.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.ReportUsageRequest(
            session_id=link.id,
            context_id=self.id,
            used=[checked_text(f"used[{index}]", name) for index, name in enumerate(several("used", used))],
            reply=checked_text("reply", reply),
        )
        answer: pb.ReportUsageResponse = await link.read(link.services.contexts.ReportUsage, request, timeout)
        return Usage(answer.used, answer.recalled)

    def token(self) -> str:
        """Returns what was shown as text, for ``session.items.resume_view`` in this or another process.

        Raises:
            InvalidArgument: more was shown than a token holds (64 KiB).
        """
        return self._view.token()

    def __repr__(self) -> str:
        return f"Context({self.session_id!r}, {self.id!r}, {self.tokens_used}/{self.tokens_max} tokens)"


def asked(
    link: Link,
    *,
    input: str,
    model: str,
    reserve_output: int,
    tokens: int,
    window: int,
    tokenizer: str,
    system: str,
    recipe: Recipe | None,
    evidence: FindEvidence | Sequence[Evidence | str],
    carry_evidence: int,
    tools: Sequence[Tool],
    subagents: Sequence[Evidence | str],
    notes: Sequence[Note],
    guard: str | Sequence[str],
    guard_transcript: bool,
    fact_owners: Sequence[str],
    fact_query: str,
    mode: GuardMode,
) -> Asked:
    """Returns what a context is asked for; the arguments are those of ``Session.context``.

    Raises:
        InvalidArgument: one of them is malformed.
    """
    names = (guard,) if isinstance(guard, str) else tuple(several("guard", guard))
    find = evidence if callable(evidence) else None
    request = pb.AssembleContextRequest(
        session_id=link.id,
        input=checked_text("input", input),
        system=checked_text("system", system),
        model=checked_text("model", model),
        tokenizer=checked_text("tokenizer", tokenizer),
        budget=pb.ContextBudget(
            tokens=whole("tokens", tokens),
            window_tokens=whole("window", window),
            reserve_output_tokens=whole("reserve_output", reserve_output),
        ),
        recipe=from_recipe(recipe),
        evidence=() if callable(evidence) else from_evidence("evidence", evidence, numbered=False),
        evidence_stays=checked_carry(carry_evidence) > 0,
        tools=from_tools(tools),
        subagents=from_evidence("subagents", subagents),
        notes=from_notes(notes),
        guard=[checked_text(f"guard[{index}]", name) for index, name in enumerate(names)],
        guard_transcript=guard_transcript,
        fact_owners=[
            checked_text(f"fact_owners[{index}]", name)
            for index, name in enumerate(several("fact_owners", fact_owners))
        ],
        fact_query=checked_text("fact_query", fact_query),
    )
    if recipe is None:
        request.ClearField("recipe")
    guarded = dict.fromkeys((*GUARDED, *names, *((MESSAGES,) if guard_transcript else ())))
    guards = tuple(Guard(name, link.namespace) for name in guarded)
    return Asked(request, find, carry_evidence, Terms(guards, mode, False))


async def assemble(
    link: Link, carried: CarriedEvidence, wanted: Asked, notes: Notes, budget: Budget, *, again: bool = False
) -> Context:
    """Assembles a context.

    Args:
        link: the session.
        carried: the evidence of earlier steps; gets that of this one.
        wanted: what it is asked for.
        notes: what made earlier attempts fail.
        budget: what is left of the time for it.
        again: whether this is a further attempt at the step before.
    """
    request = pb.AssembleContextRequest()
    request.CopyFrom(wanted.request)
    request.notes.extend(from_notes((notes,)))
    step = carried.step()
    query: str | None = None
    fresh = list(request.evidence)
    if wanted.find is not None:
        asked_for = request.fact_query or request.input or await _newest_question(link, budget.call())
        if not step.answers(asked_for) and (room := (await plan(link, wanted, budget.call())).room("evidence")):
            query = asked_for
            fresh = from_evidence("evidence", await budget.run(wanted.find, query, room), numbered=False)
    together = step.evidence(fresh)
    del request.evidence[:]
    request.evidence.extend(together)
    seen = Readings()
    seen.attach(request.call)
    reply: pb.AssembleContextResponse = await link.read(link.services.contexts.AssembleContext, request, budget.call())
    seen.accept(reply.call)
    for entry in reply.manifest.entries:
        # Where a collection stands for its keys in the read set, this is how their versions are known.
        if entry.version and entry.id.startswith(_ITEM) and entry.fate != pb.ENTRY_FATE_DROPPED:
            seen.knows(link.namespace, entry.id.removeprefix(_ITEM), entry.version)
    carried.end(step, reply, query, wanted.carry, ages=not again)
    return Context(link, reply, seen, wanted.terms, notes)


async def plan(link: Link, wanted: Asked, timeout: float | None) -> ContextPlan:
    """Asks how the budget of a context would be split."""
    transport = link.transport
    request = pb.PlanContextRequest(context=wanted.request)
    request.context.call.actor.CopyFrom(transport.actor)
    # It carries its caller within the context that it plans, so it is no request like the others.
    reply: pb.PlanContextResponse = await transport.invoke(
        link.services.contexts.PlanContext, request, timeout=transport.deadline(timeout), namespace=link.namespace
    )
    return to_plan(reply)


async def explain(link: Link, context_id: str, timeout: float | None) -> Manifest:
    """Reads the manifest of a context; see ``Session.explain``."""
    request = pb.ExplainContextRequest(session_id=link.id, context_id=checked_text("context_id", context_id))
    reply: pb.ExplainContextResponse = await link.read(link.services.contexts.ExplainContext, request, timeout)
    return to_manifest(reply.manifest)


async def _newest_question(link: Link, timeout: float | None) -> str:
    """Returns what the user said last; empty if that is long ago."""
    request = session_service_pb2.ListMessagesRequest(session_id=link.id, page_size=_QUERY_MESSAGES, reverse=True)
    reply: session_service_pb2.ListMessagesResponse = await link.read(link.sessions.ListMessages, request, timeout)
    messages = map(to_message, reply.messages)
    return next((message.text for message in messages if message.role == "user" and message.text), "")
