"""Grants as administrators see them: set, listed, and asked what they come to."""

from __future__ import annotations

import bisect
from typing import NamedTuple

from noosphere.consistency import NamePattern, check_agent_id, invalid

from ..ports.grants import GrantKey, Verb
from ..security import Principal, Unsettled, Why
from ..security.permissions import about, check_grant
from .core import Core
from .reads import PAGE_BYTES_MAX, check_page_size

SHOWN_MAX = 100
"""How many grants a check shows."""

_ENTRY_BYTES = 128
"""More than a grant takes on the wire beside its patterns' texts."""

Entry = tuple[GrantKey, frozenset[Verb]]


class GrantPage(NamedTuple):
    """Some of the grants, in order; ``following`` is the last one's patterns if there are more."""

    entries: tuple[Entry, ...]
    config_version: int
    following: GrantKey | None


class Checked(NamedTuple):
    """Whether something is permitted, as the reason says, and the grants that are about it."""

    why: Why
    grants: tuple[Entry, ...]


class Grants:
    """Administration of grants."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def set(self, key: GrantKey, verbs: frozenset[Verb]) -> int:
        """Grants these verbs and no others, or (none) takes a grant back; returns the configuration version.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED, CONTENTION, ENGINE_UNAVAILABLE.
        """
        check_grant(key, verbs)
        return await self._core.coordinator.set_grant(key, verbs)

    def list(self, *, page_size: int, after: GrantKey | None) -> GrantPage:
        """Returns one page of the grants, by the text of their patterns.

        Raises:
            Refusal: INVALID_FIELD.
        """
        size = check_page_size(page_size)
        table = self._core.coordinator.policies()
        keys = sorted(table.grants)
        begin = 0 if after is None else bisect.bisect_right(keys, after)
        page: list[Entry] = []
        taken = 0
        for key in keys[begin : begin + size]:
            if taken >= PAGE_BYTES_MAX:
                break
            page.append((key, table.grants[key]))
            taken += _ENTRY_BYTES + sum(len(pattern.text.encode()) for pattern in key)
        more = begin + len(page) < len(keys)
        return GrantPage(tuple(page), table.config_version, page[-1][0] if more else None)

    async def check(self, principal: str, agent_id: str, resource: str, verb: Verb) -> Checked:
        """Tells whether a principal with a plain credential may do something, and why.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, ENGINE_UNAVAILABLE.
        """
        if not principal:
            raise invalid("principal", "must not be empty")
        if agent_id:
            check_agent_id(agent_id)
        check_grant(GrantKey(NamePattern(principal, True), NamePattern(resource, True)), frozenset({verb}))
        grants = self._core.coordinator.policies().grants
        found = sorted((key, verbs) for key, verbs in grants.items() if about(key, principal, resource))
        return Checked(await self._why(Principal(principal), agent_id, resource, verb), tuple(found[:SHOWN_MAX]))

    async def _why(self, principal: Principal, agent_id: str, resource: str, verb: Verb) -> Why:
        access = self._core.access
        if agent_id and not access.permissions.may_act_as(principal, agent_id):
            return Why.NOT_ITS_AGENT
        why = access.permissions.why(principal, agent_id, resource, verb)
        if why.allows:
            return why
        try:
            uses = access.may_as(principal, agent_id, resource, verb, lately=True)
        except Unsettled as unsettled:
            await unsettled.settle()
            uses = access.may_as(principal, agent_id, resource, verb, lately=True)
        return Why.USES if uses else why
