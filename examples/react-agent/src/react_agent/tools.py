"""What an agent is made of besides memory: a model and tools."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from noosphere.client import ToolSchema

Arguments = TypeVar("Arguments", bound=BaseModel)

Model = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], Awaitable[Mapping[str, Any]]]
"""A language model: ``messages`` and ``tools`` of OpenAI's chat completions in, the assistant's message out."""


@dataclass(frozen=True)
class Tool(Generic[Arguments]):
    """Something that the model may ask for.

    Attributes:
        name: what the model calls it by.
        description: what the model is told about it.
        arguments: the model of its arguments.
        run: does it; what it raises is told to the model. Returns a text, or anything that is JSON.
        side_effects: whether it changes the world.
        seconds_max: how long it may take; after that it has failed.
    """

    name: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Arguments], Awaitable[Any]]
    side_effects: bool = False
    seconds_max: float = 60

    @property
    def schema(self) -> ToolSchema:
        """What providers are told."""
        return ToolSchema(self.name, self.description, json.dumps(self.arguments.model_json_schema()))

    async def __call__(self, arguments: str) -> Any:
        """Runs it with arguments as a model wrote them.

        Raises:
            ValueError: they are not what it takes; the text says what is wrong with them.
        """
        return await self.run(self.arguments.model_validate_json(arguments or "{}"))
