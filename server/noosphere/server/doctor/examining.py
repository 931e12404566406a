"""The whole examination, in the order in which one thing makes sense of another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from pydantic import SecretBytes, SecretStr

from ..addresses import split_list
from ..authentication import check_reach
from ..config import ConfigError, Settings, UnknownKey, load
from ..drivers import StartupError
from .certificates import examine_certificates
from .etcd import examine_etcd
from .files import examine_folder, examine_secrets, examine_tokens
from .findings import Finding, problem
from .named_files import examine_audit, examine_keys
from .running import examine_addresses, running_at
from .surroundings import Machine, Surroundings
from .weaviate import examine_weaviate
from .weaviate_facts import examine_collection, examine_package
from .weaviate_lineage import examine_lineage


async def examine(
    config: Path | None, flags: dict[str, Any], surroundings: Surroundings | None = None
) -> AsyncIterator[Finding]:
    """Examines what a server with this configuration needs; the same whether one runs or not.

    Args:
        config: the configuration's file; None: the one that ``NOOSPHERE_CONFIG`` names, if it is set.
        flags: values by key, as given on the command line; None values count as not given.
        surroundings: the machine.
    """
    surroundings = surroundings or Machine()
    try:
        effective = load(config, flags)
    except ConfigError as error:
        name = "unknown_key" if isinstance(error, UnknownKey) else "configuration"
        yield problem(name, "the configuration cannot be used", error, "correct it; nothing else was looked at")
        return
    settings = effective.settings
    for one in _examine_reach(settings):
        yield one
    running = await running_at(settings)
    for found in (
        examine_secrets(settings, _file_with_secrets(settings, effective.origins)),
        examine_folder(settings, surroundings, running is not None),
        examine_tokens(settings),
        examine_certificates(settings, surroundings),
        examine_addresses(settings, running),
        examine_audit(settings),
    ):
        for one in found:
            yield one
    async for one in examine_keys(settings):
        yield one
    if urls := split_list(settings.redis_urls.get_secret_value()):
        try:
            from .redis import examine_redis
        except ImportError as error:
            yield problem("redis_missing", "the package for Redis is missing", error, "pip install 'noosphere[redis]'")
        else:
            async for one in examine_redis(settings, urls, surroundings):
                yield one
    if settings.etcd_endpoints:
        async for one in examine_etcd(settings):
            yield one
    if settings.weaviate_url:
        for one in await _examine_weaviate(settings):
            yield one


async def _examine_weaviate(settings: Settings) -> list[Finding]:
    if missing := examine_package():
        return missing
    found, described = await examine_weaviate(settings)
    if described is None:
        return found
    kept = await examine_collection(settings, described) if described else []
    return [*found, *kept, *(await examine_lineage(settings, described))]


def _examine_reach(settings: Settings) -> Iterator[Finding]:
    try:
        check_reach(settings)
    except StartupError as error:
        yield problem("exposed", "a server with this configuration refuses to start", error, "choose one of these")


def _file_with_secrets(settings: Settings, origins: Any) -> Path | None:
    """Returns the file that a secret comes from, None if none does."""
    for key in type(settings).model_fields:
        value = getattr(settings, key)
        if isinstance(value, SecretStr | SecretBytes) and value.get_secret_value():
            path = Path(origins[key])
            if path.is_file():
                return path
    return None
