"""Renders and checks what `make k8s` names; prints one line per finding."""

from __future__ import annotations

import sys
from pathlib import Path

from .documents import K8S, render
from .policy import violations
from .schemas import schema_errors

FOLDERS = (K8S / "overlays" / "dev", K8S / "overlays" / "prod")


def main() -> int:
    """Checks the folders of the command line, by default the overlays."""
    failed = False
    for folder in [Path(name) for name in sys.argv[1:]] or FOLDERS:
        try:
            documents = render(folder)
        except ValueError as error:
            print(error, file=sys.stderr)
            failed = True
            continue
        found = [*schema_errors(documents), *violations(documents)]
        for line in found:
            print(f"{folder}: {line}", file=sys.stderr)
        print(f"{folder}: {len(documents.every)} documents, {len(found)} findings")
        failed |= bool(found)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
