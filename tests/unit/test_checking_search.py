"""The search for a linearization agrees with trying every order, and knows its bound."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.checking_simulation import NAMESPACE, simulate
from tests.support.effort import examples

from noosphere.server.checking import Call, Op, check_calls
from noosphere.server.checking.operations import NOTHING, Condition, Operation
from noosphere.server.checking.registers import check_registers
from noosphere.server.checking.search import linearize

VALUES = ("x", "y", "z")


@st.composite
def operations(draw: st.DrawFn) -> list[Operation]:
    """Up to six operations on two registers, some of which may never have taken effect."""
    made = []
    for number in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, 8))
        optional = draw(st.integers(0, 4)) == 0
        end = math.inf if optional else start + draw(st.integers(0, 5))
        wanted, written = draw(_conditions()), draw(_conditions())
        refuted = draw(_conditions()) if not written and draw(st.booleans()) else ()
        call = Call("p", number, Op.GET, NAMESPACE, start)
        made.append(Operation(call, start, end, wanted, refuted, written, optional and bool(written)))
    return made


def _conditions() -> st.SearchStrategy[tuple[Condition, ...]]:
    values = st.dictionaries(st.integers(0, 1), st.sampled_from((NOTHING, *VALUES)), max_size=2)
    return values.map(lambda chosen: tuple(itertools.starmap(Condition, chosen.items())))


def linearizable_by_force(made: Sequence[Operation]) -> bool:
    required = [op for op in made if not op.optional]
    optional = [op for op in made if op.optional]
    for count in range(len(optional) + 1):
        for extra in itertools.combinations(optional, count):
            if any(_works(order) for order in itertools.permutations([*required, *extra])):
                return True
    return False


def _works(order: Sequence[Operation]) -> bool:
    values = [NOTHING, NOTHING]
    latest = -math.inf
    for op in order:
        if op.end_ns < latest:
            return False
        latest = max(latest, op.start_ns)
        if any(values[index] != value for index, value in op.requires):
            return False
        if any(values[index] == value for index, value in op.differs):
            return False
        for index, value in op.sets:
            values[index] = value
    return True


@settings(max_examples=examples(400))
@given(operations())
def test_the_search_agrees_with_trying_every_order(made: list[Operation]) -> None:
    result = linearize(made, 2)
    assert not result.exhausted
    assert (result.stuck is None) == linearizable_by_force(made)


def test_both_answers_occur_among_the_examples() -> None:
    """Guards the test above: its generator must produce histories of either kind."""

    def example(seed: int) -> list[Operation]:
        chance = random.Random(seed)
        return [
            Operation(
                Call("p", number, Op.GET, NAMESPACE, 0),
                start := chance.randrange(4),
                start + chance.randrange(4),
                (Condition(0, chance.choice((NOTHING, "x"))),),
                sets=(Condition(0, chance.choice(("x", NOTHING))),),
            )
            for number in range(4)
        ]

    answers = {linearizable_by_force(example(seed)) for seed in range(40)}
    assert answers == {True, False}
    assert all((linearize(example(s), 2).stuck is None) == linearizable_by_force(example(s)) for s in range(40))


def test_what_is_stuck_names_the_calls_that_cannot_come_next() -> None:
    write = Operation(Call("p", 1, Op.PUT, NAMESPACE, 0), 0, 1, sets=(Condition(0, "x"),))
    read = Operation(Call("q", 1, Op.GET, NAMESPACE, 2), 2, 3, requires=(Condition(0, NOTHING),))
    stuck = linearize([write, read], 1).stuck
    assert stuck is not None
    assert (stuck.placed, stuck.values, stuck.blocked) == (1, ("x",), (read,))


def test_a_search_that_meets_its_bound_is_undecided_and_not_valid() -> None:
    history = simulate(1)
    findings, _ = check_registers(NAMESPACE, history.calls, steps_max=1)
    assert findings.undecided
    assert not findings.violations
    verdict = check_calls(history, steps_max=1)
    assert str(verdict.status) == "undecided"
    assert not verdict.ok
    assert "no answer within 1 steps" in verdict.explain()


@pytest.mark.parametrize("writers", [8])
def test_concurrent_blind_writers_stay_cheap(writers: int) -> None:
    """Without memory of visited points this would take writers! steps for every round."""
    made = []
    for round_ in range(10):
        for writer in range(writers):
            call = Call(f"p{writer}", round_, Op.PUT, NAMESPACE, round_ * 10)
            made.append(Operation(call, round_ * 10, round_ * 10 + 5, sets=(Condition(0, f"{round_}.{writer}"),)))
    call = Call("reader", 1, Op.GET, NAMESPACE, 1000)
    made.append(Operation(call, 1000, 1001, requires=(Condition(0, NOTHING),)))
    result = linearize(made, 1)
    assert result.stuck is not None
    assert result.steps < 20_000
