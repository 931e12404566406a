"""A command in a terminal of a given size, as somebody sits before it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>]")


class Terminal:
    """Runs a command; a context manager, which ends it.

    Args:
        arguments: the command line.
        environment: its environment.
        columns: of the terminal.
        lines: of the terminal.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, columns: int = 80, lines: int = 24
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            arguments,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(lines)},
            start_new_session=True,
        )
        os.close(theirs)
        self._raw = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                found = os.read(self._ours, 65_536)
            except OSError:
                return
            if not found:
                return
            self._raw += found

    @property
    def raw(self) -> str:
        """Everything that was written, with its control sequences."""
        return self._raw.decode(errors="replace")

    @property
    def text(self) -> str:
        """Everything that was written, without control sequences."""
        return _CONTROL.sub("", self.raw)

    def interrupt(self) -> None:
        """Does what Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(timeout=10)
        os.close(self._ours)
