"""The fact service in process, without gRPC: searches among many facts, and candidates through the whole pipeline.

Facts to be searched are written as the pipeline writes them, contents first and the ledger's notes after them, only
many at a time: what is measured is the search. Their vectors are random directions, and a question's is near that of
the fact that it is about; so the embedder's time is in no figure of a search.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noosphere.consistency import NEVER_MS
from noosphere.server.app import Engine, open_engine
from noosphere.server.config import Settings
from noosphere.server.facts.asked import SearchAsked
from noosphere.server.facts.contents import Body, content_of
from noosphere.server.facts.hits import packed
from noosphere.server.facts.ledger import FactNote, VersionNote, content_number, digest, fact_key, put
from noosphere.server.facts.scopes import IdKind, make_id
from noosphere.server.facts.types import BECAME_FACT, Candidate, Channel, FactState, MemoryType, Status

from .commands import WrongAnswer, main, obey
from .profiling import Window
from .stats import percentile

OWNER = "user/bench"
HITS = 10
RARE_EVERY = 100
"""One fact in so many is a procedure, which a filter may leave alone."""

OWNERS = 50
_BATCH = 256
_PUT = 100
_NAMES = ("Alana", "Bereda", "Corino", "Danosa", "Eluma", "Feryra", "Gartin", "Holden", "Ivette", "Jorund", "Kalle")
_THINGS = ("umbrella", "passport", "ledger", "compass", "lantern", "blanket", "kettle", "bicycle", "ladder", "violin")
_PLACES = ("harbour", "station", "cellar", "attic", "garage", "library", "workshop", "bakery", "museum", "stable")


class Facts:
    """The commands: one engine and what it knows."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._random = random.Random(0)
        self._numbers = np.random.default_rng(0)
        self._vectors: list[NDArray[np.float32]] = []
        self._submitted = 0
        self._window: Window | None = None

    async def open(self, data: str, embedder: Literal["none", "auto"], **elsewhere: str) -> dict[str, Any]:
        """Opens the engine on an empty folder, with settings of a Weaviate, which is empty, too."""

        def failed(error: BaseException) -> None:
            raise WrongAnswer(f"the store failed: {error}")

        # Upkeep would look at what was just loaded, in the middle of a sample.
        settings = Settings(data=Path(data), embedder=embedder, sweep_seconds=3_600, **elsewhere)  # type: ignore[arg-type] # Texts.
        self._engine: Engine = await self._stack.enter_async_context(open_engine(settings, on_fatal=failed))
        self._facts = self._engine.facts
        if embedder != "none":
            await self._facts.vectors.of("Loads the model.")
        return {"dimension": (await self._facts.store.stats()).model.dimension}

    async def load(self, count: int) -> dict[str, Any]:
        """Writes facts until there are so many; returns how long that took."""
        begun = time.perf_counter()
        dimension = (await self._facts.store.stats()).model.dimension
        now_ms = self._facts.ledger.now_ms
        while len(self._vectors) < count:
            first = len(self._vectors)
            numbers = range(first, min(first + _BATCH, count))
            made = [(_note(number, now_ms), Body(_text(number))) for number in numbers]
            vectors = self._numbers.standard_normal((len(made), dimension)).astype(np.float32)
            self._vectors += list(vectors)
            await self._facts.store.write(
                [
                    content_of(OWNER, note, note.newest, body, vector, now_ms=now_ms)
                    for (note, body), vector in zip(made, vectors.tolist(), strict=True)
                ]
            )
            mutations = [put(fact_key(note.id), note) for note, _ in made]
            await self._facts.ledger.change(OWNER, (), lambda _, found=tuple(mutations): found)  # type: ignore[misc]
        return {"seconds": time.perf_counter() - begun}

    async def search(self, rare: bool, calls: int) -> dict[str, Any]:
        """Asks for facts chosen at random, one after the other; ``rare`` leaves one fact in a hundred."""
        taken: list[float] = []
        for _ in range(calls):
            number = self._random.randrange(len(self._vectors))
            number -= number % RARE_EVERY if rare else 0
            kinds = (MemoryType.PROCEDURAL,) if rare else ()
            asked = SearchAsked(question_of(number), (OWNER,), limit=HITS, memory_types=kinds).checked()
            noise = self._numbers.standard_normal(len(self._vectors[number])).astype(np.float32)
            vector = (self._vectors[number] + noise / 2).tolist()
            self._begin()
            begun = time.perf_counter()
            ranking = await self._facts.retrieval.rank(asked, vector)
            hits = [one.hit() for one in packed(ranking.placed, asked.limit, asked.tokens_max)]
            taken.append((time.perf_counter() - begun) * 1e3)
            self._pause()
            left = -(-len(self._vectors) // RARE_EVERY) if rare else len(self._vectors)
            if len(hits) != min(HITS, left) or id_of(number) not in {hit.fact.id for hit in hits}:
                raise WrongAnswer(f"{asked.query!r} finds {len(hits)} facts, or not {_text(number)!r}")
        return {"p50_ms": percentile(taken, 0.5), "p99_ms": percentile(taken, 0.99), "calls": calls}

    async def nearest(self, questions: int, limit: int = HITS) -> list[list[str]]:
        """Returns which facts are nearest to questions, the same ones for every store of as many facts."""
        numbers = np.random.default_rng(1)
        where = SearchAsked("", (OWNER,)).checked().filter(self._facts.ledger.now_ms)
        found = []
        for at in range(questions):
            about = self._vectors[at * len(self._vectors) // questions]
            vector = about + numbers.standard_normal(len(about)).astype(np.float32) / 2
            hits = await self._facts.store.by_vector(vector.tolist(), where, limit)
            found.append([hit.key.fact_id for hit in hits])
        return found

    async def intake(self, candidates: int) -> dict[str, Any]:
        """Queues candidates of many owners and waits until all of them are decided."""
        first = self._submitted
        self._submitted += candidates
        made = [_candidate(number, self._facts.ledger.now_ms) for number in range(first, self._submitted)]
        of_owner: defaultdict[str, list[str]] = defaultdict(list)
        for candidate in made:
            of_owner[candidate.owner].append(candidate.id)
        self._begin()
        cpu, wall = time.process_time(), time.perf_counter()
        for start in range(0, len(made), _PUT):
            await self._facts.intake.enqueue(made[start : start + _PUT])
        queued = time.perf_counter() - wall
        made_of = await asyncio.gather(*(self._decided(owner, ids) for owner, ids in of_owner.items()))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        self._pause()
        statuses = Counter(status for statuses in made_of for status in statuses)
        if not statuses.keys() <= BECAME_FACT:
            raise WrongAnswer(f"not all of {candidates} candidates became facts: {dict(statuses)}")
        return {"wall_s": wall, "cpu_s": cpu, "queued_s": queued, "calls": candidates}

    async def profile(self, work: str, **arguments: Any) -> dict[str, Any]:
        """Runs ``search`` or ``intake`` under the profiler."""
        self._window = window = Window()
        try:
            await (self.search(**arguments) if work == "search" else self.intake(**arguments))
        finally:
            self._window = None
        return window.recorded()

    async def close(self) -> dict[str, Any]:
        """Closes the engine."""
        await self._stack.aclose()
        return {}

    async def _decided(self, owner: str, ids: Sequence[str]) -> list[Status]:
        """Waits until an owner's candidates are decided; returns what became of them."""
        while True:
            statuses = [decision.status for decision in await self._facts.decisions.wait(owner, ids)]
            if Status.QUEUED not in statuses:
                return statuses

    def _begin(self) -> None:
        if self._window is not None:
            self._window.begin()

    def _pause(self) -> None:
        if self._window is not None:
            self._window.pause()


def _text(number: int) -> str:
    name, thing, place = _words(number)
    return f"{name} keeps the {thing} number {number} in the {place}"


def question_of(number: int) -> str:
    """Returns what asks for one of the facts."""
    name, thing, _ = _words(number)
    return f"Where does {name} keep the {thing} number {number}?"


def _words(number: int) -> tuple[str, str, str]:
    return _NAMES[number % len(_NAMES)], _THINGS[number // 7 % len(_THINGS)], _PLACES[number // 3 % len(_PLACES)]


def id_of(number: int) -> str:
    """Returns the id of one of the facts."""
    return make_id(OWNER, digest("bench", str(number)))


def _note(number: int, now_ms: int) -> FactNote:
    """Returns what the ledger says of a fact; its slot plays no part in a search."""
    version = VersionNote(1, content_number(1, str(number)), now_ms, now_ms, NEVER_MS)
    kind = MemoryType.SEMANTIC if number % RARE_EVERY else MemoryType.PROCEDURAL
    key = digest("key", str(number))
    return FactNote(
        id_of(number),
        OWNER,
        FactState.CURRENT,
        (version,),
        key,
        memory_type=kind,
        trust=1.0,
        confidence=0.9,
        importance=0.7,
    )


def _candidate(number: int, now_ms: int) -> Candidate:
    owner = f"user/u{number % OWNERS}"
    return Candidate(
        id=make_id(owner, f"{number:024x}", kind=IdKind.CANDIDATE),
        scope=owner,
        owner=owner,
        text=_text(number),
        confidence=0.9,
        importance=0.7,
        channel=Channel.INTERNAL,
        trust=1.0,
        producer="bench",
        valid_from_ms=now_ms,
        submitted_ms=now_ms,
    )


async def run() -> None:
    """Obeys."""
    facts = Facts()
    await obey({name: getattr(facts, name) for name in ("open", "load", "search", "intake", "profile", "close")})


if __name__ == "__main__":
    main(run)
