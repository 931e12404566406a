"""Which messages a branch keeps."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.sessions.branches import Stretch, up_to
from noosphere.server.sessions.keys import MESSAGES, slot

KEYS = st.lists(st.integers(1, 50), unique=True, min_size=1, max_size=12).map(
    lambda found: [MESSAGES + slot(number, 0) for number in sorted(found)]
)


def held(stretches: tuple[Stretch, ...], messages: list[str]) -> list[str]:
    """Returns the messages that stretches hold."""
    return [key for key in messages if any(stretch.holds(key) for stretch in stretches)]


@given(messages=KEYS, cuts=st.lists(st.integers(1, 50), unique=True, max_size=4), last=st.integers(0, 11))
def test_what_is_kept_ends_with_the_last_message_itself(messages: list[str], cuts: list[int], last: int) -> None:
    bounds = ["", *(MESSAGES + f"{number:016x}" for number in sorted(cuts)), ""]
    whole = tuple(Stretch(low, high) for low, high in itertools.pairwise(bounds))
    assert held(whole, messages) == messages
    end = messages[min(last, len(messages) - 1)]
    assert held(up_to(whole, end), messages) == messages[: messages.index(end) + 1]
    # Kept once more, nothing is lost.
    assert held(up_to(up_to(whole, end), end), messages) == messages[: messages.index(end) + 1]


def test_without_a_last_message_nothing_is_kept() -> None:
    assert up_to((Stretch(),), "") == ()
