"""Assembles the command line and runs it.

One module holds one group of commands; each imports what it needs when it is called, so that completion and
`--help` answer at once.
"""

from __future__ import annotations

import io
import itertools
import os
import sys
import traceback
from collections.abc import Sequence

import typer
from typer.main import get_command

from noosphere.server.readers import ReaderGone, close_stdout

from . import (
    agents,
    audit,
    backups,
    bench,
    boards,
    certificates,
    changes,
    checks,
    conflicts,
    contexts,
    coordination,
    doctor,
    engine,
    facts,
    facts_adopt,
    facts_changes,
    facts_exchange,
    facts_keeping,
    facts_reindex,
    grants,
    limits,
    namespaces,
    owners,
    records,
    rules,
    serving,
    session_changes,
    sessions,
    tokens,
    top,
)
from .common import (
    AgentOption,
    AllowInsecureOption,
    Common,
    JsonOption,
    ServerOption,
    TimeoutOption,
    TlsCaOption,
    TlsCertificateOption,
    TlsKeyOption,
    TokenFileOption,
)
from .exits import EXIT_CODES_HELP, CliError, ExitCode, report
from .two_words import TwoWords

app = typer.Typer(
    name="noosphere",
    cls=TwoWords,
    help="Shared working memory for fleets of LLM agents that cannot silently lose an update.",
    epilog=EXIT_CODES_HELP,
    # Plain help and errors: the same on a terminal, in a pipe and in the reference.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
# In the order of `--help`.
for group in (
    serving.app,
    records.app,
    changes.app,
    conflicts.app,
    boards.app,
    engine.app,
    top.app,
    backups.app,
    doctor.app,
    checks.app,
):
    app.add_typer(group)
namespaces.app.add_typer(rules.app)
app.add_typer(namespaces.app, name="ns")
sessions.app.add_typer(session_changes.app)
app.add_typer(sessions.app, name="session")
app.add_typer(contexts.app, name="context")
app.add_typer(coordination.app, name="lock")
app.add_typer(coordination.group_app, name="group")
for group in (facts_changes.app, facts_keeping.app, facts_exchange.app, facts_reindex.app, facts_adopt.app):
    facts.app.add_typer(group)
app.add_typer(facts.app, name="facts")
app.add_typer(tokens.app, name="token")
app.add_typer(agents.app, name="agent")
app.add_typer(owners.app, name="owner")
app.add_typer(grants.app, name="grant")
app.add_typer(limits.app, name="limits")
app.add_typer(audit.app, name="audit")
app.add_typer(serving.config_app, name="config")
app.add_typer(certificates.app, name="tls")
app.add_typer(bench.app, name="bench")


@app.callback()
def _root(
    ctx: typer.Context,
    server: ServerOption = None,
    as_json: JsonOption = False,
    agent: AgentOption = None,
    timeout: TimeoutOption = None,
    tls_ca: TlsCaOption = None,
    tls_certificate: TlsCertificateOption = None,
    tls_key: TlsKeyOption = None,
    token_file: TokenFileOption = None,
    allow_insecure: AllowInsecureOption = False,
) -> None:
    ctx.obj = Common(server, as_json, agent, timeout, tls_ca, tls_certificate, tls_key, token_file, allow_insecure)


def run(arguments: Sequence[str]) -> int:
    """Runs one command.

    Args:
        arguments: the command line without the program's name.

    Returns:
        The exit code, see :class:`ExitCode`.
    """
    command = get_command(app)
    # gRPC's core writes lines of its own to stderr, about what our errors say already.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Read when numpy is loaded. Threads of its own spin while they wait for each other: beside an event loop that makes
    # searches and embeddings several times slower, and hardly faster on an idle machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Decided here because a command line that cannot be parsed has to be answered in the right form, too.
    as_json = "--json" in itertools.takewhile(lambda argument: argument != "--", arguments)
    _set_encoding(as_json)
    try:
        code = command.main(list(arguments) or ["--help"], prog_name="noosphere", standalone_mode=False)
        # Typer gives back the code of `Exit`, or what the command returned.
        return code if isinstance(code, int) else ExitCode.OK
    except ReaderGone:
        return ExitCode.OK
    except SystemExit:
        # What prints `--help` has met that the reader is gone, and ends the process by itself.
        close_stdout()
        return ExitCode.OK
    except CliError as error:
        return report(error, as_json=as_json)
    except typer.TyperException as error:
        return report(CliError(ExitCode.USAGE, _one_line(error), "USAGE"), as_json=as_json)
    except typer.Abort:
        return report(CliError(ExitCode.INTERRUPTED, "aborted, nothing was done", "ABORTED"), as_json=as_json)
    except Exception:
        traceback.print_exc()
        return ExitCode.BUG


def _set_encoding(as_json: bool) -> None:
    """Makes the output fit for any name and value, wherever it goes."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if as_json:
            # Programs read UTF-8, whatever the terminal shows.
            stream.reconfigure(encoding="utf-8")
        else:
            # What a terminal cannot show is escaped, as everything else is that cannot be printed.
            stream.reconfigure(errors="backslashreplace")


def _one_line(error: typer.TyperException) -> str:
    text = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
    context = getattr(error, "ctx", None)
    where = f" (see `{context.command_path} --help`)" if context is not None else ""
    return text[:1].lower() + text[1:] + _refused_value(error, text) + where


def _refused_value(error: typer.TyperException, text: str) -> str:
    """Returns the value that was refused, where Typer's message has the bound alone."""
    from pydantic import ValidationError

    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return ""
    given = repr(cause.errors(include_url=False)[0]["input"])
    return "" if given in text else f", not {given}"
