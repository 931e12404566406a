"""Asks an endpoint with OpenAI's interface, through OpenAI's package: once, in bounded time, for a bounded answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from ...ports.models import SummariserError

if TYPE_CHECKING:
    import httpx2
    from openai.types.chat import ChatCompletion

ANSWER_BYTES_MAX = 1024 * 1024
CONNECTIONS_MAX = 8
_NO_KEY = "none"


class Reply(NamedTuple):
    """A model's answer, and the tokens that its endpoint says were used; 0 if it does not say."""

    text: str
    tokens: int


class TooLarge(Exception):
    """An answer has more bytes than are read."""


class Completions:
    """Chat completions of one model at one endpoint.

    What the package would take from ``OPENAI_*`` variables is given, so that the server's configuration decides.
    """

    def __init__(
        self,
        *,
        url: str,
        model: str,
        key: SecretStr,
        timeout_seconds: float,
        with_schema: bool = True,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        """Imports the package, which takes about a second, and opens no connection.

        Args:
            url: the endpoint's base, e.g. ``http://127.0.0.1:8000/v1``.
            model: the model's name.
            key: the API key; empty if the endpoint wants none.
            timeout_seconds: how long an answer may take, connecting included.
            with_schema: whether the endpoint is asked to follow a JSON schema.
            answer_bytes_max: larger answers are not read.

        Raises:
            ImportError: the extra ``models`` is not installed.
        """
        import openai

        for name in ("openai", "httpx2", "httpcore2"):
            # Debug lines of some of their versions hold the requests, which hold the conversation.
            logging.getLogger(name).setLevel(logging.WARNING)
        self.model = model
        self._host = urlsplit(url).netloc.rpartition("@")[2]
        self._timeout_seconds = timeout_seconds
        self._with_schema = with_schema
        self._answer_bytes_max = answer_bytes_max
        self._errors = openai
        self._client = openai.AsyncOpenAI(
            base_url=url,
            api_key=key.get_secret_value() or _NO_KEY,
            timeout=timeout_seconds,
            max_retries=0,
            default_headers={"Accept-Encoding": "identity"},
            http_client=openai.DefaultAsyncHttpxClient(
                event_hooks={"response": [self._bound]}, follow_redirects=False, limits=_limits()
            ),
        )
        self._client.organization = self._client.project = None
        # The package imports this part of itself at first use, which would hold up the event loop.
        self._create = self._client.chat.completions.create

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def ask(self, system: str, user: str, schema: Mapping[str, Any], tokens_max: int) -> Reply:
        """Returns the model's answer.

        Args:
            system: the instructions.
            user: the data.
            schema: JSON schema of the answer.
            tokens_max: the most that the answer may have.

        Raises:
            SummariserError: the endpoint is away, slow, refuses, or answers what cannot be used. The message says which
                and holds nothing of key, request or answer.
        """
        extra: dict[str, Any] = {}
        if self._with_schema:
            form = {"name": "summary", "schema": dict(schema), "strict": True}
            extra["response_format"] = {"type": "json_schema", "json_schema": form}
        try:
            async with asyncio.timeout(self._timeout_seconds):
                completion = await self._create(
                    model=self.model,
                    messages=[{"role": "system", "content": system}, {"role": "user", "content": user}],
                    max_completion_tokens=tokens_max,
                    **extra,
                )
        except (TimeoutError, self._errors.APITimeoutError):
            raise SummariserError(f"{self._host} did not answer within {self._timeout_seconds:g} s") from None
        except self._errors.APIStatusError as error:
            raise SummariserError(f"{self._host} answered with HTTP status {error.status_code}") from None
        except Exception as error:
            # Malformed answers surface as whatever the package trips over, so nothing less will do.
            raise SummariserError(f"{self._host}: {self._name(error)}") from None
        return self._reply(completion)

    def _reply(self, completion: ChatCompletion) -> Reply:
        """Reads an answer with suspicion: the package takes an endpoint's word for what its fields are."""
        try:
            choice = completion.choices[0]
            text, reason, refusal = choice.message.content, choice.finish_reason, choice.message.refusal
        except (AttributeError, IndexError, TypeError):
            raise SummariserError(f"{self._host}: the answer is no chat completion") from None
        if reason == "length":
            raise SummariserError(f"{self._host}: the answer was cut off by the limit on its tokens")
        if refusal or reason == "content_filter":
            raise SummariserError(f"{self._host}: the model refused")
        if text is not None and not isinstance(text, str):
            raise SummariserError(f"{self._host}: the answer is no chat completion")
        used = getattr(completion.usage, "total_tokens", None)
        return Reply(text or "", used if isinstance(used, int) else 0)

    def _name(self, error: BaseException) -> str:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, TooLarge):
                return f"the answer has more than {self._answer_bytes_max} bytes"
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, self._errors.APIConnectionError):
            return "cannot connect, or the connection was lost"
        return f"the answer cannot be read ({type(error).__name__})"

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
