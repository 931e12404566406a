"""``make mutation``: changes the rules of ``consistency/`` one token at a time; how many changes do the tests notice?

mutmut knows a package below ``src``, and not one that shares its namespace with others, so the rules and their tests
are copied to where it finds them. What it writes stays in the folder: ``mutmut results`` and ``mutmut show`` there tell
of survivors, and running this again goes on where it was cut off.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "noosphere/consistency"
TESTS = "tests/unit/consistency"
SETTINGS = f"""\
[tool.mutmut]
source_paths = ["src/"]
also_copy = ["tests"]
pytest_add_cli_args_test_selection = ["{TESTS}"]
pytest_add_cli_args = [
    "-p", "no:randomly", "-p", "no:cacheprovider", "-n0",
    # What mutmut adds to each module is no name of ours.
    "--deselect", "{TESTS}/test_errors.py::test_what_the_package_imports_for_others_is_public",
]

[tool.pytest.ini_options]
addopts = ["--import-mode=importlib"]
pythonpath = ["."]
markers = ["campaign: x", "engine: x", "thorough: x"]
"""


def lay_out(folder: Path) -> None:
    """Copies the rules and their tests to where mutmut finds them; what is there from before is replaced."""
    for source, target in (
        (ROOT / "consistency" / PACKAGE, folder / "src" / PACKAGE),
        (ROOT / TESTS, folder / TESTS),
        (ROOT / "tests/support", folder / "tests/support"),
    ):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests/conftest.py", folder / "tests")
    (folder / "pyproject.toml").write_text(SETTINGS)


def main() -> int:
    """Runs mutmut; its last line counts what was caught and what survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".mutation"), help="where it works")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("names", nargs="*", help="only these mutants, as `mutmut results` names them")
    chosen = parser.parse_args()
    folder: Path = chosen.folder.absolute()
    lay_out(folder)
    # Before the installed package, whose namespace is the same; it has to be there when Python starts.
    mutated = folder / "mutants" / "src"
    mutated.mkdir(parents=True, exist_ok=True)
    command = [str(Path(sys.executable).parent / "mutmut"), "run", "--max-children", str(chosen.jobs), *chosen.names]
    return subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(mutated)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
