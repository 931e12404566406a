"""Settings of storing: the data folder, or the engines that replicas have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr

from ..addresses import ends_in_slash, members_of_etcd
from .values import folder_or_file


class StoringSettings(BaseModel):
    """Where everything is kept, and what coordinates replicas."""

    data: Annotated[Path, BeforeValidator(folder_or_file)] = Field(
        default=Path("noosphere-data"),
        description="Folder that holds everything; created if missing, relative to the working directory. Not used by "
        "replicas (etcd_endpoints).",
    )
    durability: Literal["fsync", "os"] = Field(
        default="fsync",
        description="What an acknowledged write survives: fsync a loss of power, os the end of the process. What "
        "NOOSPHERE_REDIS_URLS names keeps by its own settings.",
    )
    redis_urls: SecretStr = Field(
        default=SecretStr(""),
        description="Redis 7 that holds the working store, as redis://[user:password@]host[:port][/database], with "
        "its replicas behind commas; empty keeps it in the data folder.",
    )
    etcd_endpoints: Annotated[str, AfterValidator(members_of_etcd)] = Field(
        default="",
        max_length=4096,
        description="Members of an etcd cluster, as host:port,host:port. With NOOSPHERE_REDIS_URLS they make this "
        "server one of any number of replicas, which need no data folder; empty coordinates within this process.",
    )
    etcd_root: Annotated[str, AfterValidator(ends_in_slash)] = Field(
        default="noosphere/",
        max_length=256,
        description="What all keys in etcd begin with, ending in a slash. Replicas of one fleet have it in common.",
    )
