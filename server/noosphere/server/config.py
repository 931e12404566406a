"""The server's configuration: one typed model, read from a TOML file, the environment and flags.

Later wins: default, file, environment (``NOOSPHERE_<KEY>``), flag. An unknown key is an error that names
file and key. :class:`Settings` itself reads nothing but its arguments, so that a test or an embedding
program gets what it asked for; only :func:`load` looks at the world.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretBytes, SecretStr, ValidationError, ValidationInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from .addresses import ends_in_slash, loopback_only, loopback_or_nowhere, members_of_etcd

ENV_PREFIX = "NOOSPHERE_"
_SECRETS = (SecretStr, SecretBytes)
# Read by the client and the CLI, or by `load` itself: not keys of the server's configuration.
_OTHER_VARIABLES = frozenset({"NOOSPHERE_SERVER", "NOOSPHERE_CONFIG"})
# Kubernetes sets these in every pod beside a Service named `noosphere`; nobody meant them as configuration.
_SERVICE_LINK = re.compile(r"NOOSPHERE_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


class ConfigError(ValueError):
    """A configuration that cannot be used; the message is one line that names source, key and problem."""


def folder_or_file(text: Any) -> Any:
    """Returns the path that a text names, with ``~`` replaced; what is neither text nor path is left alone.

    Raises:
        ValueError: the text names nothing. The empty one would be the working directory.
    """
    if not isinstance(text, (str, Path)):
        return text
    if text == "":
        raise ValueError("'' is not a path")
    if "\0" in str(text):
        raise ValueError(f"{str(text)!r} is not a path: it contains NUL")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"{str(text)!r} is in a home directory that does not exist") from None


def _endpoint_url(url: str) -> str:
    if "@" in url:
        # Not repeated: it may be a password.
        raise ValueError("holds a user's name or password; a key belongs into the setting for it")
    try:
        parts = urlsplit(url)
        # Reading the port checks it.
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "?" in url or "#" in url:
        raise ValueError(f"{url!r} is not the base of an HTTP API, such as http://127.0.0.1:8000/v1")
    return url


def _model_of_endpoint(model: str, info: ValidationInfo) -> str:
    what = str(info.field_name).removesuffix("_model")
    if not model and info.data.get(what) == "openai":
        raise ValueError(f"'' names no model, and {what} 'openai' needs one")
    return model


def _dimension_of_endpoint(dimension: int, info: ValidationInfo) -> int:
    if not dimension and info.data.get("embedder") == "openai":
        raise ValueError("0 is no dimension, and embedder 'openai' needs that of its model")
    return dimension


class Settings(BaseSettings):
    """Everything that an operator can choose about a server.

    Attributes and their defaults are documented on each field; ``noosphere config show`` prints the
    effective values.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix=ENV_PREFIX)

    listen: Annotated[str, AfterValidator(loopback_only)] = Field(
        default="127.0.0.1:7443",
        description="Address to serve on, as host:port. Loopback only. Port 0 lets the system choose one.",
    )
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
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log lines to print."
    )
    log_format: Literal["console", "json"] = Field(
        default="console", description="Log lines for people, or one JSON object a line for programs."
    )
    reflection: bool = Field(default=False, description="Serve gRPC reflection, which describes the API to tools.")
    metrics_listen: Annotated[str, AfterValidator(loopback_or_nowhere)] = Field(
        default="",
        description="Address to serve Prometheus metrics on, as host:port; empty serves none. Loopback only.",
    )
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

    summariser: Literal["extractive", "openai"] = Field(
        default="extractive",
        description="What makes rolling summaries: extractive rules, or a model behind an endpoint with OpenAI's API.",
    )
    summariser_url: Annotated[str, AfterValidator(_endpoint_url)] = Field(
        default="https://api.openai.com/v1",
        description="Base URL of the summariser's endpoint. Its key comes from NOOSPHERE_SUMMARISER_KEY or the file.",
    )
    summariser_model: Annotated[str, AfterValidator(_model_of_endpoint)] = Field(
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

    embedder: Literal["auto", "bundled", "openai", "none"] = Field(
        default="auto",
        description="What tells the meaning of facts: auto (bundled if it is installed, else none), the bundled model, "
        "a model behind an endpoint with OpenAI's API, or none: facts are then found by keywords alone.",
    )
    embedder_url: Annotated[str, AfterValidator(_endpoint_url)] = Field(
        default="https://api.openai.com/v1",
        description="Base URL of the embedder's endpoint. Its key comes from NOOSPHERE_EMBEDDER_KEY or the file.",
    )
    embedder_model: Annotated[str, AfterValidator(_model_of_endpoint)] = Field(
        default="",
        max_length=200,
        validate_default=True,
        description="Model that makes vectors; must be given for embedder openai.",
    )
    embedder_dimension: Annotated[int, AfterValidator(_dimension_of_endpoint)] = Field(
        default=0,
        ge=0,
        le=8_192,
        validate_default=True,
        description="How many numbers the vectors of embedder_model have; must be given for embedder openai.",
    )
    embedder_shortened: bool = Field(
        default=False,
        description="Ask the embedder's endpoint for embedder_dimension numbers; only some models can shorten.",
    )
    embedder_key: SecretStr = Field(
        default=SecretStr(""),
        description="API key of the embedder's endpoint; empty if it wants none.",
    )
    embedder_timeout_seconds: float = Field(
        default=10.0,
        ge=0.1,
        le=600,
        description="How long an endpoint may take for vectors. A search waits for less, and does without.",
    )
    embedder_hourly_calls_max: int = Field(
        default=20_000,
        ge=1,
        le=10_000_000,
        description="Calls to the embedder's endpoint within an hour; beyond, facts are found by keywords alone.",
    )
    embedder_hourly_tokens_max: int = Field(
        default=20_000_000,
        ge=1_000,
        le=10_000_000_000,
        description="Tokens that the embedder's endpoint may read within an hour; beyond, keywords alone.",
    )
    embedder_text_tokens_max: int = Field(
        default=512,
        ge=16,
        le=32_000,
        description="Tokens of one text that the embedder's endpoint is given: the beginning of a longer one.",
    )

    extractor: Literal["rules", "openai"] = Field(
        default="rules",
        description="What finds facts in conversations and documents: rules, or a model behind an endpoint with "
        "OpenAI's API.",
    )
    extract_after: Literal["turn", "request"] = Field(
        default="turn",
        description="When facts are extracted from a session: in the background after each turn, or on request only.",
    )
    extractor_url: Annotated[str, AfterValidator(_endpoint_url)] = Field(
        default="https://api.openai.com/v1",
        description="Base URL of the extractor's endpoint. Its key comes from NOOSPHERE_EXTRACTOR_KEY or the file.",
    )
    extractor_model: Annotated[str, AfterValidator(_model_of_endpoint)] = Field(
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

    transition_policy: Literal["rules", "openai"] = Field(
        default="rules",
        description="What decides which items leave the working memory of sessions: rules, or a model behind an "
        "endpoint with OpenAI's API, within the rules' bounds.",
    )
    transition_policy_url: Annotated[str, AfterValidator(_endpoint_url)] = Field(
        default="https://api.openai.com/v1",
        description="Base URL of the policy's endpoint. Its key is NOOSPHERE_TRANSITION_POLICY_KEY or in the file.",
    )
    transition_policy_model: Annotated[str, AfterValidator(_model_of_endpoint)] = Field(
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

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leaves the arguments as the only source; :func:`load` adds the others."""
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class Effective:
    """A configuration and where each of its values comes from.

    Attributes:
        settings: the values.
        origins: for each key ``default``, the file's path, the environment variable or the flag.
    """

    settings: Settings
    origins: Mapping[str, str]


def has_flag(key: str) -> bool:
    """Returns whether a key can be given on the command line: a secret cannot, as everybody can read those."""
    return Settings.model_fields[key].annotation not in _SECRETS


def load(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Effective:
    """Reads the configuration.

    Args:
        file: a TOML file; None: the one that ``NOOSPHERE_CONFIG`` names, if it is set.
        flags: values by key, as given on the command line; None values count as not given.

    Raises:
        ConfigError: a file that cannot be read, an unknown key, or a value that is not allowed.
    """
    if file is None and (named := os.environ.get("NOOSPHERE_CONFIG")):
        file = Path(named)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    if file is not None:
        for key, value in _read_file(file).items():
            values[key], origins[key] = value, str(file)
    for key, value in _read_environment().items():
        values[key], origins[key] = value, _variable(key)
    for key, value in (flags or {}).items():
        if value is not None:
            values[key], origins[key] = value, "--" + key.replace("_", "-")
    try:
        return Effective(Settings(**values), origins)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        raise ConfigError(_explain(origins[key], key, first)) from None


def _variable(key: str) -> str:
    return ENV_PREFIX + key.upper()


def _explain(origin: str, key: str, error: ErrorDetails) -> str:
    where = origin if origin.startswith(("--", ENV_PREFIX)) else f"{origin}: {key}"
    problem = error["msg"].removeprefix("Value error, ")
    # Our own validators name the value themselves; a secret must not be repeated by anybody.
    secret = Settings.model_fields[key].annotation in _SECRETS
    given = "" if secret or error["type"] == "value_error" else f", not {error['input']!r}"
    return f"{where}: {problem[:1].lower()}{problem[1:]}{given}"


def _known(name: str, known: Iterable[str]) -> str:
    """Returns which names are known, after the one that is most like an unknown one."""
    # What all variables begin with must not make them look alike.
    names = {one.removeprefix(ENV_PREFIX): one for one in known}
    meant = difflib.get_close_matches(name.removeprefix(ENV_PREFIX), names, n=1)
    return f"{f'is {names[meant[0]]} meant? ' if meant else ''}known are {', '.join(names.values())}"


def _read_file(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            values = tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: is not TOML: {error}") from None
    for key in values:
        if key not in Settings.model_fields:
            raise ConfigError(f"{file}: unknown key {key!r}; {_known(key, Settings.model_fields)}")
    return values


def _read_environment() -> dict[str, Any]:
    known = {_variable(key) for key in Settings.model_fields} | _OTHER_VARIABLES
    for name in os.environ:
        if name.startswith(ENV_PREFIX) and name not in known and not _SERVICE_LINK.fullmatch(name):
            raise ConfigError(f"{name}: unknown environment variable; {_known(name, sorted(known))}")
    # Case-sensitive names would not match upper-case variables; an empty variable counts as not set.
    return EnvSettingsSource(Settings, case_sensitive=False, env_prefix=ENV_PREFIX, env_ignore_empty=True)()
