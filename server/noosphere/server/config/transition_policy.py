"""Settings of what decides which items leave the working memory of sessions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, SecretStr

from .endpoints import endpoint_url, model_of_endpoint


class TransitionPolicySettings(BaseModel):
    """Rules, or a model behind an endpoint and what it may use."""

    transition_policy: Literal["rules", "openai"] = Field(
        default="rules",
        description="What decides which items leave the working memory of sessions: rules, or a model behind an "
        "endpoint with OpenAI's API, within the rules' bounds.",
    )
    transition_policy_url: Annotated[str, AfterValidator(endpoint_url)] = Field(
        default="https://api.openai.com/v1",
        description="Base URL of the policy's endpoint. Its key is NOOSPHERE_TRANSITION_POLICY_KEY or in the file.",
    )
    transition_policy_model: Annotated[str, AfterValidator(model_of_endpoint)] = Field(
        default="",
        max_length=200,
        validate_default=True,
        description="Model that decides about working memory; must be given for transition_policy openai.",
    )
    transition_policy_key: SecretStr = Field(
        default=SecretStr(""),
        description="API key of the policy's endpoint; empty if it wants none.",
    )
    transition_policy_timeout_seconds: float = Field(
        default=2.0,
        ge=0.1,
        le=9,
        description="How long the policy's model may take. The end of a turn waits for it, so stay below the deadlines "
        "of clients (5 s by default).",
    )
    transition_policy_hourly_calls_max: int = Field(
        default=240,
        ge=1,
        le=1_000_000,
        description="Calls to the policy's endpoint within an hour; beyond, rules decide.",
    )
    transition_policy_hourly_tokens_max: int = Field(
        default=1_000_000,
        ge=1_000,
        le=1_000_000_000,
        description="Tokens, in and out, that the policy's model may use within an hour; beyond, rules decide.",
    )
    transition_policy_input_tokens_max: int = Field(
        default=8_000,
        ge=1_000,
        le=200_000,
        description="Tokens that one call to the policy's endpoint may be given; rules decide about the rest.",
    )
    transition_policy_json_schema: bool = Field(
        default=True,
        description="Ask the policy's endpoint to follow a JSON schema; turn off for one that does not know this.",
    )
