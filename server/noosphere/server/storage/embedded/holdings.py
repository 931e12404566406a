"""Where an incarnation may hold something, so that it can be freed when the incarnation ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ...ports.coordinator import Incarnation
from ..leasing import HOLDINGS_MAX, check_holdings, ended

Place = TypeVar("Place")


class Holdings(Generic[Place]):
    """Places by incarnation, of each at most as many as it may hold. A lapse is noticed when somebody looks.

    Args:
        what: what is held, in the words of a refusal.
        is_current: whether an incarnation has not ended.
        holds: whether an incarnation still holds a place.
    """

    def __init__(
        self, what: str, is_current: Callable[[Incarnation], bool], holds: Callable[[Incarnation, Place], bool]
    ) -> None:
        self._what = what
        self._is_current = is_current
        self._holds = holds
        self._places: dict[Incarnation, set[Place]] = {}

    def note(self, life: Incarnation | None, place: Place) -> None:
        """Notes that an incarnation may hold a place from now on; nobody's is not noted.

        Raises:
            Refusal: STALE_INCARNATION or LIMIT_EXCEEDED.
        """
        if life is None:
            return
        if not self._is_current(life):
            raise ended(life)
        places = self._places.setdefault(life, set())
        if place in places:
            return
        if len(places) >= HOLDINGS_MAX:
            places.difference_update([each for each in places if not self._holds(life, each)])
            check_holdings(self._what, len(places))
        places.add(place)

    def take(self, life: Incarnation) -> set[Place]:
        """Returns the places of an incarnation that ends, and forgets them."""
        return self._places.pop(life, set())
