"""API tokens: made, listed, narrowed and revoked."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from noosphere.consistency import Reason, Refusal, decode_page, encode_page, fingerprint, invalid
from noosphere.v1 import admin_tokens_pb2 as pb

from ..memory.reads import check_page_size
from ..ports.grants import Verb
from ..security import calling
from ..security.minting import ApiTokens, Narrowed, Wanted
from ..security.tokens import StoredToken
from . import decode, encode
from .calls import Context, unary
from .times import duration_ms, timestamp


class TokenMethods:
    """The part of AdminService that is about API tokens."""

    _tokens: ApiTokens

    @unary
    async def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> pb.CreateTokenResponse:
        """See the proto."""
        _require_admin()
        wanted = Wanted(
            request.principal,
            request.admin,
            tuple(decode.pattern(one) for one in request.agents),
            tuple(request.owners),
            request.session,
            _verbs(request.verbs),
            _ttl_ms(request.ttl) if request.HasField("ttl") else 0,
            request.note,
        )
        made = await self._tokens.create(wanted, calling.get().name)
        return pb.CreateTokenResponse(token=made.text, info=info(made.token_id, made.stored))

    @unary
    async def CreateScopedToken(
        self, request: pb.CreateScopedTokenRequest, context: Context
    ) -> pb.CreateScopedTokenResponse:
        """See the proto."""
        narrowed = Narrowed(
            request.agent,
            request.owner,
            request.session,
            _verbs(request.verbs),
            _ttl_ms(request.ttl) if request.HasField("ttl") else 0,
        )
        made = await self._tokens.narrow(calling.get(), narrowed)
        return pb.CreateScopedTokenResponse(token=made.text, info=info(made.token_id, made.stored))

    @unary
    async def ListTokens(self, request: pb.ListTokensRequest, context: Context) -> pb.ListTokensResponse:
        """See the proto."""
        _require_admin()
        query = fingerprint("tokens")
        found, following = self._tokens.list(
            after=decode_page(request.page_token, query) if request.page_token else "",
            count_max=check_page_size(request.page_size),
        )
        return pb.ListTokensResponse(
            tokens=[info(token_id, stored) for token_id, stored in found],
            next_page_token="" if following is None else encode_page(query, following),
        )

    @unary
    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.RevokeTokenResponse:
        """See the proto."""
        _require_admin()
        return pb.RevokeTokenResponse(revoked_count=await self._tokens.revoke(request.token_id))


def _require_admin() -> None:
    """Checks, beside whatever the gate does, that an administrator calls: tokens are the keys to everything.

    Raises:
        Refusal: PERMISSION_DENIED.
    """
    principal = calling.get()
    if not principal.open and not (principal.admin and (principal.verbs is None or Verb.ADMIN in principal.verbs)):
        raise Refusal(Reason.PERMISSION_DENIED, "only an administrator may do this")


def info(token_id: str, stored: StoredToken) -> pb.TokenInfo:
    """Returns a token as the API shows it."""
    identity = stored.identity(token_id)
    return pb.TokenInfo(
        token_id=token_id,
        principal=stored.principal,
        admin=stored.admin,
        agents=[encode.pattern(pattern) for pattern in identity.agents],
        owners=(*stored.owners, *filter(None, (stored.granted_owner,))),
        session=stored.session,
        verbs=stored.verbs or (),
        create_time=timestamp(stored.created_ms),
        expire_time=timestamp(stored.expires_ms) if stored.expires_ms else None,
        only_agents=stored.only_agents,
        only_owners=stored.only_owners,
        parent_token_id=stored.parent,
        creator=stored.creator,
        note=stored.note,
    )


def _verbs(names: Iterable[str]) -> frozenset[Verb] | None:
    found: set[Verb] = set()
    for name in names:
        try:
            found.add(Verb(name))
        except ValueError:
            raise invalid("verbs", f"{name!r} is none of {', '.join(Verb)}") from None
    return frozenset(found) or None


def _ttl_ms(ttl: Duration) -> int:
    found = duration_ms("ttl", ttl)
    if found <= 0:
        raise invalid("ttl", "must be positive, or absent")
    return found
