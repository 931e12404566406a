"""Settings of what a server tells about itself: logs and metrics."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from ..addresses import an_address_or_nowhere


class ObservingSettings(BaseModel):
    """What a server tells its operator, and where."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log lines to print."
    )
    log_format: Literal["console", "json"] = Field(
        default="console", description="Log lines for people, or one JSON object a line for programs."
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
