"""Parse the arguments of ``codemode mcp`` and run a subcommand, which is imported late."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

from codemode.cli.exits import UsageError, is_stdout_reader_gone
from codemode.errors import CodeModeError
from codemode.trace.visible_text import escape_invisible

CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "codex")
OUTPUT_CHOICES = ("both", "structured", "text")

ADD_USAGE = "`add NAME` needs either a URL or a command after --, as in `codemode mcp add NAME -- COMMAND`"

_EXIT_CODES_HELP = """\
exit codes:
  0    done; the client or a signal ended the server
  1    failure: a failed check or program, or an answer that came too late
  2    cannot start: wrong arguments, no usable server, a port in use; the message says what to change
  130  stopped with Ctrl-C
"""
_CONFIG_HELP = """\
the configuration is --config, else the environment variable CODEMODE_MCP_CONFIG, else codemode/mcp.json in the
user's configuration folder ($XDG_CONFIG_HOME or ~/.config); never a file of the current folder, which may be hostile
"""


_OPTIONAL_POSITIONALS = ("url", "tool")
"""Optional arguments after a required one: `add NAME [URL]`, `approvals forget SERVER [TOOL]`."""


def split_command(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return the arguments before the first ``--``, and the command after it, or None."""
    arguments_before = list(arguments)
    if "--" not in arguments_before:
        return arguments_before, None
    separator = arguments_before.index("--")
    return arguments_before[:separator], arguments_before[separator + 1 :]


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of `codemode mcp`. ``command_line`` has those after ``--``, or is None."""
    # Versions of argparse differ on the arguments after --.
    command_arguments, command_line = split_command(arguments)
    options, unrecognized = create_parser().parse_known_args(command_arguments)
    for name in _OPTIONAL_POSITIONALS:
        # argparse leaves the argument unrecognized if options are between it and the one before.
        if unrecognized and not unrecognized[0].startswith("-") and getattr(options, name, "") is None:
            setattr(options, name, unrecognized.pop(0))
    if unrecognized and options.part == "add" and options.url is not None and command_line is None:
        raise UsageError(ADD_USAGE)  # probably a command without -- before it
    if unrecognized:
        options.parser.error(f"unrecognized arguments: {' '.join(unrecognized)}")  # with the usage of the subcommand
    options.command_line = command_line
    return options


def create_parser() -> argparse.ArgumentParser:
    """Return the parser of `codemode mcp`, which `codemode completion` reads too."""
    mcp = argparse.ArgumentParser(
        prog="codemode mcp",
        allow_abbrev=False,
        description="Serve the MCP servers of a configuration as one tool, over stdio by default; or run a subcommand.",
        epilog=f"{_CONFIG_HELP}\n{_EXIT_CODES_HELP}\nexample: codemode mcp --config mcp.json --http 127.0.0.1:8765",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mcp.set_defaults(parser=mcp)
    _add_config_option(mcp, default=None, help_text="the configuration (default: see below)")
    mcp.add_argument("--http", metavar="HOST:PORT", help="serve streamable HTTP at this address, for many clients")
    mcp.add_argument(
        "--tool-name", metavar="NAME", help="name of the tool (default auto: a name that the client accepts)"
    )
    mcp.add_argument("--output", choices=OUTPUT_CHOICES, help="format of results (default both)")
    mcp.add_argument(
        "--pass-through",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="also forward prompts, resources and completion of the servers (default: yes)",
    )
    subcommands = mcp.add_subparsers(dest="part", metavar="subcommand")
    _add_client_commands(subcommands)
    _add_add_command(subcommands)
    remove_parser = _add_subcommand(
        subcommands, "remove", "remove a server from the configuration; comments stay", example="remove files"
    )
    remove_parser.add_argument("name", help="name of the server")
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
    # A default here would replace an option before the subcommand.
    parser.add_argument("--config", metavar="FILE", default=default, help=help_text)


def _add_subcommand(
    subcommands: Any, name: str, help_text: str, *, example: str, **parser_options: Any
) -> argparse.ArgumentParser:
    """Add a subcommand. ``example`` is the end of its help, without ``codemode mcp``."""
    parser: argparse.ArgumentParser = subcommands.add_parser(
        name,
        allow_abbrev=False,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        epilog=f"{_EXIT_CODES_HELP}\nexample: codemode mcp {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **parser_options,
    )
    parser.set_defaults(parser=parser)
    _add_config_option(parser)
    return parser


def _add_client_commands(subcommands: Any) -> None:
    _add_subcommand(subcommands, "init", "write an initial configuration, if there is none", example="init")
    import_parser = _add_subcommand(
        subcommands,
        "import",
        "add the servers of a client to the configuration; the client stays unchanged",
        example="import --from claude-desktop",
    )
    import_parser.add_argument("--from", dest="client", choices=CLIENTS, required=True, help="the client")
    import_parser.add_argument(
        "--project", metavar="FOLDER", help="also import servers from the client's files in this project"
    )
    install_parser = _add_subcommand(
        subcommands,
        "install",
        "replace the servers of a client with the gateway, with a backup",
        example="install --client cursor --dry-run",
    )
    install_parser.add_argument("--client", choices=CLIENTS, required=True, help="the client")
    install_parser.add_argument("--dry-run", action="store_true", help="show the changes without making them")
    undo_parser = _add_subcommand(
        subcommands, "undo", "restore the servers that a client had before `install`", example="undo --client cursor"
    )
    undo_parser.add_argument("--client", choices=CLIENTS, required=True, help="the client")
    undo_parser.add_argument("--dry-run", action="store_true", help="show the changes without making them")


def _add_add_command(subcommands: Any) -> None:
    add_parser = _add_subcommand(
        subcommands,
        "add",
        "add a server to the configuration",
        example="add files -- npx -y @modelcontextprotocol/server-filesystem .",
        usage="codemode mcp add [options] NAME URL\n       codemode mcp add [options] NAME -- COMMAND [ARGUMENT ...]\n"
        "       codemode mcp add [options] NAME --openapi URL --base-url URL",
    )
    add_parser.add_argument("name", help="name of the server")
    add_parser.add_argument("url", nargs="?", help="URL of the server; or use a command after --")
    add_parser.add_argument(
        "--transport", choices=("stdio", "http", "sse"), help="transport (default: http for a URL, stdio for a command)"
    )
    add_parser.add_argument("--openapi", metavar="URL", help="the OpenAPI document of an API, a URL or a file")
    add_parser.add_argument(
        "--base-url", metavar="URL", help="base URL of the API (`check` lists the servers of the document)"
    )
    add_parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="PATTERN",
        help="operations of the API to include, such as 'issues/*'",
    )
    add_parser.add_argument(
        "--env", action="append", default=[], metavar="KEY=VALUE", help="environment variable of the server"
    )
    add_parser.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="HTTP header of requests to the server"
    )
    add_parser.add_argument(
        "--approval", choices=("never", "declared", "writes", "always"), help="calls that need approval by a person"
    )


def _add_server_commands(subcommands: Any) -> None:
    list_parser = _add_subcommand(
        subcommands,
        "list",
        "list the servers of the configuration and their policies, without secrets",
        example="list --json",
    )
    _add_json_option(list_parser, default=False)
    check_parser = _add_subcommand(
        subcommands,
        "check",
        "start every server, and print problems and the tool that models see",
        example="check files",
    )
    check_parser.add_argument("name", nargs="?", help="only this server")
    _add_json_option(check_parser, default=False)
    types_parser = _add_subcommand(
        subcommands, "types", "print the TypeScript declarations of the servers", example="types files > files.d.ts"
    )
    types_parser.add_argument("name", nargs="?", help="only this server")
    run_parser = _add_subcommand(
        subcommands,
        "run",
        "run a program with the servers, ask here about calls that need approval, and print the response",
        example="run program.ts --approve deny",
    )
    run_parser.add_argument("program", help="an ES module, a .js or .ts file; - reads stdin")
    run_parser.add_argument(
        "--approve",
        choices=("ask", "deny", "all"),
        default="ask",
        help="calls that need approval: ask in the terminal (default), deny, or allow all",
    )


def _add_login_commands(subcommands: Any) -> None:
    login_parser = _add_subcommand(subcommands, "login", "sign in to a server, in the browser", example="login docs")
    login_parser.add_argument("name", help="the server")
    login_parser.add_argument(
        "--no-browser", action="store_true", help="do not open a browser: print the URL, and ask for the final URL"
    )
    logout_parser = _add_subcommand(subcommands, "logout", "delete the OAuth tokens of a server", example="logout docs")
    logout_parser.add_argument("name", help="the server")


def _add_approvals_command(subcommands: Any) -> None:
    approvals = _add_subcommand(
        subcommands,
        "approvals",
        "list pending calls, or decide about them in the terminal",
        example="approvals --store sqlite:///approvals.db",
    )
    _add_store_options(approvals, store=None, create=False)
    _add_json_option(approvals, default=False)
    actions = approvals.add_subparsers(dest="action", metavar="action")
    for name, help_text, example in (
        ("approve", "approve calls, after showing them and asking", "approvals approve 7a41 --session"),
        ("deny", "deny calls, after showing them and asking", "approvals deny 7a41 --reason 'not before the release'"),
        ("show", "show all details of a waiting run", "approvals show 7a41"),
    ):
        parser = _add_subcommand(actions, name, help_text, example=example)
        parser.add_argument(
            "id", help="id of a call, or of a run for all its pending calls; a run's id may be shortened"
        )
        if name == "approve":
            scope_group = parser.add_mutually_exclusive_group()
            scope_group.add_argument(
                "--session", action="store_true", help="also approve later calls of the tool in this session"
            )
            scope_group.add_argument(
                "--always", action="store_true", help="also approve all later calls, until the tool changes or `forget`"
            )
            answer_group = parser.add_mutually_exclusive_group()
            answer_group.add_argument("--input", metavar="JSON", help="run one call with this input instead")
            answer_group.add_argument(
                "--happened", metavar="JSON", help="for an interrupted call: it happened, with this result"
            )
            answer_group.add_argument(
                "--run-again", action="store_true", help="for an interrupted call: it did not happen"
            )
        _add_store_options(parser)
        if name == "show":
            _add_json_option(parser)
        else:
            parser.add_argument("--reason", default="", help="reason, for the record")
    _add_remembered_actions(actions)


def _add_store_options(
    parser: argparse.ArgumentParser, *, store: Any = argparse.SUPPRESS, create: Any = argparse.SUPPRESS
) -> None:
    parser.add_argument(
        "--store",
        metavar="URL",
        default=store,
        help="use this database, sqlite:///FILE or postgresql://..., instead of the gateway's (codemode.store)",
    )
    parser.add_argument(
        "--create", action="store_true", default=create, help="create the database if it does not exist"
    )


def _add_json_option(parser: argparse.ArgumentParser, *, default: Any = argparse.SUPPRESS) -> None:
    parser.add_argument("--json", action="store_true", default=default, help="print one JSON object")


def _add_remembered_actions(actions: Any) -> None:
    list_parser = _add_subcommand(
        actions, "remembered", "list the answers that always hold, of all users", example="approvals remembered --json"
    )
    _add_user_option(list_parser, None)
    _add_store_options(list_parser)
    _add_json_option(list_parser)
    forget_parser = _add_subcommand(
        actions,
        "forget",
        "revoke answers that always hold: the next call needs approval again",
        example="approvals forget files write_file",
    )
    _add_user_option(forget_parser, "local")
    _add_store_options(forget_parser)
    forget_parser.add_argument("server", help="the server")
    forget_parser.add_argument("tool", nargs="?", help="only this tool")


def _add_pins_command(subcommands: Any) -> None:
    pins = _add_subcommand(
        subcommands,
        "pins",
        "show servers whose tools have changed since first use, and the differences",
        example="pins --json",
    )
    _add_user_option(pins, "local")
    _add_json_option(pins, default=False)
    help_text = "accept the current tools, after showing the differences and asking"
    actions = pins.add_subparsers(dest="action", metavar="action")
    approve = _add_subcommand(actions, "approve", help_text, example="pins approve files")
    _add_user_option(approve, argparse.SUPPRESS)
    approve.add_argument("name", help="the server")


def _add_programs_command(subcommands: Any) -> None:
    programs = _add_subcommand(
        subcommands, "programs", "list saved programs, and why some are stale", example="programs --user ana"
    )
    _add_user_option(programs, None)
    _add_store_options(programs, store=None, create=False)
    _add_json_option(programs, default=False)
    actions = programs.add_subparsers(dest="action", metavar="action")
    for name, help_text in (
        ("list", "list the saved programs"),
        ("show", "show a saved program with its versions and their differences"),
        ("disable", "disable a saved program until it is saved again or enabled"),
        ("enable", "enable a disabled program"),
        ("confirm", "trust a stale program again, after showing the changes and asking"),
    ):
        example = f"programs {name}" if name == "list" else f"programs {name} report"
        parser = _add_subcommand(actions, name, help_text, example=example)
        _add_user_option(parser, argparse.SUPPRESS)
        _add_store_options(parser)
        if name != "list":
            parser.add_argument("name", help="the program")
        if name in ("list", "show"):
            _add_json_option(parser)


def _add_user_option(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument("--user", metavar="NAME", default=default, help="only this user of a gateway over HTTP")


_SUBCOMMAND_FUNCTIONS = {
    None: ("serve", "run_serve_command"),
    "init": ("configuration_commands", "create_or_extend_configuration"),
    "add": ("configuration_commands", "create_or_extend_configuration"),
    "remove": ("configuration_commands", "remove_server"),
    "import": ("configuration_commands", "import_install_or_undo"),
    "install": ("configuration_commands", "import_install_or_undo"),
    "undo": ("configuration_commands", "import_install_or_undo"),
    "list": ("configuration_commands", "list_servers"),
    "check": ("server_commands", "check_servers"),
    "types": ("server_commands", "print_types"),
    "run": ("server_commands", "run_program"),
    "login": ("configuration_commands", "login_or_logout"),
    "logout": ("configuration_commands", "login_or_logout"),
    "approvals": ("approvals", "run_approvals_command"),
    "pins": ("configuration_commands", "show_or_approve_pins"),
    "programs": ("programs", "run_programs_command"),
}
_SERVE_OPTIONS = ("http", "tool_name", "output", "pass_through")


def start() -> int:
    """Run `codemode-gateway`, which is `codemode mcp` for clients that start one command of the package."""
    from codemode.cli import main as run_command

    return run_command(["mcp", *sys.argv[1:]])


def main(arguments: Sequence[str]) -> int:
    """Serve, or run the subcommand. Raises `UsageError` with a short message."""
    return run_parsed_command(parse_arguments(arguments))


def run_parsed_command(options: argparse.Namespace) -> int:
    """Run the parsed command."""
    if options.command_line is not None and options.part != "add":
        raise UsageError("only `codemode mcp add NAME -- COMMAND` takes arguments after --")
    if options.part is not None and (
        serving_options := [name for name in _SERVE_OPTIONS if getattr(options, name) is not None]
    ):
        raise UsageError(
            f"--{serving_options[0].replace('_', '-')} is for serving; do not use it with `{options.part}`"
        )
    with convert_errors_to_usage_error():
        module, function = _SUBCOMMAND_FUNCTIONS[options.part]
        return getattr(import_module(f".{module}", __package__), function)(options)


@contextmanager
def convert_errors_to_usage_error() -> Generator[None]:
    """Turn expected errors into a `UsageError` with one message."""
    try:
        yield
    except Exception as error:
        first_error = _find_first_leaf_error(error)
        if isinstance(first_error, UsageError) or (
            isinstance(first_error, BrokenPipeError) and is_stdout_reader_gone()
        ):
            raise first_error from error
        if isinstance(first_error, CodeModeError):
            raise UsageError(escape_invisible(first_error.message)) from error
        if isinstance(first_error, OSError):
            raise UsageError(
                escape_invisible(
                    f"{first_error.filename}: {first_error.strerror}" if first_error.filename else str(first_error)
                )
            ) from error
        if isinstance(first_error, ValueError | RuntimeError | ImportError):
            raise UsageError(escape_invisible(str(first_error))) from error
        raise


def _find_first_leaf_error(error: BaseException) -> BaseException:
    """Return the first error within exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
