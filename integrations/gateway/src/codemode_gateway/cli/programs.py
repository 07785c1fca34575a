"""Run ``codemode mcp programs``: list, show, disable, enable and confirm saved programs."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

from codemode.cli.exits import FAILED, SUCCEEDED, UsageError
from codemode.execution.program_library import ProgramLibrary, SavedProgram
from codemode.trace.visible_text import align_columns, format_count, one_line, visible

from .approvals import format_time
from .command_context import (
    get_actor,
    get_command_prefix,
    open_controlling_terminal,
    print_json,
    read_store_config,
    with_store,
)

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore

    from ..config.model import GatewayConfig

_MAX_DESCRIPTION_CHARACTERS = 60


def run(options: argparse.Namespace) -> int:
    """List saved programs, or show, disable, enable or confirm one."""
    config = read_store_config(options)
    programs = asyncio.run(with_store(config, lambda store: _list_programs(store, options.user)))
    if options.action in (None, "list"):
        return _print_list(programs, options)
    program = _select_program(programs, options)
    if options.action == "show":
        return _show(config, program, options)
    if options.action == "confirm":
        return _confirm(config, program, options)

    async def change_state(store: InterruptStore) -> None:
        library = ProgramLibrary(store, owner=program.owner)
        await (library.disable if options.action == "disable" else library.enable)(program.name)

    asyncio.run(with_store(config, change_state))
    print(f"{options.action}d saved.{program.name} of {visible(program.owner)}")
    return SUCCEEDED


async def _list_programs(store: InterruptStore, user: str | None) -> list[SavedProgram]:
    return [program for program in await ProgramLibrary.list_all(store) if user in (None, program.owner)]


def _select_program(programs: list[SavedProgram], options: argparse.Namespace) -> SavedProgram:
    matching = [program for program in programs if program.name == options.name]
    if len(matching) > 1:
        users = ", ".join(visible(program.owner) for program in matching)
        raise UsageError(f"several users have a program {visible(options.name)}: use --user with one of {users}")
    if not matching:
        raise UsageError(
            f"there is no saved program {visible(options.name)}:"
            f" `{get_command_prefix(options)} programs` lists the saved programs"
        )
    return matching[0]


def _print_list(programs: list[SavedProgram], options: argparse.Namespace) -> int:
    if options.json:
        print_json({"programs": [program.to_dict() for program in programs]})
        return SUCCEEDED
    if programs:
        rows = [("user", "program", "version", "uses", "state", "description")]
        print("\n".join(align_columns([*rows, *map(_to_row, programs)])))
    print(format_count(len(programs), "saved program"))
    return SUCCEEDED


def _to_row(program: SavedProgram) -> tuple[str, ...]:
    description = one_line(program.current.description, _MAX_DESCRIPTION_CHARACTERS)
    counts = str(program.current.version), str(program.uses)
    return one_line(program.owner, 40), program.name, *counts, _describe_state(program), description


def _describe_state(program: SavedProgram) -> str:
    return "disabled" if program.is_disabled else "stale" if program.is_stale else "in use"


def _show(config: GatewayConfig, program: SavedProgram, options: argparse.Namespace) -> int:
    async def read(store: InterruptStore) -> list[tuple[Any, str]]:
        library = ProgramLibrary(store, owner=program.owner)
        history = await library.history(program.name)
        return [
            (saved_version, await library.difference(program.name, saved_version.version)) for saved_version in history
        ]

    versions = asyncio.run(with_store(config, read))
    if options.json:
        version_objects = [
            {**saved_version.to_dict(), "difference": difference} for saved_version, difference in versions
        ]
        print_json({**program.to_dict(), "versions": version_objects})
        return SUCCEEDED
    print(_format_program(program))
    for version, difference in versions:
        print(f"\nversion {version.version}, saved by {visible(version.saved_by)} {format_time(version.saved_at_ms)}")
        print(_indent(difference or version.program))
    return SUCCEEDED


def _format_program(program: SavedProgram) -> str:
    current = program.current
    rows = [("program", f"saved.{program.name}"), ("user", program.owner), ("state", _describe_state(program))]
    rows += [("uses", str(program.uses)), ("description", current.description)]
    rows += [("tools", ", ".join(current.tools)) for _ in (1,) if current.tools is not None]
    rows += [
        ("input", json.dumps(current.input_schema, ensure_ascii=False)),
        *(("changed", change) for change in program.changes),
    ]
    return "\n".join([*align_columns([(label, visible(value)) for label, value in rows]), _indent(current.program)])


def _confirm(config: GatewayConfig, program: SavedProgram, options: argparse.Namespace) -> int:
    if not program.is_stale:
        print(f"saved.{program.name} is not stale; there is nothing to confirm")
        return SUCCEEDED
    with open_controlling_terminal("`programs confirm`") as terminal:
        terminal.write_line(_format_program(program))
        if not terminal.confirm(f"\nTrust saved.{program.name} as it is now?"):
            terminal.write_line("Nothing was changed.")
            return FAILED

    async def confirm(store: InterruptStore) -> None:
        await ProgramLibrary(store, owner=program.owner).confirm(program.name, by=get_actor(), shown=program.shown)

    asyncio.run(with_store(config, confirm))
    print(
        f"confirmed saved.{program.name} of {visible(program.owner)};"
        f" `{get_command_prefix(options)} programs` lists all"
    )
    return SUCCEEDED


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in visible(text, keep="\n").split("\n"))
