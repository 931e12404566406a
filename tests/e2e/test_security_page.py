"""docs/security.md is true: its way from certificates to a denied call runs as printed, in one shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
(SECURED,) = re.findall(r"<!-- secure -->\n```sh\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = SECURED.splitlines()
SECONDS_MAX = 300


@pytest.fixture
def shell() -> dict[str, str]:
    """The environment of a shell that serves and calls on a port of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NOOSPHERE_")}
    address = f"127.0.0.1:{free_port()}"
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "NOOSPHERE_LISTEN": address, "NOOSPHERE_SERVER": address}


def run(script: str, environment: dict[str, str], folder: Path) -> tuple[int, str, str]:
    """Runs a script in a shell, and ends what it has left running."""
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            ["bash", "-uo", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code = process.wait(SECONDS_MAX)
        finally:
            # The server is in the background of the shell, and in its process group.
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    return code, (folder / "out").read_text(), (folder / "err").read_text()


@pytest.mark.campaign
def test_the_way_to_a_denied_call_runs_as_printed(shell: dict[str, str], tmp_path: Path) -> None:
    assert len(COMMANDS) < 10
    marked = "".join(f'{command}\necho "== $?"\n' for command in COMMANDS)
    _, out, err = run(marked, shell, tmp_path)
    codes = [int(code) for code in re.findall(r"^== (\d+)$", out, re.MULTILINE)]
    assert codes == [0] * (len(COMMANDS) - 1) + [1], out + err
    assert "noosphere: error: PERMISSION_DENIED: 'read' on 'shared/payroll' is not permitted" in err.splitlines()
    assert "certificates/server.pem" in out
    assert "granted read write on shared/launch to planner" in out
    for token in ("admin.token", "planner.token"):
        secret = (tmp_path / token).read_text().strip()
        assert secret.startswith("noo_")
        assert secret.rpartition("_")[2] not in out + err, "no log tells a token"


def test_the_page_says_what_it_is_told() -> None:
    (said,) = re.findall(r"`(PERMISSION_DENIED: [^`]+)`", PAGE)
    assert said == "PERMISSION_DENIED: 'read' on 'shared/payroll' is not permitted"
