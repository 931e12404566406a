"""Dumps and facts on Weaviate: from a data folder to a server or replicas on it and back, the same all the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.dumps import contents, put_back, settings_of, take, take_offline
from tests.support.engine import local_server
from tests.support.etcd import EtcdProcess, needs_etcd
from tests.support.killed import Killed
from tests.support.redis import RedisProcess, needs_redis
from tests.support.telling import Teller
from tests.support.weaviate import WeaviateProcess, needs_weaviate

from noosphere.server.config import Settings
from noosphere.server.drivers import StartupError
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.restoring import RestoreError
from noosphere.testing import ManualClock

pytestmark = [needs_weaviate, pytest.mark.campaign]

CLAIMS = ("Anna prefers metric units", "Anna lives in Lyon", "安娜喜欢绿茶", 'Anna\'s pattern is "%*_?" AND 1=1')


@pytest.fixture
def weaviate(tmp_path: Path) -> Iterator[WeaviateProcess]:
    made = WeaviateProcess(tmp_path / "weaviate")
    made.start()
    yield made
    made.kill()


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A dump of an embedded server with facts."""
    async with local_server(tmp_path / "made", ManualClock(SystemClock().wall_ms())) as server:
        agent = await server.api.agent("planner")
        await agent.put("shared/launch", "plan", "draft")
        user = await Teller.begin(agent)
        for claim in CLAIMS:
            await user.tells(claim)
        return await take(tmp_path / "made.dump", server.engine.dumper)


def on_weaviate(folder: Path, weaviate: WeaviateProcess, **more: str) -> Settings:
    return settings_of(folder, weaviate_url=weaviate.url, weaviate_grpc=weaviate.grpc, **more)


async def test_a_dump_goes_to_weaviate_and_back_and_stays_the_same(
    tmp_path: Path, weaviate: WeaviateProcess, path: Path
) -> None:
    target = on_weaviate(tmp_path / "data", weaviate)
    assert (await put_back(path, target, SystemClock())).facts == len(CLAIMS)
    again = await take_offline(tmp_path / "again.dump", target)
    assert contents(again) == contents(path)
    back = settings_of(tmp_path / "back")
    await put_back(again, back, SystemClock())
    assert contents(await take_offline(tmp_path / "back.dump", back)) == contents(path)
    with pytest.raises(StartupError, match="are on Weaviate"):
        await take_offline(tmp_path / "none.dump", settings_of(tmp_path / "data"))


async def test_a_restore_makes_good_a_weaviate_that_was_wiped(
    tmp_path: Path, weaviate: WeaviateProcess, path: Path
) -> None:
    target = on_weaviate(tmp_path / "data", weaviate)
    await put_back(path, target, SystemClock())
    assert contents(await take_offline(tmp_path / "before.dump", target)) == contents(path)
    weaviate.kill()
    weaviate.forget()
    weaviate.start()
    with pytest.raises(StartupError, match="which held the fleet's facts, is gone"):
        await take_offline(tmp_path / "wiped.dump", target)
    await put_back(path, target, SystemClock(), replace=True)
    assert contents(await take_offline(tmp_path / "again.dump", target)) == contents(path)


async def test_what_weaviate_holds_is_removed_only_if_that_is_said(
    tmp_path: Path, weaviate: WeaviateProcess, path: Path
) -> None:
    await put_back(path, on_weaviate(tmp_path / "first", weaviate), SystemClock())
    second = on_weaviate(tmp_path / "second", weaviate)
    with pytest.raises(RestoreError, match=rf"NoosphereFacts at .* is not empty: it holds {len(CLAIMS)} versions"):
        await put_back(path, second, SystemClock())
    assert len(list((tmp_path / "second").glob("*.sqlite3"))) == 0, "nothing was begun"
    await put_back(path, second, SystemClock(), replace=True)
    assert contents(await take_offline(tmp_path / "again.dump", second)) == contents(path)
    other = on_weaviate(tmp_path / "third", weaviate, weaviate_collection="OtherFacts")
    await put_back(path, other, SystemClock())
    assert contents(await take_offline(tmp_path / "third.dump", other)) == contents(path)


async def test_a_restore_that_was_cut_off_is_taken_up_by_no_server(
    tmp_path: Path, weaviate: WeaviateProcess, path: Path
) -> None:
    target = on_weaviate(tmp_path / "data", weaviate)

    def cut(done: int, total: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        await put_back(path, target, SystemClock(), told=cut)
    with pytest.raises(StartupError, match=r"cut off.*restore\s+--replace"):
        await take_offline(tmp_path / "again.dump", target)
    await put_back(path, target, SystemClock(), replace=True)
    assert contents(await take_offline(tmp_path / "again.dump", target)) == contents(path)


async def test_nothing_is_touched_while_weaviate_is_away(tmp_path: Path, weaviate: WeaviateProcess, path: Path) -> None:
    target = on_weaviate(tmp_path / "data", weaviate)
    await put_back(path, target, SystemClock())
    weaviate.kill()
    with pytest.raises(RestoreError, match="the fact store cannot be used"):
        await put_back(path, target, SystemClock(), replace=True)
    with pytest.raises(StartupError, match="the fact store cannot be used"):
        await take_offline(tmp_path / "none.dump", target)
    weaviate.start()
    assert contents(await take_offline(tmp_path / "again.dump", target)) == contents(path)


@needs_redis
@needs_etcd
async def test_replicas_have_the_facts_of_a_dump_and_dump_them(
    tmp_path: Path, weaviate: WeaviateProcess, path: Path
) -> None:
    redis, etcd = RedisProcess(tmp_path / "redis"), EtcdProcess(tmp_path / "etcd")
    try:
        redis.start()
        etcd.start()
        target = on_weaviate(tmp_path / "none", weaviate, redis_urls=redis.url, etcd_endpoints=etcd.endpoint)
        await put_back(path, target, SystemClock())
        again = await take_offline(tmp_path / "again.dump", target)
        assert contents(again) == contents(path)
        assert not (tmp_path / "none").exists()
        back = settings_of(tmp_path / "back")
        await put_back(again, back, SystemClock())
        assert contents(await take_offline(tmp_path / "back.dump", back)) == contents(path)
    finally:
        redis.kill()
        etcd.kill()
