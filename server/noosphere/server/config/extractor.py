"""Settings of what finds facts in texts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, SecretStr

from .endpoints import endpoint_url, model_of_endpoint


class ExtractorSettings(BaseModel):
    """Rules, or a model behind an endpoint and what it may use; and when."""

    extractor: Literal["rules", "openai"] = Field(
        default="rules",
        description="What finds facts in conversations and documents: rules, or a model behind an endpoint with "
        "OpenAI's API.",
    )
    extract_after: Literal["turn", "request"] = Field(
        default="turn",
        description="When facts are extracted from a session: in the background after each turn, or on request only.",
    )
    extractor_url: Annotated[str, AfterValidator(endpoint_url)] = Field(
        default="https://api.openai.com/v1",
        description="Base URL of the extractor's endpoint. Its key comes from NOOSPHERE_EXTRACTOR_KEY or the file.",
    )
    extractor_model: Annotated[str, AfterValidator(model_of_endpoint)] = Field(
        default="",
        max_length=200,
        validate_default=True,
        description="Model that extracts facts; must be given for extractor openai.",
    )
    extractor_key: SecretStr = Field(
        default=SecretStr(""),
        description="API key of the extractor's endpoint; empty if it wants none.",
    )
    extractor_timeout_seconds: float = Field(
        default=60.0,
        ge=0.1,
        le=600,
        description="How long a model may take to extract from one piece of text. No call of a client waits for it.",
    )
    extractor_hourly_calls_max: int = Field(
        default=240,
        ge=1,
        le=1_000_000,
        description="Calls to the extractor's endpoint within an hour; beyond, extractions wait.",
    )
    extractor_hourly_tokens_max: int = Field(
        default=2_000_000,
        ge=1_000,
        le=1_000_000_000,
        description="Tokens, in and out, that extractions may use within an hour; beyond, they wait.",
    )
    extractor_input_tokens_max: int = Field(
        default=12_000,
        ge=1_000,
        le=2_000_000,
        description="Tokens that one call to the extractor's endpoint may be given; more is extracted in pieces.",
    )
    extractor_json_schema: bool = Field(
        default=True,
        description="Ask the extractor's endpoint to follow a JSON schema; turn off for one that does not know this.",
    )
