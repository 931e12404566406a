"""The part of AdminService that is about grants."""

from __future__ import annotations

from collections.abc import Iterable

from noosphere.consistency import Reason, Refusal, decode_page, encode_page, fingerprint, invalid
from noosphere.v1 import admin_grants_pb2 as pb

from ..memory.grants import Entry, Grants
from ..ports.grants import GrantKey, Verb
from . import decode, encode
from .calls import Context, unary
from .pages import pattern_at, position_of

_APART = "\n"
"""Between the two patterns of a position; no pattern contains it."""


class GrantMethods:
    """The part of AdminService that is about grants."""

    _grants: Grants

    @unary
    async def SetGrant(self, request: pb.SetGrantRequest, context: Context) -> pb.SetGrantResponse:
        """See the proto."""
        grant = request.grant
        key = GrantKey(decode.pattern(grant.principal), decode.pattern(grant.resource))
        return pb.SetGrantResponse(config_version=await self._grants.set(key, verbs_of("grant.verbs", grant.verbs)))

    @unary
    async def ListGrants(self, request: pb.ListGrantsRequest, context: Context) -> pb.ListGrantsResponse:
        """See the proto."""
        query = fingerprint("grants")
        page = self._grants.list(
            page_size=request.page_size,
            after=_key_at(decode_page(request.page_token, query)) if request.page_token else None,
        )
        following = page.following
        return pb.ListGrantsResponse(
            grants=map(_grant, page.entries),
            config_version=page.config_version,
            next_page_token=""
            if following is None
            else encode_page(query, _APART.join(position_of(pattern) for pattern in following)),
        )

    @unary
    async def CheckGrant(self, request: pb.CheckGrantRequest, context: Context) -> pb.CheckGrantResponse:
        """See the proto."""
        (verb,) = verbs_of("verb", (request.verb,))
        checked = await self._grants.check(request.principal, request.agent_id, request.resource, verb)
        return pb.CheckGrantResponse(
            permitted=checked.why.allows, reason=checked.why.value, grants=map(_grant, checked.grants)
        )


def verbs_of(field: str, names: Iterable[str]) -> frozenset[Verb]:
    """Returns verbs by their names.

    Raises:
        Refusal: INVALID_FIELD.
    """
    found: set[Verb] = set()
    for name in names:
        try:
            found.add(Verb(name))
        except ValueError:
            raise invalid(field, f"{name!r} is none of {', '.join(Verb)}") from None
    return frozenset(found)


def _grant(entry: Entry) -> pb.Grant:
    key, verbs = entry
    return pb.Grant(
        principal=encode.pattern(key.principal),
        resource=encode.pattern(key.namespace),
        verbs=[verb for verb in Verb if verb in verbs],
    )


def _key_at(position: str) -> GrantKey:
    principal, apart, resource = position.partition(_APART)
    if not apart:
        raise Refusal(Reason.INVALID_PAGE_TOKEN, "page_token: is damaged or not a token")
    return GrantKey(pattern_at(principal), pattern_at(resource))
