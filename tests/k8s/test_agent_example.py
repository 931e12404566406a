"""The example agent: its manifests, and its program against a real server that asks for certificate and token."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from scripts.manifests.documents import K8S, Documents, at, render
from scripts.manifests.schemas import schema_errors
from tests.support.authority import TestAuthority
from tests.support.issuer import AUDIENCE, ISSUER, claims, jwk, key_set, signed
from tests.support.process import ServerProcess
from tests.support.waiting import until
from tests.support.warm import WarmProcess

from noosphere.client import Tls, connect

PLANNER = "system:serviceaccount:agents:planner"
ADMIN = "system:serviceaccount:noosphere:noosphere-admin"


def token_of(subject: str) -> str:
    """Returns a token as the API server of Kubernetes signs it for a projected volume."""
    namespace, account = subject.split(":")[2:]
    own = {"namespace": namespace, "serviceaccount": {"name": account, "uid": "1"}, "pod": {"name": "p", "uid": "2"}}
    return signed(claims(time.time(), sub=subject, **{"kubernetes.io": own}))


def variables_of(agent: Documents, authority: TestAuthority, folder: Path, server: str) -> dict[str, str]:
    """Returns the environment of the manifest, with places of this machine for those of a pod."""
    files = authority.client("planner.agents", "planner")
    token = folder / "token"
    token.write_text(token_of(PLANNER))
    here = {
        "NOOSPHERE_SERVER": f"dns:///{server}",
        "NOOSPHERE_TLS_CA": str(authority.ca),
        "NOOSPHERE_TLS_CLIENT_CERTIFICATE": str(files.certificate),
        "NOOSPHERE_TLS_CLIENT_KEY": str(files.key),
        "NOOSPHERE_TOKEN_FILE": str(token),
        "POD_NAME": "planner-abc",
        "POD_NAMESPACE": "agents",
        "POD_SERVICE_ACCOUNT": "planner",
    }
    container = at(next(agent.of("Deployment")), "spec", "template", "spec", "containers", 0)
    named = {one["name"] for one in container["env"]}
    assert named == here.keys(), "the manifest says something else than this test"
    return {**{k: v for k, v in os.environ.items() if not k.startswith("NOOSPHERE_")}, **here}


def start(variables: dict[str, str]) -> subprocess.Popen[str]:
    """Starts the program as its container does."""
    program = [sys.executable, str(K8S / "examples" / "agent.py")]
    return subprocess.Popen(program, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


async def test_the_agent_is_told_apart_by_its_token_and_works_once_it_may(tmp_path: Path) -> None:
    agent = render(K8S / "examples")
    assert list(schema_errors(agent)) == []
    authority, keys = TestAuthority(tmp_path / "tls"), tmp_path / "jwks.json"
    keys.write_bytes(key_set(jwk("RS256", "k")))
    own, admin = authority.server(), authority.client("admin", "admin")
    options = [
        *("--tls-certificate", own.certificate, "--tls-key", own.key, "--tls-client-ca", authority.ca),
        *("--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE, "--jwt-jwks", keys, "--jwt-admins", ADMIN),
    ]
    server = ServerProcess(tmp_path / "data", [str(one) for one in options])
    process: subprocess.Popen[str] | None = None
    try:
        server.start()
        address = f"localhost:{server.address.rpartition(':')[2]}"
        process = start(variables_of(agent, authority, tmp_path, address) | {"AGENT_DENIED_SECONDS": "0.1"})
        told: list[str] = []
        reading = asyncio.create_task(asyncio.to_thread(_read, process, told))
        await until(lambda: any("somebody has to grant it" in line for line in told), 120)
        assert told[0] == f"{PLANNER}/planner-abc is at work\n"
        tls = Tls(str(authority.ca), str(admin.certificate), str(admin.key))
        async with connect(address, agent="cli/admin", tls=tls, token=token_of(ADMIN)) as client:
            await client.shared("launch").board("todo/").add({"kind": "draft"}, key="first")
        _grant(address, authority, tmp_path)
        await until(lambda: "a task is done\n" in told, 120)
        process.terminate()
        await reading
        assert process.wait(60) == 0
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        server.close()


def _read(process: subprocess.Popen[str], told: list[str]) -> None:
    assert process.stdout is not None
    with process.stdout:
        told.extend(process.stdout)


def _grant(address: str, authority: TestAuthority, folder: Path) -> None:
    """Grants as the comment in the manifest says."""
    text = (K8S / "examples" / "agent-deployment.yaml").read_text()
    (command,) = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   noosphere grant")]
    token = folder / "admin.token"
    token.write_text(token_of(ADMIN))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NOOSPHERE_")} | {
        "NOOSPHERE_SERVER": address,
        "NOOSPHERE_TLS_CA": str(authority.ca),
        "NOOSPHERE_TLS_CLIENT_CERTIFICATE": str(authority.folder / "admin.pem"),
        "NOOSPHERE_TLS_CLIENT_KEY": str(authority.folder / "admin.key"),
        "NOOSPHERE_TOKEN_FILE": str(token),
    }
    granting = WarmProcess(["--timeout", "60", *command.split()[1:]], environment)
    out, err = granting.finish(120)
    assert granting.returncode == 0, (out, err)
