"""Settings of limits: how much one caller may ask for, and from when on the server sheds load."""

from __future__ import annotations

from pydantic import BaseModel, Field

from noosphere.consistency.limits import ITEM_BYTES_MAX, KEY_BYTES_MAX

_RATE_MAX = 1_000_000
_COUNT_MAX = 1_000_000
_ROOM_MAX = 1 << 50


class LimitSettings(BaseModel):
    """How much callers may ask for. 0 means no limit of this kind, where a description says so."""

    limits_message_bytes_max: int = Field(
        default=1024 * 1024,
        ge=1024 * 1024,
        le=16 * 1024 * 1024,
        description="Bytes of one request. Clients of ours send up to 1 MiB.",
    )
    limits_key_bytes_max: int = Field(
        default=KEY_BYTES_MAX, ge=16, le=KEY_BYTES_MAX, description="Bytes of the key of a record that is written."
    )
    limits_value_bytes_max: int = Field(
        default=ITEM_BYTES_MAX,
        ge=64,
        le=ITEM_BYTES_MAX,
        description="Bytes of one value, whatever the rules of its namespace allow.",
    )
    limits_agent_calls_per_second: int = Field(
        default=50_000, ge=0, le=_RATE_MAX, description="Calls of one agent a second; 0 for no limit."
    )
    limits_agent_calls_burst: int = Field(
        default=100_000,
        ge=1,
        le=_RATE_MAX,
        description="Calls that an agent may make at once after it has made none for a while.",
    )
    limits_agent_calls_in_flight_max: int = Field(
        default=16_384, ge=0, le=_COUNT_MAX, description="Calls of one agent under way at a time; 0 for no limit."
    )
    limits_agent_streams_max: int = Field(
        default=4_096,
        ge=0,
        le=_COUNT_MAX,
        description="Watches of one agent, or pipelines of one connection, at a time; 0 for no limit.",
    )
    limits_agent_namespaces_max: int = Field(
        default=50_000,
        ge=0,
        le=100_000,
        description="Namespaces, sessions included, that one agent has made and nobody has deleted; 0 for no limit.",
    )
    limits_principal_calls_per_second: int = Field(
        default=0, ge=0, le=_RATE_MAX, description="Calls of all agents of one principal a second; 0 for no limit."
    )
    limits_principal_calls_burst: int = Field(
        default=100_000,
        ge=1,
        le=_RATE_MAX,
        description="Calls that a principal may make at once after it has made none for a while.",
    )
    limits_principal_calls_in_flight_max: int = Field(
        default=0, ge=0, le=_COUNT_MAX, description="Calls of one principal under way at a time; 0 for no limit."
    )
    limits_principal_streams_max: int = Field(
        default=0, ge=0, le=_COUNT_MAX, description="Watches and pipelines of one principal; 0 for no limit."
    )
    limits_principal_namespaces_max: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="The same of all agents of one principal together; 0 for no limit.",
    )
    limits_principal_records_max: int = Field(
        default=0,
        ge=0,
        le=_ROOM_MAX,
        description="Records in the private namespaces of all agents of one principal, those below its name; 0 for no "
        "limit.",
    )
    limits_principal_bytes_max: int = Field(
        default=0,
        ge=0,
        le=_ROOM_MAX,
        description="Bytes of those records; 0 for no limit.",
    )
    limits_namespace_records_max: int = Field(
        default=0,
        ge=0,
        le=_ROOM_MAX,
        description="Records of one namespace, whatever its own rules allow; 0 for no limit.",
    )
    limits_namespace_bytes_max: int = Field(
        default=0, ge=0, le=_ROOM_MAX, description="Bytes of the records of one namespace; 0 for no limit."
    )
    limits_server_lag_ms_max: int = Field(
        default=500,
        ge=0,
        le=60_000,
        description="How long calls may wait before they are begun; if they do for half a second, some are refused. "
        "0 for no limit.",
    )
    limits_server_calls_in_flight_max: int = Field(
        default=32_768,
        ge=0,
        le=_COUNT_MAX,
        description="Calls of all callers under way at a time, without those that wait; 0 for no limit.",
    )
    limits_server_bytes_in_flight_max: int = Field(
        default=256 * 1024 * 1024,
        ge=0,
        le=1 << 40,
        description="Bytes of the requests of all calls under way at a time; 0 for no limit.",
    )
    limits_server_streams_max: int = Field(
        default=20_000,
        ge=0,
        le=_COUNT_MAX,
        description="Watches and pipelines of all callers at a time; 0 for no limit.",
    )
