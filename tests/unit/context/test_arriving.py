"""Compress on arrival for sessions: threads, a few at a time, whoever goes away meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from noosphere.consistency import Reason, Refusal
from noosphere.server.context import arriving
from noosphere.server.context.arriving import AT_ONCE_MAX, ResultCompactor
from noosphere.server.context.compaction import Compressed, Stage
from noosphere.server.models import TokenizerRegistry
from noosphere.server.sessions.compacting import Before, Compacted
from noosphere.server.sessions.toolcall import Compaction

TOKENIZER = TokenizerRegistry().named("o200k_base")
ROWS = "[" + ",".join(f'{{"flight":"NA{n}","seats":{n}}}' for n in range(400)) + "]"


async def compact(compactor: ResultCompactor, output: str = ROWS, **fields: Any) -> Compacted:
    """Makes a result fit 60 tokens."""
    wanted = {"tokens_max": 60, "before": Before("search", "{}"), "keep": (), **fields}
    return await compactor.compact(output, TOKENIZER, **wanted)


async def test_what_came_before_decides() -> None:
    compactor = ResultCompactor()
    plain = await compact(compactor)
    assert plain.compaction in {Compaction.RELEVANT, Compaction.CUT}
    assert plain.tokens == TOKENIZER.count(plain.text) <= 60
    asked = await compact(compactor, before=Before("search", "{}", goals=("a seat on NA333",)))
    assert "NA333" in asked.text
    assert "NA333" not in plain.text


async def test_every_stage_has_a_name_in_sessions() -> None:
    assert {arriving._COMPACTIONS[stage] for stage in Stage} == set(Compaction)


def test_a_path_that_is_none_is_refused() -> None:
    with pytest.raises(Refusal, match=r"keep\[1\]") as refused:
        ResultCompactor().check_keep(("ok", "a["))
    assert refused.value.reason is Reason.INVALID_FIELD


async def test_a_caller_that_goes_away_does_not_let_more_work_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    running = 0
    most = 0
    lock = threading.Lock()
    loop = asyncio.get_running_loop()
    begun: asyncio.Queue[int] = asyncio.Queue()

    def slow(output: str, *_: object, **__: object) -> Compressed:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        loop.call_soon_threadsafe(begun.put_nowait, running)
        release.wait(60)
        with lock:
            running -= 1
        return Compressed(output, Stage.WHOLE, 1, lossless=True)

    monkeypatch.setattr(arriving, "compress", slow)
    compactor = ResultCompactor()
    gone = [asyncio.create_task(compact(compactor, str(n))) for n in range(AT_ONCE_MAX)]
    for _ in gone:
        await begun.get()
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    waiting = [asyncio.create_task(compact(compactor, str(n))) for n in range(5)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert begun.empty(), "their threads are still at work"
    release.set()
    assert [(await task).text for task in waiting] == [str(n) for n in range(5)]
    assert most == AT_ONCE_MAX


async def test_a_failure_reaches_the_caller_and_frees_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Compressed:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(arriving, "compress", broken)
    compactor = ResultCompactor()
    for _ in range(AT_ONCE_MAX + 1):
        with pytest.raises(ValueError, match="a mistake of ours"):
            await compact(compactor)
