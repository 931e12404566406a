"""A server that cannot start says why in one line, exits with a documented code, and destroys nothing."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.cli import SECONDS_MAX, Cli, holds
from tests.support.process import NOOSPHERE, ServerProcess

from noosphere.client import connect
from noosphere.server.cli import shapes
from noosphere.server.storage.embedded.coordinator import FILE as COORDINATION
from noosphere.server.storage.embedded.sqlite import FILE as WORKING

# Says which process holds the folder.
_TOUCHED = {"LOCK"}


@pytest.fixture
def cli() -> Cli:
    return Cli()


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a server that was used and stopped in order; tests get copies."""
    folder = tmp_path_factory.mktemp("used") / "data"
    server = ServerProcess(folder)
    try:
        asyncio.run(_fill(server.start()))
        assert server.terminate() == 0
    finally:
        server.close()
    return folder


async def _fill(address: str) -> None:
    async with connect(address) as client:
        for number in range(50):
            await client.shared("launch").key(f"k{number}").put("x" * 900)


@pytest.fixture
def data(used: Path, tmp_path: Path) -> Path:
    return shutil.copytree(used, tmp_path / "data")


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in _TOUCHED
    }


def _serve(cli: Cli, data: Path, *options: str) -> str:
    """Starts a server that must fail with exit code 3; returns its one line."""
    done = cli.run("serve", "--listen", "127.0.0.1:0", "--data", str(data), "--log-level", "error", *options)
    assert done.code == 3, done
    return done.error


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--nope"], "no such option: --nope (see `noosphere serve --help`)"),
        (["--durability", "maybe"], "invalid value for '--durability': "),
        (["--memory-mib-max", "1"], "--memory-mib-max: input should be greater than or equal to 16, not 1"),
        (["--listen", "7443"], "--listen: '7443' is not host:port "),
        (["--config", "/nowhere.toml"], "/nowhere.toml: cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_touched(
    cli: Cli, tmp_path: Path, options: list[str], line: str
) -> None:
    done = cli.run("serve", "--data", str(tmp_path / "data"), *options)
    assert done.code == 2
    assert done.error.startswith(line)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--listen", "0.0.0.0:7443"],
            "other machines reach 0.0.0.0:7443, and nothing tells who calls: set tokens, jwt_issuer or tls_client_ca ",
        ),
        (["--listen", "[::]:7443"], "other machines reach [::]:7443, and nothing tells who calls"),
        (
            ["--listen", "127.0.0.1:0", "--metrics-listen", "0.0.0.0:9100"],
            "other machines reach the metrics at 0.0.0.0:9100, which ask nobody who they are: ",
        ),
    ],
)
def test_what_other_machines_reach_is_not_served_to_everybody(
    cli: Cli, tmp_path: Path, options: list[str], line: str
) -> None:
    done = cli.run("serve", "--data", str(tmp_path / "data"), *options)
    assert done.code == 3
    assert done.error.startswith(line)
    assert not (tmp_path / "data").exists()


_NO_ADDRESS = "is not host:port with a port from 1 to 65535"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--server", "127.0.0.1:65536"), f"--server: '127.0.0.1:65536' {_NO_ADDRESS}"),
        (("--server", "127.0.0.1:0"), f"--server: '127.0.0.1:0' {_NO_ADDRESS}"),
        (("--server", "memory.example"), f"--server: 'memory.example' {_NO_ADDRESS}"),
        (("--server", ":7443"), f"--server: ':7443' {_NO_ADDRESS}"),
        (("--server", "http://memory.example:7443"), f"--server: 'http://memory.example:7443' {_NO_ADDRESS}"),
        (("--server", ""), f"--server: '' {_NO_ADDRESS}"),
        ((), f"NOOSPHERE_SERVER: '7443' {_NO_ADDRESS}"),
        (("--server", "127.0.0.1:1", "--agent", "a#b"), "--agent: 'a#b' contains '#'"),
        (("--server", "127.0.0.1:1", "--agent", ""), "--agent: must not be empty"),
        (("--server", "127.0.0.1:1", "--timeout", "1e9"), "--timeout: 1000000000.0 is not a number of seconds"),
    ],
)
def test_what_cannot_be_connected_to_is_wrong_usage(cli: Cli, options: tuple[str, ...], line: str) -> None:
    done = cli.run("get", "shared/x", "k", *options, environment={"NOOSPHERE_SERVER": "7443"})
    assert done.code == 2
    assert done.error.startswith(line)


@pytest.mark.parametrize("option", ["--data", "--config"])
def test_an_empty_path_is_not_the_working_directory(cli: Cli, option: str) -> None:
    """`--data "$FOLDER"` with a variable that is not set."""
    done = cli.run("serve", option, "", "--listen", "127.0.0.1:0")
    assert done.code == 2
    assert done.error == f"invalid value for '{option}': '' is not a path (see `noosphere serve --help`)"


def test_an_unknown_key_names_file_and_key(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "noosphere.toml"
    file.write_text("durabilty = 'os'\n")
    done = cli.run("serve", "--config", str(file))
    assert (done.code, done.error.split(";")[0]) == (2, f"{file}: unknown key 'durabilty'")


def test_the_effective_configuration_is_shown_with_its_origins(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "noosphere.toml"
    file.write_text("durability = 'os'\nlog_level = 'error'\n")
    done = cli.run(
        *("config", "show", "--config", str(file), "--log-format", "json", "--json"),
        environment={"NOOSPHERE_LOG_LEVEL": "debug"},
    )
    found = done.json
    for key in found.values():
        holds(shapes.KeyShape, key)
    assert found["durability"] == {"value": "os", "origin": str(file)}
    assert found["log_level"] == {"value": "debug", "origin": "NOOSPHERE_LOG_LEVEL"}
    assert found["log_format"] == {"value": "json", "origin": "--log-format"}
    assert found["listen"] == {"value": "127.0.0.1:7443", "origin": "default"}
    table = cli.run("config", "show", "--config", str(file))
    assert ["durability", "os", str(file)] in [line.split() for line in table.lines]


def test_a_program_learns_the_port_that_the_system_chose(cli: Cli, tmp_path: Path) -> None:
    server = subprocess.Popen(
        [str(NOOSPHERE), "--json", "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=cli.environment(),
    )
    try:
        assert server.stdout is not None
        document = json.loads(server.stdout.readline())
        holds(shapes.ReadyShape, document)
        assert not document["address"].endswith(":0")
        assert cli.run("--server", document["address"], "stats").code == 0
        server.terminate()
        assert server.wait(SECONDS_MAX) == 0
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize(
    "unusable", ["a file", "below a file", "where nothing can be created", "somebody else's folder"]
)
def test_a_data_folder_that_cannot_be_used(cli: Cli, tmp_path: Path, unusable: str) -> None:
    # Tests may run as root, whom permissions do not stop; these stop everybody.
    file = tmp_path / "file"
    file.write_text("precious")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    paths = {
        "a file": (file, f"{file} is not a folder"),
        "below a file": (file / "data", f"{file / 'data'} is not a folder"),
        "where nothing can be created": (Path("/proc/noosphere"), "cannot use the data folder /proc/noosphere: "),
        "somebody else's folder": (other, f"{other} is not empty and has no FORMAT file"),
    }
    before = _contents(tmp_path)
    path, line = paths[unusable]
    assert _serve(cli, path).startswith(line)
    assert _contents(tmp_path) == before


def test_a_port_in_use(cli: Cli, data: Path) -> None:
    before = _contents(data)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert _serve(cli, data, "--listen", address) == (
            f"cannot listen on {address}: Address already in use; is a server running there already? "
            "--listen takes another address"
        )
    assert _contents(data) == before
    _still_serves(data)


def test_a_second_server_on_the_same_folder(cli: Cli, data: Path) -> None:
    server = ServerProcess(data)
    try:
        server.start()
        line = _serve(cli, data)
        assert line == f"{data} is already in use by process {server.pid}"
        assert Cli(server.address).run("get", "shared/launch", "k7").code == 0
        assert server.terminate() == 0
    finally:
        server.close()
    _still_serves(data)


def _overwrite_header(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.write(b"this was a database once")


def _overwrite_schema_page(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(100)
        stream.write(b"\xff" * 400)


def _cut(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size // 2 - 100)


@pytest.mark.parametrize("name", [WORKING, COORDINATION])
@pytest.mark.parametrize("damage", [_overwrite_header, _overwrite_schema_page, _cut])
def test_a_corrupt_file(cli: Cli, data: Path, name: str, damage: Callable[[Path], None]) -> None:
    damage(data / name)
    before = _contents(data)
    line = _serve(cli, data)
    assert str(data / name) in line
    assert _contents(data) == before


def test_a_damaged_stamp(cli: Cli, data: Path) -> None:
    (data / "FORMAT").write_bytes(b"\xff\xfe")
    before = _contents(data)
    assert str(data / "FORMAT") in _serve(cli, data)
    assert _contents(data) == before


def _newer_folder(data: Path) -> None:
    (data / "FORMAT").write_text("noosphere 2\n")


def _newer_file(data: Path) -> None:
    with sqlite3.connect(data / WORKING) as database:
        database.execute("PRAGMA user_version = 2")
    database.close()


@pytest.mark.parametrize(("make_newer", "name"), [(_newer_folder, ""), (_newer_file, WORKING)])
def test_a_newer_format(cli: Cli, data: Path, make_newer: Callable[[Path], None], name: str) -> None:
    make_newer(data)
    before = _contents(data)
    assert _serve(cli, data) == (
        f"{data / name if name else data} has format 2, this version of noosphere reads up to 1: use the newer version"
    )
    assert _contents(data) == before


def test_another_program_s_database_is_left_alone(cli: Cli, data: Path) -> None:
    (data / WORKING).unlink()
    with sqlite3.connect(data / WORKING) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
    database.close()
    before = _contents(data)
    assert "is a database of another program" in _serve(cli, data)
    assert _contents(data) == before


def test_without_the_server_extra_it_says_what_to_install(tmp_path: Path) -> None:
    """The entry point is installed with the bare client, too; there it names the extra instead of a traceback."""
    program = (
        "import sys\n"
        "sys.modules['typer'] = None\n"
        "sys.argv = ['noosphere', 'version']\n"
        "from noosphere.server.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([Path(NOOSPHERE).parent / "python", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "noosphere: error: typer is missing: install noosphere[server]\n"


def _still_serves(data: Path) -> None:
    server = ServerProcess(data)
    try:
        address = server.start()
        shown = Cli(address).ok("get", "shared/launch", "k7", "--json").json
        assert shown["values"][0]["value"] == "x" * 900
        assert server.terminate() == 0
    finally:
        server.close()
