"""Traces of a real server: from the client's span to the store's, and nothing of what calls are about."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.collector import Collector, attributes
from tests.support.process import ServerProcess

from noosphere.client import Conflict, connect

PUT, GET = "noosphere.v1.MemoryService/Put", "noosphere.v1.MemoryService/Get"


@pytest.fixture(scope="module")
def ours() -> InMemorySpanExporter:
    """The spans of this process, which traces like any program that uses a client."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


async def test_a_trace_leads_from_the_caller_to_the_store(tmp_path: Path, ours: InMemorySpanExporter) -> None:
    with Collector() as collector:
        server = ServerProcess(
            tmp_path / "data", ("--trace-endpoint", collector.url, "--trace-sample-ratio", "0", "--log-level", "debug")
        )
        try:
            server.start()
            async with connect(server.address, agent="secret-agent", coalesce=True) as client:
                space = client.shared("secret-space")
                # Not traced: nobody asks for it, and the share of others is 0.
                await space.put("secret-key-0", {"text": "secret-value"})
                with trace.get_tracer("test").start_as_current_span("job") as job:
                    await space.put("secret-key-1", {"text": "secret-value"})
                    stale = await space.get("secret-key-1")
                    # At once, so that they share a stream: each is traced by itself all the same.
                    await asyncio.gather(*(space.put(f"secret-key-{n}", n) for n in range(2, 5)))
                    assert stale is not None
                    await stale.replace({"text": "secret-value-2"})
                    with pytest.raises(Conflict):
                        await stale.replace({"text": "secret-value-3"})
                wanted = job.get_span_context().trace_id
            assert server.terminate() == 0
        finally:
            server.close()
        log = server.stderr
    assert {int.from_bytes(span.trace_id) for span in collector.spans} == {wanted}
    puts = collector.named(PUT)
    assert len(puts) == 6
    finished = [span.context for span in ours.get_finished_spans() if span.name == "noosphere Put"]
    clients = {context.span_id for context in finished if context is not None}
    assert {int.from_bytes(span.parent_span_id) for span in puts} == clients
    commits = {span.parent_span_id for span in collector.named("store commit")}
    assert commits <= {span.span_id for span in puts}
    assert len(commits) == 5
    assert [attributes(span)["noosphere.namespace_class"] for span in puts] == ["shared"] * 6
    for secret in (b"secret-value", b"secret-key", b"secret-space", b"secret-agent"):
        assert not [body for body in collector.bodies if secret in body]
    assert "secret-value" not in log


@pytest.mark.campaign
async def test_a_collector_that_is_away_disturbs_nobody(tmp_path: Path) -> None:
    server = ServerProcess(
        tmp_path / "data", ("--trace-endpoint", "http://127.0.0.1:9/v1/traces", "--trace-sample-ratio", "1")
    )
    try:
        server.start()
        async with connect(server.address) as client:
            await client.shared("x").put("k", 1)
        assert server.terminate() == 0
    finally:
        server.close()


@pytest.mark.campaign
async def test_everything_is_traced_if_that_is_asked_for(tmp_path: Path) -> None:
    with Collector() as collector:
        server = ServerProcess(tmp_path / "data", ("--trace-endpoint", collector.url, "--trace-sample-ratio", "1"))
        try:
            server.start()
            async with connect(server.address) as client:
                await client.shared("x").put("k", 1)
                await client.shared("x").get("k")
            assert server.terminate() == 0
        finally:
            server.close()
    (get,) = collector.named(GET)
    assert not get.parent_span_id
    assert attributes(get)["rpc.grpc.status_code"] == 0
    assert [span.name for span in collector.spans if span.parent_span_id == get.span_id] == ["store read"]
