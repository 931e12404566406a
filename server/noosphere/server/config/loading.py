"""Reads the configuration: defaults, a TOML file, the environment, flags.

Later wins. An unknown key is an error that names file and key.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretBytes, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource

from .settings import ENV_PREFIX, Settings

_SECRETS = (SecretStr, SecretBytes)
# Read by the client and the CLI, or by `load` itself: not keys of the server's configuration.
_OTHER_VARIABLES = frozenset(
    {
        "NOOSPHERE_SERVER",
        "NOOSPHERE_CONFIG",
        "NOOSPHERE_TLS_CA",
        "NOOSPHERE_TLS_CLIENT_CERTIFICATE",
        "NOOSPHERE_TLS_CLIENT_KEY",
        "NOOSPHERE_TOKEN",
        "NOOSPHERE_TOKEN_FILE",
    }
)
# Kubernetes sets these in every pod beside a Service named `noosphere`; nobody meant them as configuration.
_SERVICE_LINK = re.compile(r"NOOSPHERE_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


class ConfigError(ValueError):
    """A configuration that cannot be used; the message is one line that names source, key and problem."""


class UnknownKey(ConfigError):
    """A key or variable that is none of the configuration's."""


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
    """Returns the name that is most like an unknown one, or which are known if none is like it."""
    # What all variables begin with must not make them look alike.
    names = {one.removeprefix(ENV_PREFIX): one for one in known}
    meant = difflib.get_close_matches(name.removeprefix(ENV_PREFIX), names, n=1)
    # A hundred names would bury the one.
    return f"is {names[meant[0]]} meant?" if meant else f"known are {', '.join(names.values())}"


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
            raise UnknownKey(f"{file}: unknown key {key!r}; {_known(key, Settings.model_fields)}")
    return values


def _read_environment() -> dict[str, Any]:
    known = {_variable(key) for key in Settings.model_fields} | _OTHER_VARIABLES
    for name in os.environ:
        if name.startswith(ENV_PREFIX) and name not in known and not _SERVICE_LINK.fullmatch(name):
            raise UnknownKey(f"{name}: unknown environment variable; {_known(name, sorted(known))}")
    # Case-sensitive names would not match upper-case variables; an empty variable counts as not set.
    return EnvSettingsSource(Settings, case_sensitive=False, env_prefix=ENV_PREFIX, env_ignore_empty=True)()
