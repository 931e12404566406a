"""Every command and option is documented and explained, and the reference is that of the present commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from scripts import gen_cli_reference

from noosphere.consistency import ConflictPolicy
from noosphere.server.cli.admin_api import policy_name
from noosphere.server.cli.exits import EXIT_CODES_HELP, ExitCode
from noosphere.server.cli.main import run
from noosphere.server.cli.namespaces import PolicyName
from noosphere.server.config import Settings, has_flag

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = (ROOT / "docs" / "cli.md").read_text()
COMMANDS = list(gen_cli_reference.commands())


def _section(path: str) -> str:
    return REFERENCE.split(f"## `{path}`\n", 1)[1].split("\n## ", 1)[0]


def test_the_promised_commands_exist() -> None:
    paths = {context.command_path.removeprefix("noosphere").strip() for _, context in COMMANDS}
    assert paths == {
        *(
            "",
            "serve",
            "agent show",
            "agent fence",
            "agent unfence",
            "agent revert",
            "owner erase",
            "audit show",
            "audit tail",
            "get",
            "put",
            "delete",
            "history",
            "watch",
            "claims",
            "stats",
            "top",
            "epochs",
            "demo",
            "check",
            "servers",
            "dump",
            "restore",
            "doctor",
        ),
        *("conflicts", "resolve", "demo causality", "demo session", "demo facts"),
        *("ns list", "ns create", "ns show", "ns tree", "ns delete", "ns rules", "config show", "version"),
        *("session list", "session show", "session messages", "session tools", "session checkpoints"),
        *("session transitions", "session health", "session restore", "session fork", "session close"),
        *("session purge", "session export", "context explain", "bench compaction", "bench recall", "bench updates"),
        "bench lost-updates",
        *("facts search", "facts list", "facts show", "facts history", "facts candidates", "facts why"),
        *("facts forget", "facts review", "facts extract", "facts job", "facts policy", "facts upkeep"),
        *("facts export", "facts import", "facts reindex", "facts adopt"),
        *("grant set", "grant remove", "grant list", "grant check"),
        *("limits set", "limits remove", "limits list", "limits show"),
        *("lock list", "lock show", "lock release", "group members", "tls create"),
        *("token create", "token list", "token revoke"),
    }


@pytest.mark.parametrize(("command", "context"), COMMANDS, ids=[context.command_path for _, context in COMMANDS])
def test_command_and_options_are_explained_and_documented(command: Any, context: Any) -> None:
    section = _section(context.command_path)
    assert command.help
    assert command.help.splitlines()[0] in section
    for parameter in command.get_params(context):
        if parameter.name == "help":
            continue
        assert parameter.help, f"{parameter.name} has no help text"
        assert parameter.help.split("[")[0].replace("|", "\\|").strip() in section
        for name in parameter.opts:
            assert name in section or parameter.param_type_name == "argument", f"{name} is not in docs/cli.md"


def test_the_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/gen_cli_reference.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stale_reference_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "cli.md"
    stale.write_text(REFERENCE.replace("noosphere put", "noosphere set"))
    monkeypatch.setattr(gen_cli_reference, "TARGET", stale)
    monkeypatch.setattr(sys, "argv", ["gen_cli_reference.py", "--check"])
    assert gen_cli_reference.main() == 1


def test_every_exit_code_is_documented() -> None:
    for code in ExitCode:
        assert f"\n  {int(code)} " in EXIT_CODES_HELP
        assert f"\n| {int(code)} | " in REFERENCE


@pytest.mark.parametrize("path", ["noosphere serve", "noosphere config show"])
def test_every_configuration_key_has_its_flag(path: str) -> None:
    section = _section(path)
    for key, field in Settings.model_fields.items():
        assert field.description is not None
        assert (f"--{key.replace('_', '-')}" in section) is has_flag(key)
        # A secret has its variable instead, which another key's description names.
        assert (field.description if has_flag(key) else f"NOOSPHERE_{key.upper()}") in section


def test_every_json_document_is_documented() -> None:
    for kind in gen_cli_reference.shape_types():
        assert f"\n### {kind.__name__.removesuffix('Shape')}\n" in REFERENCE


@pytest.mark.parametrize("arguments", [["--help"], ["ns", "--help"], ["ns", "delete", "-h"], []])
def test_help_is_an_answer_not_an_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == ExitCode.OK
    printed = capsys.readouterr()
    assert printed.out.startswith("Usage: noosphere")
    assert printed.err == ""


def test_policies_are_those_of_the_rules() -> None:
    assert set(get_args(PolicyName)) == {policy_name(policy) for policy in ConflictPolicy}
