"""The configuration, the store and the terminal that subcommands share."""

from __future__ import annotations

import argparse
import getpass
import os
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from codemode.cli.databases import require_database, sqlite_file
from codemode.cli.exits import UsageError
from codemode.trace.unseen import all_seen
from codemode.trace.visible_text import visible

from ..config.places import COMMAND, NAME

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore

    from ..config.model import GatewayConfig


CONFIG_VARIABLE = "CODEMODE_MCP_CONFIG"
_NEARBY = ("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")


def config_path(options: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Path:
    """Return where the configuration is, or would be."""
    environment = os.environ if environ is None else environ
    if given := options.config or environment.get(CONFIG_VARIABLE):
        return Path(given).expanduser()
    return _default_path(environment)


def told_config(options: argparse.Namespace) -> Path | None:
    """Return the whole path of the configuration, None where a terminal that names none takes the same."""
    path = config_path(options).absolute()
    return None if path == _default_path(os.environ) else path


def typed(options: argparse.Namespace) -> str:
    """Return what a subcommand goes behind for whoever has typed this one, about the same configuration."""
    return COMMAND if options.config is None else f"{COMMAND} --config {visible(shlex.quote(options.config))}"


def _default_path(environment: Mapping[str, str]) -> Path:
    folder = environment.get("XDG_CONFIG_HOME") or ""
    # The specification has a relative path ignored.
    home = Path(folder) if folder and Path(folder).is_absolute() else Path.home() / ".config"
    return home / "codemode" / "mcp.json"


def configuration(options: argparse.Namespace) -> GatewayConfig:
    """Return what the configuration says, its problems told on stderr. Raises `UsageError` where it cannot be read."""
    path = config_path(options)
    if not path.is_file():
        raise UsageError(_missing(path, options))
    from ..config.loader import load_config

    config = load_config(path)
    tell_problems(config)
    return config


def tell_problems(config: GatewayConfig) -> None:
    """Say which servers were left out, and why, and what is hardly meant."""
    for note in config.notes:
        warn(note)
    for problem in config.problems:
        if problem.server is not None:
            warn(str(problem))


def usable(config: GatewayConfig) -> GatewayConfig:
    """Return a configuration in which a server is left. Raises `UsageError` for another."""
    if config.servers:
        return config
    why = next((str(one) for one in config.problems if one.server is None), "no server is left")
    raise UsageError(visible(f"{config.path}: {why}"))


def server_named(config: GatewayConfig, name: str) -> str:
    """Return the name of a server that can be used. Raises `UsageError` for another, with those that there are."""
    if any(one.name == name for one in config.servers):
        return name
    if name in config.disabled:
        raise UsageError(f"{visible(name)} is disabled in {visible(str(config.path))}")
    known = ", ".join(visible(one.name) for one in config.servers)
    raise UsageError(f"there is no server {visible(name)} that can be used; there are: {known or 'none'}")


def warn(text: str) -> None:
    """Say something on stderr, on which no protocol is spoken."""
    print(f"codemode: {visible(text, keep=chr(10))}", file=sys.stderr, flush=True)


def _missing(path: Path, options: argparse.Namespace) -> str:
    if path.is_dir():
        return f"{visible(str(path))} is a folder: name the file in it"
    said = f"there is no configuration {visible(str(path))}"
    if options.config is not None:
        return f"{said}: `{typed(options)} init` writes one"
    near = next((one for one in _NEARBY if Path(one).is_file()), None)
    found = "" if near is None else f"; for {near} of this folder, if you trust it, say --config {near}"
    return f"{said}: write one with `codemode mcp init`, take over a client's with `codemode mcp import`{found}"


Found = TypeVar("Found")


def read_store_config(options: argparse.Namespace) -> GatewayConfig:
    """Return the configuration, with the store that --store names.

    Raises `UsageError` where that does not exist, or the one that the configuration names: that of the state folder is
    the gateway's own, and is made.
    """
    if options.store is None:
        config = configuration(options)
    else:
        config = _read_config(options)
        config = replace(config, settings=replace(config.settings, store=_to_store_url(options.store)))
    if config.settings.store is not None:
        require_database(config.settings.store, create=options.create)
    return config


def _read_config(options: argparse.Namespace) -> GatewayConfig:
    from ..config.model import GatewayConfig, GatewaySettings
    from ..config.places import state_folder

    if options.config is not None or config_path(options).is_file():
        return configuration(options)
    return GatewayConfig(settings=GatewaySettings(state_folder=state_folder()))


def _to_store_url(url: str) -> str:
    file = sqlite_file(url)
    if file is not None and file.name:
        return f"sqlite:///{file.absolute()}"
    if url.startswith(("postgresql://", "postgres://")):
        return url
    raise UsageError("--store takes the URL of a database: sqlite:///FILE, or postgresql://USER@HOST/NAME")


async def with_store(config: GatewayConfig, work: Callable[[InterruptStore], Awaitable[Found]]) -> Found:
    """Do some work with the store, and close it."""
    from ..gateway.gateway import Gateway

    store = Gateway(config).store
    try:
        return await work(store)
    finally:
        await store.aclose()


def actor() -> str:
    """Return whose decision it is, for the audit: the user of this machine."""
    return f"{getpass.getuser()}@terminal"


_MOST_CHARACTERS = 300  # of each part: a hint has to say more than where a file is


def gateway_command(options: argparse.Namespace) -> str:
    """Return what a subcommand goes behind, typed in a shell in any folder: `codemode mcp` where that is enough.

    A path that is too long, or would not be read as it is, is left out.
    """
    config = told_config(options)
    named = None if config is None else _shown("--config", str(config))
    return " ".join([_program() or NAME, "mcp", *([named] if named else [])])


def _program() -> str | None:
    started = Path(sys.argv[0]).absolute()
    if (started.parent.name, started.name) == (NAME, "__main__.py"):
        return _shown(sys.executable, "-m", NAME)
    if started.stem != NAME or not started.is_file():
        return None
    found = shutil.which(NAME)
    return None if found is not None and started.samefile(found) else _shown(str(started))


def _shown(*words: str) -> str | None:
    """Return words for a shell; None where they hide something, or would end the code in which a text shows them."""
    said = shlex.join(words)
    return said if len(said) <= _MOST_CHARACTERS and all_seen(said) and "`" not in said else None


TERMINAL = "/dev/tty"
_YES = ("y", "yes")
_MAX_ANSWER_BYTES = 4096


class ControllingTerminal:
    """What is written to and read from it is a person's, whatever stdin and stdout are."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, text: str) -> None:
        """Show a text, which must be visible already, with a line end."""
        data = f"{text}\n".encode(errors="replace")
        while data:
            data = data[os.write(self._descriptor, data) :]

    def agrees(self, question: str) -> bool:
        """Ask, and return whether the answer is yes. What was typed before the question is no answer to it."""
        import termios

        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        os.write(self._descriptor, f"{question} [y/N] ".encode(errors="replace"))
        answer = os.read(self._descriptor, _MAX_ANSWER_BYTES).decode(errors="replace")
        return answer.endswith("\n") and answer.strip().lower() in _YES


@contextmanager
def controlling_terminal(what: str) -> Generator[ControllingTerminal]:
    """Open it. Raises `UsageError` where there is none: nobody can be asked, so nothing is decided."""
    try:
        descriptor = os.open(TERMINAL, os.O_RDWR | getattr(os, "O_NOCTTY", 0))
    except OSError as error:
        raise UsageError(
            f"{what} asks a person at the terminal of this process, and it has none: do it in a terminal window"
        ) from error
    try:
        yield ControllingTerminal(descriptor)
    finally:
        os.close(descriptor)
