"""The part of AdminService that takes dumps."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from noosphere.consistency import Reason, Refusal
from noosphere.v1 import admin_dump_pb2 as pb

from ..dumping import Dumper
from .calls import Context, streaming

CHUNK_BYTES = 64 * 1024
DUMPS_MAX = 2
"""Dumps at the same time: each goes over everything that is stored."""


class DumpMethods:
    """Methods of AdminService; a part of :class:`~.admin.AdminRpc`."""

    _dumper: Dumper | None
    _dump_count = 0

    @streaming
    async def Dump(self, request: pb.DumpRequest, context: Context) -> AsyncGenerator[pb.DumpResponse, None]:
        """See the proto."""
        if self._dumper is None:
            raise Refusal(Reason.NOT_IMPLEMENTED, "this server takes no dumps")
        if self._dump_count >= DUMPS_MAX:
            raise Refusal(Reason.LIMIT_EXCEEDED, f"{DUMPS_MAX} dumps are being taken already; try again later")
        self._dump_count += 1
        try:
            async with aclosing(self._dumper.lines(tokens=request.tokens)) as lines:
                chunk = bytearray()
                async for line in lines:
                    chunk += line
                    if len(chunk) >= CHUNK_BYTES:
                        yield pb.DumpResponse(lines=bytes(chunk))
                        chunk.clear()
                if chunk:
                    yield pb.DumpResponse(lines=bytes(chunk))
        finally:
            self._dump_count -= 1
