"""Sync clients and the life of a process: forks, the end of the interpreter, a loop beside theirs.

Each test runs a program of its own, because what is tested would otherwise happen to the test runner.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import uuid

import pytest
from tests.support.process import ServerProcess

from noosphere.client import connect

SECONDS_MAX = 60
"""A bound against hanging, which is what most of these tests are about."""

FORK = """
def fork(work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print("child:", type(error).__name__, flush=True)
            os._exit(1)
        # As a program ends that has unwound its stack, finalizers and all.
        sys.exit(0)
    print("status:", os.waitpid(pid, 0)[1], flush=True)
"""


def run(program: str, server: ServerProcess, *, code: int = 0) -> list[str]:
    """Runs a program with ``address`` and ``agent`` in scope; returns the lines that it prints."""
    agent = f"sync-{uuid.uuid4().hex[:12]}"
    head = f"""
import os, signal, sys, threading
from noosphere.client.sync import ForkedClient, StaleIncarnation, connect
address, agent = {server.address!r}, {agent!r}
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", head + FORK + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == code, done.stderr
    return done.stdout.splitlines()


def test_a_client_from_before_a_fork_refuses_at_once(binary: ServerProcess) -> None:
    lines = run(
        """
        with connect(address, agent=agent) as client:
            key = client.private.key("k")
            record = key.put(1)
            listing = client.private.list()
            watch = client.private.watch()

            def work():
                for use in (key.get, lambda: record.replace(2), lambda: next(listing), watch.__enter__,
                            lambda: key.update(lambda current, conflict: 3)):
                    try:
                        use()
                    except ForkedClient as error:
                        assert error.reason == "FORKED_CLIENT" and error.outcome == "not_applied"
                    else:
                        raise AssertionError("it answered")
                # What was read is data, and still there.
                print("read:", record.value, flush=True)

            fork(work)
            # The parent's client is none the worse for it.
            print("parent:", record.replace(4).value, [event.key for entry in client.private.history()
                                                       for event in entry.events])
        """,
        binary,
    )
    assert lines == ["read: 1", "status: 0", "parent: 4 ['k', 'k']"]


def test_also_one_that_another_thread_opened(binary: ServerProcess) -> None:
    """And a connection of the child's own cannot be had: gRPC does not work there."""
    lines = run(
        """
        opened, done, found = threading.Event(), threading.Event(), []

        def other():
            with connect(address, agent=agent) as client:
                found.append(client.private.key("k"))
                opened.set()
                done.wait()
                found.append(client.private.put("k", 5).value)

        thread = threading.Thread(target=other)
        thread.start()
        opened.wait()

        def work():
            for use in (found[0].get, connect(address).__enter__):
                try:
                    use()
                except ForkedClient as error:
                    print(error.message.split(",")[0].split(";")[0], flush=True)

        fork(work)
        done.set()
        thread.join()
        print("parent:", found[1])
        """,
        binary,
    )
    assert lines == [
        "the client was opened before this process was forked",
        "this process was forked from one with an open connection",
        "status: 0",
        "parent: 5",
    ]


@pytest.mark.parametrize("kept", ["client", "None"])
def test_a_child_may_connect_if_nothing_was_open(binary: ServerProcess, kept: str) -> None:
    """Also if closed clients wait for the garbage collector; not if somebody still refers to one."""
    lines = run(
        f"""
        import gc
        gc.disable()
        with connect(address, agent=agent) as client:
            client.private.put("k", 1)
        client = {kept}

        def work():
            with connect(address, agent=agent) as child:
                print("child:", child.private.get("k").value, flush=True)

        fork(work)
        """,
        binary,
    )
    assert lines == (["child: ForkedClient", "status: 256"] if kept == "client" else ["child: 1", "status: 0"])


def test_a_child_that_drops_a_client_harms_nobody(binary: ServerProcess) -> None:
    """Freeing gRPC's channel there would hang, and take the parent's sockets out of the shared epoll set."""
    lines = run(
        """
        import gc

        def main():
            with connect(address, agent=agent) as client:
                client.private.put("k", 1)
                held = [client]
                del client
                with held[0].private.watch() as batches:

                    def work():
                        held.clear()
                        gc.collect()

                    fork(work)
                    held[0].private.put("j", 2)
                    print([event.key for batch in batches for event in batch.events if batch.kind == "changes"][:0])
        main()
        """.replace(
            '[event.key for batch in batches for event in batch.events if batch.kind == "changes"][:0]',
            'next(batch.events[0].key for batch in batches if batch.kind == "changes")',
        ),
        binary,
    )
    assert lines == ["status: 0", "j"]


def test_a_child_may_drop_what_is_left_of_a_closed_client(binary: ServerProcess) -> None:
    """The parent still refers to it, so its channel is there to be freed, which would hang in the child."""
    lines = run(
        """
        import gc

        with connect(address, agent=agent) as client:
            client.private.put("k", 1)
        held = [client]
        del client

        def work():
            held.clear()
            gc.collect()
            print("dropped", flush=True)

        fork(work)
        """,
        binary,
    )
    assert lines == ["dropped", "status: 0"]


def test_a_child_that_leaves_the_parents_blocks_closes_nothing(binary: ServerProcess) -> None:
    lines = run(
        """
        with connect(address, agent=agent) as client:
            board = client.private.board("todo/")
            board.add({"n": 1})
            with board.claim() as claim:
                if os.fork() == 0:
                    sys.exit(0)
                os.wait()
                print("completed:", claim.complete("done").claim.done)
        """,
        binary,
    )
    assert lines == ["completed: True"]


def test_a_program_ends_although_a_thread_waits_for_a_watch(binary: ServerProcess) -> None:
    # Whether its agent is closed depends on who is faster; otherwise the lease ends by itself.
    lines = run(
        """
        client = connect(address, agent=agent).__enter__()
        client.private.put("k", 1)
        batches = client.private.watch().__enter__()
        print("done")
        threading.Thread(target=next, args=(batches,), daemon=True).start()
        """,
        binary,
    )
    assert lines == ["done"]


@pytest.mark.parametrize("ending", ["pass", "sys.exit()"])
async def test_a_program_that_closes_nothing_ends_and_its_agent_with_it(binary: ServerProcess, ending: str) -> None:
    lines = await asyncio.to_thread(
        run,
        f"""
        client = connect(address, agent=agent).__enter__()
        client.private.put("k", 1)
        batches = client.private.watch().__enter__()
        print(agent)
        {ending}
        """,
        binary,
    )
    # Not refused as active: its incarnation was ended, though it has seconds of its lease left.
    async with connect(binary.address, agent=lines[0]) as successor:
        assert successor.agent == lines[0]


def test_a_program_ends_although_the_server_is_gone(
    binary: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own = ServerProcess(tmp_path_factory.mktemp("own") / "data")
    own.start()
    try:
        lines = run(
            f"""
            client = connect(address, agent=agent).__enter__()
            os.kill({own.pid}, signal.SIGSTOP)
            print("done")
            """,
            own,
        )
    finally:
        own.resume()
        own.close()
    assert lines == ["done"]


def test_a_thread_that_outlives_the_main_one_goes_on(binary: ServerProcess) -> None:
    lines = run(
        """
        def work():
            with connect(address, agent=agent) as client:
                main.join()
                print("later:", client.private.put("k", 1).value)

        main = threading.main_thread()
        threading.Thread(target=work).start()
        """,
        binary,
    )
    assert lines == ["later: 1"]


def test_ctrl_c_in_a_watch_loses_no_batch(binary: ServerProcess) -> None:
    lines = run(
        """
        with connect(address, agent=agent) as client, client.private.watch() as batches:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            seen = []
            try:
                while True:
                    seen += [event.key for event in next(batches).events]
            except KeyboardInterrupt:
                print("interrupted")
            for n in range(3):
                client.private.put(f"k{n}", n)
            while len(seen) < 3:
                seen += [event.key for event in next(batches).events]
            print(seen)
        """,
        binary,
    )
    assert lines == ["interrupted", "['k0', 'k1', 'k2']"]


def test_ctrl_c_in_a_claim_gives_the_task_back(binary: ServerProcess) -> None:
    lines = run(
        """
        with connect(address, agent=agent) as client:
            board = client.private.board("todo/")
            board.add({"n": 1})
            try:
                with board.claim(lease=600):
                    signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                with board.claim() as claim:
                    print("again:", claim.value)
        """,
        binary,
    )
    assert lines == ["again: {'n': 1}"]
