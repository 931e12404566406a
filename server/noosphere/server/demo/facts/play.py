"""Plays a script on a running server, and checks what must be so."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial

from noosphere.client import Client, FactDecision, FactHits, Session, connect

from .checks import Books
from .script import Ask, Assistant, Day, Extract, Forget, Page, Remember, Script, Step, User
from .told import Played, Told, ToldSession, counted, reasons_of, same_words

CALL_LIMIT_S = 30.0
"""A busy machine is no failure of the demo."""


async def play(server: str, script: Script, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Played:
    """Plays a script for one owner; sessions and facts stay.

    Args:
        server: ``host:port`` of a running server.
        script: what to play.
        now: from when the days of the script are counted back.

    Raises:
        NoosphereError: the server refuses something, or went away.
    """
    started = time.monotonic()
    run = uuid.uuid4().hex[:6]
    played = Played(script.title, script.owner or f"user/demo-{run}")
    async with connect(server, agent=f"demo-agent-{run}", timeout=CALL_LIMIT_S) as client:
        player = _Player(client, played)
        for number, day in enumerate(script.sessions, 1):
            moment = now() - timedelta(days=day.days_ago)
            async with client.session(f"facts-{run}-{number}", title=day.title) as session:
                await player.session(session, day, moment)
        await player.close_the_books()
    played.seconds = time.monotonic() - started
    return played


class _Player:
    def __init__(self, client: Client, played: Played) -> None:
        self._client = client
        self._played = played
        self._books = Books(client, played)
        self._named: dict[str, str] = {}
        self._moment = datetime.now(UTC)
        self._asked: list[tuple[str, str]] = []

    async def session(self, session: Session, day: Day, moment: datetime) -> None:
        """Plays one session."""
        self._moment = moment
        told = ToldSession(session.id, day.title, moment.date())
        self._played.sessions.append(told)
        # The newest of each kind is of this session only.
        for kind in ("user", "page"):
            self._named.pop(kind, None)
        async with session.turn():
            for step in day.steps:
                told.steps += await self._step(session, step)

    async def close_the_books(self) -> None:
        """Reads what is known, why, and what was refused; checks what must be so at the end."""
        await self._books.close(self._asked)

    async def _step(self, session: Session, step: Step) -> list[Told]:
        match step:
            case User():
                (message,) = await session.append({"role": "user", "content": step.text})
                self._named["user"] = f"msg:{session.id}/{message.id}"
                self._named[step.name] = self._named["user"]
                return [Told("user", step.text)]
            case Assistant():
                await session.append({"role": "assistant", "content": step.text})
                return [Told("agent", step.text)]
            case Page():
                call = await session.start_tool("browse", {"url": step.url})
                await call.finish(step.text)
                self._named["page"] = self._named[step.name] = call.reference
                return [Told("page", f"{step.url}: {step.text}")]
            case Remember():
                return [await self._remember(session, step)]
            case Extract():
                return await self._extract(session, step)
            case Ask():
                return [await self._ask(step)]
            case Forget():
                return [await self._forget(step)]

    async def _remember(self, session: Session, step: Remember) -> Told:
        evidence = () if step.rests_on == "nothing" else (self._named[step.rests_on],)
        decision = await self._client.facts.remember(
            step.text,
            owner=self._played.owner,
            subject=step.subject,
            predicate=step.predicate,
            object=step.object,
            said_by=step.said_by,
            evidence=evidence,
            session=session,
            producer="demo",
            valid_from=self._moment,
        )
        self._books.expect_decision(step, decision)
        if step.supersedes:
            await self._books.expect_superseded(step, decision)
        return _decided(f"remember: {step.text}", decision)

    async def _extract(self, session: Session, step: Extract) -> list[Told]:
        facts = self._client.facts
        job = await facts.extract(session, owner=self._played.owner, wait=True)
        self._books.expect(f"The extraction of {session.id} has ended", job.state == "done", job.failure or job.state)
        told = [Told("server", f"extraction by {job.extractor}: {counted(len(job.candidate_ids), 'candidate')}")]
        for state in await self._books.decided(job.candidate_ids):
            told.append(_decided(f"found: {state.candidate.text}", state.decision, who="server"))
        known = {fact.text for fact in await self._books.facts() if not fact.superseded_by}
        for text in step.learns:
            self._books.expect(f"The extraction has learned {text!r}", _is_among(text, known))
        for text in step.never:
            self._books.expect(f"The extraction has not learned {text!r}", not _is_among(text, known))
        return told

    async def _ask(self, step: Ask) -> Told:
        hits = await self._client.facts.search(step.query, owner=self._played.owner)
        texts = [hit.text for hit in hits]
        if step.first is not None:
            found = texts[0] if texts else "nothing"
            self._books.expect(f"{step.query!r} finds {step.first!r} first", same_words(found, step.first), found)
        for text in step.never:
            self._books.expect(f"{step.query!r} does not find {text!r}", not _is_among(text, texts))
        if step.why and hits:
            self._asked.append((step.query, hits[0].id))
        return Told("agent", f"asks: {step.query}", *_answer(hits))

    async def _forget(self, step: Forget) -> Told:
        forget = partial(
            self._client.facts.forget,
            query=step.query or None,
            producer=step.producer or None,
            everything=step.everything,
            owner=self._played.owner,
        )
        label = "forget everything" if step.everything else f"forget {(step.query or step.producer)!r}"
        would = await forget(dry_run=True)
        report = await forget()
        self._books.expect(f"{label}: a dry run told the same facts", set(would.fact_ids) == set(report.fact_ids))
        if step.facts is not None:
            count = len(report.fact_ids)
            self._books.expect(f"{label}: {counted(step.facts, 'fact')}", count == step.facts, str(count))
        self._books.must_be_gone(step.gone)
        places = ", ".join(f"{place} {count}" for place, count in sorted(report.places.items()))
        return Told("agent", label, "forgotten", places or "nothing was there")


def _decided(text: str, decision: FactDecision, *, who: str = "agent") -> Told:
    return Told(who, text, decision.status, reasons_of(decision))


def _is_among(text: str, texts: Iterable[str]) -> bool:
    return any(same_words(text, one) for one in texts)


def _answer(hits: FactHits) -> tuple[str, str]:
    if not hits:
        return "nothing", "Nothing is known of it."
    return "found", f"{hits[0].text} (relevance {hits[0].relevance:.2f})"
