"""Redis: whether it lets us in, and keeps what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ..config import Settings
from ..storage.redis.fence import META
from ..storage.redis.instance import VERSION_MIN, UnfitRedis, addresses_of, told
from ..storage.redis.wire import Address, CommandError, Trust, Wire, WireLost
from .clock import skew
from .findings import Finding, problem, warning
from .surroundings import Surroundings

MEMORY_SHARE_MAX = 0.9
ANSWER_SECONDS_MAX = 5.0

_NOT_LET_IN = ("WRONGPASS", "NOAUTH", "NOPERM")


async def examine_redis(settings: Settings, urls: list[str], surroundings: Surroundings) -> AsyncIterator[Finding]:
    """Looks at each Redis that is configured."""
    try:
        trust = Trust(settings.redis_tls_ca, settings.redis_tls_certificate, settings.redis_tls_key)
        addresses = addresses_of(urls, trust)
    except UnfitRedis as error:
        yield problem("redis_urls", "redis_urls cannot be used", error, "see the form in `noosphere serve --help`")
        return
    primaries = 0
    for address in addresses:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                found, primary = await _examine(settings, address, surroundings)
        except (WireLost, TimeoutError) as error:
            yield problem(
                "redis_unreachable",
                "Redis does not answer",
                f"{address}: {error or 'no answer'}",
                "start it, or correct NOOSPHERE_REDIS_URLS",
            )
            continue
        except CommandError as error:
            if error.kind in _NOT_LET_IN or error.kind == "ERR":
                yield problem(
                    "redis_password",
                    "Redis does not let us in",
                    f"{address}: {error.kind}",
                    "correct user and password in NOOSPHERE_REDIS_URLS, and the user's rights (docs/redis.md)",
                )
            else:
                yield problem("redis_refuses", "Redis refuses to answer", f"{address}: {error.kind}", "see its log")
            continue
        primaries += primary
        for one in found:
            yield one
    if len(addresses) > 1 and not primaries:
        yield problem(
            "redis_no_primary",
            "none of the Redis processes is a primary",
            ", ".join(map(str, addresses)),
            "promote one of them (REPLICAOF NO ONE), or add the primary to NOOSPHERE_REDIS_URLS",
        )


async def _examine(settings: Settings, address: Address, surroundings: Surroundings) -> tuple[list[Finding], bool]:
    wire = await Wire.connect(address)
    try:
        info = await told(wire)
        asked_ms = surroundings.wall_ms()
        seconds, micros = await wire.call("TIME")
        found = [
            *skew(f"Redis at {address}", int(seconds) * 1000 + int(micros) // 1000, asked_ms, surroundings.wall_ms()),
            *_what_it_is(address, info),
            *(await _what_it_keeps(settings, address, wire, info)),
        ]
        if info["role"] == "master" and await wire.call("HGET", META, "restoring"):
            found.append(
                problem(
                    "restore_cut_off",
                    "a restore into Redis has not ended",
                    f"{address} is marked so",
                    "run `noosphere restore --replace` to its end",
                )
            )
        return found, info["role"] == "master"
    finally:
        await wire.close()


def _what_it_is(address: Address, info: dict[str, str]) -> list[Finding]:
    found = []
    version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
    if version < VERSION_MIN:
        found.append(
            problem("redis_version", "Redis is too old", f"{address} is {info['redis_version']}", "use 7.0 or newer")
        )
    if info["maxmemory_policy"] != "noeviction":
        found.append(
            problem(
                "redis_evicts",
                "Redis removes records when its memory is full",
                f"{address}: maxmemory-policy {info['maxmemory_policy']}",
                "CONFIG SET maxmemory-policy noeviction, in its configuration file too",
            )
        )
    limit = int(info.get("maxmemory", 0))
    if limit and int(info["used_memory"]) > MEMORY_SHARE_MAX * limit:
        found.append(
            problem(
                "redis_memory",
                "the memory of Redis is nearly full: it will refuse writes",
                f"{address}: {int(info['used_memory']) / 2**20:,.0f} of {limit / 2**20:,.0f} MiB",
                "raise maxmemory, or delete what is not needed",
            )
        )
    if info["role"] != "master" and info.get("master_link_status") != "up":
        found.append(
            problem(
                "redis_replica_apart",
                "a replica does not follow its primary",
                f"{address}: master_link_status {info.get('master_link_status')}",
                "see its log; the primary may be gone, or ask for a password (masterauth)",
            )
        )
    return found


async def _what_it_keeps(settings: Settings, address: Address, wire: Wire, info: dict[str, str]) -> list[Finding]:
    found = []
    wanted = await _setting(wire, "min-replicas-to-write")
    if info["role"] == "master" and wanted and int(info.get("min_slaves_good_slaves", wanted)) < int(wanted):
        found.append(
            problem(
                "redis_refuses_writes",
                "Redis refuses writes, because too few replicas follow it",
                f"{address}: {info['min_slaves_good_slaves']} follow, min-replicas-to-write is {wanted}",
                "start the replicas, or lower min-replicas-to-write",
            )
        )
    stops = await _setting(wire, "stop-writes-on-bgsave-error") == "yes" and await _setting(wire, "save") != ""
    if (stops and info.get("rdb_last_bgsave_status") == "err") or info.get("aof_last_write_status") == "err":
        found.append(
            problem(
                "redis_refuses_writes",
                "Redis refuses writes, because it could not write its files",
                f"{address}: rdb_last_bgsave_status {info.get('rdb_last_bgsave_status')}, "
                f"aof_last_write_status {info.get('aof_last_write_status')}",
                "make room on its disk, and see its log",
            )
        )
    synced = info["aof_enabled"] == "1" and await _setting(wire, "appendfsync") in ("always", None)
    if info["role"] == "master" and settings.durability == "fsync" and not synced:
        found.append(
            warning(
                "redis_durability",
                "durability is fsync, but Redis answers a write before it is on disk",
                f"{address}: appendonly {'yes' if info['aof_enabled'] == '1' else 'no'}, "
                f"appendfsync {await _setting(wire, 'appendfsync')}",
                "set appendonly yes and appendfsync always there, or durability os here",
            )
        )
    return found


async def _setting(wire: Wire, name: str) -> str | None:
    """Returns a setting, None where they may not be read."""
    try:
        pairs = await wire.call("CONFIG", "GET", name)
    except CommandError:
        return None
    return pairs[1].decode() if pairs else None
