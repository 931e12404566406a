"""Chat completions of one model: what it is asked, and what its answer says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...ports.models import ModelError
from .connection import Connection

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion


class Reply(NamedTuple):
    """A model's answer, and the tokens that its endpoint says were used; 0 if it does not say."""

    text: str
    tokens: int


class Asks(Protocol):
    """Asks a model; see :class:`Completions`."""

    model: str

    async def ask(self, system: str, user: str, schema: Mapping[str, Any], tokens_max: int) -> Reply:
        """Returns the model's answer, or raises ModelError."""
        ...


class Completions:
    """Chat completions of one model at one endpoint.

    Args:
        connection: to the endpoint.
        model: the model's name.
        with_schema: whether the endpoint is asked to follow a JSON schema.
    """

    def __init__(self, connection: Connection, model: str, *, with_schema: bool = True) -> None:
        self.model = model
        self._connection = connection
        self._with_schema = with_schema
        # The package imports this part of itself at first use, which would hold up the event loop.
        self._create = connection.client.chat.completions.create

    async def ask(self, system: str, user: str, schema: Mapping[str, Any], tokens_max: int) -> Reply:
        """Returns the model's answer.

        Args:
            system: the instructions.
            user: the data.
            schema: JSON schema of the answer; its title names it.
            tokens_max: the most that the answer may have.

        Raises:
            ModelError: the endpoint is away, slow, refuses, or answers what cannot be used. The message says which
                and holds nothing of key, request or answer.
        """
        extra: dict[str, Any] = {}
        if self._with_schema:
            form = {"name": schema["title"], "schema": dict(schema), "strict": True}
            extra["response_format"] = {"type": "json_schema", "json_schema": form}
        completion = await self._connection.call(
            lambda: self._create(
                model=self.model,
                messages=[{"role": "system", "content": system}, {"role": "user", "content": user}],
                max_completion_tokens=tokens_max,
                **extra,
            )
        )
        return self._reply(completion)

    def _reply(self, completion: ChatCompletion) -> Reply:
        """Reads an answer with suspicion: the package takes an endpoint's word for what its fields are."""
        host = self._connection.host
        try:
            choice = completion.choices[0]
            text, reason, refusal = choice.message.content, choice.finish_reason, choice.message.refusal
        except (AttributeError, IndexError, TypeError):
            raise ModelError(f"{host}: the answer is no chat completion") from None
        if reason == "length":
            raise ModelError(f"{host}: the answer was cut off by the limit on its tokens")
        if refusal or reason == "content_filter":
            raise ModelError(f"{host}: the model refused")
        if text is not None and not isinstance(text, str):
            raise ModelError(f"{host}: the answer is no chat completion")
        used = getattr(completion.usage, "total_tokens", None)
        return Reply(text or "", used if isinstance(used, int) else 0)
