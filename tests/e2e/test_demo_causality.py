"""The causality demo: it holds as users run it, and a server with a bug fails it at the step that shows it."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.e2e.test_demo import CLI, LIMIT_S, environment, processes_that_name
from tests.support.cli import Cli, holds

from noosphere.client._causal import CausalState
from noosphere.consistency import CausalContext, ConflictPolicy, VersionClock, decide
from noosphere.server.cli import demo_shapes
from noosphere.server.demo.causality import tell
from noosphere.server.demo.causality.command import print_account
from noosphere.server.demo.causality.story import SCENES
from noosphere.server.demo.causality.telling import Account
from noosphere.server.demo.processes import own_server
from noosphere.server.memory import expiry, guards, staleness, writes
from noosphere.server.memory.guards import UNGUARDED
from noosphere.server.memory.internal import CONFLICTS
from noosphere.server.memory.watches import Watches
from noosphere.testing import server

NAMES = ["history", "conflict", "decision", "handover", "siblings"]


def test_every_line_holds_and_programs_get_them_all(tmp_path: Path) -> None:
    done = subprocess.run(
        [*CLI, "demo", "causality", "--json"],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
    assert processes_that_name(tmp_path) == []
    found = json.loads(done.stdout)
    holds(demo_shapes.CausalityShape, found)
    assert [step["name"] for step in found["steps"]] == NAMES
    assert (found["ok"], found["failures"], found["missing"]) == (True, [], [])
    assert all(line["holds"] for step in found["steps"] for line in step["lines"])
    orders = [sight["order"] for sight in found["steps"][0]["sights"]]
    assert orders == ["EQUAL", "EQUAL", "BEFORE"]
    assert len([step for step in found["steps"] if step["paragraphs"]]) == 3


@pytest.mark.campaign
def test_people_get_the_same_story_from_a_server_that_is_left_as_it_was(tmp_path: Path) -> None:
    async def run() -> tuple[int | None, str, str, list[str]]:
        async with own_server(tmp_path) as address:
            process = await asyncio.create_subprocess_exec(
                *(*CLI, "demo", "causality", "--server", address),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment(tmp_path),
            )
            out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
            namespaces = await asyncio.to_thread(Cli(address).ok, "ns", "list", "--json")
            return process.returncode, out.decode(), err.decode(), namespaces.json_lines

    code, out, err, namespaces = asyncio.run(run())
    assert (code, err, namespaces) == (0, "", [])
    for text in (
        "Cleo is 19 writes behind",
        "CONCURRENT",
        "You wanted to write",
        "Your decision was not written",
        "All",
    ):
        assert text in out
    assert "NO " not in out
    assert "\x1b" not in out


def test_a_file_called_causality_is_still_a_text(tmp_path: Path) -> None:
    done = subprocess.run(
        [*CLI, "demo", "./causality", "--json"],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2
    assert "causality: No such file" in done.stderr


def test_a_server_that_is_not_there_is_one_line() -> None:
    done = Cli().run("demo", "causality", "--server", "127.0.0.1:1")
    assert (done.code, done.error) == (4, "no server answers at 127.0.0.1:1 within 5 s")


def test_an_address_that_is_none_is_wrong_usage() -> None:
    done = Cli().run("demo", "causality", "--server", "127.0.0.1:70000")
    assert done.code == 2
    assert done.error == "--server: '127.0.0.1:70000' is not host:port with a port from 1 to 65535"


def cover_everything(patch: pytest.MonkeyPatch) -> None:
    """Whatever a writer presents counts as having seen all there is."""
    patch.setattr(CausalContext, "covers", lambda *_: True)


def fold_without_a_base(patch: pytest.MonkeyPatch) -> None:
    """A clock forgets the writers that it no longer names."""
    plain = VersionClock.written_by
    patch.setattr(VersionClock, "written_by", lambda clock, actor: plain(clock, actor)._replace(base=0))


def validate_nothing(patch: pytest.MonkeyPatch) -> None:
    """Read sets are taken for granted."""

    async def validate(*_: object) -> object:
        return UNGUARDED

    patch.setattr(writes, "validate", validate)


def name_nobody(patch: pytest.MonkeyPatch) -> None:
    """What is stale is found, and who made it so is not told."""

    async def explained(core: object, present: object, seen: object, stale: list[Any]) -> list[Any]:
        return stale

    for module in (guards, staleness):
        patch.setattr(module, "explained", explained, raising=False)


def keep_one_sibling(patch: pytest.MonkeyPatch) -> None:
    """The last writer wins where both should be kept."""
    plain = decide.decide_put

    def decide_put(record: Any, key: str, put: Any, at: Any) -> Any:
        if at.policy is ConflictPolicy.SIBLINGS:
            at = at._replace(policy=ConflictPolicy.LAST_WRITER_WINS)
        return plain(record, key, put, at)

    patch.setattr(writes, "decide_put", decide_put)


def forget_the_queue(patch: pytest.MonkeyPatch) -> None:
    """Nothing is put into the queue of conflicts."""
    plain = expiry.mutations_of

    def mutations_of(*args: Any, **options: Any) -> Any:
        return tuple(m for m in plain(*args, **options) if not m.key.startswith(CONFLICTS))

    patch.setattr(writes, "mutations_of", mutations_of)


def read_what_one_has(patch: pytest.MonkeyPatch) -> None:
    """The watch that feeds a near cache goes silent, and tokens name no revision that would give it away."""
    plain = Watches._follow

    async def silent(*args: Any, **options: Any) -> AsyncIterator[Any]:
        async for message in plain(*args, **options):
            if message is None:
                yield message

    patch.setattr(Watches, "_follow", silent)
    patch.setattr(CausalState, "needed", lambda *_: 0)


BUGS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (fold_without_a_base, "history"),
    (cover_everything, "conflict"),
    (validate_nothing, "decision"),
    (name_nobody, "decision"),
    (read_what_one_has, "handover"),
    (keep_one_sibling, "siblings"),
    (forget_the_queue, "siblings"),
]


async def story() -> Account:
    async with server() as srv:
        return await tell(srv.address)


async def test_a_correct_server_in_this_process_passes() -> None:
    account = await story()
    assert account.failures == []
    assert [step.name for step in account.steps] == NAMES == [scene.name for scene in SCENES]


@pytest.mark.parametrize(("plant", "name"), BUGS, ids=[plant.__name__ for plant, _ in BUGS])
async def test_a_planted_bug_fails_the_step_that_shows_it(
    plant: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    account = await story()
    assert [failure.split(":")[0] for failure in account.failures] == [name]
    assert account.steps[-1].name == name
    assert account.missing == tuple(NAMES[NAMES.index(name) + 1 :])
    printed = io.StringIO()
    print_account(account, Console(file=printed, width=200))
    assert f"FAILED: {name}: " in printed.getvalue()
    assert account.as_dict()["ok"] is False
