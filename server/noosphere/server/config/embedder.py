"""Settings of what tells the meaning of facts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, SecretStr

from .endpoints import dimension_of_endpoint, endpoint_url, model_of_endpoint


class EmbedderSettings(BaseModel):
    """A bundled model, or one behind an endpoint and what it may use."""

    embedder: Literal["auto", "bundled", "openai", "none"] = Field(
        default="auto",
        description="What tells the meaning of facts: auto (bundled if it is installed, else none), the bundled model, "
        "a model behind an endpoint with OpenAI's API, or none: facts are then found by keywords alone.",
    )
    embedder_url: Annotated[str, AfterValidator(endpoint_url)] = Field(
        default="https://api.openai.com/v1",
        description="Base URL of the embedder's endpoint. Its key comes from NOOSPHERE_EMBEDDER_KEY or the file.",
    )
    embedder_model: Annotated[str, AfterValidator(model_of_endpoint)] = Field(
        default="",
        max_length=200,
        validate_default=True,
        description="Model that makes vectors; must be given for embedder openai.",
    )
    embedder_dimension: Annotated[int, AfterValidator(dimension_of_endpoint)] = Field(
        default=0,
        ge=0,
        le=8_192,
        validate_default=True,
        description="How many numbers the vectors of embedder_model have; must be given for embedder openai.",
    )
    embedder_shortened: bool = Field(
        default=False,
        description="Ask the embedder's endpoint for embedder_dimension numbers; only some models can shorten.",
    )
    embedder_key: SecretStr = Field(
        default=SecretStr(""),
        description="API key of the embedder's endpoint; empty if it wants none.",
    )
    embedder_timeout_seconds: float = Field(
        default=10.0,
        ge=0.1,
        le=600,
        description="How long an endpoint may take for vectors. A search waits for less, and does without.",
    )
    embedder_hourly_calls_max: int = Field(
        default=20_000,
        ge=1,
        le=10_000_000,
        description="Calls to the embedder's endpoint within an hour; beyond, facts are found by keywords alone.",
    )
    embedder_hourly_tokens_max: int = Field(
        default=20_000_000,
        ge=1_000,
        le=10_000_000_000,
        description="Tokens that the embedder's endpoint may read within an hour; beyond, keywords alone.",
    )
    embedder_text_tokens_max: int = Field(
        default=512,
        ge=16,
        le=32_000,
        description="Tokens of one text that the embedder's endpoint is given: the beginning of a longer one.",
    )
