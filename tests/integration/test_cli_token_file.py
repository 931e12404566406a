"""`noosphere token create --to`: a token in a file that its owner alone can read."""

from __future__ import annotations

import stat
from pathlib import Path

from tests.support.cli import Cli, holds

from noosphere.server.cli import token_shapes


def test_a_token_goes_to_a_file_that_nobody_else_can_read(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "admin.token"
    file.write_text("the one before\n")
    file.chmod(0o644)
    done = Cli().run("token", "create", "--admin", "--data", str(data), "--to", str(file), "--json")
    assert (done.code, stat.S_IMODE(file.stat().st_mode)) == (0, 0o600)
    holds(token_shapes.NewTokenShape, done.json)
    token = file.read_text()
    assert token.startswith(f"noo_{done.json['token_id']}_")
    assert token.endswith("\n")
    assert done.json["token"] is None
    assert token.strip() not in done.text + done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["admin.token", "data"]


def test_without_a_place_for_it_no_token_is_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    missing, folder = Cli().run_all(
        *(
            ("token", "create", "--admin", "--data", str(data), "--to", str(to))
            for to in (tmp_path / "none" / "token", tmp_path)
        )
    )
    assert (missing.code, missing.error) == (2, f"cannot write {tmp_path}/none/token: No such file or directory")
    assert (folder.code, folder.error) == (2, f"cannot write {tmp_path}: Is a directory")
    assert not data.exists()


def test_a_token_that_is_not_made_leaves_what_was_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "planner.token"
    file.write_text("the one before\n")
    done = Cli().run("--server", "127.0.0.1:1", "--timeout", "0.5", "token", "create", "planner", "--to", str(file))
    assert done.code == 4
    assert file.read_text() == "the one before\n"
    assert list(tmp_path.iterdir()) == [file]
