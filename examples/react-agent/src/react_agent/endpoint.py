"""Models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from openai import AsyncOpenAI, omit

from .tools import Model


def endpoint_model(client: AsyncOpenAI, name: str, *, reserve_output: int = 1024) -> Model:
    """Returns a model behind an endpoint.

    Args:
        client: knows the endpoint: ``AsyncOpenAI()`` reads OPENAI_BASE_URL and OPENAI_API_KEY.
        name: the model's name there.
        reserve_output: tokens that an answer may have.
    """

    async def think(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        completion = await client.chat.completions.create(
            model=name,
            messages=list(messages),  # type: ignore[arg-type]  # they are what the server made for this very call
            tools=list(tools) or omit,  # type: ignore[arg-type]
            max_completion_tokens=reserve_output,
        )
        if not completion.choices:
            raise RuntimeError(f"{name} has answered without a choice")
        reply = completion.choices[0].message.model_dump(exclude_none=True)
        for call in reply.get("tool_calls") or ():
            # Some endpoints give every answer's calls the same ids, or none. In a session an id is one call.
            call["id"] = f"call_{secrets.token_hex(8)}"
        return reply

    return think
