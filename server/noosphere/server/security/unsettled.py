"""What cannot be decided without waiting: it is raised before anything was done, settled, and tried again."""

from __future__ import annotations

from noosphere.consistency import Refusal


class Unsettled(Refusal):
    """A refusal that holds unless what this process does not know yet turns out otherwise.

    Whoever answers the call waits for :meth:`settle` and does it again.
    """

    async def settle(self) -> None:
        """Finds out.

        Raises:
            Refusal: it cannot be found out at present.
        """
        raise NotImplementedError
