"""What a client under TLS reads: one line tells what is wrong with a file, and never what is in it."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from tests.support.authority import TestAuthority

from noosphere.client import InvalidArgument, Tls, connect
from noosphere.client._channel import ServersChannel, open_channel
from noosphere.client._tls import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE, TlsSource, explained, tls_source


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path)


async def refused(tls: Tls | None) -> str:
    with pytest.raises(InvalidArgument) as caught:
        async with connect("127.0.0.1:1", tls=tls):
            pass
    assert "\n" not in caught.value.message
    return caught.value.message


async def test_files_that_cannot_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long paths are shown by their beginnings, and those of a test run may be long.
    monkeypatch.chdir(tmp_path)
    authority = TestAuthority(Path())
    certificate, key = authority.client("planner")
    other = Path("other")
    assert await refused(Tls(other)) == f"tls.ca: '{other}' cannot be read: No such file or directory"
    assert await refused(Tls(Path())) == "tls.ca: '.' cannot be read: Is a directory"
    assert await refused(Tls("ca\0")) == "tls.ca: 'ca\\x00' cannot be read: is no path"
    (tmp_path / "other").write_text("secret-secret")
    assert await refused(Tls(other)) == f"tls.ca: '{other}' holds no certificates in PEM form"
    pair = "are not a key without a password and its certificate, in PEM form"
    assert await refused(Tls(None, certificate, other)) == f"tls.key: '{other}' and '{certificate}' {pair}"
    assert await refused(Tls(None, other, key)) == f"tls.key: '{key}' and '{other}' {pair}"
    _, strange = authority.client("writer", "other")
    assert await refused(Tls(None, certificate, strange)) == f"tls.key: '{strange}' is not the key of '{certificate}'"
    assert await refused(Tls(None, certificate)) == "tls.certificate: is of no use without tls.key"
    assert await refused(Tls(None, None, key)) == "tls.key: is of no use without tls.certificate"
    secret = load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush")))
    assert await refused(Tls(None, certificate, key)) == f"tls.key: '{key}' and '{certificate}' {pair}"
    with pytest.raises(InvalidArgument, match="tls: True is bool, not Tls"):
        async with connect("127.0.0.1:1", tls=True):  # type: ignore[arg-type] # What a caller may get wrong.
            pass


async def test_a_channel_that_is_given_is_as_it_is() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(InvalidArgument, match="tls: a channel that is given has its own"):
            async with connect(channel=channel, tls=Tls()):
                pass


async def test_the_environment_names_files_and_is_named(
    authority: TestAuthority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert tls_source(None) is None
    monkeypatch.setenv(CA_VARIABLE, "")
    assert tls_source(None) is None
    monkeypatch.setenv(CA_VARIABLE, str(authority.ca))
    found = tls_source(None)
    assert found is not None
    assert found.tls == Tls(str(authority.ca))
    assert tls_source(Tls(server_name="x")) == TlsSource(Tls(server_name="x"))
    monkeypatch.setenv(CERTIFICATE_VARIABLE, str(authority.ca))
    assert await refused(None) == f"{CERTIFICATE_VARIABLE}: is of no use without {KEY_VARIABLE}"
    monkeypatch.setenv(CA_VARIABLE, str(tmp_path / "none"))
    assert (await refused(None)).startswith(f"{CA_VARIABLE}: '{tmp_path}/none' cannot be read")


async def test_a_connection_is_made_anew_only_where_files_were_replaced(authority: TestAuthority) -> None:
    authority.client("planner")
    source = TlsSource(Tls(authority.ca, authority.folder / "client.pem", authority.folder / "client.key"))
    async with open_channel("127.0.0.1:1", tls=source) as channel:
        assert isinstance(channel, ServersChannel)
        first = channel.present
        assert not channel.leave(channel.turn)
        authority.client("planner")
        assert channel.present is first
        assert channel.leave(channel.turn)
        second = channel.present
        assert second is not first
        assert not channel.leave(channel.turn)
        # What is half replaced is not used, and looked at again.
        (authority.folder / "client.key").write_text("half")
        assert channel.leave(channel.turn)
        assert channel.present is not second
        authority.client("planner")
        assert channel.leave(channel.turn)


async def test_of_many_replaced_connections_few_are_kept_open(authority: TestAuthority) -> None:
    async with open_channel("127.0.0.1:1", tls=TlsSource(Tls(authority.ca))) as channel:
        assert isinstance(channel, ServersChannel)
        made = []
        for _ in range(12):
            made.append(channel.present)
            authority.ca.write_bytes(authority.pem + b"\n" * len(made))
            assert channel.leave(channel.turn)
        assert len(set(map(id, made))) == 12
        assert len(channel._retired) == 8


@pytest.mark.parametrize(
    ("details", "tls", "words"),
    [
        ("last error: UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed", False, "does the server expect TLS"),
        ("ipv4:127.0.0.1:1: Connection refused", False, None),
        ("ipv4:127.0.0.1:1: Connection refused", True, None),
        ("SSL_ERROR_SSL: error:100000f7: WRONG_VERSION_NUMBER: Invalid", True, "the server does not speak TLS"),
        (
            "CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate",
            True,
            "is refused (tls.ca, NOOSPHERE_TLS",
        ),
        ("UNAUTHENTICATED: Hostname Verification Check failed.", True, "is not for the address that it was reached at"),
        ("Peer name db.example is not in peer certificate", True, "is not for the address that it was reached at"),
        ("ipv4:127.0.0.1:1: Socket closed", True, "does the server want another certificate"),
    ],
)
def test_what_failed_handshakes_mean_is_told(details: str, tls: bool, words: str | None) -> None:
    told = explained(details, tls)
    assert (words in told) if words is not None else (told == details)
