"""What is told of Redis processes, and how it is read: slots, views of a cluster, records of epochs."""

from __future__ import annotations

import pytest

from noosphere.server.ports.coordinator import EpochRecord
from noosphere.server.storage.redis.record import History, Members
from noosphere.server.storage.redis.slots import SLOTS, ClusterView, Shard, slot_of, view_from
from noosphere.server.storage.redis.survey import NODES_MAX
from noosphere.server.storage.redis.wire import Address, Reply, Trust

HERE = Address("seed", 7000, 0, "user", "secret", Trust())


def record(epoch: int, recovered: str) -> EpochRecord:
    return EpochRecord(epoch, 0, "test", recovered)


@pytest.mark.parametrize(
    ("key", "tag"),
    [(b"{user1000}.following", b"user1000"), (b"foo{bar}{zap}", b"bar"), (b"foo{{bar}}zap", b"{bar"), (b"a", b"a")],
)
def test_the_slot_is_that_of_the_hash_tag(key: bytes, tag: bytes) -> None:
    assert slot_of(key) == slot_of(tag) < SLOTS


def test_slots_are_those_of_redis() -> None:
    # From the specification of Redis Cluster, and from CLUSTER KEYSLOT.
    assert slot_of(b"123456789") == 0x31C3
    assert slot_of(b"foo{}{bar}") == 8363


class Answering:
    """A connection to a node that answers so."""

    def __init__(self, *shards: Reply) -> None:
        self._replies: dict[tuple[str, ...], Reply] = {
            ("CLUSTER", "INFO"): b"cluster_state:ok\r\ncluster_slots_ok:16384\r\ncluster_current_epoch:17\r\n",
            ("CLUSTER", "SHARDS"): list(shards),
        }

    async def call(self, *command: str) -> Reply:
        return self._replies[command]


def node(host: bytes, port: int, role: bytes = b"master", health: bytes = b"online") -> Reply:
    return [
        *(b"id", b"x", b"tls-port", port, b"ip", host, b"endpoint", host, b"role", role),
        *(b"replication-offset", 1, b"health", health),
    ]


async def test_a_view_tells_who_serves_what_at_which_address() -> None:
    answering = Answering(
        [b"slots", [0, 99, 200, 299], b"nodes", [node(b"r", 1, b"replica"), node(b"a", 7001)]],
        [b"slots", [], b"nodes", [node(b"idle", 7002)]],
        # Who has failed may still be told of beside who has taken over.
        [b"slots", [100, 199], b"nodes", [node(b"old", 7003, health=b"fail"), node(b"new", 7004)]],
        [b"slots", [300, 16383], b"nodes", [node(b"", 7000)]],
        [b"slots", [], b"nodes", [node(b"orphan", 7005, b"replica")]],
    )
    assert await view_from(answering, HERE) == ClusterView(  # type: ignore[arg-type] # It answers as a wire does.
        True,
        17,
        (
            Shard(HERE._replace(host="a", port=7001), ((0, 99), (200, 299))),
            Shard(HERE._replace(host="idle", port=7002), ()),
            Shard(HERE._replace(host="new", port=7004), ((100, 199),)),
            Shard(HERE, ((300, 16383),)),
        ),
    )


def test_a_record_says_who_belongs_to_an_epoch() -> None:
    digests = frozenset({"ab" * 10, "cd" * 10})
    for members in (Members(digests), Members(digests, 17)):
        history = History([record(1, members.told(3))])
        assert history.newest == members
        assert history.cluster_epoch == members.cluster_epoch


def test_a_record_of_the_largest_cluster_stays_small() -> None:
    told = Members(frozenset(f"{number:020x}" for number in range(NODES_MAX)), 1 << 40).told(1 << 40)
    assert len(told) < 12_000


def test_who_has_been_replaced_is_told_from_who_was_never_seen() -> None:
    first, second, stranger = ("1" * 20, "2" * 20, "3" * 20)
    history = History([record(1, Members(frozenset({first})).told(0)), record(2, Members(frozenset({second})).told(0))])
    assert [history.has(digest) for digest in (first, second, stranger)] == [False, True, False]
    assert [history.replaced(digest) for digest in (first, second, stranger)] == [True, False, False]
    assert [history.knows(digest) for digest in (first, second, stranger)] == [True, True, False]


@pytest.mark.parametrize("recovered", ["", "nothing", "head 7 in 3 namespaces"])
def test_an_epoch_that_somebody_else_has_begun_names_no_redis(recovered: str) -> None:
    first = "1" * 20
    history = History([record(1, Members(frozenset({first})).told(0)), record(2, recovered)])
    assert history.newest is None
    # Nobody has taken its place: it may be used, in an epoch of its own.
    assert not history.has(first)
    assert not history.replaced(first)
    assert History([]).epoch == 0
