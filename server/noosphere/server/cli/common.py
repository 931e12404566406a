"""Options that many commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer


def path_option(*names: str, help: str, metavar: str = "PATH") -> Any:
    """Returns an option for a path. Typer's own takes an empty text for the working directory."""

    def parse(text: str) -> Path:
        from noosphere.server.config import folder_or_file

        try:
            found: Path = folder_or_file(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return found

    return typer.Option(*names, help=help, metavar=metavar, parser=parse)


ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help="The server, or several with commas between them. [env: NOOSPHERE_SERVER; default: 127.0.0.1:7443]",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs, one document per line.")]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Act as this agent. [default: a new one under cli/, an operator]"),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.001, help="Deadline of each call with its retries. [default: 5]"
    ),
]
TlsCaOption = Annotated[
    Path | None,
    path_option(
        "--tls-ca",
        metavar="FILE",
        help="Connect under TLS to a server that one of these authorities vouches for. [env: NOOSPHERE_TLS_CA]",
    ),
]
TlsCertificateOption = Annotated[
    Path | None,
    path_option(
        "--tls-certificate",
        metavar="FILE",
        help="Show this certificate to a server that asks for one. [env: NOOSPHERE_TLS_CLIENT_CERTIFICATE]",
    ),
]
TlsKeyOption = Annotated[
    Path | None,
    path_option("--tls-key", metavar="FILE", help="Its key. [env: NOOSPHERE_TLS_CLIENT_KEY]"),
]
TokenFileOption = Annotated[
    Path | None,
    path_option(
        "--token-file",
        metavar="FILE",
        help="Say who calls by the token in this file. [env: NOOSPHERE_TOKEN_FILE, or the token itself: "
        "NOOSPHERE_TOKEN]",
    ),
]
AllowInsecureOption = Annotated[
    bool, typer.Option("--allow-insecure", help="Send the token in plain text to another machine.")
]
ConfigOption = Annotated[
    Path | None,
    path_option("--config", metavar="FILE", help="A TOML file with settings. [env: NOOSPHERE_CONFIG]"),
]
NamespaceArgument = Annotated[str, typer.Argument(help="The namespace, e.g. shared/launch.", show_default=False)]
KeyArgument = Annotated[str, typer.Argument(help="The key, e.g. plan/next.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Common:
    """The shared options as given before the command, or after it, which wins."""

    server: str | None = None
    as_json: bool = False
    agent: str | None = None
    timeout: float | None = None
    tls_ca: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    token_file: Path | None = None
    allow_insecure: bool = False


def common(
    ctx: typer.Context,
    server: str | None = None,
    as_json: bool = False,
    agent: str | None = None,
    timeout: float | None = None,
) -> Common:
    """Joins a command's own shared options with those given before the command's name."""
    given = ctx.find_object(Common) or Common()
    return Common(
        server=given.server if server is None else server,
        as_json=as_json or given.as_json,
        agent=given.agent if agent is None else agent,
        timeout=given.timeout if timeout is None else timeout,
        tls_ca=given.tls_ca,
        tls_certificate=given.tls_certificate,
        tls_key=given.tls_key,
        token_file=given.token_file,
        allow_insecure=given.allow_insecure,
    )
