"""Run ``codemode mcp`` check, types and run, which start the servers."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp import Client

from codemode.cli.exits import FAILED, SUCCEEDED, show_text_if_slow
from codemode.cli.run import TerminalApprover, read_program
from codemode.errors import CodeModeToolError
from codemode.trace.visible_text import align_columns, clip_to_visible_line, escape_invisible, format_count

from ..gateway.gateway import Gateway
from ..gateway.options import GatewayOptions
from ..passthrough.client_requests import may_have_server_label
from .command_context import (
    get_typed_command_prefix,
    load_configuration_and_warn,
    print_json,
    require_server,
    require_servers,
    warn,
)

if TYPE_CHECKING:
    from ..config.model import GatewayConfig


AskPerson = Callable[[str], Awaitable[bool]]


async def fetch_gateway_tool(gateway: Gateway) -> dict[str, Any]:
    """Return the gateway's tool as JSON, as clients list it."""
    async with Client(gateway.server) as client:
        (tool,) = (await client.list_tools()).tools
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)


async def run_program_as_client(
    gateway: Gateway, code: str, decide: AskPerson, notify: Callable[[str], None], confirm: AskPerson | None = None
) -> dict[str, Any]:
    """Run a program as a client, and return its response.

    ``decide`` gets the text of each call that needs approval. ``notify`` gets messages, such as a sign-in URL or a
    declined question. ``confirm`` gets each page that a server asks to open, and must ask a person; without it they are
    declined, as forms of servers always are.
    """

    async def answer_elicitation(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        asked_by_server = may_have_server_label(params.message)
        if isinstance(params, types.ElicitRequestURLParams):
            shown = f"{params.message}\n{params.url}"
            if not asked_by_server:
                notify(shown)
                return types.ElicitResult(action="accept")
            is_confirmed = confirm is not None and await confirm(shown)
            return types.ElicitResult(action="accept" if is_confirmed else "decline")
        if asked_by_server:
            notify(f"{params.message}\ndeclined: forms of servers are not supported here")
            return types.ElicitResult(action="decline")
        if await decide(params.message):
            return types.ElicitResult(action="accept", content={"decision": "once"})
        return types.ElicitResult(action="decline")

    async with Client(gateway.server, elicitation_callback=answer_elicitation) as client:
        (tool,) = (await client.list_tools()).tools
        answer = await client.call_tool(tool.name, {"code": code})
    return answer.structured_content or _to_response(answer.content)


def _to_response(content: list[types.ContentBlock]) -> dict[str, Any]:
    """Return a response with media as its text and the sizes of the media."""
    (text,) = (block.text for block in content if isinstance(block, types.TextContent))
    media = [block for block in content if isinstance(block, types.ImageContent | types.AudioContent)]
    attachments = [f"{block.mime_type}, {len(block.data)} characters of base64" for block in media]
    return {**json.loads(text), **({"attached": attachments} if attachments else {})}


_TIMEOUT_REASON = "it does not answer in time; try a larger connectTimeoutMs"
_MAX_LOGGED_TEXTS = 200


@asynccontextmanager
async def open_gateway_and_workspace(config: GatewayConfig, command: str) -> AsyncGenerator[tuple[Gateway, Any]]:
    """Open a gateway and the workspace of its local user, who runs it with ``command``."""
    async with Gateway(config, GatewayOptions(command=command)) as gateway:
        yield gateway, await gateway.get_or_create_workspace()


@contextmanager
def collect_warnings_and_print_once(reported: Collection[str]) -> Generator[None]:
    """Collect warnings of the gateway, and print each once at the end, unless it has a ``reported`` reason."""
    handler = _LogCollector(logging.WARNING)
    log = logging.getLogger("codemode")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        for text in handler.texts:
            if not any(reason in text for reason in reported):
                warn(text)


class _LogCollector(logging.Handler):
    """Collects distinct log messages, up to a limit."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.texts: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < _MAX_LOGGED_TEXTS:
            self.texts[record.getMessage()] = None


async def refresh_tools_or_fail_upstream(upstream: Any, *, starts_server: bool) -> str | None:
    """List a server's tools within its time limit. Returns the reason of a failure, or None.

    Starts the server if ``starts_server`` or if no list is cached. A failed server is given up, so that later steps of
    the command do not start it again.
    """
    try:
        async with asyncio.timeout(upstream.listing_seconds):
            if starts_server:
                await upstream.refresh()
            await upstream.tools()
    except TimeoutError:
        return _fail_upstream(upstream, CodeModeToolError(upstream.problem or _TIMEOUT_REASON))
    except Exception as error:  # noqa: BLE001 - every error is reported, and the other servers continue
        return _fail_upstream(upstream, error)
    return None


def _fail_upstream(upstream: Any, error: Exception) -> str:
    upstream.fail_permanently(error)
    return upstream.problem or str(error) or type(error).__name__


_CHARACTERS_PER_TOKEN = 4
_MAX_REASON_CHARACTERS = 1_000
_MAX_PROGRESS_CHARACTERS = 80


def check_servers(options: argparse.Namespace) -> int:
    """Start every server, run a program that imports them all, and print the results. Return 1 for a failure."""
    config = require_servers(load_configuration_and_warn(options))
    if options.name is not None:
        name = require_server(config, options.name)
        config = replace(config, servers=tuple(server for server in config.servers if server.name == name), problems=())
    report = asyncio.run(
        _check_servers_and_create_report(config, get_typed_command_prefix(options), is_whole=options.name is None)
    )
    if options.json:
        print_json(report)
    else:
        _print_report(report)
    return FAILED if report["problems"] or any(server["problem"] for server in report["servers"]) else SUCCEEDED


async def _check_servers_and_create_report(config: GatewayConfig, command: str, *, is_whole: bool) -> dict[str, Any]:
    reported: list[str] = []
    with collect_warnings_and_print_once(reported), show_text_if_slow(f"starting {_describe_servers(config)} ..."):
        async with open_gateway_and_workspace(config, command) as (gateway, workspace):
            upstreams = workspace.connected.upstreams
            reasons = await asyncio.gather(
                *(refresh_tools_or_fail_upstream(upstream, starts_server=True) for upstream in upstreams)
            )
            reported += [text for text in (*reasons, *(upstream.failure for upstream in upstreams)) if text]
            tool = await fetch_gateway_tool(gateway)
            await workspace.run_tool.prepare()  # as before each program
            servers = {upstream.server_id: upstream for upstream in workspace.run_tool.catalog.servers}
            rows = [
                _create_server_report(
                    upstream,
                    reason or workspace.run_tool.listing_failures.get(upstream.server_id),
                    servers.get(upstream.server_id),
                )
                for upstream, reason in zip(upstreams, reasons, strict=True)
            ]
            reported += [text for row in rows for text in row["warnings"]]
            reported += [left_out_note for upstream in servers.values() for left_out_note in upstream.left_out]
            problems = [str(upstream) for upstream in config.problems if upstream.server is not None]
            store_problems = await _find_store_problems(gateway)
            problems += [*store_problems, *_find_http_settings_problems(config)]
            if not store_problems:  # without it no program runs
                usable_paths = [servers[row["name"]].path for row in rows if row["problem"] is None]
                problems += await _run_import_program_and_find_problems(gateway, usable_paths)
            warnings = _describe_unmatched_common_patterns(upstreams) if is_whole and not any(reasons) else []
    listed_tools = [tool for upstream in upstreams for tool in upstream.listed_tools]
    sizes = _compute_tool_sizes(tool, listed_tools)
    return {"servers": rows, "problems": problems, "warnings": warnings, "given": tool, "sizes": sizes}


def _create_server_report(upstream: Any, problem: str | None, server: Any) -> dict[str, Any]:
    """Return the report of a server: programs see ``tools`` of its ``listed`` tools."""
    tools = 0 if server is None else len(server.tools)
    warnings = [
        *upstream.pattern_notes,
        *upstream.notes,
        *(f"in tools/list, {note}" for note in (() if server is None else server.left_out)),
    ]
    if problem is None and upstream.listed_tools and not tools and not upstream.notes:
        count = format_count(len(upstream.listed_tools), "tool")
        problem = f"programs see none of its {count}: tools.allow and tools.deny exclude all"
    row = {"name": upstream.config.name, "tools": tools, "listed": len(upstream.listed_tools)}
    return {**row, "problem": problem, "warnings": warnings}


def _describe_unmatched_common_patterns(upstreams: Any) -> list[str]:
    """Return warnings about common patterns that match no tool of any server."""
    from ..config.patterns import describe_unmatched_patterns, get_tool_patterns

    common: dict[str, tuple[str, ...]] = {}
    for upstream in upstreams:
        for key, patterns in get_tool_patterns(upstream.config).items():
            common_own = (pattern for pattern in patterns if pattern in upstream.config.common_patterns)
            common[key] = tuple(dict.fromkeys((*common.get(key, ()), *common_own)))
    names = {tool.name for upstream in upstreams for tool in upstream.listed_tools}
    return [f"codemode.{note}" for note in describe_unmatched_patterns(common, names, " of any server")]


async def _run_import_program_and_find_problems(gateway: Any, paths: list[str]) -> list[str]:
    """Run a program that imports these servers without calls, and return its errors."""

    async def deny_call(_shown: str) -> bool:
        return False

    lines = [f'import * as server{index} from "@codemode/servers/{path}";' for index, path in enumerate(paths)]
    names = ", ".join(f"server{index}" for index in range(len(paths)))
    code = "\n".join([*lines, f"globalThis.__codemode_result__ = [{names}].length;"])
    response = await run_program_as_client(gateway, code, deny_call, warn)
    errors = [entry for entry in response.get("diagnostics", []) if entry.get("severity") == "error"]
    return [f"a program that imports the servers fails: {error.get('message')}" for error in errors]


async def _find_store_problems(gateway: Any) -> list[str]:
    from codemode.errors import CodeModeError
    from codemode.stores.records import ALL_TENANTS

    try:
        await gateway.store.list(tenant=ALL_TENANTS, limit=1)
    except (CodeModeError, OSError, ValueError) as error:
        return [f"codemode.store: {error}"]
    return []


def _find_http_settings_problems(config: GatewayConfig) -> list[str]:
    """Return problems of the settings for HTTP."""
    from ..config.model import ConfigError
    from ..gateway.http_settings import parse_http_settings

    try:
        parse_http_settings(config.settings.auth)
    except ConfigError as error:
        return [str(error)]
    return []


def _compute_tool_sizes(tool: dict[str, Any], listed: list[Any]) -> dict[str, Any]:
    direct_texts = [listed_tool.model_dump_json(by_alias=True, exclude_none=True) for listed_tool in listed]
    return {
        "given": _to_size(len(json.dumps(tool, ensure_ascii=False, separators=(",", ":")))),
        "direct": _to_size(sum(map(len, direct_texts))),
        "tools": len(direct_texts),
    }


def _to_size(characters: int) -> dict[str, int]:
    return {"characters": characters, "tokens": characters // _CHARACTERS_PER_TOKEN}


def _print_report(report: dict[str, Any]) -> None:
    tool, sizes = report["given"], report["sizes"]
    print(f"Models see one tool, {escape_invisible(tool['name'])}:\n")
    print(escape_invisible(tool.get("description", ""), keep="\n\t"))
    print()
    print("\n".join(align_columns(_to_report_rows(report))))
    print()
    rows = [
        ("models see", _describe_size(sizes["given"])),
        (f"{format_count(sizes['tools'], 'tool')} listed directly", _describe_size(sizes["direct"])),
    ]
    print("\n".join(align_columns(rows)))
    problem_count = sum(server["problem"] is not None for server in report["servers"]) + len(report["problems"])
    warning_count = sum(len(server["warnings"]) for server in report["servers"]) + len(report["warnings"])
    counts = [f"{format_count(problem_count, 'problem')} (see FAILED above)"] if problem_count else []
    counts += [f"{format_count(warning_count, 'warning')} (see WARNING above)"] if warning_count else []
    print(f"\n{' and '.join(counts)}." if counts else "\nNo problems found.")


def _to_report_rows(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return a row for each server, followed by its warnings, and rows for the whole configuration last."""
    rows: list[tuple[str, str, str]] = []
    for server in report["servers"]:
        name = clip_to_visible_line(server["name"], 60)
        if server["problem"] is not None:
            rows.append(("FAILED", name, clip_to_visible_line(server["problem"], _MAX_REASON_CHARACTERS)))
        else:
            rows.append(("ok", name, _describe_tool_count(server)))
        rows += [("WARNING", name, clip_to_visible_line(text, _MAX_REASON_CHARACTERS)) for text in server["warnings"]]
    rows += [("WARNING", "", clip_to_visible_line(text, _MAX_REASON_CHARACTERS)) for text in report["warnings"]]
    return rows + [("FAILED", "", clip_to_visible_line(text, _MAX_REASON_CHARACTERS)) for text in report["problems"]]


def _describe_tool_count(server: dict[str, Any]) -> str:
    """Return the number of tools that programs see, and of listed tools if it differs."""
    listed_count = f" of {server['listed']:,} listed" if server["listed"] != server["tools"] else ""
    return format_count(server["tools"], "tool") + listed_count


def _describe_size(size: dict[str, int]) -> str:
    return f"{format_count(size['characters'], 'character')}, about {format_count(size['tokens'], 'token')}"


def print_types(options: argparse.Namespace) -> int:
    """Print the TypeScript declarations of all servers, or of one."""
    config = require_servers(load_configuration_and_warn(options))
    name = None if options.name is None else require_server(config, options.name)
    if name is not None:
        config = replace(config, servers=tuple(server for server in config.servers if server.name == name))
    text, failures = asyncio.run(_fetch_declarations_and_failures(config, get_typed_command_prefix(options), name))
    if text:
        print(escape_invisible(text, keep="\n\t"))
    for failure in failures:
        warn(failure)
    return FAILED if failures else SUCCEEDED


async def _fetch_declarations_and_failures(
    config: GatewayConfig, command: str, name: str | None
) -> tuple[str, list[str]]:
    reported: list[str] = []
    with collect_warnings_and_print_once(reported), show_text_if_slow(f"starting {_describe_servers(config)} ..."):
        async with open_gateway_and_workspace(config, command) as (_, workspace):
            upstreams = workspace.connected.upstreams
            reasons = await asyncio.gather(
                *(refresh_tools_or_fail_upstream(upstream, starts_server=False) for upstream in upstreams)
            )
            reported += [text for text in (*reasons, *(upstream.failure for upstream in upstreams)) if text]
            await workspace.run_tool.refresh()
            text = workspace.run_tool.declarations(name)
            failures = workspace.run_tool.listing_failures
    failure_reasons = [
        reason or failures.get(upstream.server_id) for upstream, reason in zip(upstreams, reasons, strict=True)
    ]
    failed = [
        (upstream, reason) for upstream, reason in zip(upstreams, failure_reasons, strict=True) if reason is not None
    ]
    return text, [f"{upstream.config.name}: {reason}" for upstream, reason in failed]


def run_program(options: argparse.Namespace) -> int:
    """Run a program and print its whole response."""
    code = read_program(options.program)
    config = require_servers(load_configuration_and_warn(options))
    response = asyncio.run(
        _run_program_in_terminal(config, get_typed_command_prefix(options), code, TerminalApprover(options.approve))
    )
    print(escape_invisible(json.dumps(response, indent=2, ensure_ascii=False), keep="\n"))
    errors = [diagnostic for diagnostic in response.get("diagnostics", []) if diagnostic.get("severity") == "error"]
    return FAILED if errors else SUCCEEDED


async def _run_program_in_terminal(
    config: GatewayConfig, command: str, code: str, approvals: TerminalApprover
) -> dict[str, Any]:
    async def decide(text: str) -> bool:
        end_progress()
        return await approvals.decide_or_ask(f"\n{escape_invisible(text, keep=chr(10))}") == "approved"

    async def confirm(text: str) -> bool:
        end_progress()
        return await approvals.ask_confirmation(f"\n{escape_invisible(text, keep=chr(10))}", "Open this page? [y/N] ")

    with show_text_if_slow(f"running the program with {_describe_servers(config)} ...") as end_progress:
        async with open_gateway_and_workspace(config, command) as (gateway, _):
            return await run_program_as_client(gateway, code, decide, warn, confirm)


def _describe_servers(config: GatewayConfig) -> str:
    names = ", ".join(server.name for server in config.servers)
    return f"{format_count(len(config.servers), 'server')}: {clip_to_visible_line(names, _MAX_PROGRESS_CHARACTERS)}"
