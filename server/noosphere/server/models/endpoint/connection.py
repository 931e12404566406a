"""A connection to an endpoint with OpenAI's interface, through OpenAI's package: bounded, and naming what fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import SecretStr

from ...ports.models import ModelError

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

ANSWER_BYTES_MAX = 1024 * 1024
CONNECTIONS_MAX = 8
_NO_KEY = "none"
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500


class TooLarge(Exception):
    """An answer has more bytes than are read."""


class Connection:
    """Calls one endpoint: each time once, in bounded time, for a bounded answer.

    What the package would take from ``OPENAI_*`` variables is given, so that the server's configuration decides.

    Attributes:
        client: the package's client, for the call itself.
        host: the endpoint's host and port, for messages.
    """

    def __init__(
        self, *, url: str, key: SecretStr, timeout_seconds: float, answer_bytes_max: int = ANSWER_BYTES_MAX
    ) -> None:
        """Imports the package, which takes about a second, and opens no connection.

        Args:
            url: the endpoint's base, e.g. ``http://127.0.0.1:8000/v1``.
            key: the API key; empty if the endpoint wants none.
            timeout_seconds: how long an answer may take, connecting included.
            answer_bytes_max: larger answers are not read.

        Raises:
            ImportError: the extra ``models`` is not installed.
        """
        import openai

        for name in ("openai", "httpx2", "httpcore2"):
            # Debug lines of some of their versions hold the requests, which hold the conversation.
            logging.getLogger(name).setLevel(logging.WARNING)
        self.host = urlsplit(url).netloc.rpartition("@")[2]
        self._timeout_seconds = timeout_seconds
        self._answer_bytes_max = answer_bytes_max
        self._errors = openai
        self.client = openai.AsyncOpenAI(
            base_url=url,
            api_key=key.get_secret_value() or _NO_KEY,
            timeout=timeout_seconds,
            max_retries=0,
            default_headers={"Accept-Encoding": "identity"},
            http_client=openai.DefaultAsyncHttpxClient(
                event_hooks={"response": [self._bound]}, follow_redirects=False, limits=_limits()
            ),
        )
        self.client.organization = self.client.project = None

    async def aclose(self) -> None:
        """Closes the connections."""
        await self.client.close()

    async def call(self, request: Callable[[], Awaitable[T]]) -> T:
        """Makes a call of the package.

        Raises:
            ModelError: the endpoint is away, slow, refuses, or answers what cannot be read. The message says which and
                holds nothing of key, request or answer. What may go well a little later is marked so.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await request()
        except (TimeoutError, self._errors.APITimeoutError):
            reason = f"{self.host} did not answer within {self._timeout_seconds:g} s"
            raise ModelError(reason, passing=True) from None
        except self._errors.APIStatusError as error:
            status = error.status_code
            passing = status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR
            raise ModelError(f"{self.host} answered with HTTP status {status}", passing=passing) from None
        except Exception as error:
            # Malformed answers surface as whatever the package trips over, so nothing less will do.
            raise self._named(error) from None

    def _named(self, error: BaseException) -> ModelError:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, TooLarge):
                return ModelError(f"{self.host}: the answer has more than {self._answer_bytes_max} bytes")
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, self._errors.APIConnectionError):
            return ModelError(f"{self.host}: cannot connect, or the connection was lost", passing=True)
        return ModelError(f"{self.host}: the answer cannot be read ({type(error).__name__})")

    async def _bound(self, response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise TooLarge
        response.stream = _bounded(response.stream, self._answer_bytes_max)


def _limits() -> httpx2.Limits:
    import httpx2

    return httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=1)


def _bounded(stream: Any, bytes_max: int) -> httpx2.AsyncByteStream:
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = bytes_max
            async for chunk in stream:
                left -= len(chunk)
                if left < 0:
                    raise TooLarge
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
