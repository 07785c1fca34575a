"""The command line: its commands and exit codes. Each command is a module of its own.

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
    SUCCEEDED,
    UsageError,
    discard_stdout,
    flush_stdout,
    is_stdout_reader_gone,
)

_EXIT_CODES_HELP = """\
exit codes:
  0    done
  1    the program or a check failed
  2    wrong arguments, or a file that cannot be used
  130  stopped with Ctrl-C
  each command has its own: codemode COMMAND --help
"""
_RUN_EXIT_CODES_HELP = """\
exit codes:
  0    the program returned; its result is on stdout
  1    the program failed; why is on stderr
  2    wrong arguments, or a file that cannot be used
  3    the program paused and waits for somebody; the interrupt is on stdout
  130  stopped with Ctrl-C
"""
TOOLS_HELP = """\
a tools file is plain Python: every public function that it defines is a tool, and so is every @tool and Tool;
or it names them itself in a list or mapping `tools`
"""
_RUN_EXAMPLE = "example: codemode run -e 'return tools.stock({})' --tools my_tools.py"
_ENTRY_POINT_GROUP = "codemode.commands"
_BUILT_IN_COMMANDS = ("quickstart", "run", "describe", "doctor", "completion")
_ADDED_HELP = {
    "console": "serve a page to decide waiting calls (needs codemode-console)",
    "mcp": "put all MCP servers behind one tool, for any client (needs codemode-gateway)",
}
_DISTRIBUTIONS = {"console": "codemode-console", "mcp": "codemode-gateway"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    command_line = sys.argv[1:] if arguments is None else arguments
    try:
        if command_line and (command := _load_external_command(command_line[0])):
            code = command(command_line[1:])
        else:
            code = _run_command(_parse_options(command_line))
        flush_stdout()
    except UsageError as error:
        print(f"codemode: {error}", file=sys.stderr)
        return BAD_USAGE
    except BrokenPipeError:
        if not is_stdout_reader_gone():
            raise
        discard_stdout()
        return OUTPUT_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED_BY_USER
    return code


def _load_external_command(name: str) -> Callable[[Sequence[str]], int] | None:
    """Return a command of another distribution; None for one of ours, and for what is no command.

    Raises:
        UsageError: The distribution that has the command is not installed, or something that it needs is not.
    """
    if name in _BUILT_IN_COMMANDS or name.startswith("-"):
        return None
    for added in metadata.entry_points(group=_ENTRY_POINT_GROUP, name=name):
        try:
            return added.load()
        except ModuleNotFoundError as error:
            distribution = added.dist.name if added.dist is not None else added.module
            raise UsageError(f"`codemode {name}` cannot start: {error}; install {distribution} again") from error
    if name in _DISTRIBUTIONS:
        folder = _DISTRIBUTIONS[name].removeprefix("codemode-")
        raise UsageError(
            f"`codemode {name}` is in the package {_DISTRIBUTIONS[name]}, which is not installed: in a clone of the"
            f" repository pip install ./integrations/{folder}"
        )
    return None


def _parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    options, extra_arguments = _create_parser().parse_known_args(arguments)
    if extra_arguments:
        options.parser.error(f"unrecognized arguments: {' '.join(extra_arguments)}")  # with the usage of the subcommand
    if options.command == "run" and (options.program is None) == (options.eval is None):
        options.parser.error("one program is required: a file or -e TEXT")
    return options


def _run_command(options: argparse.Namespace) -> int:
    if options.command == "run":
        from .run import run_program

        return run_program(options)
    if options.command == "describe":
        from .describe import print_tool_description

        return print_tool_description(options)
    if options.command == "quickstart":
        from .quickstart import write_quickstart_agent

        return write_quickstart_agent(options)
    if options.command == "completion":
        return print_completion(options.shell)
    from .doctor import run_doctor

    return run_doctor(options)


def _create_parser(*, for_completion: bool = False) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="codemode",
        allow_abbrev=False,
        description="Run model-written JavaScript and TypeScript over Python tools, in a sandbox.",
        epilog=f"{_EXIT_CODES_HELP}\nexample: codemode run -e 'return 1 + 1'",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"codemode {metadata.version('codemode-toolkit')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_quickstart_parser(commands)
    _add_run_parser(commands)
    _add_describe_parser(commands)
    _add_doctor_parser(commands)
    _add_completion_parser(commands)
    for command, help_text in _ADDED_HELP.items():
        added = _find_external_command_parser(command) if for_completion else None
        commands.add_parser(command, help=help_text, parents=[added] if added else [], add_help=added is None)
    return parser


def _find_external_command_parser(command: str) -> argparse.ArgumentParser | None:
    """Return the parser of another distribution's command; None if it is not installed."""
    try:
        function = _load_external_command(command)
    except UsageError:
        return None
    return sys.modules[function.__module__].create_parser() if function is not None else None


def print_completion(shell: str) -> int:
    """Print the completion script of a shell, for all installed commands."""
    import shtab

    print(shtab.complete(_create_parser(for_completion=True), shell))
    return SUCCEEDED


def _add_quickstart_parser(commands: Any) -> None:
    quickstart: argparse.ArgumentParser = commands.add_parser(
        "quickstart",
        allow_abbrev=False,
        help="write a runnable agent with a scripted model and an approval",
        description="Write agent.py: an agent with five tools, one with approval. Needs no key and no model.",
        epilog="exit codes: 0, or 2 for a file that is there\n\nexample: codemode quickstart pydantic-ai",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    quickstart.set_defaults(parser=quickstart)
    quickstart.add_argument("framework", choices=("plain", "pydantic-ai", "langchain", "openai-agents"))
    quickstart.add_argument("file", nargs="?", default="agent.py", help="output file (default agent.py)")
    quickstart.add_argument("--force", action="store_true", help="replace an existing file")


def _add_run_parser(commands: Any) -> None:
    run: argparse.ArgumentParser = commands.add_parser(
        "run",
        allow_abbrev=False,
        help="run a program over the tools of a Python file",
        description="Run one program. The result goes to stdout; calls and console output go to stderr as they happen.",
        epilog=f"{TOOLS_HELP}\n{_RUN_EXIT_CODES_HELP}\n{_RUN_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.set_defaults(parser=run)
    run.add_argument("program", nargs="?", help="a .js or .ts file, - for stdin")
    run.add_argument("-e", "--eval", metavar="TEXT", help="the program itself, in place of a file")
    run.add_argument("--tools", metavar="FILE", help="Python file with the tools (none by default)")
    run.add_argument(
        "--approve",
        choices=("ask", "deny", "all"),
        default="ask",
        help="how to decide calls that need approval: ask in the terminal (default), deny them, or allow all",
    )
    run.add_argument("--trace", action="store_true", help="show a timeline of the calls at the end")
    run.add_argument("--json", action="store_true", help="print one JSON object with status, result or error")
    run.add_argument("--timeout-ms", type=int, metavar="N", help="wall time for the program (default 30000)")


def _add_describe_parser(commands: Any) -> None:
    describe: argparse.ArgumentParser = commands.add_parser(
        "describe",
        allow_abbrev=False,
        help="show the tool description that a model sees",
        description="Print the description of the codeMode tool to stdout, and its size to stderr.",
        epilog=f"{TOOLS_HELP}\nexit codes: 0, or 2 for a wrong file\n\nexample: codemode describe --tools my_tools.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    describe.set_defaults(parser=describe)
    describe.add_argument("--tools", metavar="FILE", required=True, help="Python file with the tools")
    describe.add_argument("--json", action="store_true", help="print one JSON object with name, description and sizes")


def _add_completion_parser(commands: Any) -> None:
    completion: argparse.ArgumentParser = commands.add_parser(
        "completion",
        allow_abbrev=False,
        help="print the completion script of a shell",
        description="Print a script that completes commands and options.",
        epilog="exit codes: 0, or 2 for wrong arguments\n\nexample: codemode completion bash > codemode.bash",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    completion.set_defaults(parser=completion)
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))


def _add_doctor_parser(commands: Any) -> None:
    doctor: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        allow_abbrev=False,
        help="show and test the isolation of programs here",
        description="Print platform, engine and every layer of isolation, and run a self-test with hostile programs.",
        epilog="exit codes: 0 all well, 1 something is not, 2 wrong arguments\n\nexample: codemode doctor --required",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    doctor.set_defaults(parser=doctor)
    doctor.add_argument("--start-method", choices=("auto", "fork", "exec"), default="auto", help="how workers start")
    doctor.add_argument(
        "--required", action="store_true", help='also fail when isolation="required" would refuse to run here'
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object with facts, layers and checks")
