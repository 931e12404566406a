"""Starts and stops the client processes of :mod:`tests.support.worker`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.process import EXIT_SECONDS_MAX

ROOT = Path(__file__).resolve().parent.parent.parent


class Workers:
    """Client processes that load one server.

    Attributes:
        journals: what each of them records.
    """

    def __init__(self, address: str, folder: Path, count: int) -> None:
        self.journals = [folder / f"worker-{number}.jsonl" for number in range(count)]
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.worker", address, journal.stem, str(journal)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            for journal in self.journals
        ]

    def finish(self) -> None:
        """Lets every worker finish what it has begun; fails if one did not end well."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            code = process.wait(EXIT_SECONDS_MAX)
            assert process.stderr is not None
            said = process.stderr.read()
            assert code == 0, f"a worker ended with {code}:\n{said}"

    def close(self) -> None:
        """Ends whatever still runs; for finalizers."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


@contextlib.contextmanager
def workers(address: str, folder: Path, count: int) -> Iterator[Workers]:
    """Runs client processes for the length of the block."""
    found = Workers(address, folder, count)
    try:
        yield found
    finally:
        found.close()
