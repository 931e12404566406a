"""Draws docs/images/top*.svg: frames of `noosphere top` beside a real run of the demo.

python scripts/top_screenshots.py
"""

from __future__ import annotations

import asyncio
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from noosphere.client import connect
from noosphere.server.cli.admin_api import AdminApi
from noosphere.server.cli.top_figures import figures
from noosphere.server.cli.top_frame import frame

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
NOOSPHERE = Path(sys.executable).with_name("noosphere")
SIZES = {"top.svg": (100, 30), "top-80x24.svg": (80, 24)}
WATCHES = 5
SECONDS = 3.0


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        serve = [str(NOOSPHERE), "serve", "--data", folder, "--listen", "127.0.0.1:0"]
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[-1]
            # Sessions first: their health is what stays of them.
            subprocess.run([NOOSPHERE, "demo", "session", "--server", address], stdout=subprocess.DEVNULL, check=True)
            job = subprocess.Popen([NOOSPHERE, "demo", "--server", address], stdout=subprocess.DEVNULL)
            try:
                asyncio.run(look(address))
            finally:
                job.terminate()
                job.wait()
        finally:
            server.terminate()
            server.wait()


async def look(address: str) -> None:
    async with connect(address, agent="cli/onlooker") as client:
        api = AdminApi(client)
        while True:
            before = await api.overview(200)
            await asyncio.sleep(SECONDS)
            now = await api.overview(200)
            found = figures(now, before, 50)
            if found["conflicts_per_second"] > 0:
                break
        servers = await api.servers()
    IMAGES.mkdir(exist_ok=True)
    for name, (width, height) in SIZES.items():
        console = Console(record=True, width=width, height=height, file=io.StringIO(), force_terminal=True)
        console.print(frame(found, servers, "127.0.0.1:7443", "", width, height))
        # The same id each time, and no font from elsewhere.
        svg = console.export_svg(title="noosphere top", unique_id="top")
        svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
        (IMAGES / name).write_text(svg)


if __name__ == "__main__":
    main()
