"""The floor: the least that a grpc.aio server can do with our messages.

Same event loop, same options, same generated code, replies of the same bytes; no state, no checks, no
disk. What our server costs beyond this is ours.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import grpc
import uvloop

from noosphere.server.rpc.calls import Context
from noosphere.server.rpc.server import SERVER_OPTIONS
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceServicer, add_MemoryServiceServicer_to_server

from .profiling import Window, on_signals
from .replies import Replies


class Floor(MemoryServiceServicer):
    """Answers every call with the same message."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    async def Get(self, request: pb.GetRequest, context: Context) -> pb.GetResponse:
        return self._replies.get

    async def Put(self, request: pb.PutRequest, context: Context) -> pb.PutResponse:
        return self._replies.put

    async def OpenAgent(self, request: pb.OpenAgentRequest, context: Context) -> pb.OpenAgentResponse:
        return self._replies.open_agent

    async def KeepAgent(self, request: pb.KeepAgentRequest, context: Context) -> pb.KeepAgentResponse:
        return pb.KeepAgentResponse(lease=self._replies.open_agent.lease)

    async def CloseAgent(self, request: pb.CloseAgentRequest, context: Context) -> pb.CloseAgentResponse:
        return pb.CloseAgentResponse()


async def serve(replies: Replies) -> None:
    """Serves until SIGTERM."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    # The methods that the load does not call are left as generated: they answer UNIMPLEMENTED.
    add_MemoryServiceServicer_to_server(Floor(replies), server)  # type: ignore[abstract]
    port = server.add_insecure_port("127.0.0.1:0")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    on_signals(Window())
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    await stop.wait()
    await server.stop(None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--replies", type=Path, required=True)
    uvloop.run(serve(Replies.load(parser.parse_args().replies)))
