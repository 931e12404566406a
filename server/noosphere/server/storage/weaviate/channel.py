"""The connections to one Weaviate: gRPC for facts, REST for what they are kept in."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import grpc
import grpc.aio

from .access import WeaviateAccess

if TYPE_CHECKING:
    import httpx

MESSAGE_BYTES_MAX = 96 * 1024 * 1024
"""Less than the 100 MiB at which Weaviate ends a call."""

_SERVICE = "/weaviate.v1.Weaviate/"
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # So long an attempt to connect may take, too: a busy machine needs more than some milliseconds.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.enable_retries", 0),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # Connections with other keys or authorities are others, although they go to the same place.
    ("grpc.use_local_subchannel_pool", 1),
)


class Message(Protocol):
    """What the generated messages have in common."""

    def SerializeToString(self) -> bytes:
        """Returns the message in wire format."""
        ...


R = TypeVar("R")


class Answer(NamedTuple):
    """What a REST call was answered.

    Attributes:
        status: of HTTP.
        body: the JSON of the answer, or None.
        text: the answer as it came.
    """

    status: int
    body: Any
    text: str


class Connections:
    """See the module. Files are read when it is made; made anew after a failure, it follows what has changed.

    Args:
        access: how Weaviate is reached.

    Raises:
        OSError: the file of authorities cannot be read, or holds none.
    """

    def __init__(self, access: WeaviateAccess) -> None:
        import httpx

        self._call_seconds_max = access.call_ms_max / 1000
        self._metadata = (("authorization", f"Bearer {access.api_key}"),) if access.api_key else ()
        verify: ssl.SSLContext | bool = True
        if access.secure:
            authorities = None if access.tls_ca is None else access.tls_ca.read_bytes()
            verify = ssl.create_default_context(cadata=None if authorities is None else authorities.decode("ascii"))
            self._channel = grpc.aio.secure_channel(access.grpc, grpc.ssl_channel_credentials(authorities), _OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(access.grpc, _OPTIONS)
        self._rest: httpx.AsyncClient = httpx.AsyncClient(
            base_url=access.url.rstrip("/") + "/v1",
            headers={name: value for name, value in self._metadata},
            timeout=self._call_seconds_max,
            verify=verify,
            # No proxy of the environment stands between engines.
            trust_env=False,
        )

    async def call(self, method: str, request: Message, decode: Callable[[bytes], R]) -> R:
        """Calls a method of the gRPC interface.

        Raises:
            grpc.aio.AioRpcError: it has failed, or took too long.
        """
        encode: Callable[[Message], bytes] = type(request).SerializeToString
        method_of: Any = self._channel.unary_unary(
            _SERVICE + method, request_serializer=encode, response_deserializer=decode
        )
        reply: R = await method_of(request, timeout=self._call_seconds_max, metadata=self._metadata)
        return reply

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        """Calls the REST interface.

        Raises:
            httpx.HTTPError: it cannot be reached, or took too long.
        """
        reply = await self._rest.request(method, path, json=body)
        try:
            found = reply.json()
        except (json.JSONDecodeError, UnicodeDecodeError):
            found = None
        return Answer(reply.status_code, found, reply.text)

    async def close(self) -> None:
        """Disconnects; calls under way end."""
        await self._channel.close()
        await self._rest.aclose()
