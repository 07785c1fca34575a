"""The command ``codemode console``: serve the console of a database."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codemode import CodeModeError, set_continuation_signing_key
from codemode.cli import TOOLS_HELP
from codemode.cli.databases import require_existing_sqlite_file, throttle_postgres_log
from codemode.cli.exits import SUCCEEDED, UsageError
from codemode.continuations.keys import read_environment_keys
from codemode.stores import open_store

if TYPE_CHECKING:
    from codemode.stores import InterruptStore

    from .auth import TokenAuth

_KEY_HELP = """\
the environment variable CODEMODE_SIGNING_KEY holds the key that signs the programs' pauses (a JSON array holds
several); the console needs it to show what programs have done, and with --tools to resume them
"""
_TOKENS_HELP = """\
a tokens file: {"sha256:<hex of the token's SHA-256>": {"name": "ana", "tenants": ["acme"], "may_decide": true}};
"tenants": "*" stands for all tenants, and "may_decide": false is for users who may only look
"""


def main(arguments: Sequence[str]) -> int:
    """Serve the console until a signal ends it. ``arguments`` are those after ``codemode console``."""
    options = create_parser().parse_args(arguments)
    try:
        from . import serve
    except ModuleNotFoundError as error:
        raise UsageError(f"`codemode console` cannot start: {error}; install codemode-console again") from error
    throttle_postgres_log()
    keys = _read_signing_keys()
    if keys:
        set_continuation_signing_key([*keys])  # also needed to read pauses without tools
    elif options.tools is not None:
        raise UsageError(
            "--tools resumes programs here, which needs the key that signed their pauses: set CODEMODE_SIGNING_KEY"
        )
    store = _open_store(options.database)
    require_existing_sqlite_file(options.database, create=options.create)
    auth = None if options.tokens is None else _load_auth(options.tokens)
    resume = None if options.tools is None else _load_resume_argument(options, store, keys or ())
    try:
        serve(store, auth=auth, resume=resume, host=options.host, port=options.port, echo=_print_line)
    except ValueError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{options.host}:{options.port} is not available: {error.strerror or error}") from error
    except CodeModeError as error:
        raise UsageError(f"{options.database.partition(':')[0]} database: {error.message}") from error
    return SUCCEEDED


def create_parser() -> argparse.ArgumentParser:
    """Return the parser of ``codemode console``; ``codemode completion`` reads it too."""
    console = argparse.ArgumentParser(
        prog="codemode console",
        allow_abbrev=False,
        description="Serve the approval console of a database. Without a tokens file it creates one token, prints the"
        " URL to sign in at once, and only listens on this machine.",
        epilog=f"{_KEY_HELP}\n{_TOKENS_HELP}\n{TOOLS_HELP}\nexit codes: 0 after a signal, 2 for invalid arguments\n\n"
        "example: codemode console --database sqlite:///approvals.db",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    console.add_argument(
        "--database",
        metavar="URL",
        required=True,
        help="sqlite:///approvals.db, or postgresql://user@host/name (needs codemode-toolkit[postgres])",
    )
    console.add_argument("--create", action="store_true", help="create the database if it does not exist")
    console.add_argument(
        "--tools", metavar="FILE", help="Python file with the tools; decided programs resume here (default: elsewhere)"
    )
    console.add_argument("--app", metavar="NAME", help="the app whose programs resume here (default: all)")
    console.add_argument("--tokens", metavar="FILE", help="JSON file with users by the hashes of their tokens")
    console.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    console.add_argument("--port", type=int, default=8822, metavar="N", help="port (default 8822; 0 takes a free one)")
    return console


def _open_store(url: str) -> InterruptStore:
    try:
        return open_store(url)
    except (ImportError, ValueError) as error:
        raise UsageError(str(error)) from error


def _load_auth(path: str) -> TokenAuth:
    from . import TokenAuth

    try:
        return TokenAuth.from_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not a tokens file: {error}") from error


def _read_signing_keys() -> tuple[bytes, ...] | None:
    try:
        return read_environment_keys()
    except ValueError as error:
        raise UsageError(str(error)) from error


def _load_resume_argument(options: argparse.Namespace, store: InterruptStore, keys: tuple[bytes, ...]) -> Any:
    """Return the ``resume`` of the tool in a file, by app if one is named."""
    from codemode.cli.describe import create_code_mode_tool_from_file  # imports the execution packages

    continuation = {"guard": store.guard, "keys": keys}
    code_mode = create_code_mode_tool_from_file(
        options.tools, {"approval": {"mode": "interrupt"}, "continuation": continuation}
    )
    return code_mode.resume if options.app is None else {options.app: code_mode.resume}


def _print_line(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the output of a command
