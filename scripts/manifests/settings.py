"""The server's configuration as a pod gives it: read by the server's own code, with something in place of secrets."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import SecretStr

from noosphere.server.config import ConfigError, Settings, load

from .documents import Documents, at

PREFIX = "NOOSPHERE_"
STAND_INS = {
    "NOOSPHERE_REDIS_URLS": "rediss://:secret@redis-announce-0.noosphere-engines.svc.cluster.local:6379",
    "NOOSPHERE_WEAVIATE_API_KEY": "secret",
}
"""What stands in for secrets, of which manifests have only the names."""

SECRET_SETTINGS = frozenset(key for key, field in Settings.model_fields.items() if field.annotation is SecretStr)


def environment(documents: Documents) -> dict[str, str]:
    """Returns the variables of the server's container; of those from Secrets what stands in for them."""
    found = {}
    for one in at(documents.container, "env", default=[]):
        name = one.get("name", "")
        if "value" in one:
            found[name] = str(one["value"])
        elif at(one, "valueFrom", "secretKeyRef", "name") and at(one, "valueFrom", "secretKeyRef", "key"):
            found[name] = STAND_INS.get(name, "secret")
    return found


def configuration(documents: Documents) -> str | None:
    """Returns the text of the file that ``NOOSPHERE_CONFIG`` names, from the ConfigMap that is mounted there."""
    named = environment(documents).get("NOOSPHERE_CONFIG", "")
    folder, _, file = named.rpartition("/")
    for mount in at(documents.container, "volumeMounts", default=[]):
        if mount.get("mountPath") != folder:
            continue
        for volume in at(documents.pod, "volumes", default=[]):
            name = at(volume, "configMap", "name")
            if volume.get("name") == mount.get("name") and name:
                text = at(documents.named("ConfigMap", name), "data", file)
                return text if isinstance(text, str) else None
    return None


def settings_of(documents: Documents) -> Settings:
    """Returns what a server of these manifests is told.

    Raises:
        ConfigError: the server would not start with it; the message is the server's.
    """
    text = configuration(documents)
    if text is None:
        raise ConfigError("NOOSPHERE_CONFIG names no file that a ConfigMap has and a volume mounts")
    variables = {name: value for name, value in environment(documents).items() if name.startswith(PREFIX)}
    variables.pop("NOOSPHERE_CONFIG")
    return _load(text, tuple(sorted(variables.items())))


@lru_cache(maxsize=256)
def _load(text: str, variables: tuple[tuple[str, str], ...]) -> Settings:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "noosphere.toml"
        file.write_text(text)
        with _environment_is(dict(variables)):
            return load(file).settings


@contextlib.contextmanager
def _environment_is(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
