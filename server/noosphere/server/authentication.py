"""Whether callers are asked who they are, and how: from the configuration to a step of the gate."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import structlog

from .addresses import is_loopback
from .config import Settings
from .drivers import StartupError
from .ports.coordinator import Coordinator
from .ports.runtime import Clock
from .rpc.steps.authentication import AuthenticationStep
from .security.authenticating import Authenticator
from .security.tokens import TOKENS
from .supervision import cancel, supervise

log = structlog.get_logger(__name__)


def asks_who_calls(settings: Settings) -> bool:
    """Tells whether every call needs a credential."""
    return settings.tokens or settings.tls_client_ca is not None


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
    if (
        settings.tokens
        and settings.tls_certificate is None
        and not is_loopback(settings.listen)
        and not settings.insecure
    ):
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
        on_fatal: called if the task ends that ends streams.
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
    step = AuthenticationStep(Authenticator(clock, tokens=tokens), clock, certificates=certificates)
    looking = asyncio.create_task(step.run(), name="noosphere-credentials")
    supervise((looking,), on_fatal)
    try:
        yield (step,)
    finally:
        await cancel((looking,))
