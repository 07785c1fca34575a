"""The command line: its commands, and what exit codes mean. Each command is a module of its own.

Other distributions add commands with entry points of the group `codemode.commands`. Each is a function that takes the
arguments behind the command's name and returns the exit code; it may raise `UsageError`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from .exits import (
    BAD_USAGE,
    INTERRUPTED_BY_USER,
    OUTPUT_CLOSED,
    UsageError,
    drop_output,
    flush_output,
    output_is_closed,
)

_RUN_EXITS = """\
exit codes:
  0    the program returned; its result is on stdout
  1    the program failed; why is on stderr
  2    wrong arguments, or a file that cannot be used
  3    the program paused and waits for somebody; the interrupt is on stdout
  130  stopped with Ctrl-C
"""
_TOOLS_HELP = """\
a tools file is plain Python: every public function that it defines is a tool, and so is every @tool and Tool;
or it names them itself in a list or mapping `tools`
"""
_KEY_HELP = """\
the environment variable CODEMODE_SIGNING_KEY holds the key with which the programs' pauses are signed: with it the
console shows what programs are and have done, and goes on with them where --tools is given; a JSON array holds several
"""
_TOKENS_HELP = """\
a file of tokens: {"sha256:<hex of the token's SHA-256>": {"name": "ana", "tenants": ["acme"], "may_decide": true}};
"tenants": "*" is all of them; who has no "may_decide" may decide: "may_decide": false is for those who only look
"""
_GROUP = "codemode.commands"
_OWN_COMMANDS = ("run", "describe", "doctor", "console")
_ADDED_HELP = {"mcp": "put all MCP servers behind one tool, for any client (needs codemode-gateway)"}
_KNOWN_ADDED = {
    "mcp": "`codemode mcp` is in the package codemode-gateway, which is not installed: in a clone of the repository"
    " pip install ./integrations/gateway",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if given and (command := _find_added_command(given[0])):
            code = command(given[1:])
        else:
            code = _run_command(_options(given))
        flush_output()
    except UsageError as error:
        print(f"codemode: {error}", file=sys.stderr)
        return BAD_USAGE
    except BrokenPipeError:
        if not output_is_closed():
            raise
        drop_output()
        return OUTPUT_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED_BY_USER
    return code


def _find_added_command(name: str) -> Callable[[Sequence[str]], int] | None:
    """Return a command of another distribution; None for one of ours, and for what is no command.

    Raises:
        UsageError: The distribution that has the command is not installed, or something that it needs is not.
    """
    if name in _OWN_COMMANDS or name.startswith("-"):
        return None
    for added in metadata.entry_points(group=_GROUP, name=name):
        try:
            return added.load()
        except ModuleNotFoundError as error:
            distribution = added.dist.name if added.dist is not None else added.module
            raise UsageError(f"`codemode {name}` cannot start: {error}; install {distribution} again") from error
    if name in _KNOWN_ADDED:
        raise UsageError(_KNOWN_ADDED[name])
    return None


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    options, left = _parser().parse_known_args(arguments)
    if left:
        options.parser.error(f"unrecognized arguments: {' '.join(left)}")  # with the usage of the subcommand
    return options


def _run_command(options: argparse.Namespace) -> int:
    if options.command == "run":
        from .run import run

        return run(options)
    if options.command == "describe":
        from .describe import describe

        return describe(options)
    if options.command == "console":
        from .console import console

        return console(options)
    from .doctor import doctor

    return doctor(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="codemode",
        allow_abbrev=False,
        description="Run model-written JavaScript and TypeScript over Python tools, in a sandbox.",
    )
    parser.add_argument("--version", action="version", version=f"codemode {metadata.version('codemode-toolkit')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_run(commands)
    _add_describe(commands)
    _add_doctor(commands)
    _add_console(commands)
    for command, told in _ADDED_HELP.items():
        commands.add_parser(command, help=told)
    return parser


def _add_run(commands: Any) -> None:
    run: argparse.ArgumentParser = commands.add_parser(
        "run",
        allow_abbrev=False,
        help="run a program over the tools of a Python file",
        description="Run one program. The result goes to stdout; calls and console output go to stderr as they happen.",
        epilog=f"{_TOOLS_HELP}\n{_RUN_EXITS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.set_defaults(parser=run)
    run.add_argument("program", help="a .js or .ts file, - for stdin")
    run.add_argument("--tools", metavar="FILE", help="Python file with the tools (none by default)")
    run.add_argument(
        "--approve",
        choices=("ask", "deny", "all"),
        default="ask",
        help="what happens to a call that needs approval: ask in the terminal (default), deny it, or allow all of them",
    )
    run.add_argument("--trace", action="store_true", help="show a timeline of the calls at the end")
    run.add_argument("--json", action="store_true", help="print one JSON object with status, result or error")
    run.add_argument("--timeout-ms", type=int, metavar="N", help="wall time for the program (default 30000)")


def _add_describe(commands: Any) -> None:
    describe: argparse.ArgumentParser = commands.add_parser(
        "describe",
        allow_abbrev=False,
        help="show what a model sees of the tools",
        description="Print the description of the codeMode tool to stdout, and its size to stderr.",
        epilog=f"{_TOOLS_HELP}\nexit codes: 0, or 2 for a file that cannot be used",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    describe.set_defaults(parser=describe)
    describe.add_argument("--tools", metavar="FILE", required=True, help="Python file with the tools")


def _add_doctor(commands: Any) -> None:
    doctor: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        allow_abbrev=False,
        help="show what confines programs here, and try it out",
        description="Print platform, engine and every layer of isolation, and run a self-test with hostile programs.",
        epilog="exit codes: 0 all is well, 1 something is not, 2 wrong arguments",
    )
    doctor.set_defaults(parser=doctor)
    doctor.add_argument("--start-method", choices=("auto", "fork", "exec"), default="auto", help="how workers start")
    doctor.add_argument(
        "--required", action="store_true", help='also fail when isolation="required" would refuse to run here'
    )


def _add_console(commands: Any) -> None:
    console: argparse.ArgumentParser = commands.add_parser(
        "console",
        allow_abbrev=False,
        help="serve a page on which people decide the calls that wait",
        description="Serve the approval console of a database. Without a file of tokens it makes one token, prints the"
        " URL that holds it once, and is for this machine alone.",
        epilog=f"{_KEY_HELP}\n{_TOKENS_HELP}\n{_TOOLS_HELP}\n"
        "exit codes: 0 when it was told to end, 2 for what cannot be used",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    console.set_defaults(parser=console)
    console.add_argument(
        "--database",
        metavar="URL",
        required=True,
        help="sqlite:///approvals.db, or postgresql://user@host/name (needs codemode-toolkit[postgres])",
    )
    console.add_argument("--create", action="store_true", help="create the database where it does not exist")
    console.add_argument(
        "--tools", metavar="FILE", help="Python file with the tools: decided programs go on here (none: elsewhere)"
    )
    console.add_argument("--app", metavar="NAME", help="the app whose programs go on here (all by default)")
    console.add_argument("--tokens", metavar="FILE", help="JSON file with the users by the hashes of their tokens")
    console.add_argument("--host", default="127.0.0.1", help="address to listen at (default 127.0.0.1)")
    console.add_argument("--port", type=int, default=8822, metavar="N", help="port (default 8822; 0 takes a free one)")
