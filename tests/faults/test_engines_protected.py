"""Redis and etcd that let nobody in without a certificate or a password: who gets in, and what nobody gets to see."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.authority import TestAuthority
from tests.support.etcd import EtcdProcess, needs_etcd
from tests.support.fleet import OPTIONS
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.redis import RedisProcess, needs_redis
from tests.support.waiting import until

from noosphere.client import connect
from noosphere.consistency import Refusal
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.etcd import Access, EtcdCoordinator, UnfitEtcd
from noosphere.server.storage.redis import RedisStore, Trust, UnfitRedis

REDIS_PASSWORD = "canary-of-redis-7f3a"
ETCD_PASSWORD = "canary-of-etcd-91bc"
USER = "noosphere"


class TlsRedis(NamedTuple):
    """A Redis that has a port under TLS beside the one that only the test itself uses."""

    process: RedisProcess
    port: int

    def url(self, password: str = REDIS_PASSWORD) -> str:
        return f"rediss://{USER}:{password}@127.0.0.1:{self.port}"


class TlsEtcd(NamedTuple):
    """An etcd that has an endpoint under TLS beside the one that only the test itself uses."""

    process: EtcdProcess
    endpoint: str


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "authority")


def client_files(authority: TestAuthority) -> tuple[Path, Path, Path]:
    return (authority.ca, *authority.client(USER))


@contextlib.contextmanager
def tls_redis(folder: Path, authority: TestAuthority, **settings: str) -> Iterator[TlsRedis]:
    certificate, key = authority.server()
    users = folder.with_name(f"{folder.name}.acl")
    digest = hashlib.sha256(REDIS_PASSWORD.encode()).hexdigest()
    users.write_text(f"user default on nopass ~* &* +@all\nuser {USER} on #{digest} ~* &* +@all\n")
    port = free_port()
    process = RedisProcess(
        folder,
        **{
            "tls-port": str(port),
            "tls-cert-file": str(certificate),
            "tls-key-file": str(key),
            "tls-ca-cert-file": str(authority.ca),
            "tls-auth-clients": "yes",
            "aclfile": str(users),
            **settings,
        },
    )
    try:
        process.start()
        yield TlsRedis(process, port)
    finally:
        process.kill()


@pytest.fixture
def redis(tmp_path: Path, authority: TestAuthority) -> Iterator[TlsRedis]:
    with tls_redis(tmp_path / "redis", authority) as started:
        yield started


@pytest.fixture
def etcd(tmp_path: Path, authority: TestAuthority) -> Iterator[TlsEtcd]:
    certificate, key = authority.server()
    endpoint = f"127.0.0.1:{free_port()}"
    process = EtcdProcess(tmp_path / "etcd")
    process.settings = {
        "listen-client-urls": f"http://{process.endpoint},https://{endpoint}",
        "cert-file": str(certificate),
        "key-file": str(key),
        "client-cert-auth": "true",
        "trusted-ca-file": str(authority.ca),
    }
    try:
        process.start()
        yield TlsEtcd(process, endpoint)
    finally:
        process.kill()


def texts(*parts: str | bytes) -> bytes:
    """Returns a message whose first fields are these."""
    fields = [part if isinstance(part, bytes) else part.encode() for part in parts]
    return b"".join(bytes((number << 3 | 2, len(field))) + field for number, field in enumerate(fields, 1))


def protect(etcd: EtcdProcess, root: str) -> None:
    """Adds a user that may read and write under a root alone, and asks everybody who they are from then on."""
    readwrite = b"\x08\x02" + bytes((2 << 3 | 2, len(root))) + root.encode()
    end = root[:-1] + chr(ord(root[-1]) + 1)
    permission = readwrite + bytes((3 << 3 | 2, len(end))) + end.encode()
    etcd.ask("Auth/RoleAdd", texts("fleet"))
    etcd.ask("Auth/RoleGrantPermission", texts("fleet", permission))
    for user, role in (("root", "root"), (USER, "fleet")):
        etcd.ask("Auth/UserAdd", texts(user, ETCD_PASSWORD))
        with contextlib.suppress(Exception):
            etcd.ask("Auth/RoleAdd", texts(role))
        etcd.ask("Auth/UserGrantRole", texts(user, role))
    etcd.ask("Auth/AuthEnable", b"")


@contextlib.asynccontextmanager
async def on_redis(url: str, coordinator: EmbeddedCoordinator, trust: Trust) -> AsyncIterator[RedisStore]:
    store = await RedisStore.open([url], coordinator, clock=SystemClock(), trust=trust)
    try:
        yield store
    finally:
        await store.close()


async def refused_by_redis(url: str, coordinator: EmbeddedCoordinator, trust: Trust) -> str:
    with pytest.raises(UnfitRedis) as caught:
        async with on_redis(url, coordinator, trust):
            pass
    assert REDIS_PASSWORD not in repr(caught.value)
    return str(caught.value)


@needs_redis
async def test_redis_lets_in_who_has_a_certificate_and_the_password(
    redis: TlsRedis, authority: TestAuthority, coordinator: EmbeddedCoordinator, tmp_path: Path
) -> None:
    own = Trust(*client_files(authority))
    async with on_redis(redis.url(), coordinator, own) as store:
        assert store.epoch
    other = TestAuthority(tmp_path / "other", "another authority")
    nobody = Trust(other.ca, own.certificate, own.key)
    assert "its certificate is refused: " in await refused_by_redis(redis.url(), coordinator, nobody)
    stranger = Trust(own.ca, *other.client(USER))
    for trust in (Trust(own.ca), stranger):
        await refused_by_redis(redis.url(), coordinator, trust)
    assert "WRONGPASS" in await refused_by_redis(redis.url("canary-of-redis-wrong"), coordinator, own)
    missing = Trust(tmp_path / "none.pem")
    assert f"{tmp_path}/none.pem cannot be read: No such file" in await refused_by_redis(
        redis.url(), coordinator, missing
    )
    plain = redis.url().replace("rediss:", "redis:")
    await refused_by_redis(plain, coordinator, own)


@needs_redis
async def test_connections_to_redis_take_up_files_that_were_replaced(
    redis: TlsRedis, authority: TestAuthority, coordinator: EmbeddedCoordinator
) -> None:
    own = Trust(*client_files(authority))
    async with on_redis(redis.url(), coordinator, own) as store:
        epoch = store.epoch
    assert own.key is not None
    authority.client(USER)
    async with on_redis(redis.url(), coordinator, own) as store:
        assert store.epoch == epoch


@needs_redis
async def test_nodes_of_a_cluster_are_spoken_to_under_tls(
    tmp_path: Path, authority: TestAuthority, coordinator: EmbeddedCoordinator
) -> None:
    bus = {"cluster-enabled": "yes", "cluster-port": str(free_port()), "tls-cluster": "yes"}
    with tls_redis(tmp_path / "one", authority, **bus) as one:
        one.process.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await until(lambda: b"cluster_state:ok" in one.process.ask("CLUSTER", "INFO"))
        async with on_redis(one.url(), coordinator, Trust(*client_files(authority))) as store:
            assert store.epoch


@contextlib.asynccontextmanager
async def on_etcd(endpoint: str, access: Access) -> AsyncIterator[EtcdCoordinator]:
    made = await EtcdCoordinator.open([endpoint], clock=SystemClock(), root="fleet/", access=access)
    try:
        yield made
    finally:
        await made.close()


async def refused_by_etcd(endpoint: str, access: Access) -> str:
    with pytest.raises((Refusal, UnfitEtcd)) as caught:
        async with on_etcd(endpoint, access):
            pass
    assert ETCD_PASSWORD not in repr(caught.value)
    return str(caught.value)


@needs_etcd
async def test_etcd_lets_in_who_has_a_certificate_and_the_password(
    etcd: TlsEtcd, authority: TestAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = client_files(authority)
    async with on_etcd(etcd.endpoint, Access(*files)) as coordinator:
        assert (await coordinator.open_agent("a", False)).number
    protect(etcd.process, "fleet/")
    async with on_etcd(etcd.endpoint, Access(*files, USER, ETCD_PASSWORD)) as coordinator:
        lease = await coordinator.open_agent("b", False)
        await coordinator.keep_agent(lease)
        # Its tokens are forgotten, as when they are too old.
        etcd.process.kill()
        etcd.process.start()
        assert (await coordinator.open_agent("c", False)).number
        await coordinator.keep_agent(lease)
        async with on_etcd(etcd.endpoint, Access(*files, USER, ETCD_PASSWORD)) as other:
            opened = await other.open_agent("d", False)
            # What another one does is seen: the watch has a token as well.
            async with asyncio.timeout(60):
                while await coordinator.latest("d") != opened.number:
                    await coordinator.refresh()
    let_in = "etcd does not let this server in; etcd_username and etcd_password have to be right"
    assert let_in in await refused_by_etcd(etcd.endpoint, Access(*files, USER, "canary-of-etcd-wrong"))
    assert let_in in await refused_by_etcd(
        etcd.endpoint, Access(authority.ca, *authority.client("stranger", "stranger"))
    )
    # Who shows a certificate is the user of its common name, unless a password tells otherwise.
    async with on_etcd(etcd.endpoint, Access(*files)) as coordinator:
        assert (await coordinator.open_agent("e", False)).number
    other_ca = TestAuthority(tmp_path / "other", "another authority").ca
    told = await refused_by_etcd(etcd.endpoint, Access(other_ca, *files[1:]))
    assert told.startswith("no connection is made (etcd_tls_*): ")
    assert "CERTIFICATE_VERIFY_FAILED" in told
    assert "does it expect TLS (etcd_tls_ca)?" in await refused_by_etcd(etcd.endpoint, Access())
    missing = tmp_path / "none.pem"
    assert f"{missing} cannot be read: No such file" in await refused_by_etcd(etcd.endpoint, Access(missing))
    assert "canary" not in caplog.text


@needs_etcd
async def test_a_watch_of_etcd_whose_token_is_too_old_gets_another_one(etcd: TlsEtcd, authority: TestAuthority) -> None:
    etcd.process.kill()
    etcd.process.settings["auth-token-ttl"] = "1"
    etcd.process.start()
    protect(etcd.process, "fleet/")
    access = Access(*client_files(authority), USER, ETCD_PASSWORD)
    async with on_etcd(etcd.endpoint, access) as coordinator, on_etcd(etcd.endpoint, access) as other:
        for number in range(3):
            etcd.process.kill()
            etcd.process.start()
            opened = await other.open_agent(f"a{number}", False)
            async with asyncio.timeout(60):
                while await coordinator.latest(f"a{number}") != opened.number:
                    await coordinator.refresh()


def holding(folder: Path, word: bytes) -> list[Path]:
    """Returns the files that hold a word."""
    return [path for path in folder.rglob("*") if path.is_file() and word in path.read_bytes()]


def occurrences(file: Path, word: bytes) -> int:
    """Returns how often a file holds a word."""
    return file.read_bytes().count(word)


@needs_redis
@needs_etcd
async def test_a_server_on_protected_engines_tells_no_password(
    redis: TlsRedis, etcd: TlsEtcd, authority: TestAuthority, tmp_path: Path
) -> None:
    protect(etcd.process, "noosphere/")
    ca, certificate, key = client_files(authority)
    config = tmp_path / "server.toml"
    secrets = f'redis_urls = "{redis.url()}"\netcd_password = "{ETCD_PASSWORD}"\n'
    files = "".join(
        f'{engine}_tls_ca = "{ca}"\n{engine}_tls_certificate = "{certificate}"\n{engine}_tls_key = "{key}"\n'
        for engine in ("redis", "etcd")
    )
    config.write_text(f'{secrets}{files}etcd_endpoints = "{etcd.endpoint}"\netcd_username = "{USER}"\n')
    server = ServerProcess(tmp_path / "none", ["--config", str(config), "--log-level", "debug", *OPTIONS])
    try:
        server.start()
        async with connect(server.address, agent="a") as client:
            await client.private.put("k", 1)
        # Errors of engines that go and come back are told as well.
        redis.process.kill()
        etcd.process.kill()
        etcd.process.start()
        redis.process.start()
        async with connect(server.address, agent="b", timeout=60) as client:
            record = await client.private.get("k")
            assert record is None
        assert server.terminate() == 0
        assert "serving" in server.stderr
        assert "canary" not in server.stderr
    finally:
        server.close()
    # Redis knows a digest. etcd 3.4 writes down what a user was made with, once for each of the two.
    (log,) = (path for path in holding(tmp_path, b"canary") if path != config)
    assert etcd.process.folder in log.parents
    assert occurrences(log, b"canary") == 2
