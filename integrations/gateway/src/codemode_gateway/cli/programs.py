"""Run ``codemode mcp programs``: list, show, disable, enable and confirm saved programs."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

from codemode.cli.exits import FAILED, SUCCEEDED, UsageError
from codemode.execution.program_library import ProgramLibrary, SavedProgram
from codemode.trace.visible_text import align_columns, clip_to_visible_line, escape_invisible, format_count

from .approvals import format_time
from .command_context import (
    get_audit_actor,
    get_typed_command_prefix,
    load_config_with_store,
    open_controlling_terminal,
    print_json,
    run_with_store,
)

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore

    from ..config.model import GatewayConfig

_MAX_DESCRIPTION_CHARACTERS = 60


def run_programs_command(options: argparse.Namespace) -> int:
    """List saved programs, or show, disable, enable or confirm one."""
    config = load_config_with_store(options)
    programs = asyncio.run(run_with_store(config, lambda store: _list_programs(store, options.user)))
    if options.action in (None, "list"):
        return _print_programs(programs, options)
    program = _select_program(programs, options)
    if options.action == "show":
        return _print_program(config, program, options)
    if options.action == "confirm":
        return _ask_and_confirm_program(config, program, options)

    async def enable_or_disable_program(store: InterruptStore) -> None:
        library = ProgramLibrary(store, owner=program.owner)
        await (library.disable if options.action == "disable" else library.enable)(program.name)

    asyncio.run(run_with_store(config, enable_or_disable_program))
    print(f"{options.action}d saved.{program.name} of {escape_invisible(program.owner)}")
    return SUCCEEDED


async def _list_programs(store: InterruptStore, user: str | None) -> list[SavedProgram]:
    return [program for program in await ProgramLibrary.list_all(store) if user in (None, program.owner)]


def _select_program(programs: list[SavedProgram], options: argparse.Namespace) -> SavedProgram:
    matching = [program for program in programs if program.name == options.name]
    if len(matching) > 1:
        users = ", ".join(escape_invisible(program.owner) for program in matching)
        raise UsageError(
            f"several users have a program {escape_invisible(options.name)}: use --user with one of {users}"
        )
    if not matching:
        raise UsageError(
            f"there is no saved program {escape_invisible(options.name)}:"
            f" `{get_typed_command_prefix(options)} programs` lists the saved programs"
        )
    return matching[0]


def _print_programs(programs: list[SavedProgram], options: argparse.Namespace) -> int:
    if options.json:
        print_json({"programs": [program.to_dict() for program in programs]})
        return SUCCEEDED
    if programs:
        rows = [("user", "program", "version", "uses", "state", "description")]
        print("\n".join(align_columns([*rows, *map(_to_program_row, programs)])))
    print(format_count(len(programs), "saved program"))
    return SUCCEEDED


def _to_program_row(program: SavedProgram) -> tuple[str, ...]:
    description = clip_to_visible_line(program.current.description, _MAX_DESCRIPTION_CHARACTERS)
    counts = str(program.current.version), str(program.uses)
    return clip_to_visible_line(program.owner, 40), program.name, *counts, _describe_state(program), description


def _describe_state(program: SavedProgram) -> str:
    return "disabled" if program.is_disabled else "stale" if program.is_stale else "in use"


def _print_program(config: GatewayConfig, program: SavedProgram, options: argparse.Namespace) -> int:
    async def read_versions(store: InterruptStore) -> list[tuple[Any, str]]:
        library = ProgramLibrary(store, owner=program.owner)
        history = await library.history(program.name)
        return [
            (saved_version, await library.difference(program.name, saved_version.version)) for saved_version in history
        ]

    versions = asyncio.run(run_with_store(config, read_versions))
    if options.json:
        version_objects = [
            {**saved_version.to_dict(), "difference": difference} for saved_version, difference in versions
        ]
        print_json({**program.to_dict(), "versions": version_objects})
        return SUCCEEDED
    print(_format_program(program))
    for version, difference in versions:
        print(
            f"\nversion {version.version}, saved by {escape_invisible(version.saved_by)}"
            f" {format_time(version.saved_at_ms)}"
        )
        print(_escape_and_indent(difference or version.program))
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
    return "\n".join(
        [
            *align_columns([(label, escape_invisible(value)) for label, value in rows]),
            _escape_and_indent(current.program),
        ]
    )


def _ask_and_confirm_program(config: GatewayConfig, program: SavedProgram, options: argparse.Namespace) -> int:
    if not program.is_stale:
        print(f"saved.{program.name} is not stale; there is nothing to confirm")
        return SUCCEEDED
    with open_controlling_terminal("`programs confirm`") as terminal:
        terminal.write_line(_format_program(program))
        if not terminal.confirm(f"\nTrust saved.{program.name} as it is now?"):
            terminal.write_line("Nothing was changed.")
            return FAILED

    async def confirm_program(store: InterruptStore) -> None:
        await ProgramLibrary(store, owner=program.owner).confirm(
            program.name, by=get_audit_actor(), shown=program.shown
        )

    asyncio.run(run_with_store(config, confirm_program))
    print(
        f"confirmed saved.{program.name} of {escape_invisible(program.owner)};"
        f" `{get_typed_command_prefix(options)} programs` lists all"
    )
    return SUCCEEDED


def _escape_and_indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in escape_invisible(text, keep="\n").split("\n"))
