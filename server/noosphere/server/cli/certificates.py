"""`noosphere tls create`: certificates for development and small fleets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import JsonOption, common
from .exits import usage
from .output import print_json, print_line

if TYPE_CHECKING:
    from .shapes import FilesShape

app = typer.Typer(help="Certificates.")

DAYS_DEFAULT = 365
DAYS_MAX = 3650


@app.callback()
def _group() -> None:
    """Certificates."""


@app.command()
def create(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Where the files are, or will be.", show_default=False)],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="NAME", help="A DNS name or address of the server, beside localhost. Repeatable."
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            "--client",
            metavar="NAME",
            help="Whom a client's certificate names: a DNS name such as planner, or a SPIFFE id. Repeatable.",
        ),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", min=1, max=DAYS_MAX, help="For how long certificates are valid.")
    ] = DAYS_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Make an authority, and certificates for a server and its clients, for development. JSON: Files.

    An authority that the folder has already (ca.pem, ca.key) issues them, so that clients that trust it go on to. The
    server's certificate is made if there is none, or if --host is given; it replaces the one that is there, and a
    running server takes it up. Whoever can read ca.key can make certificates: keep it away from servers and agents.
    """
    from noosphere.server.ports.runtime import SystemClock
    from noosphere.server.security.folder import create_certificates
    from noosphere.server.security.keypairs import UnfitCertificate

    try:
        written = create_certificates(
            folder, hosts=host or [], clients=client or [], days=days, now_ms=SystemClock().wall_ms()
        )
    except UnfitCertificate as error:
        raise usage(str(error)) from None
    except OSError as error:
        raise usage(f"{error.filename or folder}: {error.strerror}") from None
    if common(ctx, as_json=as_json).as_json:
        found: FilesShape = {"files": [str(path) for path in written]}
        print_json(found)
        return
    for path in written:
        print_line(str(path))
