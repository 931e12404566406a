"""Settings of what makes rolling summaries."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, SecretStr

from .endpoints import endpoint_url, model_of_endpoint


class SummariserSettings(BaseModel):
    """Rules, or a model behind an endpoint and what it may use."""

    summariser: Literal["extractive", "openai"] = Field(
        default="extractive",
        description="What makes rolling summaries: extractive rules, or a model behind an endpoint with OpenAI's API.",
    )
    summariser_url: Annotated[str, AfterValidator(endpoint_url)] = Field(
        default="https://api.openai.com/v1",
        description="Base URL of the summariser's endpoint. Its key comes from NOOSPHERE_SUMMARISER_KEY or the file.",
    )
    summariser_model: Annotated[str, AfterValidator(model_of_endpoint)] = Field(
        default="",
        max_length=200,
        validate_default=True,
        description="Model that makes summaries; must be given for summariser openai.",
    )
    summariser_key: SecretStr = Field(
        default=SecretStr(""),
        description="API key of the summariser's endpoint; empty if it wants none.",
    )
    summariser_timeout_seconds: float = Field(
        default=30.0,
        ge=0.1,
        le=600,
        description="How long a model may take for an answer. No call of a client waits for it.",
    )
    summariser_hourly_calls_max: int = Field(
        default=120,
        ge=1,
        le=1_000_000,
        description="Calls to the model within an hour; beyond, rules make the summaries.",
    )
    summariser_hourly_tokens_max: int = Field(
        default=1_000_000,
        ge=1_000,
        le=1_000_000_000,
        description="Tokens, in and out, that the model may use within an hour; beyond, rules make the summaries.",
    )
    summariser_input_tokens_max: int = Field(
        default=24_000,
        ge=1_000,
        le=2_000_000,
        description="Tokens that one call to the model may be given; more is summarised in steps.",
    )
    summariser_json_schema: bool = Field(
        default=True,
        description="Ask the model's endpoint to follow a JSON schema; turn off for one that does not know this.",
    )
