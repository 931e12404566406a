"""Lines: one after the other under each name, in the order of arrival, and nothing is kept of a line that is empty."""

from __future__ import annotations

import asyncio
import gc
import weakref

from noosphere.server.facts.lines import Lines


class Stage:
    """Whoever has a turn stays until called off; tells who had one, and whether two ever had one at once."""

    def __init__(self) -> None:
        self.lines = Lines()
        self.came: list[int] = []
        self.on_stage = 0
        self.crowded = False
        self.leave: dict[int, asyncio.Event] = {}

    def enter(self, number: int, name: str = "name") -> asyncio.Task[None]:
        self.leave[number] = asyncio.Event()
        return asyncio.create_task(self._play(number, name))

    async def _play(self, number: int, name: str) -> None:
        async with self.lines.turn(name):
            self.on_stage += 1
            self.crowded |= self.on_stage > 1
            self.came.append(number)
            await self.leave[number].wait()
            self.on_stage -= 1


async def settle() -> None:
    """Lets everybody who can go on do so."""
    for _ in range(8):
        await asyncio.sleep(0)


async def test_whoever_comes_while_others_wait_stands_behind_them() -> None:
    stage = Stage()
    playing = [stage.enter(0), stage.enter(1)]
    await settle()
    stage.leave[0].set()
    await playing[0]
    # The second one's turn has come, and it may not have noticed.
    playing.append(stage.enter(2))
    await settle()
    for number in (1, 2):
        stage.leave[number].set()
    await asyncio.gather(*playing)
    assert (stage.came, stage.crowded) == ([0, 1, 2], False)


async def test_lines_of_other_names_move_meanwhile() -> None:
    stage = Stage()
    playing = [stage.enter(0, "a"), stage.enter(1, "b")]
    await settle()
    assert stage.came == [0, 1]
    for number in (0, 1):
        stage.leave[number].set()
    await asyncio.gather(*playing)


async def test_whoever_is_cancelled_in_the_line_holds_nobody_up() -> None:
    stage = Stage()
    playing = [stage.enter(0), stage.enter(1), stage.enter(2)]
    await settle()
    playing[1].cancel()
    stage.leave[0].set()
    stage.leave[2].set()
    await asyncio.gather(*playing, return_exceptions=True)
    assert (stage.came, stage.crowded) == ([0, 2], False)


async def test_nothing_is_kept_of_a_line_in_which_nobody_stands() -> None:
    class Name(str):
        """A name that can be looked for."""

    lines = Lines()
    name = Name("name")
    async with lines.turn(name):
        pass
    kept = weakref.ref(name)
    del name
    gc.collect()
    assert kept() is None
