"""Parse the arguments of ``codemode mcp`` and run the subcommand. Imports nothing of the gateway: help is quick."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

from codemode.cli.exits import UsageError, is_stdout_closed
from codemode.errors import CodeModeError
from codemode.trace.visible_text import visible

CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "codex")
OUTPUT_CHOICES = ("both", "structured", "text")

ADD_USAGE = "`add NAME` takes one of both: a URL, or a command behind --, as in `codemode mcp add NAME -- COMMAND`"

_EXIT_CODES_HELP = """\
exit codes:
  0    done; the client or a signal has ended what was served
  1    something is not as it should be: a check, a program that failed, an answer that came too late
  2    nothing can start: wrong arguments, no usable server, a port in use; one message says what to change
  130  stopped with Ctrl-C
"""
_CONFIG_HELP = """\
the configuration is --config, else the environment variable CODEMODE_MCP_CONFIG, else mcp.json in the folder
`codemode` of the user's configuration folder ($XDG_CONFIG_HOME or ~/.config); never one of the folder it happens to
be started in, for that could be anybody's
"""


def split_command(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return the arguments before the first ``--``, and the command behind it, None without one."""
    arguments_before = list(arguments)
    if "--" not in arguments_before:
        return arguments_before, None
    separator = arguments_before.index("--")
    return arguments_before[:separator], arguments_before[separator + 1 :]


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse what follows `codemode mcp`; `command_line` is what follows ``--``, None without one."""
    # What follows -- is another program's, and versions of argparse differ on what they leave of it.
    command_arguments, command_line = split_command(arguments)
    options, unrecognized = create_parser().parse_known_args(command_arguments)
    if unrecognized and options.part == "add" and command_line is None:
        raise UsageError(ADD_USAGE)  # options of the command, most likely
    if unrecognized:
        options.parser.error(f"unrecognized arguments: {' '.join(unrecognized)}")  # with the usage of the subcommand
    options.command_line = command_line
    return options


def create_parser() -> argparse.ArgumentParser:
    """Return the parser of `codemode mcp`, which `codemode completion` reads too."""
    mcp = argparse.ArgumentParser(
        prog="codemode mcp",
        allow_abbrev=False,
        description="Serve the MCP servers of a configuration as one tool: over stdio, as a client starts it, unless"
        " told otherwise; or, with a subcommand, do something about that configuration.",
        epilog=f"{_CONFIG_HELP}\n{_EXIT_CODES_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mcp.set_defaults(parser=mcp)
    _add_config_option(mcp, default=None, help_text="the configuration (default: see below)")
    mcp.add_argument("--http", metavar="HOST:PORT", help="serve streamable HTTP there, for many clients")
    mcp.add_argument(
        "--tool-name", metavar="NAME", help="what the tool is called (default auto: a name that the client takes)"
    )
    mcp.add_argument("--output", choices=OUTPUT_CHOICES, help="how an answer is given (default both)")
    mcp.add_argument(
        "--pass-through",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="prompts, resources and completion of the servers as well (default: yes)",
    )
    subcommands = mcp.add_subparsers(dest="part", metavar="subcommand")
    _add_client_commands(subcommands)
    _add_add_command(subcommands)
    _add_server_commands(subcommands)
    _add_login_commands(subcommands)
    _add_approvals_command(subcommands)
    _add_pins_command(subcommands)
    _add_programs_command(subcommands)
    return mcp


def _add_config_option(
    parser: argparse.ArgumentParser,
    *,
    default: Any = argparse.SUPPRESS,
    help_text: str = "the configuration (default: see codemode mcp -h)",
) -> None:
    # A default of a subcommand would replace what was said before it.
    parser.add_argument("--config", metavar="FILE", default=default, help=help_text)


def _add_subcommand(subcommands: Any, name: str, help_text: str, **parser_options: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subcommands.add_parser(
        name,
        allow_abbrev=False,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        epilog=_EXIT_CODES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **parser_options,
    )
    parser.set_defaults(parser=parser)
    _add_config_option(parser)
    return parser


def _add_client_commands(subcommands: Any) -> None:
    _add_subcommand(subcommands, "init", "write a configuration to begin with, where there is none")
    import_parser = _add_subcommand(
        subcommands, "import", "take the servers of a client into the configuration; the client stays as it is"
    )
    import_parser.add_argument("--from", dest="client", choices=CLIENTS, required=True, help="the client that has them")
    import_parser.add_argument(
        "--project", metavar="FOLDER", help="those of this project too, from the client's files in it"
    )
    install_parser = _add_subcommand(
        subcommands, "install", "put the gateway into a client in place of the servers there, with a backup"
    )
    install_parser.add_argument("--client", choices=CLIENTS, required=True, help="the client")
    install_parser.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    install_parser.add_argument("--undo", action="store_true", help="give the client back what it had")
    undo_parser = _add_subcommand(
        subcommands, "undo", "give a client back what it had before the gateway was installed there"
    )
    undo_parser.add_argument("--client", choices=CLIENTS, required=True, help="the client")
    undo_parser.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")


def _add_add_command(subcommands: Any) -> None:
    add_parser = _add_subcommand(
        subcommands,
        "add",
        "add a server to the configuration",
        usage="codemode mcp add [options] NAME URL\n       codemode mcp add [options] NAME -- COMMAND [ARGUMENT ...]\n"
        "       codemode mcp add [options] NAME --openapi URL --base-url URL",
    )
    add_parser.add_argument("name", help="what the server is called")
    add_parser.add_argument("url", nargs="?", help="where it is; or, behind --, the command that starts it")
    add_parser.add_argument(
        "--transport", choices=("stdio", "http", "sse"), help="how it is spoken with (default: as given)"
    )
    add_parser.add_argument("--openapi", metavar="URL", help="the OpenAPI document of an API, a URL or a file")
    add_parser.add_argument("--base-url", metavar="URL", help="where that API is called (`check` names its servers)")
    add_parser.add_argument(
        "--include", action="append", default=[], metavar="PATTERN", help="operations of that API, such as 'issues/*'"
    )
    add_parser.add_argument(
        "--env", action="append", default=[], metavar="KEY=VALUE", help="a variable of its environment"
    )
    add_parser.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="a header of its requests"
    )
    add_parser.add_argument(
        "--approval", choices=("never", "declared", "writes", "always"), help="which calls a person decides"
    )


def _add_server_commands(subcommands: Any) -> None:
    list_parser = _add_subcommand(
        subcommands, "list", "show the servers of the configuration with their policy, and no secret"
    )
    list_parser.add_argument("--json", action="store_true", help="as one JSON object")
    check_parser = _add_subcommand(
        subcommands, "check", "start every server, say what is wrong, and what a model would be given"
    )
    check_parser.add_argument("name", nargs="?", help="this server alone")
    check_parser.add_argument("--json", action="store_true", help="as one JSON object")
    types_parser = _add_subcommand(subcommands, "types", "print the TypeScript of the servers")
    types_parser.add_argument("name", nargs="?", help="of this server alone")
    run_parser = _add_subcommand(
        subcommands, "run", "run a program over the servers, ask here about calls that need approval, print the answer"
    )
    run_parser.add_argument("program", help="a .js or .ts file, an ES module; - for stdin")
    run_parser.add_argument(
        "--approve",
        choices=("ask", "deny", "all"),
        default="ask",
        help="what happens to a call that needs approval: ask in the terminal (default), deny it, or allow all of them",
    )


def _add_login_commands(subcommands: Any) -> None:
    login_parser = _add_subcommand(subcommands, "login", "sign in to a server, in the browser")
    login_parser.add_argument("name", help="the server")
    login_parser.add_argument(
        "--no-browser", action="store_true", help="open no page here: print its URL, and ask for its end"
    )
    _add_subcommand(subcommands, "logout", "forget the tokens of a server").add_argument("name", help="the server")


def _add_approvals_command(subcommands: Any) -> None:
    approvals = _add_subcommand(
        subcommands, "approvals", "show the calls that wait for a person, or decide about one in the terminal"
    )
    _add_store_options(approvals, store=None, create=False)
    actions = approvals.add_subparsers(dest="action", metavar="action")
    for name, help_text in (
        ("approve", "let calls run, after showing them and asking"),
        ("deny", "refuse calls, after showing them and asking"),
        ("show", "show all that is kept of a run that waits"),
    ):
        parser = _add_subcommand(actions, name, help_text)
        parser.add_argument(
            "id", help="of one call, or of a run for all its calls that wait; the beginning of a run's will do"
        )
        if name == "approve":
            scope_group = parser.add_mutually_exclusive_group()
            scope_group.add_argument(
                "--session", action="store_true", help="later calls of the tool too, until its client leaves"
            )
            scope_group.add_argument(
                "--always", action="store_true", help="later calls too, while the tool stays as it is, until `forget`"
            )
            answer_group = parser.add_mutually_exclusive_group()
            answer_group.add_argument("--input", metavar="JSON", help="run it with this input instead; of one call")
            answer_group.add_argument(
                "--happened", metavar="JSON", help="of a call in doubt: it has happened, and gave this"
            )
            answer_group.add_argument(
                "--run-again", action="store_true", help="of a call in doubt: it has not happened"
            )
        _add_store_options(parser)
        if name != "show":
            parser.add_argument("--reason", default="", help="why, for the record")
    _add_remembered_actions(actions)


def _add_store_options(
    parser: argparse.ArgumentParser, *, store: Any = argparse.SUPPRESS, create: Any = argparse.SUPPRESS
) -> None:
    parser.add_argument(
        "--store",
        metavar="URL",
        default=store,
        help="of this database, sqlite:///FILE or postgresql://..., in place of the gateway's (codemode.store)",
    )
    parser.add_argument("--create", action="store_true", default=create, help="create it where it does not exist")


def _add_remembered_actions(actions: Any) -> None:
    list_parser = _add_subcommand(actions, "remembered", "show the answers that always hold, of all users")
    _add_user_option(list_parser, None)
    list_parser.add_argument("--json", action="store_true", help="as one JSON object")
    forget_parser = _add_subcommand(
        actions, "forget", "take back answers that always hold: people are asked again, from the next call on"
    )
    _add_user_option(forget_parser, "local")
    forget_parser.add_argument("server", help="the server")
    forget_parser.add_argument("tool", nargs="?", help="this tool alone")


def _add_pins_command(subcommands: Any) -> None:
    pins = _add_subcommand(
        subcommands, "pins", "show which servers have changed their tools since they were first used, and how"
    )
    _add_user_option(pins, "local")
    help_text = "take the tools as they are now, after showing the difference and asking"
    approve = _add_subcommand(pins.add_subparsers(dest="action", metavar="action"), "approve", help_text)
    _add_user_option(approve, argparse.SUPPRESS)
    approve.add_argument("name", help="the server")


def _add_programs_command(subcommands: Any) -> None:
    programs = _add_subcommand(
        subcommands, "programs", "show the programs that users have saved, and what has made any of them stale"
    )
    _add_user_option(programs, None)
    _add_store_options(programs, store=None, create=False)
    programs.add_argument("--json", action="store_true", help="as one JSON object")
    actions = programs.add_subparsers(dest="action", metavar="action")
    for name, help_text in (
        ("list", "show the saved programs"),
        ("show", "show a saved program with its versions and their differences"),
        ("disable", "refuse calls of a saved program, until it is saved again or enabled"),
        ("enable", "allow calls of a saved program that was disabled"),
        ("confirm", "trust a stale program again, after showing what has changed and asking"),
    ):
        parser = _add_subcommand(actions, name, help_text)
        _add_user_option(parser, argparse.SUPPRESS)
        _add_store_options(parser)
        if name != "list":
            parser.add_argument("name", help="the program")
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as one JSON object")


def _add_user_option(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument("--user", metavar="NAME", default=default, help="of this user of a gateway over HTTP")


_SUBCOMMAND_FUNCTIONS = {
    None: ("serve", "run"),
    "init": ("configuration_commands", "create_or_extend_configuration"),
    "add": ("configuration_commands", "create_or_extend_configuration"),
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
_SERVE_OPTIONS = ("http", "tool_name", "output", "pass_through")


def start() -> int:
    """Run `codemode-gateway`, which is `codemode mcp` for clients that start one command of the package."""
    from codemode.cli import main as run_command

    return run_command(["mcp", *sys.argv[1:]])


def main(arguments: Sequence[str]) -> int:
    """Serve, or do what the subcommand says. Raises `UsageError` for what cannot be used, never anything longer."""
    return run(parse_arguments(arguments))


def run(options: argparse.Namespace) -> int:
    """Run what was parsed."""
    if options.command_line is not None and options.part != "add":
        raise UsageError("only `codemode mcp add NAME -- COMMAND` takes something behind --")
    if options.part is not None and (
        serving_options := [name for name in _SERVE_OPTIONS if getattr(options, name) is not None]
    ):
        raise UsageError(f"--{serving_options[0].replace('_', '-')} is for serving: it goes without `{options.part}`")
    with report_as_usage_error():
        module, function = _SUBCOMMAND_FUNCTIONS[options.part]
        return getattr(import_module(f".{module}", __package__), function)(options)


@contextmanager
def report_as_usage_error() -> Generator[None]:
    """Turn what ends a command, and is no mistake of this package, into one message."""
    try:
        yield
    except Exception as error:
        first_error = _first_leaf_error(error)
        if isinstance(first_error, UsageError) or (isinstance(first_error, BrokenPipeError) and is_stdout_closed()):
            raise first_error from error
        if isinstance(first_error, CodeModeError):
            raise UsageError(visible(first_error.message)) from error
        if isinstance(first_error, OSError):
            raise UsageError(
                visible(f"{first_error.filename}: {first_error.strerror}" if first_error.filename else str(first_error))
            ) from error
        if isinstance(first_error, ValueError | RuntimeError | ImportError):
            raise UsageError(visible(str(first_error))) from error
        raise


def _first_leaf_error(error: BaseException) -> BaseException:
    """Return what happened, out of the groups of tasks in which it did."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
