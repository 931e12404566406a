"""Settings of serving: where, and within which bounds of memory and time."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from ..addresses import an_address, an_address_or_nowhere


class ServingSettings(BaseModel):
    """Where a server listens, and what its housekeeping may take."""

    listen: Annotated[str, AfterValidator(an_address)] = Field(
        default="127.0.0.1:7443",
        description="Address to serve on, as host:port. One that other machines reach needs a way to tell who calls "
        "(tokens, jwt_issuer or tls_client_ca), or insecure. Port 0 lets the system choose one.",
    )
    health_listen: Annotated[str, AfterValidator(an_address_or_nowhere)] = Field(
        default="",
        description="Address to tell health on beside listen, as host:port, for probes that speak neither TLS nor "
        "credentials: gRPC's health service alone, in plain text. Empty tells it on listen only.",
    )
    connection_age_seconds: float | None = Field(
        default=None,
        ge=0,
        le=7 * 24 * 3600,
        description="After about so long a connection takes no further calls and its client makes another one, so that "
        "clients of a name spread over the servers that there are now. 0 for never; none is 600 for replicas, else 0.",
    )
    reflection: bool = Field(default=False, description="Serve gRPC reflection, which describes the API to tools.")
    memory_mib_max: int = Field(
        default=1024,
        ge=16,
        le=1024 * 1024,
        description="Records and logs of idle namespaces leave memory above this many MiB.",
    )
    drain_seconds: float = Field(
        default=10.0,
        ge=0,
        le=600,
        description="On SIGTERM, how long running calls may take to finish.",
    )
    sweep_seconds: float = Field(
        default=1.0,
        ge=0.01,
        le=3600,
        description="Time between two sweeps for expired values and old tombstones.",
    )
    watch_stall_seconds: float = Field(
        default=30.0,
        ge=0.1,
        le=3600,
        description="A watcher that takes no message for so long is cut off; it may resume where it was.",
    )
