"""How many namespaces agents and principals have made, checked before one is made.

What was made through this process is remembered, as long as it is there; a name stands here before its namespace does,
so attempts at the same time do not pass a limit together. At a limit those that were looked at longest ago are looked
at again: what was deleted meanwhile, wherever, or never came to be, makes room.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping

from noosphere.consistency import exhausted

from ..ports.store import NamespaceRef, WorkingStore
from ..security.allowances import Subject
from ..security.principal import Principal

REMEMBERED_MAX = 400_000
"""Namespaces that are remembered, of all makers. Whoever has made one longest ago is forgotten first."""
_LOOKED_AT_MAX = 64

LimitsOf = Callable[[Subject, str], Mapping[str, int]]
"""Tells the limits of a name: ``namespaces_max``, 0 for none."""

_Maker = tuple[Subject, str, str]
"""Of whom: the subject, its principal, and its agent; "" for all agents of a principal."""
_Made = dict[str, NamespaceRef]
"""By name, those first that were made or looked at longest ago."""


class Makers:
    """See the module.

    Args:
        store: holds the namespaces.
        limits_of: tells the limits.
        remembered_max: namespaces that are remembered.
    """

    def __init__(self, store: WorkingStore, limits_of: LimitsOf, remembered_max: int = REMEMBERED_MAX) -> None:
        self._store = store
        self._limits_of = limits_of
        self._remembered_max = remembered_max
        self._remembered = 0
        self._made: OrderedDict[_Maker, _Made] = OrderedDict()

    async def check(self, principal: Principal, agent_id: str, ref: NamespaceRef) -> None:
        """Checks that a namespace that is not there may be made, and counts it as made.

        Raises:
            Refusal: LIMIT_EXCEEDED; nothing is counted.
        """
        if principal.admin or not agent_id:
            return
        limited = [
            (maker, limit)
            for maker, name in _makers(principal, agent_id)
            if (limit := self._limits_of(maker[0], name)["namespaces_max"])
        ]
        for maker, limit in limited:
            made = self._made.get(maker, {})
            if len(made) >= limit and ref.name not in made:
                await self._look_again(made)
        # From here on nobody else comes in between.
        for maker, limit in limited:
            made = self._made.get(maker, {})
            if len(made) >= limit and ref.name not in made:
                raise exhausted(
                    f"{maker[0]}.namespaces", len(made) + 1, limit, "too many namespaces were made and not deleted"
                )
        for maker, _ in limited:
            made = self._made.setdefault(maker, {})
            self._made.move_to_end(maker)
            self._remembered += ref.name not in made
            made[ref.name] = ref
        self._forget()

    async def _look_again(self, made: _Made) -> None:
        for ref in tuple(itertools.islice(made.values(), _LOOKED_AT_MAX)):
            view = (await self._store.read(ref, (), accepted=True)).view
            if made.get(ref.name) is not ref:
                continue
            if view.exists and not view.deleted:
                made[ref.name] = made.pop(ref.name)
            else:
                del made[ref.name]
                self._remembered -= 1

    def _forget(self) -> None:
        while self._remembered > self._remembered_max:
            _, forgotten = self._made.popitem(last=False)
            self._remembered -= len(forgotten)


def _makers(principal: Principal, agent_id: str) -> list[tuple[_Maker, str]]:
    found = [((Subject.AGENT, principal.name, agent_id), agent_id)]
    if not principal.open:
        found.append(((Subject.PRINCIPAL, principal.name, ""), principal.name))
    return found
