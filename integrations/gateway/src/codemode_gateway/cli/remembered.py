"""``codemode mcp approvals remembered`` and ``forget``: the answers of people that always hold, seen and taken back.

Taking one back asks nobody: all that comes of it is that somebody is asked again. The audit tells who has done it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from codemode.cli.databases import require_database
from codemode.cli.exits import DONE, UsageError
from codemode.errors import CodeModeError
from codemode.trace.visible_text import aligned, counted, one_line, visible

from .pending_call_view import shown_time
from .setup import configuration, typed, warn
from .store import actor, with_store

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore

    from ..approvals.remembered import Remembered, RememberedAnswer
    from ..config.values import GatewayConfig

_MAX_NAME_CHARACTERS = 200


def run(options: argparse.Namespace) -> int:
    """List the answers that always hold, or take some back."""
    from ..approvals.remembered import Remembered
    from ..gateway.gateway import Gateway

    config = configuration(options)
    remembered = Remembered(Gateway(config).folder)
    if options.action == "remembered":
        return _list(remembered.always(options.user), as_json=options.json)
    return _forget(remembered, config, options)


def _list(found: Sequence[RememberedAnswer], *, as_json: bool) -> int:
    if as_json:
        # In ASCII: a name may hold what moves the cursor, and other escapes than JSON's would not be read back.
        print(json.dumps({"remembered": [_as_json(one) for one in found]}, indent=2))
        return DONE
    rows = [("principal", "server", "tool", "since")]
    rows += [(_name(one.principal), _name(one.server), _name(one.tool), shown_time(one.at_ms)) for one in found]
    if found:
        print("\n".join(aligned(rows)))
    holds = "holds while its tool stays as it was" if len(found) == 1 else "hold while their tools stay as they were"
    print(f"{counted(len(found), 'answer')} {holds}" if found else "no answer is remembered")
    return DONE


def _as_json(one: RememberedAnswer) -> dict[str, str]:
    return {"principal": one.principal, "server": one.server, "tool": one.tool, "since": shown_time(one.at_ms)}


def _forget(remembered: Remembered, config: GatewayConfig, options: argparse.Namespace) -> int:
    kept = remembered.always()
    meant = [one for one in kept if one.principal == options.user and _is_named(one, options)]
    if not meant:
        raise UsageError(_nothing_of_that_name(kept, options))
    gone = [one for one in meant if remembered.revoke(one.principal, one.server, one.tool)]
    print(f"took back {counted(len(gone), 'answer')} about {_named(options)}: gateways that run ask again")
    _write_down(gone, config, create=options.create)
    return DONE


def _write_down(gone: Sequence[RememberedAnswer], config: GatewayConfig, *, create: bool) -> None:
    """Write into the audit what was taken back: behind it, for a store that is away is to keep nobody from that."""
    from ..approvals.later_calls import note_forgotten

    async def written(store: InterruptStore) -> None:
        for one in gone:
            await note_forgotten(one, store, actor=actor())

    try:
        if config.settings.store is not None:
            require_database(config.settings.store, create=create)
        asyncio.run(with_store(config, written))
    except (CodeModeError, OSError, UsageError, ValueError) as error:
        warn(f"that holds, but no line of it was written into the audit: {error}")


def _is_named(one: RememberedAnswer, options: argparse.Namespace) -> bool:
    """Tell whether it is meant. Names are compared as they are shown: nobody can type what is hidden in one."""
    if visible(one.server) != visible(options.server):
        return False
    return options.tool is None or visible(one.tool) == visible(options.tool)


def _nothing_of_that_name(kept: Sequence[RememberedAnswer], options: argparse.Namespace) -> str:
    said = f"no answer of {_name(options.user)} about {_named(options)} is remembered"
    return f"{said}: `{typed(options)} approvals remembered` lists what is{_suggestion(kept, options)}"


def _suggestion(kept: Sequence[RememberedAnswer], options: argparse.Namespace) -> str:
    """Return what was meant: another user's answer of that name, else a name that is like it."""
    from ..config.mistakes import near

    whose = next((one.principal for one in kept if _is_named(one, options)), None)
    if whose is not None:
        return f"; did you mean --user {_name(whose)}?"
    own = [one for one in kept if one.principal == options.user]
    tools = dict.fromkeys(_name(one.tool) for one in own if visible(one.server) == visible(options.server))
    if tools:
        return near(visible(options.tool or ""), tools)
    return near(visible(options.server), dict.fromkeys(_name(one.server) for one in own))


def _named(options: argparse.Namespace) -> str:
    return _name(options.server if options.tool is None else f"{options.server}.{options.tool}")


def _name(text: str) -> str:
    return one_line(text, _MAX_NAME_CHARACTERS)
