"""Parse the arguments of ``codemode mcp`` and run the subcommand. Imports nothing of the gateway: help is quick."""

from __future__ import annotations

import argparse
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

from codemode.cli.exits import UsageError, output_is_closed
from codemode.errors import CodeModeError
from codemode.trace.visible_text import visible

CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "codex")
OUTPUTS = ("both", "structured", "text")

NO_COMMAND = "`add NAME` takes one of both: a URL, or a command behind --, as in `codemode mcp add NAME -- COMMAND`"

_EXITS = """\
exit codes:
  0    done; the client or a signal has ended what was served
  1    something is not as it should be: a check, a program that failed, an answer that came too late
  2    nothing can start: wrong arguments, no usable server, a port in use; one message says what to change
  130  stopped with Ctrl-C
"""
_CONFIG = """\
the configuration is --config, else the environment variable CODEMODE_MCP_CONFIG, else mcp.json in the folder
`codemode` of the user's configuration folder ($XDG_CONFIG_HOME or ~/.config); never one of the folder it happens to
be started in, for that could be anybody's
"""


def split_command(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return the arguments before the first ``--``, and the command behind it, None without one."""
    given = list(arguments)
    if "--" not in given:
        return given, None
    at = given.index("--")
    return given[:at], given[at + 1 :]


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse what follows `codemode mcp`; `command_line` is what follows ``--``, None without one."""
    # What follows -- is another program's, and versions of argparse differ on what they leave of it.
    given, command_line = split_command(arguments)
    options, left = _parser().parse_known_args(given)
    if left and options.part == "add" and command_line is None:
        raise UsageError(NO_COMMAND)  # options of the command, most likely
    if left:
        options.parser.error(f"unrecognized arguments: {' '.join(left)}")  # with the usage of the subcommand
    options.command_line = command_line
    return options


def _parser() -> argparse.ArgumentParser:
    mcp = argparse.ArgumentParser(
        prog="codemode mcp",
        allow_abbrev=False,
        description="Serve the MCP servers of a configuration as one tool: over stdio, as a client starts it, unless"
        " told otherwise; or, with a subcommand, do something about that configuration.",
        epilog=f"{_CONFIG}\n{_EXITS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mcp.set_defaults(parser=mcp)
    _add_config(mcp, default=None, told="the configuration (default: see below)")
    mcp.add_argument("--http", metavar="HOST:PORT", help="serve streamable HTTP there, for many clients")
    mcp.add_argument(
        "--tool-name", metavar="NAME", help="what the tool is called (default auto: a name that the client takes)"
    )
    mcp.add_argument("--output", choices=OUTPUTS, help="how an answer is given (default both)")
    mcp.add_argument(
        "--pass-through",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="prompts, resources and completion of the servers as well (default: yes)",
    )
    parts = mcp.add_subparsers(dest="part", metavar="subcommand")
    _add_taking_over(parts)
    _add_changing(parts)
    _add_looking(parts)
    _add_signing_in(parts)
    _add_approvals(parts)
    _add_pins(parts)
    _add_programs(parts)
    return mcp


def _add_config(
    parser: argparse.ArgumentParser,
    *,
    default: Any = argparse.SUPPRESS,
    told: str = "the configuration (default: see codemode mcp -h)",
) -> None:
    # A default of a subcommand would replace what was said before it.
    parser.add_argument("--config", metavar="FILE", default=default, help=told)


def _part(parts: Any, name: str, told: str, **more: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = parts.add_parser(
        name,
        allow_abbrev=False,
        help=told,
        description=f"{told[0].upper()}{told[1:]}.",
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **more,
    )
    parser.set_defaults(parser=parser)
    _add_config(parser)
    return parser


def _add_taking_over(parts: Any) -> None:
    _part(parts, "init", "write a configuration to begin with, where there is none")
    taken = _part(parts, "import", "take the servers of a client into the configuration; the client stays as it is")
    taken.add_argument("--from", dest="client", choices=CLIENTS, required=True, help="the client that has them")
    taken.add_argument("--project", metavar="FOLDER", help="those of this project too, from the client's files in it")
    put = _part(parts, "install", "put the gateway into a client in place of the servers there, with a backup")
    put.add_argument("--client", choices=CLIENTS, required=True, help="the client")
    put.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    put.add_argument("--undo", action="store_true", help="give the client back what it had")
    undone = _part(parts, "undo", "give a client back what it had before the gateway was installed there")
    undone.add_argument("--client", choices=CLIENTS, required=True, help="the client")
    undone.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")


def _add_changing(parts: Any) -> None:
    added = _part(
        parts,
        "add",
        "add a server to the configuration",
        usage="codemode mcp add [options] NAME URL\n       codemode mcp add [options] NAME -- COMMAND [ARGUMENT ...]\n"
        "       codemode mcp add [options] NAME --openapi URL --base-url URL",
    )
    added.add_argument("name", help="what the server is called")
    added.add_argument("url", nargs="?", help="where it is; or, behind --, the command that starts it")
    added.add_argument(
        "--transport", choices=("stdio", "http", "sse"), help="how it is spoken with (default: as given)"
    )
    added.add_argument("--openapi", metavar="URL", help="the OpenAPI document of an API, a URL or a file")
    added.add_argument("--base-url", metavar="URL", help="where that API is called (`check` names its servers)")
    added.add_argument(
        "--include", action="append", default=[], metavar="PATTERN", help="operations of that API, such as 'issues/*'"
    )
    added.add_argument("--env", action="append", default=[], metavar="KEY=VALUE", help="a variable of its environment")
    added.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="a header of its requests")
    added.add_argument(
        "--approval", choices=("never", "declared", "writes", "always"), help="which calls a person decides"
    )


def _add_looking(parts: Any) -> None:
    listed = _part(parts, "list", "show the servers of the configuration with their policy, and no secret")
    listed.add_argument("--json", action="store_true", help="as one JSON object")
    checked = _part(parts, "check", "start every server, say what is wrong, and what a model would be given")
    checked.add_argument("name", nargs="?", help="this server alone")
    checked.add_argument("--json", action="store_true", help="as one JSON object")
    types = _part(parts, "types", "print the TypeScript of the servers")
    types.add_argument("name", nargs="?", help="of this server alone")
    run = _part(
        parts, "run", "run a program over the servers, ask here about calls that need approval, print the answer"
    )
    run.add_argument("program", help="a .js or .ts file, an ES module; - for stdin")
    run.add_argument(
        "--approve",
        choices=("ask", "deny", "all"),
        default="ask",
        help="what happens to a call that needs approval: ask in the terminal (default), deny it, or allow all of them",
    )


def _add_signing_in(parts: Any) -> None:
    login = _part(parts, "login", "sign in to a server, in the browser")
    login.add_argument("name", help="the server")
    login.add_argument(
        "--no-browser", action="store_true", help="open no page here: print its URL, and ask for its end"
    )
    _part(parts, "logout", "forget the tokens of a server").add_argument("name", help="the server")


def _add_approvals(parts: Any) -> None:
    approvals = _part(parts, "approvals", "show the calls that wait for a person, or decide about one in the terminal")
    _add_store(approvals, store=None, create=False)
    doing = approvals.add_subparsers(dest="action", metavar="action")
    for name, told in (
        ("approve", "let calls run, after showing them and asking"),
        ("deny", "refuse calls, after showing them and asking"),
        ("show", "show all that is kept of a run that waits"),
    ):
        parser = _part(doing, name, told)
        parser.add_argument(
            "id", help="of one call, or of a run for all its calls that wait; the beginning of a run's will do"
        )
        if name == "approve":
            long = parser.add_mutually_exclusive_group()
            long.add_argument(
                "--session", action="store_true", help="later calls of the tool too, until its client leaves"
            )
            long.add_argument(
                "--always", action="store_true", help="later calls too, while the tool stays as it is, until `forget`"
            )
            how = parser.add_mutually_exclusive_group()
            how.add_argument("--input", metavar="JSON", help="run it with this input instead; of one call")
            how.add_argument("--happened", metavar="JSON", help="of a call in doubt: it has happened, and gave this")
            how.add_argument("--run-again", action="store_true", help="of a call in doubt: it has not happened")
        _add_store(parser)
        if name != "show":
            parser.add_argument("--reason", default="", help="why, for the record")
    _add_remembered(doing)


def _add_store(
    parser: argparse.ArgumentParser, *, store: Any = argparse.SUPPRESS, create: Any = argparse.SUPPRESS
) -> None:
    parser.add_argument(
        "--store",
        metavar="URL",
        default=store,
        help="of this database, sqlite:///FILE or postgresql://..., in place of the gateway's (codemode.store)",
    )
    parser.add_argument("--create", action="store_true", default=create, help="create it where it does not exist")


def _add_remembered(doing: Any) -> None:
    listed = _part(doing, "remembered", "show the answers that always hold, of all users")
    _add_user(listed, None)
    listed.add_argument("--json", action="store_true", help="as one JSON object")
    forgotten = _part(
        doing, "forget", "take back answers that always hold: people are asked again, from the next call on"
    )
    _add_user(forgotten, "local")
    forgotten.add_argument("server", help="the server")
    forgotten.add_argument("tool", nargs="?", help="this tool alone")


def _add_pins(parts: Any) -> None:
    pins = _part(parts, "pins", "show which servers have changed their tools since they were first used, and how")
    _add_user(pins, "local")
    told = "take the tools as they are now, after showing the difference and asking"
    approve = _part(pins.add_subparsers(dest="action", metavar="action"), "approve", told)
    _add_user(approve, argparse.SUPPRESS)
    approve.add_argument("name", help="the server")


def _add_programs(parts: Any) -> None:
    programs = _part(parts, "programs", "show the programs that users have saved, and what has made any of them stale")
    _add_user(programs, None)
    _add_store(programs, store=None, create=False)
    programs.add_argument("--json", action="store_true", help="as one JSON object")
    doing = programs.add_subparsers(dest="action", metavar="action")
    for name, told in (
        ("list", "show the saved programs"),
        ("show", "show a saved program with its versions and their differences"),
        ("disable", "refuse calls of a saved program, until it is saved again or enabled"),
        ("enable", "allow calls of a saved program that was disabled"),
        ("confirm", "trust a stale program again, after showing what has changed and asking"),
    ):
        parser = _part(doing, name, told)
        _add_user(parser, argparse.SUPPRESS)
        _add_store(parser)
        if name != "list":
            parser.add_argument("name", help="the program")
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as one JSON object")


def _add_user(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument("--user", metavar="NAME", default=default, help="of this user of a gateway over HTTP")


_FUNCTIONS = {
    None: ("serve", "run"),
    "init": ("configuration_commands", "init_or_add"),
    "add": ("configuration_commands", "init_or_add"),
    "import": ("configuration_commands", "import_or_install"),
    "install": ("configuration_commands", "import_or_install"),
    "undo": ("configuration_commands", "import_or_install"),
    "list": ("configuration_commands", "list_servers"),
    "check": ("server_commands", "check_servers"),
    "types": ("server_commands", "print_types"),
    "run": ("server_commands", "run_program"),
    "login": ("configuration_commands", "login_or_logout"),
    "logout": ("configuration_commands", "login_or_logout"),
    "approvals": ("approvals", "run"),
    "pins": ("configuration_commands", "show_or_approve_pins"),
    "programs": ("programs", "run"),
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
        module, function = _FUNCTIONS[options.part]
        return getattr(import_module(f".{module}", __package__), function)(options)


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
