"""``codemode mcp init`` and ``add``: a configuration written, and a server added to one with all else kept."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from codemode.cli.exits import DONE, UsageError
from codemode.trace.visible_text import visible

from .arguments import NO_COMMAND
from .setup import config_path, typed, warn


def run(options: argparse.Namespace) -> int:
    """Write the file."""
    return _init(options) if options.part == "init" else _add(options)


def _init(options: argparse.Namespace) -> int:
    from ..client_configs.config_texts import initial
    from ..client_configs.texts import FileText

    file = FileText.of(config_path(options).absolute())
    if file.is_there:
        raise UsageError(f"{visible(str(file.path))} is there already, and stays as it is")
    file.write(initial())
    words = typed(options)
    print(f"wrote {visible(str(file.path))}")
    print(f"  {words} add NAME -- COMMAND...    adds a server; `import --from CLIENT` takes those of a client")
    print(f"  {words} check                    starts them all, and says what a model would be given")
    return DONE


def _add(options: argparse.Namespace) -> int:
    from ..client_configs.config_texts import added, initial
    from ..client_configs.texts import FileText
    from ..config.reading import load_config

    file = FileText.of(config_path(options).absolute())
    text = added(file.text if file.is_there else initial(), options.name, server_entry(options))
    file.write(text)
    print(f"added {visible(options.name)} to {visible(str(file.path))}")
    for problem in load_config(file.path).problems:
        if problem.server == options.name:
            warn(str(problem))
    return DONE


def server_entry(options: argparse.Namespace) -> dict[str, Any]:
    """Return what stands in a configuration for a server. Raises `UsageError` for what does not go together."""
    command: list[str] | None = options.command_line
    if options.openapi is not None:
        return _api(options)
    if options.base_url or options.include:
        raise UsageError("--base-url and --include go with --openapi")
    if (command is None) == (options.url is None):
        raise UsageError(NO_COMMAND)
    if command is None:
        return _remote(options)
    if not command:
        raise UsageError("there is no command behind --")
    if options.transport not in (None, "stdio") or options.header:
        raise UsageError("a command is spoken with over stdio, and has no --header")
    entry: dict[str, Any] = {"command": command[0]}
    if command[1:]:
        entry["args"] = command[1:]
    if options.env:
        entry["env"] = _pairs(options.env, "=", "--env takes KEY=VALUE")
    return _with_policy(entry, options)


def _api(options: argparse.Namespace) -> dict[str, Any]:
    if options.command_line is not None or options.url is not None or options.transport or options.env:
        raise UsageError("--openapi goes with --base-url, --include and --header alone")
    entry: dict[str, Any] = {"openapi": options.openapi}
    if options.base_url:
        entry["baseUrl"] = options.base_url
    if options.header:
        entry["headers"] = _pairs(options.header, ":", "--header takes NAME:VALUE")
    if options.include:
        entry["include"] = options.include
    return _with_policy(entry, options)


def _remote(options: argparse.Namespace) -> dict[str, Any]:
    if "://" not in options.url and "${" not in options.url:
        raise UsageError(f"{visible(options.url)} is no URL; {NO_COMMAND}")
    if options.transport == "stdio" or options.env:
        raise UsageError("a URL is spoken with over http or sse, and has no --env")
    entry: dict[str, Any] = {"type": options.transport or "http", "url": options.url}
    if options.header:
        entry["headers"] = _pairs(options.header, ":", "--header takes NAME:VALUE")
    return _with_policy(entry, options)


def _pairs(given: Sequence[str], between: str, said: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        key, mark, value = one.partition(between)
        if not key.strip() or not mark:
            raise UsageError(said)  # what was given may be a secret
        found[key.strip()] = value.strip() if between == ":" else value
    return found


def _with_policy(entry: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    return entry if options.approval is None else {**entry, "codemode": {"approval": options.approval}}
