"""Settings of storing: the data folder, or the engines that replicas have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, ValidationInfo

from ..addresses import ends_in_slash, members_of_etcd
from .values import File, after, beside, folder_or_file


def _user_of_etcd(user: str, info: ValidationInfo) -> str:
    if user and not info.data.get("etcd_endpoints", user):
        raise ValueError(f"{info.field_name} is of no use without etcd_endpoints")
    return user


def _password_of_etcd(password: SecretStr, info: ValidationInfo) -> SecretStr:
    if "etcd_username" in info.data and bool(info.data["etcd_username"]) != bool(password.get_secret_value()):
        raise ValueError("etcd_username and etcd_password are given together, or not at all")
    return password


def _of_redis(file: Path | None, info: ValidationInfo) -> Path | None:
    urls = info.data.get("redis_urls")
    if file is not None and urls is not None and "rediss://" not in urls.get_secret_value():
        raise ValueError(f"{info.field_name} is of no use without urls that begin with rediss:// in redis_urls")
    return file


def _of_etcd(file: Path | None, info: ValidationInfo) -> Path | None:
    if file is not None and not info.data.get("etcd_endpoints", file):
        raise ValueError(f"{info.field_name} is of no use without etcd_endpoints")
    return file


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
        "its replicas behind commas; rediss:// speaks TLS; empty keeps it in the data folder.",
    )
    redis_tls_ca: Annotated[File, AfterValidator(_of_redis)] = Field(
        default=None,
        description="File of the authorities that may vouch for Redis, in PEM form; without it those of this machine. "
        "Read anew by each connection.",
    )
    redis_tls_certificate: Annotated[File, AfterValidator(_of_redis)] = Field(
        default=None, description="File of the certificate that is shown to Redis, in PEM form."
    )
    redis_tls_key: Annotated[File, beside("redis_tls_certificate")] = Field(
        default=None, validate_default=True, description="File of the key of redis_tls_certificate, in PEM form."
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
    etcd_tls_ca: Annotated[File, AfterValidator(_of_etcd)] = Field(
        default=None,
        description="File of the authorities that may vouch for members of etcd, in PEM form; with it TLS is spoken to "
        "them. Looked at anew by each connection.",
    )
    etcd_tls_certificate: Annotated[File, after("etcd_tls_ca")] = Field(
        default=None, description="File of the certificate that is shown to etcd, in PEM form."
    )
    etcd_tls_key: Annotated[File, beside("etcd_tls_certificate")] = Field(
        default=None, validate_default=True, description="File of the key of etcd_tls_certificate, in PEM form."
    )
    etcd_username: Annotated[str, AfterValidator(_user_of_etcd)] = Field(
        default="",
        max_length=256,
        description="User of etcd that this server is; empty where etcd asks for none. Its password comes from "
        "NOOSPHERE_ETCD_PASSWORD or the file.",
    )
    etcd_password: Annotated[SecretStr, AfterValidator(_password_of_etcd)] = Field(
        default=SecretStr(""), validate_default=True, description="Password of etcd_username."
    )
