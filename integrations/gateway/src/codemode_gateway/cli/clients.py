"""``codemode mcp import``, ``install`` and ``undo``: what a client has, taken over and given back."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from codemode.cli.exits import DONE, UsageError
from codemode.trace.visible_text import counted, visible

from .setup import config_path, warn

if TYPE_CHECKING:
    from ..client_configs.changes import Change


def run(options: argparse.Namespace) -> int:
    """Take over, put in place, or undo."""
    if options.part == "import":
        return _import(options)
    if options.part == "undo" or options.undo:
        return _undo(options)
    return _install(options)


def _import(options: argparse.Namespace) -> int:
    from ..client_configs.config_texts import initial, with_inputs, with_servers
    from ..client_configs.importing import imported
    from ..client_configs.machines import Machine
    from ..client_configs.machines import found as files_of
    from ..client_configs.texts import FileText

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
    from ..client_configs.undoing import undone

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
