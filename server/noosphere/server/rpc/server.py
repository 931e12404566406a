"""The listening server: services, health, reflection, and a shutdown that ends streams with a resume hint."""

from __future__ import annotations

from collections.abc import Collection

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from noosphere.consistency import Reason, Refusal

from .faces import SERVICES, Faces
from .gate import Gate
from .health import LIVENESS, Health
from .probing import SelfProbe
from .switchboard import Shedding, Switchboard

MESSAGE_BYTES_MAX = 1024 * 1024
RESPONSE_BYTES_MAX = 32 * 1024 * 1024
CONCURRENT_STREAMS_MAX = 10_000
CONNECTION_GRACE_SECONDS = 75.0
"""Longer than any call waits (a claim for a minute, at most); streams are cut off then, and resumed elsewhere."""
WITHDRAW_SECONDS = 0.25
"""How long calls under way may go on that were told that there is nothing to wait for."""

SERVER_OPTIONS = (
    # A second server on the port must fail loudly instead of sharing it.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", RESPONSE_BYTES_MAX),
    # Decompressed first and measured then, one message could take a thousand times its limit.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", CONCURRENT_STREAMS_MAX),
    # Clients of ours ping idle connections; the default would disconnect them for it.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A connection that does not get as far as HTTP/2 is closed.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # A peer that has gone without a word is noticed, and what it had open is given back.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Clients connect anew without anybody noticing.
    ("grpc.max_connection_idle_ms", 30 * 60 * 1000),
)


class RpcServer:
    """A gRPC server on one address. Calls are answered by what :meth:`serve` was given last.

    Args:
        enable_reflection: whether to describe the API to tools.
        gate: what every call of our services passes; health and reflection do not.
        credentials: what TLS shows to clients and asks of them; None leaves connections unencrypted.
        message_bytes_max: bytes of the largest request that is read.
        shedding: refuses calls before they are read; None: nobody does.
        connection_age_seconds: after about so long a connection takes no further calls, so that its client makes
            another one; those under way may go on for ``connection_grace_seconds``. 0 for never.
        connection_grace_seconds: see above.
        absent: services whose engine this server does not have, which are never SERVING.

    Attributes:
        health: tells whether calls are answered.
    """

    def __init__(
        self,
        *,
        enable_reflection: bool,
        gate: Gate | None = None,
        credentials: grpc.ServerCredentials | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        shedding: Shedding | None = None,
        connection_age_seconds: float = 0,
        connection_grace_seconds: float = CONNECTION_GRACE_SECONDS,
        absent: Collection[str] = (),
    ) -> None:
        # Of an option that is given twice the last one counts.
        options = [*SERVER_OPTIONS, ("grpc.max_receive_message_length", message_bytes_max)]
        if connection_age_seconds:
            # gRPC varies it by a tenth, so that clients do not come back together.
            options.append(("grpc.max_connection_age_ms", int(connection_age_seconds * 1000)))
            options.append(("grpc.max_connection_age_grace_ms", int(connection_grace_seconds * 1000)))
        self._server = grpc.aio.server(options=options)
        self._credentials = credentials
        self.health = Health()
        self._switchboard = Switchboard(gate, shedding)
        self._faces: Faces | None = None
        self._absent = frozenset(absent)
        self._told: dict[str, bool] = {}
        self._probe = SelfProbe(self._server) if shedding is not None else None
        self._server.add_generic_rpc_handlers((self._switchboard,))
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        if enable_reflection:
            reflection.enable_server_reflection((*SERVICES, reflection.SERVICE_NAME), self._server)

    def serve(self, faces: Faces, *, may_end: bool = False) -> None:
        """Has calls answered from now on.

        Args:
            faces: what answers them.
            may_end: whether :meth:`withdraw` may be called before the server is stopped.
        """
        self._faces = faces
        self._switchboard.connect(faces.handlers(), may_end=may_end)

    def refuse(self, why: str) -> None:
        """Has calls refused with ENGINE_UNAVAILABLE from now on, and tells those under way not to wait any longer.

        Watches and pipelines end with a resume hint, as in a shutdown. Never waits.
        """
        self._switchboard.disconnect(Refusal(Reason.ENGINE_UNAVAILABLE, why))
        if self._faces is not None:
            self._faces.signals.drain()
        self._faces = None

    async def withdraw(self, why: str) -> None:
        """Refuses calls, and breaks off those under way that do not end by themselves; returns when there are none."""
        self.refuse(why)
        await self.set_ready(False)
        await self._switchboard.break_off(Refusal(Reason.ENGINE_UNAVAILABLE, why), WITHDRAW_SECONDS)

    async def set_ready(self, ready: bool, away: Collection[str] = ()) -> None:
        """Reports whether calls can be answered at present, as the health of the server and of every service.

        Args:
            ready: whether the server can answer at all.
            away: services that cannot, by their full names, because what they alone need is away.
        """
        status = health_pb2.HealthCheckResponse
        for service in ("", *SERVICES):
            serving = ready and service not in away and service not in self._absent
            if self._told.get(service) is not serving:
                self._told[service] = serving
                await self.health.set(service, status.SERVING if serving else status.NOT_SERVING)

    async def start(self, address: str, away: Collection[str] = ()) -> int:
        """Listens; returns the port.

        Args:
            address: where.
            away: services that cannot answer yet; see :meth:`set_ready`.

        Raises:
            OSError: the address cannot be used.
        """
        try:
            if self._credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise OSError(str(error)) from error
        if port == 0:
            raise OSError(f"{address} cannot be used")
        await self._server.start()
        await self.health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await self.set_ready(True, away)
        return port

    async def probe(self) -> None:
        """Makes a call of our own, which waits its turn; returns once it was answered."""
        if self._probe is not None:
            await self._probe.call()

    async def drain(self) -> None:
        """Reports NOT_SERVING, and ends watches and pipelines with a resume hint; other calls are answered still."""
        await self.health.enter_graceful_shutdown()
        if self._faces is not None:
            self._faces.signals.drain()

    async def stop(self, grace_seconds: float) -> None:
        """Drains, lets running calls finish, closes."""
        await self.drain()
        if self._probe is not None:
            await self._probe.close()
        await self._server.stop(grace_seconds)

    async def abort(self) -> None:
        """Breaks every connection without a word, as the end of the process does."""
        await self._server.stop(None)
