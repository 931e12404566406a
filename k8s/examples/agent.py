"""An agent in a pod: its identity is its service account's, its certificate gets it through the door.

It works tasks off a board that all agents of the launch share. Each task goes to one agent at a time; one that dies in
the middle loses its claim, and another one takes over. Where it connects to, and with which files, says the
environment, as for every client (NOOSPHERE_SERVER, NOOSPHERE_TLS_CA, NOOSPHERE_TOKEN_FILE and so on).
"""

from __future__ import annotations

import asyncio
import os
import signal

from noosphere.client import ClaimLost, PermissionDenied, Unavailable, connect

SPACE = os.environ.get("AGENT_SPACE", "launch")
IDLE_SECONDS = float(os.environ.get("AGENT_IDLE_SECONDS", "2"))
DENIED_SECONDS = float(os.environ.get("AGENT_DENIED_SECONDS", "15"))


def own_name() -> str:
    """Returns this pod's name as an agent: below that of its service account, as which it may act without a grant."""
    account = f"system:serviceaccount:{os.environ['POD_NAMESPACE']}:{os.environ['POD_SERVICE_ACCOUNT']}"
    return f"{account}/{os.environ['POD_NAME']}"


async def work(stop: asyncio.Event) -> None:
    """Works tasks off until it is told to stop."""
    async with connect(agent=own_name()) as agent:
        print(f"{own_name()} is at work", flush=True)
        launch = agent.shared(SPACE)
        while not stop.is_set():
            try:
                async with launch.board("todo/").claim(lease=30) as claim:
                    if claim is not None:
                        # Your model goes here.
                        await claim.complete({"done by": own_name()})
                        print("a task is done", flush=True)
                        continue
            except ClaimLost:
                print("a task went to somebody else meanwhile", flush=True)
            except PermissionDenied as error:
                print(f"{error}: somebody has to grant it (docs/kubernetes.md)", flush=True)
                await _rest(stop, DENIED_SECONDS)
            await _rest(stop, IDLE_SECONDS)


async def _rest(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


async def main() -> None:
    """Works until SIGTERM; while no server is there, it waits for one."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    while not stop.is_set():
        try:
            await work(stop)
        except Unavailable as error:
            print(f"{error}; next try in {IDLE_SECONDS:g} s", flush=True)
            await _rest(stop, IDLE_SECONDS)


asyncio.run(main())
