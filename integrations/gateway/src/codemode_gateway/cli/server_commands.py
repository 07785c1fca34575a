"""``codemode mcp`` check, types and run: commands that start the servers."""

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

from codemode.cli.exits import DONE, FAILED
from codemode.cli.run import TerminalApprovals, program_text
from codemode.errors import CodeModeToolError
from codemode.trace.visible_text import aligned, counted, one_line, visible

from ..gateway.gateway import Gateway
from ..gateway.options import GatewayOptions
from ..passthrough.client_requests import is_from_server
from .setup import configuration, server_named, typed, usable, warn

if TYPE_CHECKING:
    from ..config.model import GatewayConfig


Decide = Callable[[str], Awaitable[bool]]


async def listed_tool(gateway: Gateway) -> dict[str, Any]:
    """Return the tool as a client is listed it, as plain JSON."""
    async with Client(gateway.server) as client:
        (tool,) = (await client.list_tools()).tools
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)


async def response_to(
    gateway: Gateway, code: str, decide: Decide, say: Callable[[str], None], confirm: Decide | None = None
) -> dict[str, Any]:
    """Run a program and return its response.

    ``decide`` is asked about each call that needs an approval, with what is shown of it. ``say`` gets lines for the
    person: a page on which to sign in, a question that was declined. ``confirm`` is asked about the page that a server
    wants opened, and must not answer for a person; without it that is declined, as a server's forms always are.
    """

    async def asked(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        asked_by_server = is_from_server(params.message)
        if isinstance(params, types.ElicitRequestURLParams):
            shown = f"{params.message}\n{params.url}"
            if not asked_by_server:
                say(shown)
                return types.ElicitResult(action="accept")
            is_confirmed = confirm is not None and await confirm(shown)
            return types.ElicitResult(action="accept" if is_confirmed else "decline")
        if asked_by_server:
            say(f"{params.message}\ndeclined: a server's form cannot be filled in here")
            return types.ElicitResult(action="decline")
        if await decide(params.message):
            return types.ElicitResult(action="accept", content={"decision": "once"})
        return types.ElicitResult(action="decline")

    async with Client(gateway.server, elicitation_callback=asked) as client:
        (tool,) = (await client.list_tools()).tools
        answer = await client.call_tool(tool.name, {"code": code})
    return answer.structured_content or _with_media(answer.content)


def _with_media(content: list[types.ContentBlock]) -> dict[str, Any]:
    """Return an answer with images or sounds in it: what is said, and how much there is to see or hear."""
    (text,) = (one.text for one in content if isinstance(one, types.TextContent))
    media = [one for one in content if isinstance(one, types.ImageContent | types.AudioContent)]
    attached = [f"{one.mime_type}, {len(one.data)} characters of base64" for one in media]
    return {**json.loads(text), **({"attached": attached} if attached else {})}


_LATE = "it does not answer in time: a larger connectTimeoutMs gives it more"
_MOST_TEXTS = 200


@asynccontextmanager
async def opened(config: GatewayConfig, command: str) -> AsyncGenerator[tuple[Gateway, Any]]:
    """Give a gateway that runs, and the seat of its one local user, who reaches it by ``command``."""
    async with Gateway(config, GatewayOptions(command=command)) as gateway:
        yield gateway, await gateway.get_workspace()


@contextmanager
def told_once(known: Collection[str]) -> Generator[None]:
    """Keep back what the gateway logs, and say at the end what is not among the ``known`` reasons by then, once."""
    kept = _Kept(logging.WARNING)
    log = logging.getLogger("codemode")
    log.addHandler(kept)
    try:
        yield
    finally:
        log.removeHandler(kept)
        for text in kept.texts:
            if not any(reason in text for reason in known):
                warn(text)


class _Kept(logging.Handler):
    """Keeps the first of each text; a number of them that a person would read."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.texts: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < _MOST_TEXTS:
            self.texts[record.getMessage()] = None


async def listed(upstream: Any, *, anew: bool) -> str | None:
    """List a server's tools, no longer than it may take. Returns what is wrong, None where all is well.

    It is started for that where ``anew``, or where no list is kept from before. One that has failed is given up: what
    the command lists afterwards would start it again, and wait as long.
    """
    try:
        async with asyncio.timeout(upstream.listing_seconds):
            if anew:
                await upstream.refresh()
            await upstream.tools()
    except TimeoutError:
        return _given_up(upstream, CodeModeToolError(upstream.problem or _LATE))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the others go on
        return _given_up(upstream, error)
    return None


def _given_up(upstream: Any, error: Exception) -> str:
    upstream.give_up(error)
    return upstream.problem or str(error) or type(error).__name__


_CHARACTERS_PER_TOKEN = 4
_MAX_REASON_CHARACTERS = 1_000


def check_servers(options: argparse.Namespace) -> int:
    """Start every server, run a program that imports them all, print the findings; the exit code is 1 for a failure."""
    config = usable(configuration(options))
    if options.name is not None:
        name = server_named(config, options.name)
        config = replace(config, servers=tuple(one for one in config.servers if one.name == name), problems=())
    found = asyncio.run(_found(config, typed(options), is_whole=options.name is None))
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _print(found)
    return FAILED if found["problems"] or any(one["problem"] for one in found["servers"]) else DONE


async def _found(config: GatewayConfig, command: str, *, is_whole: bool) -> dict[str, Any]:

    known: list[str] = []
    with told_once(known):
        async with opened(config, command) as (gateway, seat):
            upstreams = seat.connected.upstreams
            reasons = await asyncio.gather(*(listed(one, anew=True) for one in upstreams))
            known += [text for text in (*reasons, *(one.failure for one in upstreams)) if text]
            tool = await listed_tool(gateway)
            await seat.run_tool.prepare()  # as before a program
            servers = {one.server_id: one for one in seat.run_tool.catalog.servers}
            rows = [
                _row_of(one, reason or seat.run_tool.failures.get(one.server_id), servers.get(one.server_id))
                for one, reason in zip(upstreams, reasons, strict=True)
            ]
            known += [text for row in rows for text in row["warnings"]]
            known += [note for one in servers.values() for note in one.left_out]
            problems = [str(one) for one in config.problems if one.server is not None]
            problems += await _store_problems(gateway)
            problems += _sign_in_problems(config)
            used = [servers[row["name"]].path for row in rows if row["problem"] is None]
            problems += await _program_problems(gateway, used)
            warnings = _common_patterns(upstreams) if is_whole and not any(reasons) else []
    listed_tools = [tool for one in upstreams for tool in one.listed]
    sizes = _sizes(tool, listed_tools)
    return {"servers": rows, "problems": problems, "warnings": warnings, "given": tool, "sizes": sizes}


def _row_of(upstream: Any, problem: str | None, server: Any) -> dict[str, Any]:
    """Return what is said of one server: ``tools`` are those that programs have, of all that are ``listed``."""
    tools = 0 if server is None else len(server.tools)
    warnings = [
        *upstream.pattern_notes,
        *upstream.notes,
        *(f"in tools/list, {note}" for note in (() if server is None else server.left_out)),
    ]
    if problem is None and upstream.listed and not tools and not upstream.notes:
        problem = (
            f"programs have none of its {counted(len(upstream.listed), 'tool')}: tools.allow and tools.deny leave none"
        )
    row = {"name": upstream.config.name, "tools": tools, "listed": len(upstream.listed)}
    return {**row, "problem": problem, "warnings": warnings}


def _common_patterns(upstreams: Any) -> list[str]:
    """Return what to say of patterns that hold for all servers and match no tool of any."""
    from ..config.patterns import patterns_of, unmatched_notes

    common: dict[str, tuple[str, ...]] = {}
    for upstream in upstreams:
        for key, patterns in patterns_of(upstream.config).items():
            mine = (pattern for pattern in patterns if pattern in upstream.config.common_patterns)
            common[key] = tuple(dict.fromkeys((*common.get(key, ()), *mine)))
    names = {tool.name for upstream in upstreams for tool in upstream.listed}
    return [f"codemode.{note}" for note in unmatched_notes(common, names, " of any server")]


async def _program_problems(gateway: Any, paths: list[str]) -> list[str]:
    """Run a program that imports these servers and calls nothing; return what is wrong with it."""

    async def nobody(_shown: str) -> bool:
        return False

    lines = [f'import * as server{at} from "@codemode/servers/{path}";' for at, path in enumerate(paths)]
    names = ", ".join(f"server{at}" for at in range(len(paths)))
    code = "\n".join([*lines, f"globalThis.__codemode_result__ = [{names}].length;"])
    response = await response_to(gateway, code, nobody, warn)
    errors = [found for found in response.get("diagnostics", []) if found.get("severity") == "error"]
    return [f"a program that imports the servers fails: {error.get('message')}" for error in errors]


async def _store_problems(gateway: Any) -> list[str]:
    from codemode.errors import CodeModeError
    from codemode.stores.records import ALL_TENANTS

    try:
        await gateway.store.list(tenant=ALL_TENANTS, limit=1)
    except (CodeModeError, OSError, ValueError) as error:
        return [f"codemode.store: {error}"]
    return []


def _sign_in_problems(config: GatewayConfig) -> list[str]:
    """Return what the gateway would refuse to serve HTTP with."""
    from ..config.model import ConfigError
    from ..gateway.http_settings import parse_http_settings

    try:
        parse_http_settings(config.settings.auth)
    except ConfigError as error:
        return [str(error)]
    return []


def _sizes(tool: dict[str, Any], listed: list[Any]) -> dict[str, Any]:
    direct = [one.model_dump_json(by_alias=True, exclude_none=True) for one in listed]
    return {
        "given": _size(len(json.dumps(tool, ensure_ascii=False, separators=(",", ":")))),
        "direct": _size(sum(map(len, direct))),
        "tools": len(direct),
    }


def _size(characters: int) -> dict[str, int]:
    return {"characters": characters, "tokens": characters // _CHARACTERS_PER_TOKEN}


def _print(found: dict[str, Any]) -> None:
    tool, sizes = found["given"], found["sizes"]
    print(f"A model is given one tool, {visible(tool['name'])}:\n")
    print(visible(tool.get("description", ""), keep="\n\t"))
    print()
    print("\n".join(aligned(_rows(found))))
    print()
    rows = [
        ("given to a model", _told(sizes["given"])),
        (f"{counted(sizes['tools'], 'tool')} listed directly", _told(sizes["direct"])),
    ]
    print("\n".join(aligned(rows)))
    wrong = sum(one["problem"] is not None for one in found["servers"]) + len(found["problems"])
    doubts = sum(len(one["warnings"]) for one in found["servers"]) + len(found["warnings"])
    said = [f"{counted(wrong, 'problem')} (see FAILED above)"] if wrong else []
    said += [f"{counted(doubts, 'warning')} (see WARNING above)"] if doubts else []
    print(f"\n{' and '.join(said)}." if said else "\nAll is well.")


def _rows(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return a row for each server, its warnings below it, and those about the whole configuration last."""
    rows: list[tuple[str, str, str]] = []
    for one in found["servers"]:
        name = one_line(one["name"], 60)
        if one["problem"] is not None:
            rows.append(("FAILED", name, one_line(one["problem"], _MAX_REASON_CHARACTERS)))
        else:
            rows.append(("ok", name, _tools(one)))
        rows += [("WARNING", name, one_line(text, _MAX_REASON_CHARACTERS)) for text in one["warnings"]]
    rows += [("WARNING", "", one_line(text, _MAX_REASON_CHARACTERS)) for text in found["warnings"]]
    return rows + [("FAILED", "", one_line(text, _MAX_REASON_CHARACTERS)) for text in found["problems"]]


def _tools(one: dict[str, Any]) -> str:
    """Return how many tools programs have, and of how many."""
    more = f" of {one['listed']:,} listed" if one["listed"] != one["tools"] else ""
    return counted(one["tools"], "tool") + more


def _told(size: dict[str, int]) -> str:
    return f"{counted(size['characters'], 'character')}, about {counted(size['tokens'], 'token')}"


def print_types(options: argparse.Namespace) -> int:
    """Print the declarations of all servers, or of one."""
    config = usable(configuration(options))
    name = None if options.name is None else server_named(config, options.name)
    if name is not None:
        config = replace(config, servers=tuple(one for one in config.servers if one.name == name))
    text, failures = asyncio.run(_declared(config, typed(options), name))
    if text:
        print(visible(text, keep="\n\t"))
    for failure in failures:
        warn(failure)
    return FAILED if failures else DONE


async def _declared(config: GatewayConfig, command: str, name: str | None) -> tuple[str, list[str]]:

    known: list[str] = []
    with told_once(known):
        async with opened(config, command) as (_, seat):
            upstreams = seat.connected.upstreams
            reasons = await asyncio.gather(*(listed(one, anew=False) for one in upstreams))
            known += [text for text in (*reasons, *(one.failure for one in upstreams)) if text]
            await seat.run_tool.refresh()
            text = seat.run_tool.declarations(name)
            failures = seat.run_tool.failures
    whys = [why or failures.get(one.server_id) for one, why in zip(upstreams, reasons, strict=True)]
    failed = [(one, why) for one, why in zip(upstreams, whys, strict=True) if why is not None]
    return text, [f"{one.config.name}: {why}" for one, why in failed]


def run_program(options: argparse.Namespace) -> int:
    """Run the program and print the response, all of it."""
    code = program_text(options.program)
    config = usable(configuration(options))
    response = asyncio.run(_response(config, typed(options), code, TerminalApprovals(options.approve)))
    print(visible(json.dumps(response, indent=2, ensure_ascii=False), keep="\n"))
    wrong = [one for one in response.get("diagnostics", []) if one.get("severity") == "error"]
    return FAILED if wrong else DONE


async def _response(config: GatewayConfig, command: str, code: str, approvals: TerminalApprovals) -> dict[str, Any]:

    async def decide(shown: str) -> bool:
        return await approvals.decided(f"\n{visible(shown, keep=chr(10))}") == "approved"

    async def confirm(shown: str) -> bool:
        return await approvals.confirmed(f"\n{visible(shown, keep=chr(10))}", "Open this page? [y/N] ")

    async with opened(config, command) as (gateway, _):
        return await response_to(gateway, code, decide, warn, confirm)
