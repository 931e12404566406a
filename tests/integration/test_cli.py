"""The command line as people and programs use it: real processes against a real server."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import subprocess
import uuid
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.support.cli import SECONDS_MAX, Cli, Done, holds
from tests.support.process import NOOSPHERE, ServerProcess

from noosphere.client import connect
from noosphere.server.cli import demo_shapes, shapes


@pytest.fixture
def cli(binary: ServerProcess) -> Cli:
    return Cli(binary.address)


@pytest.fixture
def space() -> str:
    return f"shared/cli-{uuid.uuid4().hex[:12]}"


def test_a_record_lives_through_put_get_and_delete(cli: Cli, space: str) -> None:
    written = cli.ok(
        "--json", "put", space, "plan/next", '{"steps": ["draft"]}', "--attr", "kind=plan", "--attr", "n=3"
    )
    holds(shapes.WriteShape, written.json)
    version = written.json["version"]

    shown, for_people = cli.run_all(["get", space, "plan/next", "--json"], ["get", space, "plan/next"])
    holds(shapes.RecordShape, shown.json)
    assert shown.json["version"] == version == shown.json["values"][0]["dot"]
    assert shown.json["values"][0]["value"] == {"steps": ["draft"]}
    assert shown.json["values"][0]["actor"].startswith("cli/")
    assert shown.json["attributes"] == {"kind": "plan", "n": 3}
    assert f"version     {version}" in for_people.lines
    assert 'value       {"steps":["draft"]}' in for_people.lines

    replaced = cli.ok("put", space, "plan/next", "2", "--expected-version", version, "--json").json
    assert replaced["version"] != version
    assert replaced["overwritten"] == []
    gone = cli.ok("delete", space, "plan/next", "--expected-version", replaced["version"])
    assert gone.text.startswith("deleted at revision ")
    absent, again = cli.run_all(["get", space, "plan/next"], ["delete", space, "plan/next"])
    assert absent.code == 1
    assert absent.error == f"'plan/next' in {space} has no value"
    assert (again.code, again.text) == (0, f"'plan/next' in {space} had no value, nothing to do\n")


def test_values_come_as_json_text_bytes_stdin_or_file(cli: Cli, space: str, tmp_path: Path) -> None:
    blob = bytes(range(256))
    file = tmp_path / "blob"
    file.write_bytes(blob)
    ends = cli.run_all(
        ["put", space, "json", "-5", "--json"],
        ["put", space, "negative", "--", "-5"],
        ["put", space, "text", "hello", "--text"],
        ["put", space, "file", f"@{file}", "--bytes"],
        ["put", space, "hello", "hello"],
        ["put", space, "both", "1", "--text", "--bytes"],
        ["put", space, "latin", f"@{file}", "--text"],
    )
    assert [end.code for end in ends] == [2, 0, 0, 0, 2, 2, 2]
    assert ends[0].json_error["reason"] == "USAGE"
    assert ends[4].error.startswith("VALUE: is not JSON")
    assert ends[5].error == "--text and --bytes exclude each other"
    assert ends[6].error.startswith("VALUE: is not UTF-8")
    cli.ok("put", space, "stdin", "-", "--bytes", stdin=blob)

    keys = ("negative", "text", "file", "stdin")
    raws = cli.run_all(*(["get", space, key, "--raw"] for key in keys))
    assert [raw.out for raw in raws] == [b"-5", b'"hello"', blob, blob]
    shown = cli.ok("get", space, "file", "--json").json["values"][0]
    assert shown["encoding"] == "bytes"
    assert shown["value"].startswith("AAECAwQ")


def test_a_value_lives_as_long_as_it_is_told_to(cli: Cli, space: str) -> None:
    cli.ok("put", space, "k", "1", "--ttl", "1h30m")
    value = cli.ok("get", space, "k", "--json").json["values"][0]
    span = datetime.fromisoformat(value["expire_time"]) - datetime.fromisoformat(value["write_time"])
    assert span == timedelta(hours=1, minutes=30)
    assert cli.run("put", space, "k2", "1", "--ttl", "soon").error.startswith("--ttl: 'soon' is not a duration")


def test_nobody_overwrites_by_accident(cli: Cli, space: str) -> None:
    cli.ok("put", space, "k", '"theirs"')
    refused, for_programs = cli.run_all(["put", space, "k", '"mine"'], ["put", space, "k", '"mine"', "--json"])
    assert refused.code == 1
    assert refused.error.startswith("PRECONDITION_REQUIRED: Your write to `k` failed: it has a value that you have not")
    assert '`"theirs"`' in refused.error
    assert "--blind" in refused.error

    error = for_programs.json_error
    holds(shapes.ErrorShape, error)
    assert (error["reason"], error["outcome"]) == ("PRECONDITION_REQUIRED", "not_applied")
    assert error["conflict"]["theirs"]["values"][0]["value"] == "theirs"
    assert len(error["conflict"]["unseen"]) == 1

    theirs = error["conflict"]["theirs"]["version"]
    forced = cli.ok("put", space, "k", '"mine"', "--blind", "--json").json
    holds(shapes.WriteShape, forced)
    assert [dot["dot"] for dot in forced["overwritten"]] == [theirs]
    stale = cli.run("put", space, "k", "1", "--expected-version", theirs)
    assert (stale.code, stale.error.split(":")[0]) == (1, "VERSION_MISMATCH")


async def test_siblings_are_shown_side_by_side(cli: Cli, space: str) -> None:
    await asyncio.to_thread(cli.ok, "ns", "create", space, "--policy", "siblings")
    async with connect(cli.server) as one, connect(cli.server) as two:
        await one.namespace(space).key("k").put("first")
        mine, yours = await one.namespace(space).key("k").read(), await two.namespace(space).key("k").read()
        await mine.replace("mine")
        await yours.replace("yours")
        shown, as_json, raw = await asyncio.to_thread(
            cli.run_all, ["get", space, "k"], ["get", space, "k", "--json"], ["get", space, "k", "--raw"]
        )
        assert [line.split()[-1] for line in shown.lines if line.startswith("value")] == ['"mine"', '"yours"']
        # One of these is what `resolve --keep` asks for.
        revisions = [line.split()[-1] for line in shown.lines if line.startswith("written")]
        assert revisions == [value["dot"] for value in as_json.json["values"]]
        holds(shapes.RecordShape, as_json.json)
        assert [value["actor"] for value in as_json.json["values"]] == [one.actor, two.actor]
    assert (raw.code, raw.error.split(":")[0]) == (1, "UNRESOLVED_SIBLINGS")


def test_the_log_is_shown_oldest_first_and_limited_to_the_newest(cli: Cli, space: str) -> None:
    for number in range(3):
        cli.ok("put", space, f"k{number}", str(number))
    cli.ok("delete", space, "k0", "--blind")
    whole, newest, one_key, table = cli.run_all(
        ["history", space, "--json"],
        ["history", space, "--limit", "2", "--json"],
        ["history", space, "k0", "--json"],
        ["history", space],
    )
    for entry in whole.json_lines:
        holds(shapes.HistoryShape, entry)
    assert [(c["kind"], c["key"]) for entry in whole.json_lines for c in entry["changes"]] == [
        ("put", "k0"),
        ("put", "k1"),
        ("put", "k2"),
        ("delete", "k0"),
    ]
    assert newest.json_lines == whole.json_lines[2:]
    assert [entry["revision"] for entry in one_key.json_lines] == [
        whole.json_lines[0]["revision"],
        whole.json_lines[3]["revision"],
    ]
    assert table.lines[0].split() == ["REVISION", "TIME", "CHANGE", "KEY", "BY", "VALUE"]
    assert len(table.lines) == 6
    assert table.lines[5] == f"the log holds every change after revision {whole.json_lines[0]['floor']}"


def test_namespaces_are_created_listed_shown_and_deleted(cli: Cli, space: str) -> None:
    created = cli.ok(
        *("ns", "create", space, "--policy", "last-writer-wins", "--item-bytes-max", "2048"),
        *("--prefix-policy", "notes/=siblings", "--prefix-policy", "a=b/=reject", "--json"),
    ).json
    holds(shapes.CreatedShape, created)
    assert created["created"] is True
    assert created["policy"]["conflict_policy"] == "last-writer-wins"
    assert created["policy"]["prefix_policies"] == {"notes/": "siblings", "a=b/": "reject"}
    assert created["policy"]["item_bytes_max"] == 2048
    cli.run_all(["put", space, "todo/a", "1"], ["put", space, "todo/b", "2"], ["put", space, "plan", "3"])

    listed, table, shown, again, tree, tree_json = cli.run_all(
        ["ns", "list", space, "--json"],
        ["ns", "list", space],
        ["ns", "show", space, "--json"],
        ["ns", "create", space],
        ["ns", "tree", space],
        ["ns", "tree", space, "todo/", "--json"],
    )
    holds(shapes.NamespaceShape, listed.json)
    holds(shapes.NamespaceShape, shown.json)
    assert shown.json == listed.json
    assert shown.json["record_count"] == 3
    assert table.lines[1].split()[:3] == [space, "last-writer-wins", "3"]
    assert again.lines[0] == f"{space} was live already, generation 1"
    assert again.lines[1].split() == ["policy", "last-writer-wins"]
    assert tree.lines == [f"{space}  3 records", "  todo/  2", "    a", "    b", "  plan"]
    holds(shapes.TreeShape, tree_json.json)
    assert tree_json.json["keys"] == ["todo/a", "todo/b"]

    head = shown.json["head"]
    refused = cli.run("ns", "delete", space, "--yes", "--expected-head", "1")
    assert (refused.code, refused.error) == (
        1,
        f"VERSION_MISMATCH: namespace {space!r} has head {head}, not 1",
    )
    gone = cli.ok("ns", "delete", space, "--yes", "--expected-head", head, "--json").json
    holds(shapes.DeletedShape, gone)
    assert gone == {"namespace": space, "head": head, "record_count": 3}

    ends = cli.run_all(
        ["get", space, "plan"],
        ["ns", "list", space, "--json"],
        ["ns", "list", space, "--deleted", "--json"],
        ["ns", "delete", space, "--yes"],
        ["ns", "show", space + "-never"],
    )
    assert [end.code for end in ends] == [1, 0, 0, 1, 1]
    assert ends[0].error.startswith("NAMESPACE_DELETED: ")
    assert "`noosphere ns create`" in ends[0].error
    assert ends[1].text == ""
    assert ends[2].json["deleted"] is True
    assert ends[3].error.startswith("NAMESPACE_DELETED: ")
    assert ends[4].error.startswith("NAMESPACE_NOT_FOUND: ")
    reopened = cli.ok("ns", "create", space, "--json").json
    assert (reopened["created"], reopened["generation"]) == (True, 2)


def test_changing_one_rule_of_a_namespace_leaves_its_others_alone(cli: Cli, space: str) -> None:
    cli.ok("ns", "create", space, "--policy", "siblings", "--prefix-policy", "plan/=reject")
    larger = cli.ok("ns", "create", space, "--item-bytes-max", "2048", "--json").json
    assert larger["policy"]["item_bytes_max"] == 2048
    assert larger["policy"]["conflict_policy"] == "siblings"
    assert larger["policy"]["prefix_policies"] == {"plan/": "reject"}
    prefixed = cli.ok(
        *("ns", "create", space, "--prefix-policy", "plan/=last-writer-wins", "--prefix-policy", "log/=reject"),
        "--json",
    ).json
    assert prefixed["policy"]["prefix_policies"] == {"plan/": "last-writer-wins", "log/": "reject"}
    assert prefixed["policy"]["item_bytes_max"] == 2048
    assert cli.ok("ns", "create", space, "--policy", "reject", "--json").json["policy"] == {
        **prefixed["policy"],
        "conflict_policy": "reject",
    }


def _on_terminal(cli: Cli, answer: bytes, *arguments: str) -> tuple[int, str]:
    """Runs a command on a terminal, answers its question, and returns its exit code and what was shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(NOOSPHERE, [str(NOOSPHERE), *arguments], cli.environment({"TERM": "xterm"}))
    shown = b""
    answered = False
    while select.select([terminal], [], [], SECONDS_MAX)[0]:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            # How Linux says that the other side has gone.
            break
        if not chunk:
            break
        shown += chunk
        if not answered and b"[y/N]" in shown:
            os.write(terminal, answer)
            answered = True
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), shown.decode()


def test_deleting_a_namespace_asks_first(cli: Cli, space: str) -> None:
    cli.ok("put", space, "k", "1")
    unasked = cli.run("ns", "delete", space)
    assert (unasked.code, unasked.error.split(":")[0]) == (2, "ns delete asks before it deletes; where there is no "
                                                              "terminal to ask on, give --yes")  # fmt: skip
    code, shown = _on_terminal(cli, b"n\n", "ns", "delete", space)
    assert code == 130
    assert f"Delete {space} with 1 records?" in shown
    assert "aborted, nothing was done" in shown
    cli.ok("get", space, "k")
    code, shown = _on_terminal(cli, b"y\n", "ns", "delete", space)
    assert code == 0
    assert "deleted with 1 records" in shown


def test_tables_are_drawn_on_a_terminal_only(cli: Cli, space: str) -> None:
    cli.ok("put", space, "k", "1")
    _, shown = _on_terminal(cli, b"", "ns", "list", space)
    plain = cli.ok("ns", "list", space).text
    assert "\x1b[" in shown
    assert "─" in shown
    assert space in shown
    assert "\x1b" not in plain
    assert "─" not in plain


def test_the_engine_tells_how_it_is(cli: Cli, space: str) -> None:
    cli.ok("put", space, "k", "1")
    cli.run("put", space, "k", "2")
    stats, epochs, stats_table, epochs_table, version = cli.run_all(
        ["stats", "--json"], ["epochs", "--json"], ["stats"], ["epochs"], ["version", "--json"]
    )
    holds(shapes.StatsShape, stats.json)
    assert stats.json["commit_count"] >= 1
    assert stats.json["refusals"]["PRECONDITION_REQUIRED"] >= 1
    for epoch in epochs.json_lines:
        holds(shapes.EpochShape, epoch)
    assert epochs.json_lines[0]["epoch"] == 1
    assert stats.json["epoch"] == epochs.json_lines[-1]["epoch"]
    assert any(line.startswith("refused PRECONDITION_REQUIRED ") for line in stats_table.lines)
    assert epochs_table.lines[0].split() == ["EPOCH", "BEGAN", "WHY", "RECOVERED"]
    holds(shapes.VersionShape, version.json)


def test_a_server_that_shares_its_store_with_nobody_lists_itself(cli: Cli) -> None:
    as_json, table = cli.run_all(["servers", "--json"], ["servers"])
    (server,) = as_json.json_lines
    holds(shapes.ServerShape, server)
    assert server["leader"]
    assert server["answered"]
    assert server["address"] == cli.server
    assert table.lines[0].split() == ["ADDRESS", "VERSION", "SINCE", "WHAT", "ID"]


async def test_claims_show_who_works_on_what(cli: Cli, space: str) -> None:
    async with connect(cli.server) as worker:
        board = worker.namespace(space).board("todo/")
        await board.add({"n": 1}, key="first")
        await board.add({"n": 2}, key="second")
        async with board.claim(lease=60) as claim:
            assert claim is not None
            table, lines, other, shown = await asyncio.to_thread(
                cli.run_all,
                ["claims", space],
                ["claims", space, "todo/", "--json"],
                ["claims", space, "other/"],
                ["get", space, "todo/first"],
            )
        holds(shapes.TaskShape, lines.json)
        assert lines.json["key"] == "todo/first"
        assert lines.json["holder"] == worker.actor
        assert lines.json["attempts"] == 1
        assert table.lines[0].split() == ["KEY", "HOLDER", "LEASE", "ENDS", "ATTEMPTS", "FENCE"]
        assert table.lines[1].split()[:2] == ["todo/first", worker.actor]
        assert other.text == "no task is claimed\n"
        assert any(line.startswith(f"claim       held by {worker.actor} until ") for line in shown.lines)


def test_private_namespaces_are_open_to_operators_and_their_agent_only(cli: Cli) -> None:
    agent = f"planner-{uuid.uuid4().hex[:8]}"
    name = f"agents/{agent}"
    cli.ok("put", name, "draft", "1", "--agent", agent)
    as_operator, as_owner, as_other = cli.run_all(
        ["get", name, "draft", "--raw"],
        ["--agent", agent, "get", name, "draft", "--raw"],
        ["get", name, "draft", "--agent", "somebody-else"],
    )
    assert (as_operator.out, as_owner.out) == (b"1", b"1")
    assert (as_other.code, as_other.error.split(":")[0]) == (1, "PERMISSION_DENIED")


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--nope"], 2, "no such option: --nope (see `noosphere --help`)"),
        (["bogus"], 2, "no such command 'bogus' (see `noosphere --help`)"),
        (["get", "shared/x"], 2, "missing argument 'key' (see `noosphere get --help`)"),
        (["put", "shared/x", "k", "1", "--ttl"], 2, "option '--ttl' requires an argument"),
        (["ns"], 2, "missing command (see `noosphere ns --help`)"),
        (
            ["ns", "create", "shared/x", "--policy", "best"],
            2,
            "invalid value for '--policy': 'best' is not one of 'reject', 'siblings', 'last-writer-wins' (see ",
        ),
        (
            ["ns", "create", "shared/x", "--item-bytes-max", "0"],
            2,
            "invalid value for '--item-bytes-max': Input should be greater than or equal to 1, not '0' (see ",
        ),
        (
            ["ns", "create", "shared/x", "--prefix-policy", "notes/"],
            2,
            "--prefix-policy: 'notes/' is not PREFIX=POLICY",
        ),
        (["ns", "create", "shared/x", "--prefix-policy", "a/=b"], 2, "--prefix-policy: 'b' is not one of reject, "),
        (["get", "bogus", "k"], 1, "INVALID_FIELD: namespace: 'bogus' is not agents/…, "),
        (["get", "shared/x", "a//b"], 1, "INVALID_FIELD: key: 'a//b' has an empty segment"),
        (["put", "shared/x", "k", '"' + "x" * 2000 + '"'], 1, "VALUE_TOO_LARGE: "),
        (
            ["--server", "127.0.0.1:1", "--timeout", "0.3", "stats"],
            4,
            "UNAVAILABLE: cannot reach 127.0.0.1:1 within 0.3 s",
        ),
    ],
)
def test_what_goes_wrong_is_one_clear_line(cli: Cli, arguments: list[str], code: int, line: str) -> None:
    done = cli.run(*arguments)
    assert done.code == code
    assert done.error.startswith(line)


def test_numbers_beyond_every_revision_and_list(cli: Cli, space: str) -> None:
    huge = "9" * 30
    watched, deleted, listed = cli.run_all(
        ["watch", space, "--after", huge],
        ["ns", "delete", space, "--yes", "--expected-head", huge],
        ["history", space, "--limit", huge],
    )
    assert (watched.code, watched.error) == (2, f"--after: {huge} is not a revision")
    assert (deleted.code, deleted.error) == (2, f"--expected-head: {huge} is not a revision")
    assert (listed.code, listed.text) == (0, "the log has no changes\n")


def test_output_that_cannot_be_written_is_one_clear_line(cli: Cli, space: str) -> None:
    cli.ok("put", space, "k", "1")
    for form in ((), ("--json",), ("--raw",)):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [str(NOOSPHERE), "get", space, "k", *form],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                env=cli.environment(),
                timeout=SECONDS_MAX,
            )
        assert done.returncode == 4
        assert "cannot write the output: No space left on device" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_line_stays_a_line_whatever_the_key(cli: Cli, space: str) -> None:
    done = cli.run("get", space, "a\x1b[2J\nb")
    assert done.code == 1
    assert done.error.isprintable()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(cli: Cli, shell: str, tmp_path: Path) -> None:
    # Makes typer take the shell from the argument instead of from the process that started it.
    given = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    shown = cli.run("--show-completion", shell, environment=given)
    assert (shown.code, "noosphere" in shown.text) == (0, True)
    installed = cli.run("--install-completion", shell, environment=given)
    assert installed.code == 0
    assert any("noosphere" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    for line, at, expected in (
        ("noosphere ns ", 2, ["list", "create", "show", "tree", "delete"]),
        ("noosphere serve --l", 2, ["--listen", "--log-level", "--log-format"]),
    ):
        request = {"_NOOSPHERE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, "COMP_WORDS": line}
        request |= {"COMP_CWORD": str(at), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        completed = cli.run(environment=request)
        assert completed.code == 0
        assert [word for word in expected if word not in completed.text] == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """A demo with as little work as shows that every part is wired; the demo itself has its own tests."""
    history = tmp_path_factory.mktemp("demo") / "history.jsonl"
    small = ("--agents", "2", "--sections", "6", "--think-ms", "20", "--min-conflicts", "1")
    return Cli().run("demo", "--json", "--history", str(history), *small), history


@pytest.mark.campaign
def test_a_demo_leaves_a_history_that_can_be_checked(cli: Cli, demo: tuple[Done, Path]) -> None:
    done, history = demo
    found = done.json
    holds(demo_shapes.DemoShape, found)
    # So small a demo may meet no contention at all, and must then say that it has shown nothing.
    assert (done.code, done.err) == (0 if found["ok"] else 5, "")
    assert (found["lost_updates"], found["duplicate_completions"], found["completed"]) == (0, 0, 6)
    checked, wrong, missing = cli.run_all(
        ["check", str(history), "--json"], ["demo", "--agents", "99"], ["check", "/nowhere"]
    )
    assert checked.code == 0
    holds(shapes.VerdictShape, checked.json)
    assert checked.json["figures"]["commits"] == found["history"]["commits"]
    assert (wrong.code, wrong.error) == (2, "--agents: 99 is not between 2 and 32")
    assert (missing.code, missing.error) == (2, "/nowhere: No such file or directory")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["check", "absent"], "UNREADABLE_HISTORY"), (["demo", "absent.md"], "UNUSABLE_INPUT")],
)
def test_what_demo_and_check_fail_of_has_the_shape_of_every_error(cli: Cli, arguments: list[str], reason: str) -> None:
    error = cli.run(*arguments, "--json").json_error
    holds(shapes.ErrorShape, error)
    assert (error["reason"], error["exit_code"]) == (reason, 2)


def test_a_false_history_is_found_out(cli: Cli, demo: tuple[Done, Path], tmp_path: Path) -> None:
    lines = demo[1].read_text().splitlines(keepends=True)
    # A server that had never made this write could not have given the answers that follow.
    put = next(number for number, line in enumerate(lines) if '"put"' in line)
    forged = tmp_path / "forged.jsonl"
    forged.write_text("".join(lines[:put] + lines[put + 1 :]))
    done = cli.run("check", str(forged), "--json")
    assert done.code == 5
    holds(shapes.VerdictShape, done.json)
    assert done.json["status"] == "invalid"
