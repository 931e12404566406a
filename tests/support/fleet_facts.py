"""Operators who propose, look for and forget facts whatever happens to a fleet, and judge what they find at the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from tests.support.fact_claims import Claim, Claims
from tests.support.worker import CALL_SECONDS_MAX, Persistent

from noosphere.client import (
    AckedWritesLost,
    Candidate,
    Client,
    DeadlineExceeded,
    EntryNotFound,
    LimitExceeded,
    Unavailable,
    connect,
)
from noosphere.client._causal import from_text
from noosphere.consistency import LostRange

WAITING_MAX = 40
"""So many candidates wait at most: whoever proposes more has to wait for what was proposed before."""

ANSWER_SECONDS_MAX = 4.0
"""How long facts are looked for before that counts as refused."""

SETTLING_SECONDS_MAX = 600.0
"""A bound against hanging; the lease of a worker that was killed lasts for a minute."""

PAUSE_SECONDS = 0.05
SAMPLES = 4
MISSED = "NOT FOUND BY WORDS SINCE WEAVIATE WAS KILLED"
AWAY = (Unavailable, DeadlineExceeded)
_LOOKS_MAX = 15_000
_SINCE = datetime(2020, 1, 1, tzinfo=UTC)


class FactLoad:
    """Operators, each with a client and a scope of its own.

    Args:
        servers: for each operator, the addresses that it may use, separated by commas.
        everywhere: the address of each replica, at which facts are looked for in the end.
        seed: decides what they do.

    Attributes:
        done: how often what was done, and answered.
        refused: for each operator, calls that were refused because the fact store, or all of it, was away.
        answered: for each operator, searches that were answered.
        problems: what was found to be wrong.
        index_in_doubt: whether Weaviate was killed: its index of words may lack, for good, what its objects have
            (seen with 1.38.11 on one node). What a search misses then is counted and told, and is no failure.
    """

    def __init__(self, servers: Sequence[str], everywhere: Sequence[str], seed: int) -> None:
        self._servers = {f"clerk-{number}": given for number, given in enumerate(servers)}
        self._everywhere = list(everywhere)
        self._seed = seed
        self._stopping = False
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter(dict.fromkeys(self._servers, 0))
        self.answered: Counter[str] = Counter(dict.fromkeys(self._servers, 0))
        self.problems: list[str] = []
        self.index_in_doubt = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs for the length of the block; then everything is decided, and judged."""
        async with asyncio.TaskGroup() as group:
            for name, address in self._servers.items():
                group.create_task(self._work(name, address))
            try:
                yield
            finally:
                self._stopping = True

    async def noticed(self) -> None:
        """Waits until somebody was refused once more."""
        before = self.refused.total()
        await _until(lambda: self.refused.total() > before, "nobody notices that facts are away")

    async def everybody(self) -> None:
        """Waits until each operator's search was answered once more."""
        before = dict(self.answered)
        await _until(
            lambda: all(self.answered[name] > count for name, count in before.items()),
            f"facts do not come back: {before}",
        )

    async def _work(self, name: str, address: str) -> None:
        async with connect(
            address,
            agent=f"cli/{name}",
            timeout=CALL_SECONDS_MAX,
            retry=Persistent(attempts_max=10_000, delay_max=0.2),
        ) as client:
            clerk = Clerk(client, name, random.Random(f"{self._seed} {name}"), self)
            while not self._stopping:
                if not await self._answered(name, clerk, clerk.step):
                    await asyncio.sleep(PAUSE_SECONDS)
            async with asyncio.timeout(SETTLING_SECONDS_MAX):
                # First it is told of all that was lost.
                await self._at_last(name, clerk, clerk.look)
                await self._at_last(name, clerk, clerk.settle)
            self.problems += await clerk.judged()
            for everywhere in self._everywhere:
                self.problems += await clerk.looked_for(everywhere)

    async def _at_last(self, name: str, clerk: Clerk, doing: Callable[[], Awaitable[None]]) -> None:
        while True:
            if await self._answered(name, clerk, doing):
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _answered(self, name: str, clerk: Clerk, doing: Callable[[], Awaitable[None]]) -> bool:
        try:
            await doing()
        except LimitExceeded:
            self.done["refused, full"] += 1
        except AckedWritesLost as lost:
            for namespace, after, through in ((lost.namespace, lost.lost_after, lost.lost_through), *lost.others):
                if namespace == f"facts/{clerk.scope}":
                    clerk.told(LostRange(after, through))
            self.done["told of a loss"] += 1
        except AWAY:
            self.refused[name] += 1
        else:
            return True
        return False


class Clerk:
    """One operator.

    Args:
        client: its own.
        name: its own, after which its scope is called.
        chance: decides what it does.
        load: what is told of everything.

    Attributes:
        scope: where its facts are valid.
        claims: what it has said.
    """

    def __init__(self, client: Client, name: str, chance: random.Random, load: FactLoad) -> None:
        self._client = client
        self._name = name
        self._chance = chance
        self._load = load
        self._number = 0
        self._waiting: deque[tuple[str, Claim]] = deque()
        self.scope = f"shared/{name}"
        self.claims = Claims()

    async def step(self) -> None:
        """Does one thing."""
        full = len(self._waiting) >= WAITING_MAX
        doing = self._chance.choices(
            (self._propose, self._move, self._remember, self._ask, self.look, self._forget),
            (0 if full else 4, 0 if full else 1, 0 if full else 1, 6, 4, 1),
        )
        await doing[0]()

    def told(self, lost: LostRange) -> None:
        """Takes note of a loss: what was decided may have to be decided again."""
        self.claims.losses.append(lost)
        for claim in self.claims.by_text.values():
            if self.claims.is_lost(claim.found_at):
                claim.found_at = 0

    def _seen(self) -> int:
        return from_text(self._client.causal_token()).revisions.get(f"facts/{self.scope}", 0)

    async def _propose(self) -> None:
        claims = [self._crate() for _ in range(self._chance.randrange(1, 5))]
        again = [claim for claim in self.claims.by_text.values() if not claim.home and not claim.forgetting]
        if again and self._chance.random() < 0.3:
            claims.append(self._chance.choice(again))
        await self._send(list(dict.fromkeys(claims)))

    async def _move(self) -> None:
        self._number += 1
        await self._send([self.claims.add(f"The {self._name} lives in Port {self._number}", self._number)])

    async def _send(self, claims: Sequence[Claim]) -> None:
        candidates = [self._candidate(claim) for claim in claims]
        ids = await self._client.facts.propose(*candidates)
        seen = self._seen()
        for id, claim in zip(ids, claims, strict=True):
            assert id not in claim.acknowledged
            claim.acknowledged[id] = seen
            self._waiting.append((id, claim))
        self._load.done["proposed"] += len(ids)

    async def _remember(self) -> None:
        claim = self._crate()
        candidate = self._candidate(claim)
        decision = await self._client.facts.remember(
            candidate.text,
            owner=candidate.owner,
            said_by="internal",
            producer=candidate.producer,
            timeout=ANSWER_SECONDS_MAX,
        )
        claim.acknowledged[decision.candidate_id] = self._seen()
        self._waiting.append((decision.candidate_id, claim))
        self._load.done["remembered"] += 1

    async def _ask(self) -> None:
        """Asks about the candidate that has waited for longest."""
        if not self._waiting:
            return
        id, claim = self._waiting[0]
        try:
            decision = (await self._client.facts.candidate(id, timeout=ANSWER_SECONDS_MAX)).decision
        except EntryNotFound:
            assert self.claims.is_lost(claim.acknowledged[id]), f"gone untold: candidate {id}, {claim}"
            self._waiting.popleft()
            return
        if decision.status == "queued":
            self._waiting.rotate(-1)
            return
        self._waiting.popleft()
        claim.fact_id = decision.fact_id
        self._load.done["seen decided"] += 1

    async def look(self) -> None:
        """Searches for something that was decided: what was found is found again, what was forgotten is not."""
        known = [claim for claim in self.claims.by_text.values() if claim.fact_id and not claim.home]
        claim = self._chance.choice(known) if known else None
        text = self._name if claim is None else claim.text
        hits = await self._client.facts.search(text, owner=self.scope, timeout=ANSWER_SECONDS_MAX)
        self._load.answered[self._name] += 1
        self._load.done["searched"] += 1
        self._check(text, [hit.text for hit in hits])
        if claim is not None and any(hit.text == claim.text for hit in hits):
            claim.found_at = self._seen()

    def _check(self, text: str, hits: Sequence[str]) -> None:
        for hit in hits:
            assert not self.claims.is_gone(self.claims.by_text[hit]), f"forgotten, and found: {hit}"
        claim = self.claims.by_text.get(text)
        if claim is not None and claim.found_at and not claim.forgetting and text not in hits:
            assert self._load.index_in_doubt, f"found before, and not now: {claim}"
            self._load.done[MISSED] += 1

    async def _forget(self) -> None:
        claims = self.claims.by_text.values()
        begun = [claim for claim in claims if claim.forgetting and not claim.forgotten_at]
        can = begun or [claim for claim in claims if claim.fact_id and not claim.home and not claim.forgetting]
        if can:
            await self._forgotten(self._chance.choice(can))

    async def _forgotten(self, claim: Claim) -> None:
        claim.forgetting = True
        # Where the ledger has lost it, it is not there, or is decided again later: which is no answer of a kind.
        with contextlib.suppress(EntryNotFound):
            await self._client.facts.forget(claim.fact_id, timeout=ANSWER_SECONDS_MAX)
        claim.forgotten_at = self._seen()
        self._load.done["forgotten"] += 1

    async def settle(self) -> None:
        """Returns once everything was decided that was ever queued, and everything was forgotten that was to be."""
        while self._waiting:
            before = len(self._waiting)
            await self._ask()
            if len(self._waiting) == before:
                await asyncio.sleep(PAUSE_SECONDS)
        while True:
            queue = await self._client.facts.upkeep(self.scope, timeout=ANSWER_SECONDS_MAX)
            if not queue.waiting + queue.leased:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        for claim in self.claims.by_text.values():
            if claim.forgetting and not claim.forgotten_at:
                await self._forgotten(claim)

    async def judged(self) -> list[str]:
        """Returns what is wrong with what the server lists."""
        listed = self._client.facts.candidates(self.scope, page_size=1_000)
        decided = [(one.decision.candidate_id, str(one.decision.status)) async for one in listed]
        known = [fact async for fact in self._client.facts.list(self.scope, include_superseded=True)]
        self._load.done["facts in the end"] += len(known)
        return self.claims.judge(decided, known)

    async def looked_for(self, address: str) -> list[str]:
        """Returns which facts one replica does not find, or finds though they were forgotten."""
        kept = [
            one for one in self.claims.by_text.values() if self.claims.kept(one) and not one.forgetting and not one.home
        ]
        gone = [one for one in self.claims.by_text.values() if self.claims.is_gone(one)]
        problems: list[str] = []
        async with connect(
            address, agent=f"cli/reader-of-{self._name}", takeover=True, timeout=CALL_SECONDS_MAX
        ) as reader:
            for claims, there in ((kept, True), (gone, False)):
                for claim in self._chance.sample(claims, min(SAMPLES, len(claims))):
                    hits = await reader.facts.search(claim.text, owner=self.scope)
                    found = any(hit.text == claim.text for hit in hits)
                    if there and not found and self._load.index_in_doubt:
                        self._load.done[MISSED] += 1
                    elif found != there:
                        problems.append(f"{address} {'does not find' if there else 'finds'}: {claim}")
        return problems

    def _crate(self) -> Claim:
        self._number += 1
        return self.claims.add(f"Crate {self._number} of {self._name} holds cargo{self._number}")

    def _candidate(self, claim: Claim) -> Candidate:
        claim.sent += 1
        fields = (
            {
                "subject": self._name,
                "predicate": "home",
                "object": f"Port {claim.home}",
                "cardinality": "single",
                "valid_from": _SINCE + timedelta(seconds=claim.home),
            }
            if claim.home
            else {}
        )
        # Each is a source of its own.
        producer = f"{self._name}-{claim.sent}"
        return Candidate(claim.text, self.scope, said_by="internal", producer=producer, **fields)  # type: ignore[arg-type] # fields of a candidate


async def _until(condition: Callable[[], bool], problem: str) -> None:
    for _ in range(_LOOKS_MAX):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(problem)
