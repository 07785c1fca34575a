"""Open the configuration, the store and the terminal for subcommands."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from codemode.cli.databases import get_sqlite_path, require_existing_sqlite_file
from codemode.cli.exits import UsageError
from codemode.trace.unseen import has_only_visible_characters
from codemode.trace.visible_text import escape_invisible

from ..config.locations import GATEWAY_COMMAND, PROGRAM_NAME

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore

    from ..config.model import GatewayConfig


CONFIG_VARIABLE = "CODEMODE_MCP_CONFIG"
_NEARBY_CONFIG_FILES = ("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")


def get_config_path(options: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the configuration, whether it exists or not."""
    environment = os.environ if environ is None else environ
    if configured := options.config or environment.get(CONFIG_VARIABLE):
        return Path(configured).expanduser()
    return _get_default_config_path(environment)


def get_non_default_config_path(options: argparse.Namespace) -> Path | None:
    """Return the absolute path of the configuration, or None if it is the default."""
    path = get_config_path(options).absolute()
    return None if path == _get_default_config_path(os.environ) else path


def get_typed_command_prefix(options: argparse.Namespace) -> str:
    """Return the command before a subcommand for the same configuration, as the user typed it."""
    return (
        GATEWAY_COMMAND
        if options.config is None
        else f"{GATEWAY_COMMAND} --config {escape_invisible(shlex.quote(options.config))}"
    )


def _get_default_config_path(environment: Mapping[str, str]) -> Path:
    folder = environment.get("XDG_CONFIG_HOME") or ""
    # The XDG specification ignores relative paths.
    home = Path(folder) if folder and Path(folder).is_absolute() else Path.home() / ".config"
    return home / "codemode" / "mcp.json"


def load_configuration_and_warn(options: argparse.Namespace) -> GatewayConfig:
    """Load the configuration, and print its problems. Raises `UsageError` if it is missing."""
    path = require_config_file(options)
    from ..config.loader import load_config

    loaded = load_config(path)
    warn_about_problems(loaded)
    return loaded


def require_config_file(options: argparse.Namespace) -> Path:
    """Return the path of the configuration. Raises `UsageError` if it is missing."""
    path = get_config_path(options)
    if not path.is_file():
        raise UsageError(_missing_config_message(path, options))
    return path


def warn_about_problems(config: GatewayConfig) -> None:
    """Print warnings, and the problems of disabled servers."""
    for note in config.notes:
        warn(note)
    for problem in config.problems:
        if problem.server is not None:
            warn(str(problem))


def require_servers(config: GatewayConfig) -> GatewayConfig:
    """Return the configuration. Raises `UsageError` if it has no usable server."""
    if config.servers:
        return config
    reason = next((str(problem) for problem in config.problems if problem.server is None), "no usable server")
    raise UsageError(escape_invisible(f"{config.path}: {reason}"))


def require_server(config: GatewayConfig, name: str) -> str:
    """Return the name of a usable server. Raises `UsageError` for other names, with the usable ones."""
    if any(server.name == name for server in config.servers):
        return name
    if name in config.disabled:
        raise UsageError(f"{escape_invisible(name)} is disabled in {escape_invisible(str(config.path))}")
    usable_names = ", ".join(escape_invisible(server.name) for server in config.servers)
    raise UsageError(f"there is no usable server {escape_invisible(name)}; usable servers: {usable_names or 'none'}")


def warn(text: str) -> None:
    """Print a message to stderr, which the protocol does not use."""
    print(f"codemode: {escape_invisible(text, keep=chr(10))}", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print a JSON value in ASCII: servers and models choose texts with characters that control a terminal."""
    print(json.dumps(value, indent=2))


def _missing_config_message(path: Path, options: argparse.Namespace) -> str:
    if path.is_dir():
        return f"{escape_invisible(str(path))} is a folder; use a file in it"
    problem = f"there is no configuration {escape_invisible(str(path))}"
    if options.config is not None:
        return f"{problem}: `{get_typed_command_prefix(options)} init` writes one"
    nearby = next((name for name in _NEARBY_CONFIG_FILES if Path(name).is_file()), None)
    suggestion = "" if nearby is None else f"; to use {nearby} of this folder, if you trust it, add --config {nearby}"
    return (
        f"{problem}: write one with `codemode mcp init`, or import a client's servers with `codemode mcp import`"
        f"{suggestion}"
    )


Result = TypeVar("Result")


def load_config_with_store(options: argparse.Namespace) -> GatewayConfig:
    """Return the configuration, with the store of --store.

    Raises `UsageError` if that store, or the one of the configuration, does not exist. The default store is created.
    """
    if options.store is None:
        config = load_configuration_and_warn(options)
    else:
        config = _load_config_or_default(options)
        config = replace(config, settings=replace(config.settings, store=_to_store_url(options.store)))
    if config.settings.store is not None:
        require_existing_sqlite_file(config.settings.store, create=options.create)
    return config


def _load_config_or_default(options: argparse.Namespace) -> GatewayConfig:
    from ..config.locations import state_folder
    from ..config.model import GatewayConfig, GatewaySettings

    if options.config is not None or get_config_path(options).is_file():
        return load_configuration_and_warn(options)
    return GatewayConfig(settings=GatewaySettings(state_folder=state_folder()))


def _to_store_url(url: str) -> str:
    file = get_sqlite_path(url)
    if file is not None and file.name:
        return f"sqlite:///{file.absolute()}"
    if url.startswith(("postgresql://", "postgres://")):
        return url
    raise UsageError("--store takes the URL of a database: sqlite:///FILE, or postgresql://USER@HOST/NAME")


async def run_with_store(config: GatewayConfig, work: Callable[[InterruptStore], Awaitable[Result]]) -> Result:
    """Call ``work`` with the open store, and close the store."""
    from ..gateway.gateway import Gateway

    store = Gateway(config).store
    try:
        return await work(store)
    finally:
        await store.aclose()


def get_audit_actor() -> str:
    """Return the actor for the audit: the user of this machine."""
    return f"{getpass.getuser()}@terminal"


_MAX_COMMAND_PART_CHARACTERS = 300  # a longer path would hide the rest of a hint


def get_portable_command_prefix(options: argparse.Namespace) -> str:
    """Return the shell command before a subcommand, valid in any folder: usually `codemode mcp`.

    Omits a path that is too long or not safe to display.
    """
    config = get_non_default_config_path(options)
    config_option = None if config is None else _quote_if_safe("--config", str(config))
    return " ".join(
        [_find_non_default_program_command() or PROGRAM_NAME, "mcp", *([config_option] if config_option else [])]
    )


def _find_non_default_program_command() -> str | None:
    program_path = Path(sys.argv[0]).absolute()
    if (program_path.parent.name, program_path.name) == (PROGRAM_NAME, "__main__.py"):
        return _quote_if_safe(sys.executable, "-m", PROGRAM_NAME)
    if program_path.stem != PROGRAM_NAME or not program_path.is_file():
        return None
    path_on_system = shutil.which(PROGRAM_NAME)
    return (
        None
        if path_on_system is not None and program_path.samefile(path_on_system)
        else _quote_if_safe(str(program_path))
    )


def _quote_if_safe(*arguments: str) -> str | None:
    """Return quoted shell words, or None if they are long, have invisible characters or a backtick."""
    quoted = shlex.join(arguments)
    return (
        quoted
        if len(quoted) <= _MAX_COMMAND_PART_CHARACTERS and has_only_visible_characters(quoted) and "`" not in quoted
        else None
    )


TERMINAL = "/dev/tty"
_YES_ANSWERS = ("y", "yes")
_MAX_ANSWER_BYTES = 4096


class ControllingTerminal:
    """The terminal of a person, independent of stdin and stdout."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write_line(self, text: str) -> None:
        """Write a line. Its invisible characters must be escaped already."""
        data = f"{text}\n".encode(errors="replace")
        while data:
            data = data[os.write(self._descriptor, data) :]

    def confirm(self, question: str) -> bool:
        """Ask, and return whether the answer is yes. Discards input typed before the question."""
        import termios

        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        os.write(self._descriptor, f"{question} [y/N] ".encode(errors="replace"))
        answer = os.read(self._descriptor, _MAX_ANSWER_BYTES).decode(errors="replace")
        return answer.endswith("\n") and answer.strip().lower() in _YES_ANSWERS


@contextmanager
def open_controlling_terminal(action: str) -> Generator[ControllingTerminal]:
    """Open the controlling terminal. Raises `UsageError` without one, so that nothing is decided."""
    try:
        descriptor = os.open(TERMINAL, os.O_RDWR | getattr(os, "O_NOCTTY", 0))
    except OSError as error:
        raise UsageError(
            f"{action} asks a person at the terminal, and this process has none: run it in a terminal window"
        ) from error
    try:
        yield ControllingTerminal(descriptor)
    finally:
        os.close(descriptor)
