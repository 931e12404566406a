"""Generates the sync client's classes from the async client's; `--check` only compares (used by `make check`).

The async client is the source and nothing is mirrored by hand. What becomes of what:

    coroutine function                          function
    asynchronous iterator that is returned      iterator
    asynchronous context manager                context manager; functions under @asynccontextmanager too
    class that has any of these                 a twin of the same name, wherever public signatures reach it
    plain data that holds such a class          the same data with twins in it
    exception that holds such a class           the same class; type checkers see twins in it
    callback that is awaited                    a plain function, run in the caller's thread
    property, plain function                    the same, run in the caller's thread
    everything else                             itself

A plain function of a class with a twin must therefore leave the event loop alone. Whatever no rule covers
ends the generator with a message that names it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from scripts.sync_source import Face, Untranslatable
from scripts.sync_texts import face_text
from scripts.sync_writer import Writer

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "client" / "noosphere" / "client" / "sync"


def formatted(text: str) -> str:
    """Returns a module as ruff writes it, with its imports in order."""
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--fix-only", "--select", "I,F401,RUF022", "--quiet"], ["format", "--quiet"]):
        done = subprocess.run(
            [*ruff, *command, "--stdin-filename", str(FOLDER / "_generated.py"), "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        if done.returncode != 0:
            raise SystemExit(f"ruff {command[0]}: {done.stderr}\n{text}")
        text = done.stdout
    return text


def generate() -> dict[Path, str]:
    """Returns the generated modules by path."""
    face = Face()
    return {
        FOLDER / "_generated.py": formatted(Writer(face).module()),
        FOLDER / "__init__.py": formatted(face_text(face)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit 1 if the committed modules differ")
    check = parser.parse_args().check
    try:
        made = generate()
    except Untranslatable as problem:
        print(problem, file=sys.stderr)
        return 1
    differing = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    for path in differing:
        if check:
            print(f"{path.relative_to(ROOT)}: differs from the async client; run `make sync-client`", file=sys.stderr)
        else:
            path.write_text(made[path])
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
