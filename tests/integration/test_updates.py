"""Facts that later ones contradict, through the whole pipeline: figures counted by hand, and gates on real sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.engine import LocalServer, local_server
from tests.support.updates import SMALL, real_sets, written

from noosphere.server.evaluation import (
    UPDATE_GATES,
    Placed,
    UpdatesError,
    UpdateSet,
    UpdatesScore,
    reaches,
    read_updates,
    score_updates,
)
from noosphere.server.evaluation.updates import Question, same_but_value


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with local_server(tmp_path, embedder="none") as started:
        yield started


async def scored(
    server: LocalServer, facts: tuple[str, ...], scope: str = "shared/updates", **questions: str
) -> UpdatesScore:
    asked = tuple(Question(text.replace("_", " "), (answer,)) for text, answer in questions.items())
    return await score_updates(server.engine.facts, UpdateSet("made-up", facts, asked), scope=scope)


async def test_what_is_superseded_contested_and_beside(server: LocalServer) -> None:
    score = await scored(
        server, SMALL, **{"What is the capital of Peru?": "Lima", "Which country is Anna Berg a citizen of?": "Austria"}
    )
    assert (score.facts, score.supersessions, score.false_supersessions) == (7, 1, ())
    # Whether somebody may be a citizen of two countries, no rule knows: both are kept, and the newer comes first.
    assert score.decided == {"contested": 1, "superseded": 1, "written": 5}
    assert score.questions == Placed(2, 100.0, 0.0)
    assert score.missed == ()


async def test_a_search_of_everything_finds_what_was_superseded(server: LocalServer) -> None:
    facts = ("The capital of Peru is Cusco, Peru.", "The capital of Peru is Lima.")
    score = await scored(server, facts, **{"Is Cusco, Peru the capital of Peru?": "Lima"})
    assert score.questions.current_first == 100.0
    assert (score.alone.current_first, score.alone.stale_first) == (0.0, 100.0)


@pytest.mark.parametrize(
    "facts",
    [
        ("Anna Berg is a citizen of Chile.", "Anna Berg is a citizen of Austria."),
        ("The capital of Peru is Lima.", "The capital of Peru is Cusco."),
        ("What a day, sang Ben in Chile.", "What a day, sang Ben in Peru."),
    ],
    ids=["who knows how many", "one at a time", "no slot"],
)
async def test_what_is_said_again_is_the_newest_again(server: LocalServer, facts: tuple[str, str]) -> None:
    first, second = facts
    answer = first.rstrip(".").rpartition(" ")[2]
    question = first.replace(answer, "what")
    score = await scored(server, (first, second, first), **{question: answer})
    assert score.questions == Placed(1, 100.0, 0.0)
    again = await scored(server, (first, second, first, second), scope="shared/again", **{question: answer})
    assert again.questions == Placed(1, 0.0, 100.0)


async def test_what_is_not_first_is_told(server: LocalServer) -> None:
    facts = ("The capital of Peru is Lima.", "The mayor of Lima is Ana.")
    score = await scored(
        server, facts, **{"Who is the mayor of Lima, the capital of Peru is which city?": "Bo", "capital Peru": "Lima"}
    )
    assert score.questions.current_first == 50.0
    assert [(asked, wanted) for asked, wanted, _ in score.missed] == [
        ("Who is the mayor of Lima, the capital of Peru is which city?", "")
    ]


async def test_the_order_of_the_numbers_counts_not_that_of_the_lines(tmp_path: Path) -> None:
    file = written(tmp_path, ["b", "a"], {"?": "a"})
    file.write_text(file.read_text().replace("0. b\\n1. a", "1. b\\n0. a"))
    [one] = read_updates(file)
    assert one.facts == ("a", "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "is no set of updates"),
        ("{", "is no JSON"),
        ('{"context": "x", "questions": [], "answers": []}', "has 0 numbered facts and 0 questions"),
        ('{"context": "0. a", "questions": ["?"], "answers": []}', "is no set of updates"),
    ],
)
def test_files_of_another_shape_are_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "set.json"
    file.write_text(content)
    with pytest.raises(UpdatesError, match=message):
        read_updates(file)


def test_a_folder_without_sets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UpdatesError, match="has no JSON files"):
        read_updates(tmp_path)
    with pytest.raises(UpdatesError, match="No such file"):
        read_updates(tmp_path / "nothing.json")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("The capital of Peru is Cusco.", "The capital of Peru is Lima.", True),
        ("Anna is a citizen of Chile.", "Anna is a citizen of Trinidad and Tobago.", True),
        ("Anna plays the position of striker.", "Anna plays the position of left back.", True),
        ("The capital of Peru is Lima.", "The capital of Chile is Santiago.", False),
        ("Anna is a citizen of Chile.", "Anna is married to Ben.", False),
        ("Anna was born in the city of Graz.", "Anna was raised in the city of Linz.", False),
        ("Acme was founded by Anna.", "Acme was founded in the city of Graz.", False),
        ("Anna likes tea.", "Ben likes tea.", False),
        ("Anna is tall.", "", False),
    ],
)
def test_what_contradicts_what_is_read_off_the_words(old: str, new: str, expected: bool) -> None:
    assert same_but_value(old, new) is expected


@pytest.mark.campaign
async def test_the_gates_are_reached_on_real_sets(server: LocalServer) -> None:
    for at, given in enumerate(read_updates(real_sets())):
        score = await score_updates(server.engine.facts, given, scope=f"shared/set-{at}")
        assert all(reaches(name, score.reached[name], gate) for name, gate in UPDATE_GATES.items()), score
