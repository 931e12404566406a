"""What a session offers to those who think with it: contexts, and decisions made with them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from ._budget import Budget
from ._context import Asked, Context, asked, assemble, explain, plan
from ._context_carried import CarriedEvidence
from ._context_data import ContextPlan, Evidence, FindEvidence, Manifest, Recipe
from ._context_wire import Note, Tool
from ._decide import Writes, until_it_holds
from ._errors import InvalidArgument
from ._session_link import Link
from ._stale import NO_NOTES, Notes
from ._tool_call import ToolCall
from ._view import Decision, GuardMode

NOTES_MAX = 8

ThinkInContext = Callable[[Context], Writes | Awaitable[Writes]]
"""Thinks with a context and returns what to write; may be async and slow. See ``Session.decide``."""


class SessionContexts:
    """The contexts of a session."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._carried = CarriedEvidence()

    @property
    def id(self) -> str:
        """The session's id."""
        return self._link.id

    async def context(
        self,
        *,
        input: str = "",
        model: str = "",
        reserve_output: int = 0,
        tokens: int = 0,
        window: int = 0,
        tokenizer: str = "",
        system: str = "",
        recipe: Recipe | None = None,
        evidence: FindEvidence | Sequence[Evidence | str] = (),
        carry_evidence: int = 0,
        tools: Sequence[Tool] = (),
        subagents: Sequence[Evidence | str] = (),
        notes: Sequence[Note] = (),
        guard: str | Sequence[str] = (),
        guard_transcript: bool = False,
        fact_owners: Sequence[str] = (),
        fact_query: str = "",
        mode: GuardMode = "strict",
        timeout: float | None = None,
    ) -> Context:
        """Assembles what one model call gets to see, within its budget.

        Args:
            input: the current input; empty if the newest message of the transcript is it. It is shown, not
                appended.
            model: the model, which decides tokenizer and window where they are not given.
            reserve_output: tokens kept free for the model's answer.
            tokens: tokens that the context may take; 0 leaves that to the window.
            window: the model's window in tokens; 0 for that of the model, or 128,000.
            tokenizer: the vocabulary; empty for the model's, else the session's.
            system: instructions for the system role, beside the session's system messages.
            recipe: what the context is made of; None for the default.
            evidence: what the caller knows, at most 200 pieces; or a function that is asked for it once the
                budget is split, ``evidence(query, max_tokens)``, and may be slow.
            carry_evidence: to how many more contexts of this handle the evidence is given again, 0 to 100; see
                :meth:`forget_evidence`. A function is not asked again for the same query as long as what it
                found is carried.
            tools: schemas of tools, the most important first: ours, or in OpenAI's or Anthropic's shape.
            subagents: summaries by sub-agents.
            notes: for this attempt, e.g. why the last one was refused (``StaleRead.as_message()``); shown as data.
            guard: keys and collections (ending in a slash) of the session that must not change before what is
                decided is written; ``goals/`` and ``task/`` go without saying.
            guard_transcript: let a new message of anybody make the decision stale, too.
            fact_owners: whose facts may be recalled, e.g. ``user/42``; the first one's pinned facts are the profile.
            fact_query: what facts and evidence are searched by; empty for the current input.
            mode: ``warn`` writes although something guarded changed, and reports it in ``Decision.stale``.
            timeout: the deadline of all of it, in seconds; without one each call has the default.

        Raises:
            BudgetTooSmall: instructions, input and the newest step alone are larger than the budget.
            InvalidArgument: something is malformed; the message names field, value and limit.
            SessionNotFound: there is no such session any more.
            NoosphereError: anything else, see the tree.
        """
        wanted = asked(
            self._link,
            input=input,
            model=model,
            reserve_output=reserve_output,
            tokens=tokens,
            window=window,
            tokenizer=tokenizer,
            system=system,
            recipe=recipe,
            evidence=evidence,
            carry_evidence=carry_evidence,
            tools=tools,
            subagents=subagents,
            notes=notes,
            guard=guard,
            guard_transcript=guard_transcript,
            fact_owners=fact_owners,
            fact_query=fact_query,
            mode=mode,
        )
        return await assemble(
            self._link, self._carried, wanted, NO_NOTES, Budget(self._link.transport, timeout, "context")
        )

    def forget_evidence(self) -> None:
        """Drops the evidence that ``carry_evidence`` carries to the next contexts.

        Carried evidence belongs to this handle alone; nobody stores it. In a manifest it has the id of the context
        for which it was first given (``carried_from``). A fresh piece takes the place of a carried one of the same
        id or the same text. At most 200 pieces and 256 KiB of text are carried; what was given first goes first.
        """
        self._carried.forget()

    async def plan_context(
        self,
        *,
        input: str = "",
        model: str = "",
        reserve_output: int = 0,
        tokens: int = 0,
        window: int = 0,
        tokenizer: str = "",
        system: str = "",
        recipe: Recipe | None = None,
        tools: Sequence[Tool] = (),
        timeout: float | None = None,
    ) -> ContextPlan:
        """Splits the budget of a context and tells what each section may hold.

        The arguments are those of :meth:`context`, which asks by itself if ``evidence`` is a function.
        """
        wanted = asked(
            self._link,
            input=input,
            model=model,
            reserve_output=reserve_output,
            tokens=tokens,
            window=window,
            tokenizer=tokenizer,
            system=system,
            recipe=recipe,
            evidence=(),
            carry_evidence=0,
            tools=tools,
            subagents=(),
            notes=(),
            guard=(),
            guard_transcript=False,
            fact_owners=(),
            fact_query="",
            mode="strict",
        )
        return await plan(self._link, wanted, timeout)

    async def decide(
        self,
        think: ThinkInContext,
        *,
        input: str = "",
        model: str = "",
        reserve_output: int = 0,
        tokens: int = 0,
        window: int = 0,
        tokenizer: str = "",
        system: str = "",
        recipe: Recipe | None = None,
        evidence: FindEvidence | Sequence[Evidence | str] = (),
        carry_evidence: int = 0,
        tools: Sequence[Tool] = (),
        subagents: Sequence[Evidence | str] = (),
        notes: Sequence[Note] = (),
        guard: str | Sequence[str] = (),
        guard_transcript: bool = False,
        fact_owners: Sequence[str] = (),
        fact_query: str = "",
        mode: GuardMode = "strict",
        awaited: Sequence[str | ToolCall] = (),
        attempts: int = 3,
        timeout: float | None = None,
    ) -> Decision:
        """Assembles a context, lets ``think`` decide, and writes the decision only if its grounds still hold.

        ::

            async def think(context: Context) -> Sequence[Operation]:
                return [Append(await chat(context.openai()))]

            await session.decide(think, model="gpt-4o", reserve_output=1024, guard=("plan/",))

        If something guarded changed meanwhile, or a write met a conflict, ``think`` is asked again with a fresh
        context, in which the reasons stand as a note; they are its ``notes``, too.

        Args:
            think: called with a :class:`Context`; returns the writes, none to write nothing.
            input: as for :meth:`context`, and so are all up to ``mode``.
            model: see there.
            reserve_output: see there.
            tokens: see there.
            window: see there.
            tokenizer: see there.
            system: see there.
            recipe: see there.
            evidence: see there; a function is asked anew for each attempt, unless what it found is carried.
            carry_evidence: see there; all attempts are one step.
            tools: see there.
            subagents: see there.
            notes: see there; for each attempt, at most 7.
            guard: see there.
            guard_transcript: see there.
            fact_owners: see there.
            fact_query: see there.
            mode: see there.
            awaited: tool calls, or their ids, that must have ended.
            attempts: how often to think at most.
            timeout: a limit for all of it, ``think`` included, in seconds; None sets no limit beyond the
                default deadline of each call.

        Returns:
            The decision as written; without writes its revision is 0.

        Raises:
            StaleRead: what was shown in the last attempt changed too.
            TransactionFailed: the last attempt met a conflict, or a write can never succeed.
            Contention: the server could not decide the last attempt.
            CallsPending: a call in ``awaited`` has not ended.
            BudgetTooSmall: as for :meth:`context`.
            DeadlineExceeded: ``timeout`` passed; ``outcome`` says whether a write was under way.
            NoosphereError: anything else, see the tree.
        """
        wanted = asked(
            self._link,
            input=input,
            model=model,
            reserve_output=reserve_output,
            tokens=tokens,
            window=window,
            tokenizer=tokenizer,
            system=system,
            recipe=recipe,
            evidence=evidence,
            carry_evidence=carry_evidence,
            tools=tools,
            subagents=subagents,
            notes=notes,
            guard=guard,
            guard_transcript=guard_transcript,
            fact_owners=fact_owners,
            fact_query=fact_query,
            mode=mode,
        )
        return await _decide(self._link, self._carried, think, wanted, awaited, attempts, timeout)

    async def explain(self, context_id: str = "", *, timeout: float | None = None) -> Manifest:
        """Returns the manifest of a context: what went in, what did not, and why.

        Args:
            context_id: the context's id; empty for the session's newest one.
            timeout: the deadline with all retries, in seconds.

        Raises:
            EntryNotFound: there is none, or it is not kept any more (24 hours).
            NoosphereError: anything else, see the tree.
        """
        return await explain(self._link, context_id, timeout)


async def _decide(
    link: Link,
    carried: CarriedEvidence,
    think: ThinkInContext,
    wanted: Asked,
    awaited: Sequence[str | ToolCall],
    attempts: int,
    timeout: float | None,
) -> Decision:
    if (count := len(wanted.request.notes)) >= NOTES_MAX:
        # Before anybody thinks: the second attempt would be refused for it.
        raise InvalidArgument(f"notes: {count} notes, the limit is {NOTES_MAX - 1}: why an attempt was refused is one")
    budget = Budget(link.transport, timeout, "decision")

    @asynccontextmanager
    async def grounds(notes: Notes, again: bool) -> AsyncIterator[Context]:
        yield await assemble(link, carried, wanted, notes, budget, again=again)

    return await until_it_holds(
        grounds,
        think,
        lambda context, writes, left: context.commit(*writes, awaited=awaited, timeout=left),
        budget,
        attempts,
        link.namespace,
    )
