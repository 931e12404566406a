"""Whether callers are asked who they are, and how: from the configuration to a step of the gate."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import structlog

from .addresses import is_loopback, is_url, split_list
from .config import Settings
from .drivers import StartupError
from .ports.coordinator import Coordinator
from .ports.runtime import Clock
from .rpc.steps.authentication import AuthenticationStep
from .rpc.steps.authorization import AuthorizationStep
from .security import Permissions
from .security.authenticating import Authenticator
from .security.jwks import UnfitKeys
from .security.jwts import JwtVerifier
from .security.keyfeed import JwksFile, JwksUrl, KeyFeed
from .security.tokens import TOKENS
from .supervision import cancel, supervise

log = structlog.get_logger(__name__)


def asks_who_calls(settings: Settings) -> bool:
    """Tells whether every call needs a credential."""
    return settings.tokens or bool(settings.jwt_jwks) or settings.tls_client_ca is not None


def check_reach(settings: Settings) -> None:
    """Checks that what other machines reach is protected, or is meant not to be.

    Raises:
        StartupError: it is not.
    """
    exposed = not is_loopback(settings.listen) and not settings.insecure
    if exposed and not asks_who_calls(settings):
        raise StartupError(
            f"other machines reach {settings.listen}, and nothing tells who calls: set tokens, jwt_issuer or "
            "tls_client_ca (docs/security.md shows how), listen on 127.0.0.1, or say --insecure to serve everybody"
        )
    if exposed and (settings.tokens or settings.jwt_jwks) and settings.tls_certificate is None:
        raise StartupError(
            f"other machines reach {settings.listen}, and tokens would cross the network in plain text: set "
            "tls_certificate and tls_key, or say --insecure where something else encrypts"
        )
    if settings.metrics_listen and not is_loopback(settings.metrics_listen) and not settings.metrics_open:
        raise StartupError(
            f"other machines reach the metrics at {settings.metrics_listen}, which ask nobody who they are: listen on "
            "127.0.0.1, or say --metrics-open"
        )


@contextlib.asynccontextmanager
async def authentication(
    settings: Settings, coordinator: Coordinator, clock: Clock, on_fatal: Callable[[BaseException], None]
) -> AsyncIterator[tuple[AuthenticationStep, ...]]:
    """Gives the step of the gate that finds out who calls; none where nobody is asked.

    Args:
        settings: the configuration.
        coordinator: keeps the API tokens.
        clock: the source of time.
        on_fatal: called if a task ends that ends streams, or keeps keys up to date.

    Raises:
        StartupError: the keys of an issuer cannot be read.
    """
    if not asks_who_calls(settings):
        if not is_loopback(settings.listen):
            log.warning("insecure: everybody who reaches this server may do everything", listen=settings.listen)
        yield ()
        return
    tokens = coordinator.table(TOKENS) if settings.tokens else None
    if tokens is not None and not tokens:
        log.warning("there is no API token yet; `noosphere token create --admin` makes the first one")
    certificates = settings.tls_client_ca is not None
    keys = await _keys(settings, clock)
    jwts = None if keys is None else _verifier(settings, keys, clock)
    authenticator = Authenticator(clock, tokens=tokens, jwts=jwts, permissions=Permissions(coordinator.policies))
    step = AuthenticationStep(authenticator, clock, certificates=certificates)
    tasks = [asyncio.create_task(step.run(), name="noosphere-credentials")]
    if keys is not None:
        tasks.append(asyncio.create_task(keys.run(), name="noosphere-keys"))
    supervise(tuple(tasks), on_fatal)
    try:
        yield (step,)
    finally:
        await cancel(tuple(tasks))


@contextlib.asynccontextmanager
async def authorizing(
    settings: Settings, clock: Clock, on_fatal: Callable[[BaseException], None]
) -> AsyncIterator[AuthorizationStep]:
    """Gives the step of the gate that lets pass what whoever calls may do.

    Args:
        settings: the configuration.
        clock: the source of time.
        on_fatal: called if the task ends that ends streams.
    """
    step = AuthorizationStep(clock)
    if not asks_who_calls(settings):
        yield step
        return
    tasks = (asyncio.create_task(step.run(), name="noosphere-grants"),)
    supervise(tasks, on_fatal)
    try:
        yield step
    finally:
        await cancel(tasks)


async def _keys(settings: Settings, clock: Clock) -> KeyFeed | None:
    """Returns the keys of the issuer of tokens, None where there is none.

    Raises:
        StartupError: they cannot be read from a file. A URL may come later; until then calls are refused.
    """
    where = settings.jwt_jwks
    if not where:
        return None
    try:
        place = (
            JwksUrl(where, settings.jwt_jwks_ca, settings.jwt_jwks_token_file)
            if is_url(where)
            else JwksFile(Path(where))
        )
    except UnfitKeys as error:
        raise StartupError(f"jwt_jwks: {where} {error}") from error
    feed = KeyFeed(place, clock)
    try:
        await feed.load()
    except (UnfitKeys, TimeoutError) as error:
        why = f"jwt_jwks: {where} {str(error) or 'does not answer'}"
        if not is_url(where):
            raise StartupError(why) from error
        log.error("tokens of the issuer are refused until its keys can be read", problem=why)
    return feed


def _verifier(settings: Settings, keys: KeyFeed, clock: Clock) -> JwtVerifier:
    admins = frozenset(split_list(settings.jwt_admins))
    return JwtVerifier(keys, settings.jwt_issuer, settings.jwt_audience, admins, clock)
