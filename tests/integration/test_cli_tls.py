"""`noosphere tls create`, and the start of a server whose certificates cannot be used."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli import Cli

from noosphere.server.security.folder import create_certificates
from noosphere.server.security.issuing import Authority

CLI = Cli()
DAY_MS = 24 * 3600 * 1000


def test_a_folder_gets_an_authority_and_what_it_issues(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    made = CLI.run("tls", "create", str(folder), "--client", "planner", "--client", "spiffe://a/ns/b", "--json").json
    stems = ["ca", "server", "planner", "a-ns-b"]
    assert made == {"files": [str(folder / f"{stem}.{kind}") for stem in stems for kind in ("pem", "key")]}
    kept = {stem: (folder / f"{stem}.pem").read_bytes() for stem in ("ca", "server")}
    assert CLI.run("tls", "create", str(folder), "--client", "writer").lines == [
        str(folder / "writer.pem"),
        str(folder / "writer.key"),
    ]
    assert kept == {stem: (folder / f"{stem}.pem").read_bytes() for stem in kept}
    assert CLI.run("tls", "create", str(folder), "--client", "server").error == (
        "'server' is what other files of the folder are called"
    )


def test_what_is_no_name_is_refused(tmp_path: Path) -> None:
    problem = "'Planner' is neither a DNS name in small letters nor a SPIFFE id"
    assert CLI.run("tls", "create", str(tmp_path), "--client", "Planner").error == problem
    assert list(tmp_path.iterdir()) == []


def test_an_authority_is_never_replaced(tmp_path: Path) -> None:
    create_certificates(tmp_path, hosts=[], clients=[], days=1, now_ms=DAY_MS)
    before = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "server.pem").read_bytes()
    assert create_certificates(tmp_path, hosts=["db.example"], clients=[], days=1, now_ms=DAY_MS) == [
        tmp_path / "server.pem",
        tmp_path / "server.key",
    ]
    assert (tmp_path / "ca.pem").read_bytes() == before[0]
    assert (tmp_path / "server.pem").read_bytes() != before[1]
    Authority.make("another one", DAY_MS).write(tmp_path / "other.pem", tmp_path / "other.key")
    (tmp_path / "other.key").replace(tmp_path / "ca.key")
    assert CLI.run("tls", "create", str(tmp_path), "--client", "planner").error == (
        f"{tmp_path}/ca.key is not the key of the certificate in {tmp_path}/ca.pem"
    )


def test_a_server_with_unfit_certificates_does_not_start(tmp_path: Path) -> None:
    create_certificates(tmp_path, hosts=[], clients=["planner"], days=1, now_ms=DAY_MS)
    serve = ("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    key = ("--tls-key", str(tmp_path / "planner.key"))
    wrong = CLI.run(*serve, "--tls-certificate", str(tmp_path / "server.pem"), *key)
    assert (wrong.code, wrong.error) == (
        3,
        f"TLS cannot be used: {tmp_path}/planner.key is not the key of the certificate in {tmp_path}/server.pem",
    )
    alone = CLI.run(*serve, *key)
    assert (alone.code, alone.error) == (2, "--tls-key: tls_key is of no use without tls_certificate")
    assert not (tmp_path / "data").exists()
