"""For tests of programs that use Noosphere: the real server in the test's process, and power over its fortune.

::

    async with noosphere.testing.server() as srv, srv.client("planner-0") as client:
        srv.faults.conflict_next("shared/launch", "plan", {"steps": ["theirs"]})
        await revise_plan(client)  # meets a conflict
        await srv.advance(60)      # a minute later, without waiting for it

Time stands still until the test moves it. Needs ``noosphere[server]``. Fixtures for pytest are in
``noosphere.testing.pytest_plugin``.
"""

try:
    from ._clock import REST_SECONDS, ManualClock
    from ._faults import Faults, UnmetFaults
    from ._server import Server, server
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error.name} is missing: noosphere.testing needs noosphere[server]", name=error.name
    ) from error

__all__ = ["REST_SECONDS", "Faults", "ManualClock", "Server", "UnmetFaults", "server"]
