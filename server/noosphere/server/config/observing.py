"""Settings of what a server tells about itself: logs, metrics and traces."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from ..addresses import an_address_or_nowhere
from .endpoints import endpoint_url


def url_or_nowhere(url: str) -> str:
    """Returns the URL of an HTTP API, or nothing.

    Raises:
        ValueError: it is neither.
    """
    return url and endpoint_url(url)


class ObservingSettings(BaseModel):
    """What a server tells its operator, and where."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log lines to print."
    )
    log_format: Literal["console", "json"] = Field(
        default="console", description="Log lines for people, or one JSON object a line for programs."
    )
    slow_call_ms: int = Field(
        default=1_000,
        ge=0,
        le=3_600_000,
        description="Log a line about each call that takes as many milliseconds, at most five a second; 0 logs none.",
    )
    metrics_listen: Annotated[str, AfterValidator(an_address_or_nowhere)] = Field(
        default="",
        description="Address to serve Prometheus metrics on, as host:port; empty serves none. One that other machines "
        "reach needs metrics_open.",
    )
    metrics_open: bool = Field(
        default=False,
        description="Let metrics_listen be an address that other machines reach: metrics ask nobody who they are.",
    )
    trace_endpoint: Annotated[str, AfterValidator(url_or_nowhere)] = Field(
        default="",
        description="Where to send OpenTelemetry traces, as the URL of a collector that takes OTLP over HTTP, such as "
        "http://127.0.0.1:4318/v1/traces; empty sends none. Headers come from OTEL_EXPORTER_OTLP_HEADERS.",
    )
    trace_sample_ratio: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Share of calls that are traced, of those whose callers do not trace them; theirs all are.",
    )
