"""Where a client's token comes from, what one looks like, and to whom it is sent in plain text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noosphere.client import InvalidArgument, connect
from noosphere.client._token import TOKEN_BYTES_MAX, check_plaintext, token_source

SECRET = "noo_0123456789abcdef_" + "5" * 64


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOOSPHERE_TOKEN", "NOOSPHERE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_what_the_caller_says_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert token_source(None, None) is None
    file = tmp_path / "token"
    file.write_text("from-file\n")
    monkeypatch.setenv("NOOSPHERE_TOKEN_FILE", str(file))
    found = token_source(None, None)
    assert found is not None
    assert (found.current(), found.rotates) == ("from-file", True)
    monkeypatch.setenv("NOOSPHERE_TOKEN", "from-variable")
    found = token_source(None, None)
    assert found is not None
    assert (found.current(), found.rotates) == ("from-variable", False)
    for found, expected in (
        (token_source("said", None), "said"),
        (token_source(lambda: "called", None), "called"),
        (token_source(None, str(file)), "from-file"),
    ):
        assert found is not None
        assert found.current() == expected
    monkeypatch.setenv("NOOSPHERE_TOKEN", "")
    found = token_source(None, None)
    assert found is not None
    assert found.current() == "from-file", "an empty variable counts as not set"


@pytest.mark.parametrize("token", ["", "a b", "a\n", "tok\u00e9n", "x" * (TOKEN_BYTES_MAX + 1), 7])
def test_what_is_no_token_is_refused_and_not_repeated(token: object, tmp_path: Path) -> None:
    def returned() -> str:
        return token  # type: ignore[return-value]  # what is refused

    for given in (token, returned):
        with pytest.raises(InvalidArgument, match=r"^INVALID_FIELD: token: ") as refused:
            token_source(given, None)  # type: ignore[arg-type]  # what is refused
        if len(str(token)) > 1:
            assert str(token) not in refused.value.message
    with pytest.raises(InvalidArgument, match="beside token_file"):
        token_source("a", "b")


def test_a_file_is_read_anew_when_it_changes_and_kept_while_it_is_away(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(InvalidArgument, match=r"token_file: '.*' cannot be read: No such file"):
        token_source(None, str(file))
    file.write_text("two words")
    with pytest.raises(InvalidArgument, match="holds no token"):
        token_source(None, str(file))
    file.write_text(f"{SECRET}\n")
    found = token_source(None, str(file))
    assert found is not None
    assert found.current() == SECRET
    # As Kubernetes swaps a projected token.
    (tmp_path / "next").write_text("second")
    os.replace(tmp_path / "next", file)
    assert found.current() == "second"
    for broken in (b"", b"\xff\xfe", b"x" * (TOKEN_BYTES_MAX + 10)):
        file.write_bytes(broken)
        assert found.current() == "second"
    file.unlink()
    assert found.current() == "second"
    file.write_text("third")
    assert found.current() == "third"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:7443", "[::1]:1", "localhost:2", "unix:/run/x.sock", "unix-abstract:x", "ipv4:127.0.0.1:1,127.0.0.2:1"],
)
def test_a_token_may_be_sent_to_this_machine(address: str) -> None:
    check_plaintext("token", [address])


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1:7443",
        "memory.example:1",
        "dns:///localhost:1",
        "[fe80::1]:1",
        "0.0.0.0:1",
    ],
)
async def test_a_token_is_not_sent_to_another_machine_in_plain_text(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgument, match=r"^INVALID_FIELD: token: would be sent to .* in plain text") as no:
        async with connect(f"127.0.0.1:1,{address}", token=SECRET):
            pass
    assert SECRET not in str(no.value)
    monkeypatch.setenv("NOOSPHERE_TOKEN", SECRET)
    with pytest.raises(InvalidArgument, match=r"^INVALID_FIELD: NOOSPHERE_TOKEN: would be sent"):
        async with connect(address):
            pass


def test_of_several_addresses_in_one_name_each_counts() -> None:
    with pytest.raises(InvalidArgument):
        check_plaintext("token", ["ipv4:127.0.0.1:1,10.0.0.1:1"])
