"""Clients of a real server under TLS that asks for certificates: who gets in, and what the others are told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.authority import TestAuthority
from tests.support.cli import Cli
from tests.support.process import ServerProcess
from tests.support.threaded import Connect

import noosphere.client
from noosphere.client import Tls, Unavailable


class Fixed(NamedTuple):
    """A server that all tests leave as it is."""

    server: ServerProcess
    authority: TestAuthority
    client: Tls


def serving(data: Path, authority: TestAuthority) -> ServerProcess:
    certificate, key = authority.server()
    options = ["--tls-certificate", str(certificate), "--tls-key", str(key), "--tls-client-ca", str(authority.ca)]
    return ServerProcess(data, options)


def files(authority: TestAuthority, name: str = "planner") -> Tls:
    return Tls(authority.ca, *authority.client(name, name))


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fixed]:
    folder = tmp_path_factory.mktemp("tls")
    authority = TestAuthority(folder / "authority")
    server = serving(folder / "data", authority)
    server.start()
    yield Fixed(server, authority, files(authority))
    server.close()


async def unreachable(address: str, tls: Tls | None) -> str:
    with pytest.raises(Unavailable) as caught:
        async with noosphere.client.connect(address, timeout=1.0, tls=tls):
            pass
    assert "\n" not in caught.value.message
    return caught.value.message


async def test_a_client_with_a_certificate_of_the_authority_gets_in(fixed: Fixed, connect: Connect) -> None:
    async with connect(fixed.server.address, agent="planner", tls=fixed.client) as client:
        assert (await client.private.put("k", 1)).version
    nobody = f"127.0.0.1:1,{fixed.server.address},127.0.0.1:2"
    async with connect(nobody, agent="planner", tls=fixed.client) as client:
        record = await client.private.get("k")
        assert record is not None
        assert record.value == 1


async def test_the_environment_is_enough(fixed: Fixed, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fixed.client.certificate is not None
    assert fixed.client.key is not None
    monkeypatch.setenv("NOOSPHERE_SERVER", fixed.server.address)
    monkeypatch.setenv("NOOSPHERE_TLS_CA", str(fixed.client.ca))
    monkeypatch.setenv("NOOSPHERE_TLS_CLIENT_CERTIFICATE", str(fixed.client.certificate))
    monkeypatch.setenv("NOOSPHERE_TLS_CLIENT_KEY", str(fixed.client.key))
    async with connect(agent="planner") as client:
        assert (await client.server_info()).version


async def test_those_that_do_not_get_in_are_told_why(fixed: Fixed, binary: ServerProcess, tmp_path: Path) -> None:
    address, own = fixed.server.address, fixed.client
    assert "does the server expect TLS (tls, NOOSPHERE_TLS_CA)?" in await unreachable(address, None)
    told = await unreachable(binary.address, own)
    assert told.endswith("the server does not speak TLS, and this client does (tls, NOOSPHERE_TLS_CA)")
    assert "does the server want another certificate" in await unreachable(address, Tls(own.ca))
    other = TestAuthority(tmp_path, "another authority")
    told = await unreachable(address, Tls(other.ca, own.certificate, own.key))
    assert "the server's certificate is refused (tls.ca, NOOSPHERE_TLS_CA): " in told
    stranger = other.client("planner")
    assert "does the server want another certificate" in await unreachable(address, Tls(own.ca, *stranger))
    misnamed = Tls(own.ca, own.certificate, own.key, server_name="db.example")
    assert "certificate is not for the address that it was reached at" in await unreachable(address, misnamed)


@pytest.mark.campaign
async def test_a_client_whose_certificate_was_replaced_goes_on(tmp_path: Path) -> None:
    authority, other = TestAuthority(tmp_path / "one", "one"), TestAuthority(tmp_path / "other", "other")
    server = serving(tmp_path / "data", authority)
    try:
        server.start()
        own = files(authority)
        async with noosphere.client.connect(server.address, agent="planner", tls=own, timeout=30) as client:
            await client.private.put("k", 1)
            server.kill()
            # The server trusts nobody any more whom it has trusted, and the client is given what it trusts now.
            authority.ca.write_bytes(authority.pem + other.pem)
            server.options = (*server.options[:-1], str(other.ca))
            assert own.certificate is not None
            assert own.key is not None
            issued = other.client("planner")
            os.replace(issued.certificate, own.certificate)
            os.replace(issued.key, own.key)
            server.restart()
            record = await client.private.get("k")
            assert record is not None
            assert record.value == 1
    finally:
        server.close()


def test_the_command_line_connects_under_tls(fixed: Fixed) -> None:
    cli, own = Cli(fixed.server.address), fixed.client
    shown = ("--tls-ca", str(own.ca), "--tls-certificate", str(own.certificate), "--tls-key", str(own.key))
    assert cli.run(*shown, "--agent", "planner", "put", "agents/planner", "from-a-command", "1", "--blind").code == 0
    denied = cli.run(*shown, "stats")
    assert (denied.code, denied.error.startswith("PERMISSION_DENIED: 'planner' may not act as agent 'cli/")) == (
        1,
        True,
    )
    assert cli.run(*shown[:-2], "stats").error == "--tls-certificate: is of no use without --tls-key"
    told = cli.run("--timeout", "1", "stats")
    assert told.code == 4
    assert "does the server expect TLS" in told.error
