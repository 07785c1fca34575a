"""``codemode mcp`` init, add, import, install, undo, list, login, logout and pins: commands on the configuration."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from codemode.cli.exits import DONE, FAILED, UsageError
from codemode.trace.visible_text import aligned, counted, one_line, visible

from .commands import NO_COMMAND
from .setup import config_path, configuration, controlling_terminal, server_named, typed, warn

if TYPE_CHECKING:
    from ..client_configs.installing import Change
    from ..config.model import GatewayConfig, ServerConfig
    from ..tool_history.tool_pins import Pins, ServerPins


_MAX_SHOWN_CHARACTERS = 80


def list_servers(options: argparse.Namespace) -> int:
    """Print one line for each server."""
    config = configuration(options)
    if options.json:
        print(json.dumps(_as_json(config), indent=2, ensure_ascii=False))
        return DONE
    rows = [("server", "transport", "where", "approval", "tools", "pin", "timeout")]
    rows += [_row(one) for one in config.servers]
    rows += [(one_line(name, 40), "", "disabled", "", "", "", "") for name in config.disabled]
    wrong = dict.fromkeys(one.server for one in config.problems if one.server is not None)
    rows += [(one_line(name, 40), "", "cannot be used: see above", "", "", "", "") for name in wrong]
    if rows[1:]:
        print("\n".join(aligned(rows)))
    for problem in config.problems:
        if problem.server is None:
            warn(f"{config.path}: {problem}")
    return DONE


def where(server: ServerConfig) -> str:
    """Return what a server is, without what could be a secret: of a command its name, of a URL its host."""
    if server.command is not None:
        return f"{server.command} ({counted(len(server.args), 'argument')})" if server.args else server.command
    parts = urlsplit(server.url or server.base_url or server.document or "")
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}" + ("/…" if parts.path.strip("/") or parts.query else "")


def _row(server: ServerConfig) -> tuple[str, ...]:
    return (
        one_line(server.name, 40),
        server.transport,
        one_line(where(server), _MAX_SHOWN_CHARACTERS),
        _approval(server),
        _tools(server),
        server.pin,
        f"{server.timeout_ms / 1000:g} s",
    )


def _approval(server: ServerConfig) -> str:
    own = len(server.tool_approvals) + len(server.auto_approve)
    return server.approval + (f", {counted(own, 'exception')}" if own else "")


def _tools(server: ServerConfig) -> str:
    allowed = ", ".join(server.allow) or "all"
    denied = f" but {', '.join(server.deny)}" if server.deny else ""
    return one_line(allowed + denied, 40)


def _as_json(config: GatewayConfig) -> dict[str, Any]:
    return {
        "config": str(config.path),
        "servers": [
            {
                "name": one.name,
                "transport": one.transport,
                "where": where(one),
                "approval": one.approval,
                "toolApprovals": dict(one.tool_approvals),
                "autoApprove": list(one.auto_approve),
                "tools": {"allow": list(one.allow), "deny": list(one.deny)},
                "pin": one.pin,
                "timeoutMs": one.timeout_ms,
            }
            for one in config.servers
        ],
        "disabled": list(config.disabled),
        "problems": [{"server": one.server, "path": one.path, "message": one.message} for one in config.problems],
    }


def init_or_add(options: argparse.Namespace) -> int:
    """Write the file."""
    return _init(options) if options.part == "init" else _add(options)


def _init(options: argparse.Namespace) -> int:
    from ..client_configs.text_files import FileText, initial

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
    from ..client_configs.text_files import FileText, added, initial
    from ..config.loader import load_config

    file = FileText.of(config_path(options).absolute())
    entry = server_entry(options)
    file.write(added(file.text if file.is_there else initial(), options.name, entry))
    print(f"added {visible(options.name)} to {visible(str(file.path))}")
    if "cwd" in entry:
        print(f"  it starts in {visible(entry['cwd'])}, because its command names a relative path there")
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
    if any(_is_relative_path(word) for word in command):
        entry["cwd"] = str(Path.cwd())  # clients start the gateway in folders of their own
    if options.env:
        entry["env"] = _pairs(options.env, "=", "--env takes KEY=VALUE")
    return _with_policy(entry, options)


def _is_relative_path(word: str) -> bool:
    """Whether a word of a command names a file or folder in the current folder."""
    return not word.startswith("-") and not Path(word).is_absolute() and Path(word).exists()


def _api(options: argparse.Namespace) -> dict[str, Any]:
    if options.command_line is not None or options.url is not None or options.transport or options.env:
        raise UsageError("--openapi goes with --base-url, --include and --header alone")
    headers = _pairs(options.header, ":", "--header takes NAME:VALUE") if options.header else None
    entry = {"openapi": options.openapi, "baseUrl": options.base_url, "headers": headers, "include": options.include}
    return _with_policy({key: value for key, value in entry.items() if value}, options)


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


def import_or_install(options: argparse.Namespace) -> int:
    """Take over, put in place, or undo."""
    if options.part == "import":
        return _import(options)
    if options.part == "undo" or options.undo:
        return _undo(options)
    return _install(options)


def _import(options: argparse.Namespace) -> int:
    from ..client_configs.importing import Machine, imported
    from ..client_configs.importing import found as files_of
    from ..client_configs.text_files import FileText, initial, with_inputs, with_servers

    machine = Machine(project=None if options.project is None else Path(options.project).resolve())
    if machine.project is not None and not machine.project.is_dir():
        raise UsageError(f"--project takes a folder, and {visible(str(machine.project))} is none")
    found = imported(options.client, machine, folder=Path.cwd())
    for note in found.notes:
        warn(note)
    for name, reason in found.left.items():
        warn(f"{name} of {options.client} is left out: {reason}")
    if not found.servers:
        looked = dict.fromkeys(str(one.path) for one in files_of(options.client, machine))
        where = ", ".join(map(str, found.files)) or f"looked for {', '.join(looked)}"
        raise UsageError(visible(f"{options.client} has no server that can be taken over ({where})"))
    file = FileText.of(config_path(options).absolute())
    before = file.text if file.is_there else initial()
    text, names = with_servers(before, found.servers, options.client)
    text = with_inputs(text, found.inputs, found.servers)
    is_new = text != before or not file.is_there
    if is_new:
        file.write(text)
    for name, ours in names.items():
        print(f"  {visible(ours)}" + ("" if ours == name else f", which {options.client} calls {visible(name)}"))
    found_there = "" if is_new else " already, nothing was added"
    print(f"{counted(len(names), 'server')} in {visible(str(file.path))}{found_there}; {options.client} is as it was")
    return DONE


def _install(options: argparse.Namespace) -> int:
    from ..client_configs.installing import installed

    path = config_path(options).absolute()
    change = installed(options.client, path, dry_run=options.dry_run)
    if change.is_changed:
        done = "would stand" if options.dry_run else "stands"
        what = f"the gateway {done} in {change.path} in place of {counted(len(change.moved), 'server')}"
    else:
        what = f"the gateway stands in {change.path} already"
    _tell(change, what, options.dry_run)
    return DONE


def _undo(options: argparse.Namespace) -> int:
    from ..client_configs.installing import undone

    change = undone(options.client, dry_run=options.dry_run)
    does = "would have" if options.dry_run else "has"
    _tell(
        change,
        f"{options.client} {does} its {counted(len(change.moved), 'server')} back in {change.path}",
        options.dry_run,
    )
    return DONE


def _tell(change: Change, what: str, dry_run: bool) -> None:
    if dry_run and change.diff:
        print(visible(change.diff, keep="\n\t"))
    print(visible(what))
    if change.backup is not None:
        print(
            visible(f"its file as it was is {change.backup}; `codemode mcp undo --client {change.client}` puts it back")
        )
    if change.is_changed and not dry_run:
        print(f"restart {change.client}, or let it read its servers anew")
    for note in change.notes:
        warn(note)


def login_or_logout(options: argparse.Namespace) -> int:
    """Sign in, or forget what there is."""
    config = configuration(options)
    name = server_named(config, options.name)
    if options.part == "logout":
        return asyncio.run(_logout(config, name))
    return asyncio.run(_login(config, name, opens=not options.no_browser))


async def _login(config: GatewayConfig, name: str, *, opens: bool) -> int:
    from ..oauth.browser import open_in_browser
    from ..oauth.login_manager import login

    # Where somebody is at the terminal, the page may be opened on another machine and its end pasted here.
    reads = sys.stdin.isatty() or not opens
    await login(
        config,
        name,
        open_browser=open_in_browser if opens else None,
        read_line=sys.stdin.readline if reads else None,
    )
    print(f"signed in to {visible(name)}")
    return DONE


async def _logout(config: GatewayConfig, name: str) -> int:
    from ..oauth.login_manager import logout

    had = await logout(config, name)
    print(f"forgot the tokens of {visible(name)}" if had else f"there are no tokens of {visible(name)}")
    return DONE


def show_or_approve_pins(options: argparse.Namespace) -> int:
    """Show all differences, or those of one server before it is taken as it is."""
    pins = _pins(configuration(options), options.user)
    found = pins.listing()
    return _list(found) if options.action is None else _approve(pins, found, options.name)


def _pins(config: GatewayConfig, user: str) -> Pins:
    from ..gateway.gateway import Gateway
    from ..tool_history.tool_pins import Pins

    return Pins(Gateway(config).folder, user)


def _list(found: tuple[ServerPins, ...]) -> int:
    for one in found:
        print(difference(one))
    changed = sum(bool(one.differences) for one in found)
    print(f"{counted(changed, 'server')} of {len(found)} changed since first use")
    return DONE


def difference(one: ServerPins) -> str:
    """Return how the tools of a server differ, with nothing that hides: what a person is shown."""
    lines = [f"{visible(one.server)}: {counted(one.pinned, 'tool')} at first use"]
    for tool in one.differences:
        lines.append(f"  {tool.kind} {visible(tool.tool)}")
        lines += [f"    {visible(line)}" for line in tool.lines()]
    return "\n".join(lines if one.differences else [f"{lines[0]}, the same now"])


def _approve(pins: Pins, found: tuple[ServerPins, ...], name: str) -> int:
    from ..tool_history.tool_pins import ChangedAgain

    shown = next((one for one in found if one.server == name), None)
    if shown is None:
        known = ", ".join(visible(one.server) for one in found) or "none"
        raise UsageError(f"nothing is remembered of {visible(name)}; of these there is: {known}")
    if not shown.differences:
        print(f"the tools of {visible(name)} are those of its first use")
        return DONE
    with controlling_terminal("`pins approve`") as terminal:
        terminal.say(difference(shown))
        if not terminal.agrees(f"\nTake the tools of {visible(name)} as they are now?"):
            terminal.say("Nothing was approved.")
            return FAILED
    try:
        count = pins.approve(name, shown.token)
    except ChangedAgain as error:
        warn(str(error))
        return FAILED
    print(f"approved {counted(count, 'tool')} of {visible(name)}")
    return DONE
