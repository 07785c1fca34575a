"""``codemode mcp``: run the subcommand that was asked for. Each is a module of its own."""

from __future__ import annotations

import argparse
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import cast

from codemode.cli.exits import UsageError
from codemode.cli.output import output_is_closed
from codemode.errors import CodeModeError
from codemode.trace.visible_text import visible

from .arguments import parse_arguments

_MODULES = {
    None: "serve",
    "init": "init_add",
    "add": "init_add",
    "import": "clients",
    "install": "clients",
    "undo": "clients",
    "list": "list",
    "check": "check",
    "types": "types",
    "run": "run",
    "login": "login",
    "logout": "login",
    "approvals": "approvals",
    "pins": "pins",
}
_SERVING = ("http", "tool_name", "output", "pass_through")


def main(arguments: Sequence[str]) -> int:
    """Serve, or do what the subcommand says. Raises `UsageError` for what cannot be used, never anything longer."""
    return run(parse_arguments(arguments))


def run(options: argparse.Namespace) -> int:
    """Run what was parsed."""
    if options.command_line is not None and options.part != "add":
        raise UsageError("only `codemode mcp add NAME -- COMMAND` takes something behind --")
    if options.part is not None and (given := [one for one in _SERVING if getattr(options, one) is not None]):
        raise UsageError(f"--{given[0].replace('_', '-')} is for serving: it goes without `{options.part}`")
    with one_message():
        return import_module(f".{_MODULES[options.part]}", __package__).run(options)


@contextmanager
def one_message() -> Generator[None]:
    """Turn what ends a command, and is no mistake of this package, into one message."""
    try:
        yield
    except Exception as error:
        cause = _first(error)
        if isinstance(cause, UsageError) or (isinstance(cause, BrokenPipeError) and output_is_closed()):
            raise cause from error
        if isinstance(cause, CodeModeError):
            raise UsageError(visible(cause.message)) from error
        if isinstance(cause, OSError):
            raise UsageError(
                visible(f"{cause.filename}: {cause.strerror}" if cause.filename else str(cause))
            ) from error
        if isinstance(cause, ValueError | RuntimeError | ImportError):
            raise UsageError(visible(str(cause))) from error
        raise


def _first(error: BaseException) -> BaseException:
    """Return what happened, out of the groups of tasks in which it did."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
