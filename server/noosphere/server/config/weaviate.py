"""Settings of Weaviate, which keeps the words of facts where servers share them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, SecretStr, ValidationInfo

from ..addresses import address_of_weaviate, split_address
from .values import File


def _url(url: str) -> str:
    if url:
        address_of_weaviate(url)
    return url


def _grpc(address: str, info: ValidationInfo) -> str:
    if not address:
        return address
    host, port = split_address(address)
    if port == 0 or "/" in host:
        raise ValueError(f"{address!r} is not host:port of Weaviate's gRPC interface")
    _needed(address, info)
    return address


def _key(key: SecretStr, info: ValidationInfo) -> SecretStr:
    _needed(key.get_secret_value(), info)
    return key


def _authorities(file: Path | None, info: ValidationInfo) -> Path | None:
    # It is missing where it could not be used itself, which is what has to be told then.
    if file is not None and not info.data.get("weaviate_url", "https://").startswith("https://"):
        raise ValueError(f"{info.field_name} is of no use without a weaviate_url that begins with https://")
    return file


def _needed(value: str, info: ValidationInfo) -> None:
    if value and not info.data.get("weaviate_url", value):
        raise ValueError(f"{info.field_name} is of no use without weaviate_url")


class WeaviateSettings(BaseModel):
    """Where it is, and what is made there."""

    weaviate_url: Annotated[str, AfterValidator(_url)] = Field(
        default="",
        max_length=1024,
        description="Weaviate that keeps the words of facts, as http://host:port or https://host:port. Replicas "
        "(etcd_endpoints) have no other place for them; others keep them in the data folder without it. Its API key "
        "comes from NOOSPHERE_WEAVIATE_API_KEY or the file.",
    )
    weaviate_grpc: Annotated[str, AfterValidator(_grpc)] = Field(
        default="",
        max_length=1024,
        description="Weaviate's gRPC interface, as host:port; empty: port 50051 of the host of weaviate_url. TLS is "
        "spoken to it if weaviate_url begins with https://.",
    )
    weaviate_api_key: Annotated[SecretStr, AfterValidator(_key)] = Field(
        default=SecretStr(""),
        description="API key of Weaviate; empty if it wants none.",
    )
    weaviate_tls_ca: Annotated[File, AfterValidator(_authorities)] = Field(
        default=None,
        description="File of the authorities that may vouch for Weaviate, in PEM form; without it those of this "
        "machine.",
    )
    weaviate_collection: str = Field(
        default="NoosphereFacts",
        pattern=r"^[A-Z][_0-9A-Za-z]{0,127}$",
        description="Collection of Weaviate that holds the facts; made if it is missing. Servers of one fleet have it "
        "in common, fleets on one Weaviate have one each.",
    )
    weaviate_replication: int = Field(
        default=1,
        ge=1,
        le=100,
        description="On how many nodes of Weaviate each fact is, of a collection that is made; later ones change that "
        "in Weaviate.",
    )
    weaviate_buckets: int = Field(
        default=8,
        ge=1,
        le=256,
        description="Into how many tenants scopes are spread, of a collection that is made. Never changed afterwards.",
    )
    weaviate_call_ms_max: int = Field(
        default=5_000,
        ge=100,
        le=60_000,
        description="How long a call of Weaviate may take, in milliseconds. After some that fail in a row it is left "
        "alone for a while, and facts are refused at once.",
    )
