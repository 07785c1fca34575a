"""Run the subcommands that read or change configurations, tokens and pins."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from codemode.cli.exits import FAILED, SUCCEEDED, UsageError, show_text_if_slow
from codemode.trace.visible_text import align_columns, clip_to_visible_line, escape_invisible, format_count

from .command_context import (
    get_config_path,
    get_typed_command_prefix,
    load_configuration_and_warn,
    open_controlling_terminal,
    print_json,
    require_config_file,
    require_server,
    warn,
)
from .commands import ADD_USAGE

if TYPE_CHECKING:
    from ..client_configs.installing import ClientFileChange
    from ..config.model import GatewayConfig, ServerConfig
    from ..tool_history.tool_pins import ServerPins, ToolPins


_MAX_LOCATION_CHARACTERS = 80


def list_servers(options: argparse.Namespace) -> int:
    """Print a table of the servers, or JSON."""
    config = load_configuration_and_warn(options)
    if options.json:
        print_json(_to_json_config(config))
        return SUCCEEDED
    rows = [("server", "transport", "where", "approval", "tools", "pin", "timeout")]
    rows += [_to_server_row(server) for server in config.servers]
    rows += [(clip_to_visible_line(name, 40), "", "disabled", "", "", "", "") for name in config.disabled]
    unusable_names = dict.fromkeys(server.server for server in config.problems if server.server is not None)
    rows += [(clip_to_visible_line(name, 40), "", "unusable: see above", "", "", "", "") for name in unusable_names]
    if rows[1:]:
        print("\n".join(align_columns(rows)))
    for problem in config.problems:
        if problem.server is None:
            warn(f"{config.path}: {problem}")
    return SUCCEEDED


def describe_location(server: ServerConfig) -> str:
    """Return a server's command name or URL host, without possible secrets."""
    if server.command is not None:
        return f"{server.command} ({format_count(len(server.args), 'argument')})" if server.args else server.command
    parts = urlsplit(server.url or server.base_url or server.document or "")
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}" + ("/…" if parts.path.strip("/") or parts.query else "")


def _to_server_row(server: ServerConfig) -> tuple[str, ...]:
    return (
        clip_to_visible_line(server.name, 40),
        server.transport,
        clip_to_visible_line(describe_location(server), _MAX_LOCATION_CHARACTERS),
        _describe_approval(server),
        _describe_tool_filter(server),
        server.pin,
        f"{server.timeout_ms / 1000:g} s",
    )


def _describe_approval(server: ServerConfig) -> str:
    exception_count = len(server.tool_approvals) + len(server.auto_approve)
    return server.approval + (f", {format_count(exception_count, 'exception')}" if exception_count else "")


def _describe_tool_filter(server: ServerConfig) -> str:
    allowed = ", ".join(server.allow) or "all"
    denied = f" but {', '.join(server.deny)}" if server.deny else ""
    return clip_to_visible_line(allowed + denied, 40)


def _to_json_config(config: GatewayConfig) -> dict[str, Any]:
    return {
        "config": str(config.path),
        "servers": [
            {
                "name": item.name,
                "transport": item.transport,
                "where": describe_location(item),
                "approval": item.approval,
                "toolApprovals": dict(item.tool_approvals),
                "autoApprove": list(item.auto_approve),
                "tools": {"allow": list(item.allow), "deny": list(item.deny)},
                "pin": item.pin,
                "timeoutMs": item.timeout_ms,
            }
            for item in config.servers
        ],
        "disabled": list(config.disabled),
        "problems": [{"server": item.server, "path": item.path, "message": item.message} for item in config.problems],
    }


def create_or_extend_configuration(options: argparse.Namespace) -> int:
    """Create a configuration, or add a server to it."""
    return _create_configuration(options) if options.part == "init" else _add_server_to_configuration(options)


def _create_configuration(options: argparse.Namespace) -> int:
    from ..client_configs.text_files import TextFile, create_gateway_config_text

    file = TextFile.read(get_config_path(options).absolute())
    if file.is_present:
        raise UsageError(f"{escape_invisible(str(file.path))} already exists and stays unchanged")
    file.write(create_gateway_config_text())
    command_prefix = get_typed_command_prefix(options)
    print(f"wrote {escape_invisible(str(file.path))}")
    print(f"  {command_prefix} add NAME -- COMMAND...    adds a server; `import --from CLIENT` adds those of a client")
    print(f"  {command_prefix} check                    starts all servers, and prints the tool that models see")
    return SUCCEEDED


def _add_server_to_configuration(options: argparse.Namespace) -> int:
    from ..client_configs.text_files import TextFile, create_gateway_config_text, create_text_with_server
    from ..config.loader import load_config

    file = TextFile.read(get_config_path(options).absolute())
    entry = build_server_entry(options)
    file.write(
        create_text_with_server(file.text if file.is_present else create_gateway_config_text(), options.name, entry)
    )
    print(f"added {escape_invisible(options.name)} to {escape_invisible(str(file.path))}")
    if "cwd" in entry:
        print(f"  it starts in {escape_invisible(entry['cwd'])}, because its command names a relative path there")
    for problem in load_config(file.path).problems:
        if problem.server == options.name:
            warn(str(problem))
    return SUCCEEDED


def remove_server(options: argparse.Namespace) -> int:
    """Remove a server from the configuration; its tokens, pins and remembered answers stay."""
    from ..client_configs import text_files

    file = text_files.TextFile.read(require_config_file(options).absolute())
    file.write(text_files.create_text_without_server(file, options.name))
    print(f"removed {escape_invisible(options.name)} from {escape_invisible(str(file.path))}")
    return SUCCEEDED


def build_server_entry(options: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration entry for a server. Raises `UsageError` for incompatible options."""
    command: list[str] | None = options.command_line
    if options.openapi is not None:
        return _build_api_entry(options)
    if options.base_url or options.include:
        raise UsageError("--base-url and --include go with --openapi")
    if (command is None) == (options.url is None):
        raise UsageError(ADD_USAGE)
    if command is None:
        return _build_remote_entry(options)
    if not command:
        raise UsageError("there is no command after --")
    if options.transport not in (None, "stdio") or options.header:
        raise UsageError("a command uses stdio, without --header")
    entry: dict[str, Any] = {"command": command[0]}
    if command[1:]:
        entry["args"] = command[1:]
    if any(_is_existing_relative_path(word) for word in command):
        entry["cwd"] = str(Path.cwd())  # clients start the gateway in folders of their own
    if options.env:
        entry["env"] = _parse_pairs(options.env, "=", "--env takes KEY=VALUE")
    return _add_approval_policy(entry, options)


def _is_existing_relative_path(word: str) -> bool:
    """Return whether a word of the command line is the relative path of an existing file or folder."""
    return not word.startswith("-") and not Path(word).is_absolute() and Path(word).exists()


def _build_api_entry(options: argparse.Namespace) -> dict[str, Any]:
    if options.command_line is not None or options.url is not None or options.transport or options.env:
        raise UsageError("--openapi only goes with --base-url, --include and --header")
    headers = _parse_pairs(options.header, ":", "--header takes NAME:VALUE") if options.header else None
    document = str(Path(options.openapi).absolute()) if _is_existing_relative_path(options.openapi) else options.openapi
    entry = {"openapi": document, "baseUrl": options.base_url, "headers": headers, "include": options.include}
    return _add_approval_policy({key: value for key, value in entry.items() if value}, options)


def _build_remote_entry(options: argparse.Namespace) -> dict[str, Any]:
    if "://" not in options.url and "${" not in options.url:
        raise UsageError(f"{escape_invisible(options.url)} is not a URL; {ADD_USAGE}")
    if options.transport == "stdio" or options.env:
        raise UsageError("a URL uses http or sse, without --env")
    entry: dict[str, Any] = {"type": options.transport or "http", "url": options.url}
    if options.header:
        entry["headers"] = _parse_pairs(options.header, ":", "--header takes NAME:VALUE")
    return _add_approval_policy(entry, options)


def _parse_pairs(texts: Sequence[str], separator: str, error_message: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, found_separator, value = text.partition(separator)
        if not key.strip() or not found_separator:
            raise UsageError(error_message)  # security: the value may be a secret
        pairs[key.strip()] = value.strip() if separator == ":" else value
    return pairs


def _add_approval_policy(entry: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    return entry if options.approval is None else {**entry, "codemode": {"approval": options.approval}}


def import_install_or_undo(options: argparse.Namespace) -> int:
    """Import servers, or install or uninstall the gateway."""
    if options.part == "import":
        return _import_servers(options)
    if options.part == "undo":
        return _uninstall_gateway(options)
    return _install_gateway(options)


def _import_servers(options: argparse.Namespace) -> int:
    from ..client_configs.importing import ClientEnvironment, collect_importable_servers, list_client_files
    from ..client_configs.text_files import (
        TextFile,
        add_used_vscode_inputs,
        create_gateway_config_text,
        merge_client_servers,
    )

    machine = ClientEnvironment(project=None if options.project is None else Path(options.project).resolve())
    if machine.project is not None and not machine.project.is_dir():
        raise UsageError(f"--project needs a folder; {escape_invisible(str(machine.project))} is not one")
    imported_servers = collect_importable_servers(options.client, machine, folder=Path.cwd())
    for note in imported_servers.notes:
        warn(note)
    for name, reason in imported_servers.skipped.items():
        warn(f"{name} of {options.client} is skipped: {reason}")
    if not imported_servers.servers:
        searched_paths = dict.fromkeys(str(file.path) for file in list_client_files(options.client, machine))
        found_in = ", ".join(map(str, imported_servers.files)) or f"no file {', '.join(searched_paths)}"
        raise UsageError(escape_invisible(f"{options.client} has no server to import ({found_in})"))
    file = TextFile.read(get_config_path(options).absolute())
    before = file.text if file.is_present else create_gateway_config_text()
    text, new_names = merge_client_servers(before, imported_servers.servers, options.client)
    text = add_used_vscode_inputs(text, imported_servers.inputs, imported_servers.servers)
    is_new = text != before or not file.is_present
    if is_new:
        file.write(text)
    for name, config_name in new_names.items():
        print(
            f"  {escape_invisible(config_name)}"
            + ("" if config_name == name else f" ({escape_invisible(name)} in {options.client})")
        )
    ending = "" if is_new else " already; nothing was added"
    print(
        f"{format_count(len(new_names), 'server')} in {escape_invisible(str(file.path))}{ending};"
        f" {options.client} is unchanged"
    )
    return SUCCEEDED


def _install_gateway(options: argparse.Namespace) -> int:
    from ..client_configs.installing import install_gateway

    path = get_config_path(options).absolute()
    change = install_gateway(options.client, path, dry_run=options.dry_run)
    if change.is_changed:
        verb = "would replace" if options.dry_run else "replaces"
        summary = f"the gateway {verb} {format_count(len(change.moved), 'server')} in {change.path}"
    else:
        summary = f"the gateway is already installed in {change.path}"
    _print_change(change, summary, options.dry_run)
    return SUCCEEDED


def _uninstall_gateway(options: argparse.Namespace) -> int:
    from ..client_configs.installing import uninstall_gateway

    change = uninstall_gateway(options.client, dry_run=options.dry_run)
    verb = "would get" if options.dry_run else "has"
    _print_change(
        change,
        f"{options.client} {verb} its {format_count(len(change.moved), 'server')} back in {change.path}",
        options.dry_run,
    )
    return SUCCEEDED


def _print_change(change: ClientFileChange, summary: str, dry_run: bool) -> None:
    if dry_run and change.diff:
        print(escape_invisible(change.diff, keep="\n\t"))
    print(escape_invisible(summary))
    if change.backup is not None:
        print(
            escape_invisible(f"the backup is {change.backup}; `codemode mcp undo --client {change.client}` restores it")
        )
    if change.is_changed and not dry_run:
        print(f"restart {change.client}, or reload its servers")
    for note in change.notes:
        warn(note)


def login_or_logout(options: argparse.Namespace) -> int:
    """Sign in to a server, or delete its tokens."""
    config = load_configuration_and_warn(options)
    name = require_server(config, options.name)
    if options.part == "logout":
        return asyncio.run(_logout(config, name))
    return asyncio.run(_login(config, name, opens_browser=not options.no_browser))


async def _login(config: GatewayConfig, name: str, *, opens_browser: bool) -> int:
    from ..oauth.browser import open_in_browser
    from ..oauth.login_manager import login

    # At a terminal, the user may open the page on another machine and paste the final URL here.
    reads_terminal = sys.stdin.isatty() or not opens_browser
    with show_text_if_slow(f"waiting for the sign-in to {clip_to_visible_line(name, _MAX_LOCATION_CHARACTERS)} ..."):
        await login(
            config,
            name,
            open_browser=open_in_browser if opens_browser else None,
            read_line=sys.stdin.readline if reads_terminal else None,
        )
    print(f"signed in to {escape_invisible(name)}")
    return SUCCEEDED


async def _logout(config: GatewayConfig, name: str) -> int:
    from ..oauth.login_manager import logout

    was_logged_in = await logout(config, name)
    print(
        f"deleted the tokens of {escape_invisible(name)}"
        if was_logged_in
        else f"{escape_invisible(name)} has no tokens"
    )
    return SUCCEEDED


def show_or_approve_pins(options: argparse.Namespace) -> int:
    """Show the differences of all pinned tools, or accept those of one server."""
    pins = _open_pins(load_configuration_and_warn(options), options.user)
    servers = pins.list_server_pins()
    if options.action is not None:
        return _confirm_and_approve_pins(pins, servers, options.name)
    return _print_pins(servers, as_json=options.json)


def _open_pins(config: GatewayConfig, user: str) -> ToolPins:
    from ..gateway.gateway import Gateway
    from ..tool_history.tool_pins import ToolPins

    return ToolPins(Gateway(config).folder, user)


def _print_pins(servers: tuple[ServerPins, ...], *, as_json: bool) -> int:
    if as_json:
        print_json({"servers": [_to_json_pins(server) for server in servers]})
        return SUCCEEDED
    for server in servers:
        print(format_pin_changes(server))
    changed_count = sum(bool(server.differences) for server in servers)
    print(f"{format_count(changed_count, 'server')} of {len(servers)} changed since first use")
    return SUCCEEDED


def _to_json_pins(server: ServerPins) -> dict[str, Any]:
    differences = [
        {"tool": tool.tool, "kind": tool.kind, "lines": tool.create_diff_lines()} for tool in server.differences
    ]
    return {"server": server.server, "tools": server.pinned, "differences": differences}


def format_pin_changes(server: ServerPins) -> str:
    """Return the differences of a server's tools for a person, with invisible characters escaped."""
    lines = [f"{escape_invisible(server.server)}: {format_count(server.pinned, 'tool')} at first use"]
    for tool in server.differences:
        lines.append(f"  {tool.kind} {escape_invisible(tool.tool)}")
        lines += [f"    {escape_invisible(line)}" for line in tool.create_diff_lines()]
    return "\n".join(lines if server.differences else [f"{lines[0]}, unchanged"])


def _confirm_and_approve_pins(pins: ToolPins, servers: tuple[ServerPins, ...], name: str) -> int:
    from ..tool_history.tool_pins import ToolsChangedError

    selected = next((server for server in servers if server.server == name), None)
    if selected is None:
        pinned_names = ", ".join(escape_invisible(server.server) for server in servers) or "none"
        raise UsageError(f"{escape_invisible(name)} has no pins; servers with pins: {pinned_names}")
    if not selected.differences:
        print(f"the tools of {escape_invisible(name)} are unchanged since first use")
        return SUCCEEDED
    with open_controlling_terminal("`pins approve`") as terminal:
        terminal.write_line(format_pin_changes(selected))
        if not terminal.confirm(f"\nAccept the current tools of {escape_invisible(name)}?"):
            terminal.write_line("Nothing was approved.")
            return FAILED
    try:
        count = pins.approve_current_tools(name, selected.token)
    except ToolsChangedError as error:
        warn(str(error))
        return FAILED
    print(f"approved {format_count(count, 'tool')} of {escape_invisible(name)}")
    return SUCCEEDED
