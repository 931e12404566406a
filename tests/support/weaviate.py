"""A real ``weaviate-server`` process of one node: started on free ports, killed, stopped, and always cleaned up."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from tests.support.engine_process import EngineProcess
from tests.support.ports import free_port

from noosphere.server.fleet.engines import find_program
from noosphere.server.fleet.weaviate import WeaviateSeat, weaviate_command, weaviate_environment, weaviate_is_ready

ANSWER_SECONDS_MAX = 60.0

PROGRAM = find_program("weaviate-server")
REASON = "weaviate-server is not installed (make weaviate builds it, which needs Go), so nothing is tested on Weaviate"

needs_weaviate = pytest.mark.engine(program=PROGRAM, reason=REASON)


class WeaviateProcess(EngineProcess):
    """One Weaviate on one folder. Not started by construction.

    Args:
        folder: where its files go.
        certificate: what both interfaces prove themselves with; None for plain text.
        key: the private key of the certificate.
        settings: further settings, as its environment has them.

    Attributes:
        seat: where it listens, the same over restarts.
    """

    program = "weaviate"
    start_seconds_max = 60.0

    def __init__(
        self, folder: Path, *, certificate: Path | None = None, key: Path | None = None, **settings: str
    ) -> None:
        super().__init__(folder)
        addresses = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.seat = WeaviateSeat(next(addresses), next(addresses), folder, certificate, key)
        # The disk of the machine may be almost full, which makes it refuse writes.
        self.settings = {"DISK_USE_READONLY_PERCENTAGE": "0", "DISK_USE_WARNING_PERCENTAGE": "0", **settings}

    @property
    def url(self) -> str:
        """The address of its REST interface."""
        return f"{'http' if self.seat.certificate is None else 'https'}://{self.seat.address}"

    @property
    def grpc(self) -> str:
        """The address of its gRPC interface, as ``host:port``."""
        return self.seat.grpc

    @property
    def config(self) -> str:
        """What the configuration's file of a server says of it; without key and authorities."""
        return f'weaviate_url = "{self.url}"\nweaviate_grpc = "{self.grpc}"\n'

    def command(self) -> list[str]:
        """Returns its command line."""
        assert PROGRAM is not None, "a test that starts one is marked `needs_weaviate`"
        return weaviate_command(self.seat)

    def environment(self) -> Mapping[str, str]:
        """Returns its environment, with its settings."""
        return weaviate_environment(self.seat, self.settings)

    def is_up(self) -> bool:
        """Tells whether it takes writes."""
        return weaviate_is_ready(self.seat)

    def forget(self) -> None:
        """Removes its files; it must not run."""
        shutil.rmtree(self.folder / "data", ignore_errors=True)


def drop_collections(server: WeaviateProcess, alias: str) -> None:
    """Removes an alias and every collection that was made for it; the server must run."""
    with httpx.Client(base_url=f"{server.url}/v1", timeout=ANSWER_SECONDS_MAX, trust_env=False) as rest:
        rest.delete(f"/aliases/{alias}")
        for one in rest.get("/schema").json()["classes"]:
            if one["class"].startswith(f"{alias}_"):
                rest.delete(f"/schema/{one['class']}").raise_for_status()
