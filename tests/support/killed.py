"""An end in the middle of things, as ``kill -9`` makes it."""


class Killed(BaseException):
    """Raised by a test where a process dies: no ``except Exception`` of ours may catch it.

    Not KeyboardInterrupt: asyncio passes that on out of the loop when a task of its own raises it, which ends the
    worker that runs the tests.
    """
