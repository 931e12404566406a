"""Which elements of an array the task has been about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .document import Fields, Node, Number
from .past import Past

CHARS_MIN = 4
"""Shorter values are met by chance."""
SCALARS_MAX = 32
"""Only this many values of an element are looked at."""

_EMPHASIS = 3.0


class Chosen(NamedTuple):
    """Some elements, and the emphasis on each.

    Attributes:
        places: where they stood, ascending.
        emphasis: 1 for an element that the task has not been about, up to 4.
        ranks: for each, how many of them have more emphasis, or as much and stand before it.
    """

    places: list[int]
    emphasis: list[float]
    ranks: list[int]


def shortlist(elements: Sequence[Node], keys: Sequence[str], past: Past, elements_max: int) -> Chosen:
    """Chooses the elements to look at: those that the past names, then the first ones and the last.

    A value that many elements share names none of them, nor does a short one.

    Args:
        elements: the elements of an array, or the values of an object of objects.
        keys: in the second case their keys.
        past: what came before.
        elements_max: how many to choose, at least 1.
    """
    named = [_named(element, past) for element in elements]
    for weights, key in zip(named, keys, strict=False):
        if weight := past.mentions(key):
            weights[key] = weight
    spread = Counter(text for weights in named for text in weights)
    count = len(elements)
    rank = [min(1.0, sum(weight * (1 - spread[text] / count) for text, weight in each.items())) for each in named]
    places = list(range(count))
    if count > elements_max:
        ahead = sorted((place for place in places if rank[place] > 0), key=lambda place: (-rank[place], place))
        in_order = (*ahead[: elements_max * 3 // 4], 0, count - 1, *places)
        places = sorted(list(dict.fromkeys(in_order))[:elements_max])
    ranks = [0] * len(places)
    for number, index in enumerate(sorted(range(len(places)), key=lambda index: (-rank[places[index]], index))):
        ranks[index] = number
    return Chosen(places, [1 + _EMPHASIS * rank[place] for place in places], ranks)


def _named(element: Node, past: Past) -> dict[str, float]:
    texts = dict.fromkeys(text for text in _scalars(element) if len(text) >= CHARS_MIN)
    weights = ((text, past.mentions(text)) for text in texts)
    return {text: weight for text, weight in weights if weight}


def _scalars(element: Node) -> Iterator[str]:
    """Yields texts of an element's values, the outermost first."""
    if isinstance(element, str | Number):
        yield element if isinstance(element, str) else element.text
        return
    level: list[Node] = [element]
    left = SCALARS_MAX
    while level and left > 0:
        inner: list[Node] = []
        for node in level[:left]:
            if isinstance(node, str | Number):
                yield node if isinstance(node, str) else node.text
                left -= 1
            elif isinstance(node, Fields):
                inner.extend(value for _, value in node[:SCALARS_MAX])
            elif isinstance(node, list):
                inner.extend(node[:SCALARS_MAX])
        level = inner
