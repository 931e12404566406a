"""``python -m noosphere.server.fleet up | cluster | roll | down``: what ``make`` calls.

What to set in a shell goes to stdout, so that ``eval "$(make --silent cluster)"`` sets it; the rest goes to stderr.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .manage import SERVER_COUNT, bring_down, bring_up, bring_up_servers, roll_servers
from .processes import FleetError

EXIT_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="fleet", description="Real engines, and servers on them, on this machine.")
    parser.add_argument("command", choices=("up", "cluster", "roll", "down"))
    parser.add_argument("--folder", type=Path, default=Path(".run"), help="where everything is kept (.run)")
    parser.add_argument("--servers", type=int, default=SERVER_COUNT, help="how many, with `cluster` (3)")
    options = parser.parse_args(arguments)
    if not 1 <= options.servers <= 9:
        parser.error(f"--servers: {options.servers} is not between 1 and 9")
    try:
        match options.command:
            case "up":
                fleet = bring_up(options.folder, _tell)
            case "cluster":
                fleet = bring_up_servers(options.folder, _tell, options.servers)
                print(f"export NOOSPHERE_SERVER={fleet.server}")
            case "roll":
                roll_servers(options.folder, _tell)
                return 0
            case _:
                bring_down(options.folder, _tell)
                return 0
    except FleetError as error:
        _tell(f"fleet: error: {error}")
        return 1
    except KeyboardInterrupt:
        _tell(f"fleet: interrupted; `{options.command}` may be given again, or `down`")
        return EXIT_INTERRUPTED
    for name, value in fleet.environment.items():
        print(f"export {name}={value}")
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
