"""The parent of warm processes (``python -m tests.support.warm_parent DESCRIPTOR``); see ``warm``.

It has one thread and runs nothing of ours before it forks, so that a child finds what a new process would.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from tests.support.warm import NUMBER, REQUEST_BYTES_MAX, TRIGGER

# Before its module `main` is imported, which takes the name.
from noosphere.server.cli import main as command

# What `noosphere` sets before it imports anything.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

IMPORTED = (
    "grpc.aio",
    "noosphere.client",
    "noosphere.server.app",
    "noosphere.server.cli.main",
    "noosphere.server.demo",
    "rich.table",
    "uvloop",
)


def serve(control: socket.socket) -> list[str] | None:
    """Forks whenever it is asked to.

    Returns:
        In a child, the arguments of its command; in the parent None, when there is nobody left to ask.
    """
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    children: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is control:
                request, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 4)
                if not request:
                    # A run that was interrupted leaves servers behind.
                    for pid, _ in children.values():
                        os.kill(pid, signal.SIGKILL)
                    return None
                reply = socket.socket(fileno=descriptors[3])
                pid = os.fork()
                if pid == 0:
                    for watched, (_, other) in children.items():
                        os.close(watched)
                        other.close()
                    selector.close()
                    control.close()
                    reply.close()
                    return _become(json.loads(request), descriptors[:3])
                for descriptor in descriptors[:3]:
                    os.close(descriptor)
                reply.send(NUMBER.pack(pid))
                watched = os.pidfd_open(pid)
                selector.register(watched, selectors.EVENT_READ)
                children[watched] = (pid, reply)
            else:
                watched = key.fd
                selector.unregister(watched)
                os.close(watched)
                pid, reply = children.pop(watched)
                _, status = os.waitpid(pid, 0)
                # Whoever started it may have gone already.
                with contextlib.suppress(BrokenPipeError):
                    reply.send(NUMBER.pack(status))
                reply.close()


def _become(request: list[Any], descriptors: list[int]) -> list[str]:
    arguments, environment, cwd = request
    os.setsid()
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    # Those of the parent have been told whether they can seek, which another file may answer differently.
    for name, standard, mode, buffering in (("stdin", 0, "r", -1), ("stdout", 1, "w", -1), ("stderr", 2, "w", 1)):
        old = getattr(sys, name)
        stream = open(standard, mode, buffering, old.encoding, old.errors, closefd=False)  # noqa: SIM115 # as long as the process
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    return [str(argument) for argument in arguments]


def main() -> None:
    """Serves; a child becomes the command, and ends with its exit code."""
    for name in IMPORTED:
        importlib.import_module(name)
    arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        if TRIGGER in os.environ:
            importlib.import_module("tests.support.dying").arm(os.environ[TRIGGER])
        sys.argv = ["noosphere", *arguments]
        _end(_code_of(command))


def _code_of(command: Callable[[], None]) -> int:
    try:
        command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> NoReturn:
    """Ends the process as the interpreter does, except that it does not take apart all that was imported.

    That would copy all pages that are shared with the parent, and take longer than the command.
    """
    # What the interpreter itself calls; nothing public does the same.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = code or 120
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
