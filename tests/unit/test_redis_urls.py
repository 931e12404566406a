"""What ``redis_urls`` may be: each url has to be of the one form, and what is wrong is told without repeating it."""

from __future__ import annotations

import pytest

from noosphere.server.storage.redis import UnfitRedis
from noosphere.server.storage.redis.instance import URLS_MAX, addresses_of
from noosphere.server.storage.redis.wire import Address, Trust


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h", Address("h", 6379)),
        ("redis://h/", Address("h", 6379)),
        ("redis://h:1/12", Address("h", 1, 12)),
        ("rediss://u:p%40%2C%2F%23%20w@h:1", Address("h", 1, 0, "u", "p@,/# w", Trust())),
        ("redis://:pw@[::1]:6380", Address("::1", 6380, 0, "", "pw")),
    ],
)
def test_a_url_names_host_port_database_and_who_we_are(url: str, address: Address) -> None:
    assert addresses_of([url]) == (address,)


@pytest.mark.parametrize(
    "url",
    [
        "secret",
        "redis://",
        "redis://u:secret",
        "redis://u:secret@h:0",
        "redis://u:secret@h:70000",
        "redis://:secret@[::1",
        # The password ends at the slash, where the database should begin, and its beginning in what should be a port.
        "redis://u:secret/word@h",
        # The database would be 0, whatever was meant.
        "redis://:secret@h?db=3",
        "redis://:secret@h/0#3",
        "redis://:secret@h/1/2",
        "redis://:secret@h/-1",
        "redis://:secret@h/\N{FULLWIDTH DIGIT ONE}",
        "redis://:secret@h/99999999999999999999",
        "redis://:secret@a redis://b",
        "redis://:secret@h\n",
        "http://:secret@h",
    ],
)
def test_another_form_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UnfitRedis, match=r"^redis_urls: url 2 of 2 ") as refused:
        addresses_of(["redis://h", url])
    assert "secret" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_different_databases_are_no_primary_and_its_replicas() -> None:
    with pytest.raises(UnfitRedis, match="databases 0, 3; a primary and its replicas have the same one"):
        addresses_of(["redis://a", "redis://b/3"])


def test_there_is_at_least_one_and_each_counts_once() -> None:
    with pytest.raises(UnfitRedis, match="0 urls"):
        addresses_of([])
    with pytest.raises(UnfitRedis, match=f"the limit|1 to {URLS_MAX}"):
        addresses_of([f"redis://h{number}" for number in range(URLS_MAX + 1)])
    assert len(addresses_of(["redis://h", "redis://h:6379/0"])) == 1
