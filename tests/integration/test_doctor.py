"""`noosphere doctor`: each fault that is planted is named, and nothing else; a healthy server has none."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import Cli, holds
from tests.support.doctor import Elsewhere, findings, names
from tests.support.issuer import AUDIENCE, ISSUER, jwk, key_set
from tests.support.ports import free_port
from tests.support.process import ServerProcess

from noosphere.server.cli.backup_shapes import FindingShape
from noosphere.server.doctor import running
from noosphere.server.doctor.surroundings import Room
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.security.folder import create_certificates
from noosphere.server.storage.embedded import DataFolder

DAY_MS = 86_400_000
OPTIONS = ("--embedder", "none")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("NOOSPHERE_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("served") / "data", options=OPTIONS)
    server.start()
    yield server
    server.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder that a server has made and left."""
    folder = tmp_path / "data"
    DataFolder.lock(folder).release()
    return folder


@pytest.fixture
def listen() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    folder = tmp_path / "tls"
    create_certificates(folder, hosts=[], clients=[], days=30, now_ms=SystemClock().wall_ms())
    return folder


def files(tls: Path) -> dict[str, Any]:
    return {"tls_certificate": str(tls / "server.pem"), "tls_key": str(tls / "server.key")}


async def test_nothing_is_wrong_with_a_server_that_runs(served: ServerProcess) -> None:
    assert await findings(data=served.data, listen=served.address) == []


async def test_nothing_is_wrong_before_a_first_start(tmp_path: Path, listen: str) -> None:
    assert await findings(data=tmp_path / "none" / "yet", listen=listen) == []
    assert os.listdir(tmp_path) == [], "nothing was made"


async def test_nothing_is_wrong_with_what_a_server_has_left(served: ServerProcess, data: Path, listen: str) -> None:
    assert await findings(data=data, listen=listen) == []


async def test_nothing_is_wrong_under_tls(data: Path, listen: str, tls: Path) -> None:
    assert await findings(data=data, listen=listen, tls_client_ca=str(tls / "ca.pem"), **files(tls)) == []


async def test_an_unknown_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "noosphere.toml"
    config.write_text('lisen = "127.0.0.1:1"\n')
    (found,) = await findings(config)
    assert (found.name, "is listen meant?" in found.evidence) == ("unknown_key", True)
    monkeypatch.setenv("NOOSPHERE_DATE", "x")
    (found,) = await findings()
    assert (found.name, "NOOSPHERE_DATE" in found.evidence) == ("unknown_key", True)


async def test_settings_that_do_not_go_together(tmp_path: Path) -> None:
    (found,) = await findings(etcd_endpoints="127.0.0.1:2379")
    assert (found.name, "NOOSPHERE_REDIS_URLS" in found.evidence) == ("configuration", True)
    assert await names(tmp_path / "missing.toml") == ["configuration"]


async def test_an_address_that_everybody_reaches(data: Path) -> None:
    assert await names(data=data, listen=f"0.0.0.0:{free_port()}") == ["exposed"]


async def test_a_file_in_place_of_the_data_folder(tmp_path: Path, listen: str) -> None:
    path = tmp_path / "data"
    path.write_text("")
    assert await names(data=path, listen=listen) == ["data_not_a_folder"]
    assert await names(data=path / "below", listen=listen) == ["data_not_a_folder"]


async def test_a_folder_that_cannot_be_written(listen: str) -> None:
    # Not even by root.
    assert await names(data="/proc/self", listen=listen) == ["data_unusable"]
    assert await names(data="/proc/noosphere", listen=listen) == ["data_unusable"]


async def test_a_folder_of_something_else(tmp_path: Path, listen: str) -> None:
    (tmp_path / "letters").write_text("")
    assert await names(data=tmp_path, listen=listen) == ["data_foreign"]


async def test_a_folder_that_others_can_read(data: Path, listen: str) -> None:
    os.chmod(data, 0o755)
    assert await names(data=data, listen=listen) == ["data_readable"]


async def test_a_newer_format(data: Path, listen: str) -> None:
    (data / "FORMAT").write_text("noosphere 99\n")
    (found,) = await findings(data=data, listen=listen)
    assert (found.name, "99" in found.evidence) == ("newer_format", True)


async def test_a_damaged_file(data: Path, listen: str) -> None:
    (data / "facts.sqlite3").write_bytes(b"no database" * 1_000)
    (found,) = await findings(data=data, listen=listen)
    assert (found.name, "facts.sqlite3" in found.what) == ("data_damaged", True)


async def test_a_damaged_stamp(data: Path, listen: str) -> None:
    (data / "FORMAT").write_bytes(b"\xff")
    assert await names(data=data, listen=listen) == ["data_damaged"]


async def test_a_restore_that_was_cut_off(data: Path, listen: str) -> None:
    (data / "RESTORING").write_text("")
    assert await names(data=data, listen=listen) == ["restore_cut_off"]


async def test_a_folder_that_somebody_else_uses(data: Path, listen: str) -> None:
    with DataFolder.lock(data):
        (found,) = await findings(data=data, listen=listen)
        assert (found.name, str(os.getpid()) in found.evidence) == ("data_in_use", True)


@pytest.mark.parametrize(
    "room",
    [Room(200 << 20, 10 << 30, 1_000, 2_000), Room(1 << 30, 1 << 40, 1_000, 2_000), Room(1 << 40, 1 << 41, 5, 10)],
)
async def test_a_disk_that_is_nearly_full(data: Path, listen: str, room: Room) -> None:
    assert await names(None, Elsewhere(room=room), data=data, listen=listen) == ["disk_full"]


async def test_a_clock_that_was_set_back(served: ServerProcess) -> None:
    back = Elsewhere(ahead_ms=-DAY_MS)
    assert await names(None, back, data=served.data, listen=served.address) == ["clock_set_back"]


async def test_a_port_that_another_program_has(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert await names(data=data, listen=f"127.0.0.1:{port}") == ["port_in_use"]
        taken = f"127.0.0.1:{port}"
        for key in ("metrics_listen", "health_listen"):
            also: dict[str, Any] = {key: taken}
            (found,) = await findings(data=data, listen=f"127.0.0.1:{free_port()}", **also)
            assert (found.name, key in found.what) == ("port_in_use", True)


async def test_an_address_of_another_machine(data: Path) -> None:
    # Of a network that is for documents alone.
    (found,) = await findings(data=data, listen=f"192.0.2.1:{free_port()}", insecure=True)
    assert (found.name, "192.0.2.1" in found.evidence) == ("address_unusable", True)


@pytest.mark.parametrize(
    ("version", "found"), [("0.1.9", []), ("0.2.0", ["server_version"]), ("1.1.0", ["server_version"])]
)
async def test_a_server_of_another_version(
    served: ServerProcess, monkeypatch: pytest.MonkeyPatch, version: str, found: list[str]
) -> None:
    monkeypatch.setattr(running, "__version__", version)
    assert await names(data=served.data, listen=served.address) == found


async def test_an_expired_certificate(data: Path, listen: str, tls: Path) -> None:
    later = Elsewhere(ahead_ms=40 * DAY_MS)
    assert await names(None, later, data=data, listen=listen, **files(tls)) == ["certificate_expired"]
    earlier = Elsewhere(ahead_ms=-DAY_MS * 400)
    assert await names(None, earlier, data=data, listen=listen, **files(tls)) == ["certificate_expired"]


async def test_a_certificate_that_ends_soon(data: Path, listen: str, tls: Path) -> None:
    later = Elsewhere(ahead_ms=20 * DAY_MS)
    (found,) = await findings(None, later, data=data, listen=listen, **files(tls))
    assert (found.name, found.severity) == ("certificate_ends_soon", "warning")


async def test_a_key_of_another_certificate(data: Path, listen: str, tls: Path) -> None:
    swapped = {**files(tls), "tls_key": str(tls / "ca.key")}
    assert await names(data=data, listen=listen, **swapped) == ["key_mismatch"]


async def test_a_key_that_everybody_can_read(data: Path, listen: str, tls: Path) -> None:
    (tls / "server.key").chmod(0o644)
    assert await names(data=data, listen=listen, **files(tls)) == ["secret_readable"]


async def test_a_certificate_of_another_name(data: Path, tls: Path) -> None:
    address = f"127.0.0.2:{free_port()}"
    assert await names(data=data, listen=address, **files(tls)) == ["certificate_names"]


async def test_files_that_are_no_certificates(data: Path, listen: str, tls: Path) -> None:
    (tls / "server.pem").write_text("none")
    assert await names(data=data, listen=listen, **files(tls)) == ["certificate_unusable"]
    (tls / "server.pem").unlink()
    assert await names(data=data, listen=listen, **files(tls)) == ["certificate_unusable"]


async def test_a_configuration_with_secrets_that_everybody_can_read(data: Path, listen: str, tmp_path: Path) -> None:
    config = tmp_path / "noosphere.toml"
    config.write_text('summariser_key = "sk-canary"\n')
    config.chmod(0o644)
    (found,) = await findings(config, data=data, listen=listen)
    assert found.name == "secret_readable"
    assert "canary" not in repr(found)
    config.chmod(0o600)
    assert await names(config, data=data, listen=listen) == []


async def test_tokens_without_a_first_one(data: Path, listen: str) -> None:
    assert await names(data=data, listen=listen, tokens=True) == ["no_admin_token"]


async def test_an_audit_log_that_cannot_be_written(data: Path, listen: str, tmp_path: Path) -> None:
    well = tmp_path / "audit.jsonl"
    assert await names(data=data, listen=listen, audit_log=str(well)) == []
    assert not well.exists(), "nothing was made"
    for path in (tmp_path, tmp_path / "none" / "audit.jsonl", Path("/proc/noosphere.jsonl")):
        (found,) = await findings(data=data, listen=listen, audit_log=str(path))
        assert (found.name, str(path) in found.evidence) == ("audit_unusable", True)


async def test_keys_of_tokens_that_cannot_be_used(data: Path, listen: str, tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    issuer: dict[str, Any] = {
        "jwt_issuer": ISSUER,
        "jwt_audience": AUDIENCE,
        "jwt_admins": "root",
        "data": data,
        "listen": listen,
    }
    file.write_bytes(key_set(jwk("ES256", "k")))
    assert await names(jwt_jwks=str(file), **issuer) == []
    for content in (b"", b"{}", key_set()):
        file.write_bytes(content)
        (found,) = await findings(jwt_jwks=str(file), **issuer)
        assert (found.name, str(file) in found.evidence) == ("keys_unusable", True)
    assert await names(jwt_jwks=str(tmp_path / "none.json"), **issuer) == ["keys_unusable"]
    nowhere = f"http://127.0.0.1:{free_port()}/jwks"
    (found,) = await findings(jwt_jwks=nowhere, **issuer)
    # Such a server starts, and takes tokens once the keys are there.
    assert (found.name, found.severity) == ("keys_unreachable", "warning")


async def test_a_coordinator_of_a_newer_format(served: ServerProcess, data: Path, listen: str) -> None:
    with sqlite3.connect(data / "coordination.sqlite3") as db:
        db.execute(f"PRAGMA application_id = {0x4E6F6F53}")
        db.execute("PRAGMA user_version = 7")
    db.close()
    assert await names(data=data, listen=listen) == ["newer_format"]


def test_the_command_says_what_is_wrong_and_what_to_do(served: ServerProcess, tmp_path: Path) -> None:
    cli = Cli()
    well = cli.run("doctor", "--data", str(served.data), "--listen", served.address)
    assert (well.code, well.text, well.err) == (0, "nothing is wrong\n", "")
    (tmp_path / "letters").write_text("")
    (tmp_path / "letters").chmod(0o600)
    arguments = ("doctor", "--data", str(tmp_path), "--listen", f"127.0.0.1:{free_port()}")
    ill = cli.run(*arguments)
    assert ill.code == 5
    assert ill.lines[0].startswith("problem data_foreign: ")
    assert [line.split(":")[0].strip() for line in ill.lines] == ["problem data_foreign", "seen", "do"]
    (document,) = cli.run(*arguments, "--json").json_lines
    holds(FindingShape, document)
    assert document["name"] == "data_foreign"
