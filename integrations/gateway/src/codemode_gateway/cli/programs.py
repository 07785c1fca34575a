"""``codemode mcp programs``: the programs that users of the gateway have saved, and a person's word about them."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

from codemode.cli.exits import DONE, FAILED, UsageError
from codemode.execution.program_library import ProgramLibrary, SavedProgram
from codemode.trace.visible_text import aligned, counted, one_line, visible

from .approvals import shown_time
from .setup import actor, controlling_terminal, read_store_config, typed, with_store

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore

    from ..config.model import GatewayConfig

_MAX_DESCRIPTION_CHARACTERS = 60


def run(options: argparse.Namespace) -> int:
    """List saved programs, show one, or disable, enable or confirm one."""
    config = read_store_config(options)
    found = asyncio.run(with_store(config, lambda store: _all(store, options.user)))
    if options.action in (None, "list"):
        return _list(found, options)
    program = _named(found, options)
    if options.action == "show":
        return _show(config, program, options)
    if options.action == "confirm":
        return _confirm(config, program, options)

    async def changed(store: InterruptStore) -> None:
        library = ProgramLibrary(store, owner=program.owner)
        await (library.disable if options.action == "disable" else library.enable)(program.name)

    asyncio.run(with_store(config, changed))
    print(f"{options.action}d saved.{program.name} of {visible(program.owner)}")
    return DONE


async def _all(store: InterruptStore, user: str | None) -> list[SavedProgram]:
    return [one for one in await ProgramLibrary.list_all(store) if user in (None, one.owner)]


def _named(found: list[SavedProgram], options: argparse.Namespace) -> SavedProgram:
    meant = [one for one in found if one.name == options.name]
    if len(meant) > 1:
        users = ", ".join(visible(one.owner) for one in meant)
        raise UsageError(f"several users have a program {visible(options.name)}: say --user, one of {users}")
    if not meant:
        raise UsageError(
            f"there is no saved program {visible(options.name)}: `{typed(options)} programs` lists those there are"
        )
    return meant[0]


def _list(found: list[SavedProgram], options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps({"programs": [one.to_dict() for one in found]}, ensure_ascii=False, indent=2))
        return DONE
    if found:
        rows = [("user", "program", "version", "uses", "state", "description")]
        print("\n".join(aligned([*rows, *map(_row, found)])))
    print(counted(len(found), "saved program"))
    return DONE


def _row(program: SavedProgram) -> tuple[str, ...]:
    about = one_line(program.current.description, _MAX_DESCRIPTION_CHARACTERS)
    counts = str(program.current.version), str(program.uses)
    return one_line(program.owner, 40), program.name, *counts, _state(program), about


def _state(program: SavedProgram) -> str:
    return "disabled" if program.is_disabled else "stale" if program.is_stale else "in use"


def _show(config: GatewayConfig, program: SavedProgram, options: argparse.Namespace) -> int:
    async def read(store: InterruptStore) -> list[tuple[Any, str]]:
        library = ProgramLibrary(store, owner=program.owner)
        history = await library.history(program.name)
        return [(one, await library.difference(program.name, one.version)) for one in history]

    versions = asyncio.run(with_store(config, read))
    if options.json:
        told = [{**one.to_dict(), "difference": changed} for one, changed in versions]
        print(json.dumps({**program.to_dict(), "versions": told}, ensure_ascii=False, indent=2))
        return DONE
    print(_card(program))
    for version, changed in versions:
        print(f"\nversion {version.version}, saved by {visible(version.saved_by)} {shown_time(version.saved_at_ms)}")
        print(_indented(changed or version.program))
    return DONE


def _card(program: SavedProgram) -> str:
    current = program.current
    rows = [("program", f"saved.{program.name}"), ("user", program.owner), ("state", _state(program))]
    rows += [("uses", str(program.uses)), ("description", current.description)]
    rows += [("tools", ", ".join(current.tools)) for _ in (1,) if current.tools is not None]
    rows += [
        ("input", json.dumps(current.input_schema, ensure_ascii=False)),
        *(("changed", one) for one in program.changes),
    ]
    return "\n".join([*aligned([(label, visible(value)) for label, value in rows]), _indented(current.program)])


def _confirm(config: GatewayConfig, program: SavedProgram, options: argparse.Namespace) -> int:
    if not program.is_stale:
        print(f"saved.{program.name} is not stale: there is nothing to confirm")
        return DONE
    with controlling_terminal("`programs confirm`") as terminal:
        terminal.say(_card(program))
        if not terminal.agrees(f"\nTrust saved.{program.name} as it is now?"):
            terminal.say("Nothing was changed.")
            return FAILED

    async def confirmed(store: InterruptStore) -> None:
        await ProgramLibrary(store, owner=program.owner).confirm(program.name, by=actor(), shown=program.shown)

    asyncio.run(with_store(config, confirmed))
    print(f"confirmed saved.{program.name} of {visible(program.owner)}; `{typed(options)} programs` lists all")
    return DONE


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in visible(text, keep="\n").split("\n"))
