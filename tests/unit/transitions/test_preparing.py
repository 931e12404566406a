"""What a run of the controller prepares: facts near an open goal, and items that stand for several."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.transitions.items import live

from noosphere.consistency import NEVER_MS
from noosphere.server.models.extractive import ExtractiveSummariser
from noosphere.server.models.tokenizers import TokenizerRegistry
from noosphere.server.ports.facts import RecalledFact
from noosphere.server.ports.models import SummariserError
from noosphere.server.sessions.draft import Look
from noosphere.server.sessions.types import SessionInfo
from noosphere.server.transitions.preparing import PROMOTED_MAX, promotions, summary_items

LOOK = Look("s", None, SessionInfo("planner", 0), {})  # type: ignore[arg-type] # of a look only its session is asked
GOAL = live("goals/main", goal=True)
TOKENIZER = TokenizerRegistry(()).named("o200k_base")


def fact(number: int, **known: Any) -> RecalledFact:
    made = RecalledFact(f"f{number}", 2, f"Fact {number}.", "user/42", 0.5, 0.9, NEVER_MS)
    return made._replace(**known)


class Facts:
    """Recalls what it is given, or fails."""

    def __init__(self, found: Sequence[RecalledFact] | Exception) -> None:
        self.found = found
        self.query = ""

    async def embed(self, query: str) -> None:
        return None

    async def pinned(self, caller: str, owner: str, *, tokens_max: int) -> tuple[RecalledFact, ...]:
        raise AssertionError("nobody asks for the profile here")

    async def recall(self, caller: str, owners: Sequence[str], query: str, **limits: Any) -> tuple[RecalledFact, ...]:
        self.query = query
        assert (caller, tuple(owners)) == ("planner", ("agent/planner",))
        if isinstance(self.found, Exception):
            raise self.found
        return tuple(self.found)


async def test_facts_near_an_open_goal_enter_with_source_trust_and_reason() -> None:
    recall = Facts([fact(1)])
    (made,) = await promotions(recall, LOOK, [GOAL], 1_024)
    assert recall.query == "text of goals/main"
    assert made.key == "facts/f1"
    assert json.loads(made.data) == {
        "id": "f1",
        "text": "Fact 1.",
        "source": "user/42",
        "trust": 0.5,
        "version": 2,
    }
    assert "0.90" in made.explanation
    assert dict(made.attributes)["kind"] == "fact"


async def test_an_embedder_that_is_still_loading_is_not_waited_for() -> None:
    """Or the first turn of a server would end a second late, and without the facts that its words find."""

    class Loading(Facts):
        async def embed(self, query: str) -> None:
            await asyncio.Event().wait()

        async def recall(self, *asked: Any, **limits: Any) -> tuple[RecalledFact, ...]:
            assert limits["vector"] is None
            return await super().recall(*asked, **limits)

    (made,) = await promotions(Loading([fact(1)]), LOOK, [GOAL], 1_024)
    assert made.key == "facts/f1"


@pytest.mark.parametrize(
    ("known", "items"),
    [
        ({"trust": 0.4}, [GOAL]),
        ({"score": 0.09}, [GOAL]),
        ({}, [GOAL, live("facts/f1")]),
        ({"text": "x" * 2_000}, [GOAL]),
    ],
    ids=["little trust", "little relevance", "there already", "too large"],
)
async def test_what_does_not_enter(known: dict[str, Any], items: list[Any]) -> None:
    assert await promotions(Facts([fact(1, **known)]), LOOK, items, 1_024) == ()


async def test_at_most_three_enter_at_a_time_and_none_without_a_goal() -> None:
    many = [fact(number) for number in range(10)]
    assert len(await promotions(Facts(many), LOOK, [GOAL], 1_024)) == PROMOTED_MAX
    assert await promotions(Facts(many), LOOK, [live("notes/a")], 1_024) == ()
    assert await promotions(None, LOOK, [GOAL], 1_024) == ()


@pytest.mark.parametrize("error", [RuntimeError("broken"), TimeoutError()], ids=["broken", "slow"])
async def test_a_recall_that_fails_ends_no_turn(error: Exception) -> None:
    assert await promotions(Facts(error), LOOK, [GOAL], 1_024) == ()


class Broken:
    """A summariser that is away."""

    name = "broken/1"

    async def summarise(self, *given: Any) -> Any:
        raise SummariserError("away")


@pytest.mark.parametrize("summariser", [ExtractiveSummariser(), Broken()], ids=["by rules", "away"])
@pytest.mark.parametrize("bytes_max", [200, 1_024])
async def test_an_item_that_stands_for_several_fits_whoever_makes_it(summariser: Any, bytes_max: int) -> None:
    items = [live(f"notes/{number}")._replace(text=f"Sentence {number} 我们. " * 40) for number in range(6)]
    (made,) = (await summary_items(summariser, TOKENIZER, {"note": items}, 7, bytes_max)).values()
    assert made.key == "notes/summary-7-0"
    assert len(made.data) <= bytes_max
    found = json.loads(made.data)
    assert (found["kind"], found["items"]) == ("note", 6)
    assert "Sentence" in found["text"]
