"""Runs a command's calls: connects, and turns the client's errors into the command's."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from .common import Common
from .exits import CliError, ExitCode, usage
from .shapes import ConflictShape
from .views import dots_data, record_data

if TYPE_CHECKING:
    from noosphere.client import Client, Conflict, NoosphereError

T = TypeVar("T")

_TLS_FIELD = re.compile(r"(?:--)?\btls\.(ca|certificate|key)(?=:|\Z)")
_EXPLANATION_TOKENS_MAX = 600
_ADVICE = "--expected-version replaces what you saw, --blind whatever is there"
# What the server calls by the names of its API, as commands.
_HINTS = {
    "NAMESPACE_DELETED": " (`noosphere ns create` makes it live again)",
    "UNAUTHENTICATED": " (--token-file, NOOSPHERE_TOKEN_FILE or NOOSPHERE_TOKEN give a token)",
}


def call(coroutine: Coroutine[Any, Any, T], advice: str = _ADVICE) -> T:
    """Runs a command's calls to their end.

    Args:
        coroutine: the calls.
        advice: what somebody may do about a conflict.

    Raises:
        CliError: a call failed.
    """
    from noosphere.client import NoosphereError

    try:
        return asyncio.run(coroutine)
    except NoosphereError as error:
        raise cli_error(error, advice) from None


@asynccontextmanager
async def connected(options: Common) -> AsyncIterator[Client]:
    """Opens a client: as the agent that was asked for, else as a new one, which counts as an operator.

    Raises:
        CliError: an option (or the variable that stands for it) is malformed.
    """
    from noosphere.client import InvalidArgument, PermissionDenied, Tls, connect

    agent = options.agent if options.agent is not None else f"cli/{uuid.uuid4().hex[:12]}"
    files = options.tls_ca, options.tls_certificate, options.tls_key
    tls = None if files == (None, None, None) else Tls(*files)
    opened = partial(
        connect,
        options.server,
        agent=agent,
        tls=tls,
        token_file=None if options.token_file is None else str(options.token_file),
        allow_insecure=options.allow_insecure,
    )
    async with AsyncExitStack() as stack:
        try:
            connecting = opened() if options.timeout is None else opened(timeout=options.timeout)
            client = await stack.enter_async_context(connecting)
        except PermissionDenied as error:
            if options.agent is None:
                error.message += "; commands act as an agent under cli/, as administrators may: --agent names another"
            raise
        except InvalidArgument as error:
            # An argument of `connect` is an option of ours; a variable names itself.
            message = error.message if error.message.startswith("NOOSPHERE_") else f"--{error.message}"
            raise usage(_TLS_FIELD.sub(r"--tls-\1", message).replace("token_file", "token-file")) from None
        yield client


def cli_error(error: NoosphereError, advice: str = _ADVICE) -> CliError:
    """Returns a failed call as the command's error; see :func:`call`."""
    from noosphere.client import Conflict, DeadlineExceeded, Unavailable

    code = ExitCode.UNREACHABLE if isinstance(error, (Unavailable, DeadlineExceeded)) else ExitCode.REFUSED
    details: dict[str, Any] = {
        "message": error.message,
        "outcome": error.outcome,
        "request_id": error.request_id or None,
        "conflict": None,
    }
    # A namespace can be in another state than expected, too; only a record has something to explain.
    if not isinstance(error, Conflict) or not error.key:
        return CliError(code, f"{error}{_HINTS.get(error.reason, '')}", error.reason, details)
    explanation = error.explain(max_tokens=_EXPLANATION_TOKENS_MAX)
    details |= {"message": explanation, "conflict": _conflict_data(error)}
    return CliError(code, f"{error.reason}: {explanation} ({advice})", error.reason, details)


def _conflict_data(conflict: Conflict[Any]) -> ConflictShape:
    return {
        "namespace": conflict.namespace,
        "key": conflict.key,
        "theirs": None if conflict.theirs is None else record_data(conflict.theirs),
        "unseen": dots_data(conflict.unseen),
        "allowed": [action.value for action in conflict.allowed],
    }
