"""What agents say, and what proves who they are, stays where it belongs: not in logs, errors, metrics or traces."""

from __future__ import annotations

import asyncio
import random
import re
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from tests.support.closed import bearer, mint_offline
from tests.support.collector import Collector
from tests.support.filled import Filler
from tests.support.process import ServerProcess
from tests.support.statuses import refused

from noosphere.client import Conflict, NoosphereError, connect
from noosphere.server.rpc.faces import SERVICES
from noosphere.server.security.minting import Wanted
from noosphere.v1 import (
    admin_service_pb2,
    context_service_pb2,
    coordination_service_pb2,
    fact_service_pb2,
    memory_service_pb2,
    session_service_pb2,
    types_pb2,
)

CANARY = "kanarienvogel-7c1e"
PLANTED = "noo_c0ffee0000000000_" + "ca4a41" * 10 + "abcd"
CALLS_OF_EACH = 25
CALL_SECONDS = 5.0
MODULES = (
    memory_service_pb2,
    admin_service_pb2,
    session_service_pb2,
    context_service_pb2,
    fact_service_pb2,
    coordination_service_pb2,
)
ENDING = ("CloseAgent", "OpenAgent", "Delete", "Erase", "Fence", "Forget", "Purge", "Release", "Revoke")
METHODS = sorted(
    (
        method
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ),
    # What ends things comes last: calls that need them would all be refused in the same way.
    key=lambda method: method.name.startswith(ENDING),
)
EXPECTED = frozenset(
    {"INVALID_FIELD", "VALUE_TOO_LARGE", "PERMISSION_DENIED", "UNAUTHENTICATED", "STALE_INCARNATION", "SESSION_CLOSED"}
)
REASONS_MIN = 15
"""Ways in which calls are refused by chance; what is common is named."""


class Told:
    """Everything that a caller was told beside answers."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasons: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()

    def note(self, error: grpc.aio.AioRpcError) -> None:
        self.codes[error.code().name] += 1
        metadata = [
            (key, value if isinstance(value, bytes) else str(value)) for key, value in error.trailing_metadata()
        ]
        self.texts.append(f"{error.code().name}: {error.details()} {metadata} {error.debug_error_string()}")
        if "grpc-status-details-bin" in dict(metadata):
            self.reasons[refused(error.code(), error.details() or "", error.trailing_metadata()).reason] += 1


async def call(channel: grpc.aio.Channel, method: Any, request: Any, credential: Any, told: Told) -> None:
    """Makes one call, whatever comes of it."""
    name = f"/{method.containing_service.full_name}/{method.name}"
    kind = ("stream" if method.client_streaming else "unary") + "_" + ("stream" if method.server_streaming else "unary")
    made: Any = getattr(channel, kind)(
        name,
        request_serializer=type(request).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    try:
        given = iter([request]) if method.client_streaming else request
        answer = made(given, timeout=CALL_SECONDS, metadata=credential)
        if not method.server_streaming:
            await answer
            return
        async with asyncio.timeout(0.2):
            async for _ in answer:
                pass
    except TimeoutError:
        answer.cancel()
    except grpc.aio.AioRpcError as error:
        told.note(error)


@pytest.mark.campaign
async def test_content_and_credentials_stay_where_they_belong(tmp_path: Path) -> None:
    rng, told = random.Random(7), Told()
    data, audit = tmp_path / "data", tmp_path / "audit.jsonl"
    root, planner = await mint_offline(data, Wanted("root", admin=True), Wanted("planner"))
    with Collector() as collector:
        options = [
            *("--tokens", "--log-level", "debug", "--log-format", "json", "--slow-call-ms", "1"),
            *("--metrics-listen", "127.0.0.1:0", "--audit-log", str(audit), "--audit-reads", "1"),
            *("--trace-endpoint", collector.url, "--trace-sample-ratio", "1"),
        ]
        server = ServerProcess(data, options)
        try:
            server.start()
            await everyday(server.address, root.text)
            async with grpc.aio.insecure_channel(server.address) as channel:
                actor = types_pb2.Actor(agent_id="planner", incarnation=await opened(channel, planner.text))
                names = {
                    "": ("x", "shared/canaries", "notes/a", "", "user/42", "shared/facts"),
                    "namespace": ("shared/canaries", "agents/planner", "agents/other", "sessions/s", "shared/none"),
                    "session_id": ("s", "none"),
                    "key": ("k", "notes/a", "", "/"),
                    "agent_id": ("planner",),
                    "traceparent": ("",),
                    "page_token": ("", "", "", "x"),
                    "producer": ("",),
                }
                filler = Filler(rng, CANARY, names, (actor, types_pb2.CallContext(actor=actor)))
                credentials = (bearer(root.text), bearer(planner.text), bearer(PLANTED), ())
                for method in METHODS:
                    calls = []
                    for n in range(CALLS_OF_EACH):
                        request = GetMessageClass(method.input_type)()
                        filler.fill(request)
                        credential = credentials[n % 4 if n < 8 else n % 2]
                        calls.append(call(channel, method, request, credential, told))
                    await asyncio.gather(*calls)
            metrics = await asyncio.to_thread(page, server.stderr)
            code = server.terminate()
        finally:
            server.close()
    assert code == 0
    assert told.reasons.keys() >= EXPECTED, told.reasons
    assert len(told.reasons) >= REASONS_MIN, told.reasons
    # The caller's own gRPC says so of a stream that was refused before its message was sent.
    broken = [text for text in told.texts if text.startswith("INTERNAL") and "Internal error from Core" not in text]
    assert broken == []
    everywhere = {
        "log": server.stderr,
        "errors": "\n".join(told.texts),
        "metrics": metrics,
        "traces": b"\n".join(collector.bodies).decode(errors="replace"),
        "audit log": audit.read_text(),
    }
    assert "noosphere_rpc_calls_total" in metrics
    assert len(collector.spans) > 1_000
    for where, text in everywhere.items():
        for secret in (CANARY, root.text, planner.text, PLANTED, PLANTED[-24:], root.text[-24:]):
            found = text.find(secret)
            assert found < 0, f"{where}: …{text[max(0, found - 300) : found + 80]}…"


async def everyday(address: str, token: str) -> None:
    """Does what agents do, with what they do it about, and is refused in the usual ways."""
    async with connect(address, agent="cli/one", token=token) as one, connect(address, agent="two", token=token) as two:
        mine = await one.shared("canaries").put("k", {"text": CANARY})
        theirs = await two.shared("canaries").get("k")
        assert theirs is not None
        await mine.replace({"text": CANARY + "2"})
        with pytest.raises(Conflict):
            await theirs.replace({"text": CANARY + "3"})
        with pytest.raises(NoosphereError):
            await one.shared("canaries").put("large", CANARY * 100_000)
        with pytest.raises(NoosphereError):
            await one.shared("canaries").key("k").increment(1)


async def opened(channel: grpc.aio.Channel, token: str) -> int:
    """Opens the agent of a token; returns its incarnation."""
    method: Any = channel.unary_unary(
        "/noosphere.v1.MemoryService/OpenAgent",
        request_serializer=memory_service_pb2.OpenAgentRequest.SerializeToString,
        response_deserializer=memory_service_pb2.OpenAgentResponse.FromString,
    )
    answer = await method(memory_service_pb2.OpenAgentRequest(agent_id="planner"), metadata=bearer(token))
    return int(answer.actor.incarnation)


def page(log: str) -> str:
    """Returns the page of metrics whose address a log tells."""
    (address,) = {
        found
        for line in log.splitlines()
        if "serving metrics" in line
        for found in re.findall(r"127\.0\.0\.1:\d+", line)
    }
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def test_every_service_is_called() -> None:
    assert {method.containing_service.full_name for method in METHODS} == set(SERVICES)
