"""The shipped server under a profiler. What it measures ranks functions and is never a figure of a table.

Modes: ``window`` profiles from SIGUSR1 to SIGUSR2; ``start`` from the first line of the process to
SIGUSR2; ``memory`` traces allocations once all modules are imported and reports those alive at SIGUSR2.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from .profiling import Memory, Recorder, Window, on_signals


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mode", choices=("window", "start", "memory"), required=True)
    arguments = parser.parse_args()
    window = Window()
    if arguments.mode == "start":
        # Before the server's own modules, whose import is part of a start.
        window.begin()
    return _serve(arguments.listen, arguments.data, None if arguments.mode == "memory" else window)


def _serve(listen: str, data: Path, window: Window | None) -> int:
    import uvloop

    from noosphere.server.app import serve
    from noosphere.server.config import load
    from noosphere.server.logs import configure_logging

    recorder: Recorder = Memory() if window is None else window

    async def run() -> int:
        on_signals(recorder)
        return await serve(settings, ready=lambda address: print(f"listening on {address}", flush=True))

    settings = load(flags={"listen": listen, "data": data}).settings
    configure_logging("warning", "console")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


if __name__ == "__main__":
    sys.exit(main())
