"""A real ``etcd`` process: started on free ports, killed, stopped, and always cleaned up."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.engine_process import EngineProcess
from tests.support.ports import free_port

from noosphere.server.fleet.engines import etcd_command
from noosphere.server.storage.etcd import wire_pb2 as wire

ANSWER_SECONDS_MAX = 30.0

PROGRAM = shutil.which("etcd")
REASON = "etcd is not installed (Debian: apt-get install etcd-server), so nothing is tested on etcd"

needs_etcd = pytest.mark.engine(program=PROGRAM, reason=REASON)


class EtcdProcess(EngineProcess):
    """One etcd of a single member on one folder. Not started by construction.

    Args:
        folder: where its files go.
        settings: further settings, as its options are called.

    Attributes:
        endpoint: where it listens for clients, the same one over restarts.
    """

    program = "etcd"

    def __init__(self, folder: Path, **settings: str) -> None:
        super().__init__(folder)
        self.endpoint = f"127.0.0.1:{free_port()}"
        self._peer = f"127.0.0.1:{free_port()}"
        self.settings = settings

    def command(self) -> list[str]:
        """Returns its command line."""
        assert PROGRAM is not None, "a test that starts one is marked `needs_etcd`"
        return etcd_command(self.endpoint, self._peer, self.folder, self.settings)

    def is_up(self) -> bool:
        """Tells whether it listens."""
        host, _, port = self.endpoint.partition(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True

    def start(self) -> None:
        """Starts it; returns once it answers."""
        super().start()
        # It answers once it has elected itself, also those who are no user of it.
        self.ask("Maintenance/Status", b"")

    def leases(self, seconds: float = ANSWER_SECONDS_MAX) -> set[int]:
        """Returns the ids of all leases that have not lapsed."""
        request, reply = wire.LeaseLeasesRequest(), wire.LeaseLeasesResponse
        answer = self.ask("Lease/LeaseLeases", request.SerializeToString(), seconds)
        return {lease.id for lease in reply.FromString(answer).leases}

    def lapse(self, lease: int) -> None:
        """Ends a lease as etcd does when its time is over."""
        self.ask("Lease/LeaseRevoke", wire.LeaseRevokeRequest(id=lease).SerializeToString())

    def kvs(self, prefix: str) -> list[wire.KeyValue]:
        """Returns everything under a prefix, which must not be empty."""
        start = prefix.encode()
        request = wire.RangeRequest(key=start, range_end=start[:-1] + bytes((start[-1] + 1,)))
        return list(wire.RangeResponse.FromString(self.ask("KV/Range", request.SerializeToString())).kvs)

    def put(self, key: str, value: bytes) -> int:
        """Writes a key past everybody; returns the revision."""
        request = wire.PutRequest(key=key.encode(), value=value)
        return wire.PutResponse.FromString(self.ask("KV/Put", request.SerializeToString())).header.revision

    def alarm(self, request: wire.AlarmRequest) -> None:
        """Raises an alarm, or disarms one."""
        self.ask("Maintenance/Alarm", request.SerializeToString())

    def compact(self, revision: int) -> None:
        """Forgets what was before a revision. A message of one number is two parts: its tag and the number."""
        number, rest = [], revision
        while rest > 0x7F:
            number.append(rest & 0x7F | 0x80)
            rest >>= 7
        self.ask("KV/Compact", bytes((0x08, *number, rest)))

    def ask(self, method: str, request: bytes, seconds: float = ANSWER_SECONDS_MAX) -> bytes:
        """Calls a method without saying who is calling; both messages as bytes."""
        with grpc.insecure_channel(self.endpoint) as channel:
            call: Any = channel.unary_unary(f"/etcdserverpb.{method}")
            answer: bytes = call(request, timeout=seconds, wait_for_ready=True)
            return answer
