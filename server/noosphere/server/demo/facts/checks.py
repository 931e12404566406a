"""What must be so in a demo of facts: it is looked up with the server, not taken from what was played."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Iterable, Sequence
from pathlib import Path

from noosphere.client import CandidateState, CandidateStatus, Client, Fact, FactDecision

from .script import Remember
from .told import Answer, Played, counted, same_words

_REFUSED: tuple[CandidateStatus, ...] = ("rejected", "quarantined", "suppressed", "dead")
_DECIDED_LIMIT_S = 30.0


class Books:
    """Keeps the books of one run.

    Args:
        client: asks the server.
        played: where checks and findings go.
    """

    def __init__(self, client: Client, played: Played) -> None:
        self._client = client
        self._played = played

    def expect(self, text: str, holds: bool, instead: str = "") -> None:
        """Notes what must be so, and whether it is; ``instead`` says what is so."""
        self._played.checks.append((text if holds or not instead else f"{text} (it is {instead})", holds))

    def expect_decision(self, step: Remember, decision: FactDecision) -> None:
        """Notes whether a candidate became what it has to, for the reason that it has to."""
        reasons = [why.reason for why in decision.reasons]
        holds = decision.status == step.expect and (not step.because or step.because in reasons)
        because = f", because of {step.because}" if step.because else ""
        self.expect(f"{step.text!r} is {step.expect}{because}", holds, f"{decision.status}: {', '.join(reasons)}")

    async def expect_superseded(self, step: Remember, decision: FactDecision) -> None:
        """Notes whether a fact superseded the one that it has to, which was so until the new one was."""
        history = await self._client.facts.history(decision.fact_id) if decision.fact_id else ()
        new = next((fact for fact in history if fact.id == decision.fact_id), None)
        old = next(
            (fact for fact in history if fact.id in decision.superseded and same_words(fact.text, step.supersedes)),
            None,
        )
        holds = new is not None and old is not None and old.valid_to == new.valid_from
        self.expect(f"{step.supersedes!r} is history, and was so until {step.text!r} was", holds)

    def must_be_gone(self, words: Iterable[str]) -> None:
        """Notes words that must stand nowhere in the end."""
        self._played.gone += words

    async def decided(self, candidate_ids: Sequence[str]) -> list[CandidateState]:
        """Returns candidates once they are decided."""
        facts = self._client.facts
        async with asyncio.timeout(_DECIDED_LIMIT_S), facts.watch(self._played.owner) as decisions:
            states = [await facts.candidate(id) for id in candidate_ids]
            # What was decided before the watch began is read; the rest is told.
            waiting = {state.decision.candidate_id for state in states if state.decision.status == "queued"}
            while waiting:
                waiting.discard((await anext(decisions)).decision.candidate_id)
        return [await facts.candidate(id) for id in candidate_ids]

    async def facts(self) -> list[Fact]:
        """Returns all facts of the owner, also what was so before."""
        return [fact async for fact in self._client.facts.list(self._played.owner, include_superseded=True)]

    async def close(self, asked: Sequence[tuple[str, str]]) -> None:
        """Reads what is known, why, and what was refused, and checks what must be so of all of it.

        Args:
            asked: questions, and the facts that answer them best.
        """
        facts, played = self._client.facts, self._played
        played.known = sorted(await self.facts(), key=lambda fact: (bool(fact.superseded_by), fact.text))
        played.refused = [state async for state in facts.candidates(played.owner, statuses=_REFUSED)]
        known = {fact.id for fact in played.known}
        for query, fact_id in asked:
            if fact_id in known:
                played.answers.append(Answer(query, await facts.explain(fact_id, query)))
        await self._check_refused()
        for answer in played.answers:
            decided = any(state.decision.known for state in answer.path.candidates)
            self.expect(f"{answer.path.fact.text!r} is told from its evidence to its rank", _is_whole(answer, decided))
        for word in played.gone:
            where = await self._still_holds(word)
            self.expect(f"{word!r} stands in no fact, no candidate and no message", not where, f"in {where}")

    async def _check_refused(self) -> None:
        found: set[str] = set()
        current = {fact.text for fact in self._played.known if not fact.superseded_by}
        texts = {state.candidate.text for state in self._played.refused} - {""} - current
        for text in texts:
            hits = await self._client.facts.search(text, owner=self._played.owner, include_superseded=True)
            found |= {hit.text for hit in hits if hit.text == text}
        self.expect(
            f"Nothing of {counted(len(texts), 'refused claim')} is found", not found, ", ".join(map(repr, found))
        )

    async def _still_holds(self, word: str) -> str:
        """Tells where a word still stands, in words; empty for nowhere."""
        folded = word.casefold()
        for fact in self._played.known:
            said = (fact.text, str(fact.object), *(one.quote for one in fact.evidence))
            if any(folded in text.casefold() for text in said):
                return f"fact {fact.id}"
        for state in self._played.refused:
            if folded in state.candidate.text.casefold():
                return f"candidate {state.decision.candidate_id}"
        for told in self._played.sessions:
            async with self._client.session(told.id, existing="required") as session:
                async for message in session.messages():
                    if folded in message.text.casefold():
                        return f"session {told.id}"
        return ""


def check_files(played: Played, folder: Path) -> None:
    """Notes whether forgotten words stand in any file, index, journal or log, of a server that has stopped."""
    for word in played.gone:
        found = [path.name for path in sorted(folder.rglob("*")) if path.is_file() and _holds(path, word)]
        text = f"{word!r} stands in no file of the server"
        played.checks.append((f"{text} (it is in {', '.join(found)})" if found else text, not found))


def _holds(path: Path, word: str) -> bool:
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(word.encode()) >= 0


def _is_whole(answer: Answer, decided: bool) -> bool:
    path = answer.path
    return bool(path.fact.evidence) and decided and path.rank is not None and path.scores is not None
